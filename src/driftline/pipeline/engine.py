"""Where the stages of a run work: this machine, or one Spark session that is opened when it is first needed."""

from __future__ import annotations

import contextlib
import threading
from contextlib import ExitStack
from typing import Any

from driftline.core._engines import check_engine, choose_engine
from driftline.tables._engines import DiffJob, default_limit
from driftline.tables._engines import choose_engine as choose_table_engine

_SPARK = "spark"


class RunEngine:
    """The engine of one run; its session is shared by all stages and ends with the run."""

    def __init__(self, wanted: str, master: str | None, *, memory: int | None, parallel: int) -> None:
        check_engine(wanted, master)
        self.wanted = _SPARK if master is not None and wanted == "auto" else wanted
        self.master = master
        self.memory = memory or default_limit() // parallel  # stages that run side by side share the machine
        self.parallel = parallel
        self.input_bytes = 0
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._session: Any = None
        self.used: set[str] = set()

    def choose(self, job: DiffJob) -> str:
        """The engine for a table diff; a Spark session is up when it says so."""
        name = choose_table_engine(self.wanted, job).name
        self.used.add(name)
        if name == _SPARK:
            self.session()
        return name

    @property
    def is_spark(self) -> bool:
        """Whether folds and batches run on Spark: asked for, configured, already in use in this run, or large."""
        if self.wanted == "auto" and self._session is not None:
            return True
        return choose_engine("lake", self.wanted, size=lambda: self.input_bytes, master=self.master).name == _SPARK

    def session(self) -> Any:
        """The one Spark session of the run."""
        from driftline.spark._runtime.session import open_session

        with self._lock:
            if self._session is None:
                self.used.add(_SPARK)
                self._session = self._stack.enter_context(open_session(self.master, app_name="driftline pipeline"))
            return self._session

    def abandon(self, wish: BaseException) -> None:
        """Whoever stops the run wants out now: a session of our own ends with the tasks that still run in it."""
        with contextlib.suppress(type(wish)):
            self._stack.__exit__(type(wish), wish, None)

    def close(self) -> None:
        """End the session, if there is one."""
        self._stack.close()
        self._session = None

    def __str__(self) -> str:
        return "+".join(sorted(self.used)) or self.wanted

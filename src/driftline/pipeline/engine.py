"""Where the stages of a run work: this machine, or one Spark session that is opened when it is first needed."""

from __future__ import annotations

import contextlib
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.engine_choice import configured_master
from driftline.sources.workspace import Workspace
from driftline.tables.engines import DiffJob, choose_engine
from driftline.tables.memory import default_limit

if TYPE_CHECKING:
    from driftline.tables.print_shelf import PrintShelf

LONG_RUN_BYTES = 32 << 30  # the JVM only moves blobs: below this, code compiled once and quickly wins

SHARED_FOLDER_VARIABLE = "DRIFTLINE_SHARED_DIR"
_SPARK = "spark"
# Order comes from explicit range ids, so plans stay as they were made.
_SESSION_CONFIG = {
    "spark.sql.adaptive.enabled": "false",
    # Few rows with large blobs: compiling code for them takes longer than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_LOCAL_CONFIG = {"spark.shuffle.compress": "false"}  # blobs are compact already, and no network is spared


class RunEngine:
    """The engine of one run; its session is shared by all stages and ends with the run."""

    def __init__(self, wanted: str, master: str | None, *, memory: int | None, parallel: int) -> None:
        self.wanted = _SPARK if master is not None and wanted == "auto" else wanted
        self.master = master
        self.memory = memory or default_limit() // parallel  # stages that run side by side share the machine
        self.parallel = parallel
        self.input_bytes = 0
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._session: Any = None
        self._shelves: dict[str, PrintShelf] = {}
        self.used: set[str] = set()

    def choose(self, job: DiffJob) -> str:
        """The engine for a table diff; a Spark session is up when it says so."""
        name, _ = choose_engine(self.wanted, job)
        self.used.add(name)
        if name == _SPARK:
            self.session()
        return name

    @property
    def is_spark(self) -> bool:
        """Whether folds and batches run on Spark: asked for, configured, or already in use in this run."""
        if self.wanted == "auto":
            return configured_master() is not None or self._session is not None
        return self.wanted == _SPARK

    def session(self) -> Any:
        """The one Spark session of the run."""
        from driftline.spark.runtime.masters import chosen_master, is_local
        from driftline.spark.runtime.session import open_session

        with self._lock:
            if self._session is None:
                self.used.add(_SPARK)
                self._session = self._stack.enter_context(
                    open_session(
                        self.master,
                        app_name="driftline pipeline",
                        short_job=self.input_bytes < LONG_RUN_BYTES,
                        config=_SESSION_CONFIG | (_LOCAL_CONFIG if is_local(chosen_master(self.master)) else {}),
                    )
                )
            return self._session

    def shelf(self, table: str, files: frozenset[str], scratch: Path) -> PrintShelf | None:
        """Where the comparisons of a table leave what they parsed for each other; None if they share no files."""
        if not files:
            return None
        from driftline.tables.print_shelf import PrintShelf

        with self._lock:
            if table not in self._shelves:
                scratch.mkdir(parents=True, exist_ok=True)
                parent = os.environ.get(SHARED_FOLDER_VARIABLE) or str(scratch.resolve())
                workspace = self._stack.enter_context(Workspace(parent))
                self._shelves[table] = PrintShelf(str(workspace.folder), files)
            return self._shelves[table]

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

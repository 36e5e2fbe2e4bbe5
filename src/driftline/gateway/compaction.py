"""Compaction by itself: tables in which enough waits are folded, in a process that gives way to everything else."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

from driftline.errors import DriftlineError
from driftline.gateway.piped import PipedProcess

# A scheduler of folds, for as long as the context lasts (the command line gives one that opens a Spark session).
OpenEngine = Callable[[], AbstractContextManager[Any]]

_FURTHER_NICENESS = 5  # ten in all
_logger = logging.getLogger("driftline.gateway")


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """When a table is compacted: so many deltas, so many bytes, or one that has waited so long."""

    deltas: int = 50_000
    size: int = 64 << 20
    seconds: float = 300.0
    open_engine: OpenEngine | None = None  # where folds run; None: on threads of the compacting process


class Compactor:
    """A thread that has tables compacted as they become due, one after the other."""

    def __init__(self, lake: str, open_engine: OpenEngine | None, done: Callable[[str], None]) -> None:
        self._process = PipedProcess("compaction", _compaction_desk, lake, open_engine)
        self._done = done
        self._due: list[str] = []
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        self._thread.start()

    def take(self, tables: Sequence[str]) -> None:
        """Have tables compacted that are due."""
        with self._changed:
            self._due += [table for table in tables if table not in self._due]
            self._changed.notify()

    def close(self) -> None:
        """End the process, also in the middle: what it has not committed is nobody's."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._process.kill()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._closing)
                if self._closing:
                    return
                table = self._due[0]
            try:
                self._process.ask("compact", table)
                self._done(table)
            except DriftlineError as error:
                if not self._closing:
                    fields = {"table": table, "code": error.code, "error": error.message}
                    _logger.warning("compaction", extra={"fields": fields})
            with self._changed:  # a table that is still due is named again with the next flush
                self._due.remove(table)


def due_tables(lake: Any, settings: CompactionSettings | None) -> list[str]:
    """The tables in which enough waits to be folded."""
    from driftline.lake._fold.maintain import CompactionPolicy, backlog_of

    if settings is None:
        return []
    policy = CompactionPolicy(settings.deltas, settings.size, settings.seconds)
    return [table for table in lake.tables() if policy.is_due(backlog_of(lake, table))]


def _compaction_desk(lake: str, open_engine: OpenEngine | None) -> tuple[_CompactionDesk, Callable[[], None]]:
    os.nice(_FURTHER_NICENESS)
    desk = _CompactionDesk(lake, open_engine)
    return desk, desk.close


class _CompactionDesk:
    """Compacts one table at a time; an engine is opened with the first of them and kept."""

    def __init__(self, lake: str, open_engine: OpenEngine | None) -> None:
        from driftline.lake._store.lake import Lake

        self._lake = Lake(lake)
        self._open_engine = open_engine
        self._open = ExitStack()
        self._way: dict[str, Any] | None = None

    def compact(self, table: str) -> None:
        from driftline.lake._fold.compact import compact

        if self._way is None:
            opened = None if self._open_engine is None else self._open.enter_context(self._open_engine())
            self._way = {} if opened is None else {"engine": opened}
        compact(self._lake, table, **self._way)

    def close(self) -> None:
        self._open.close()

"""Flush: what the log has and the lake has not, in the background, exactly once.

Before anything is written the end of the range is noted in the log. A process that dies on the way finds the same
range again, and the store refuses a range that it has: files without a commit are nobody's, a commit is never made
twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from driftline.deltas import RowDelta, TableSchema
from driftline.errors import DriftlineError
from driftline.gateway.log import DeltaLog, read_all
from driftline.gateway.push import stored_delta

MAX_RANGE = 20_000  # deltas of one round, which is what is held in memory


class DeltaStore(Protocol):
    """Where deltas are kept for ever: it must notice a sequence of this gateway that it already has."""

    def register(self, schema: TableSchema) -> None:
        """Take a table's new schema, or refuse it."""

    def append(self, table: str, deltas: Sequence[RowDelta], *, gateway: str, sequence: int) -> None:
        """Add deltas of one table once, however often it is called with this sequence."""


@dataclass(slots=True)
class FlushReport:
    """How many deltas went out, by table."""

    tables: dict[str, int] = field(default_factory=dict)

    @property
    def deltas(self) -> int:
        """All of them."""
        return sum(self.tables.values())


class Flusher:
    """Moves the log's tail to the store, one process at a time."""

    def __init__(self, log: DeltaLog, store: DeltaStore, gateway: str) -> None:
        self._log = log
        self._store = store
        self._gateway = gateway

    def flush(self, *, wait: bool = True) -> FlushReport:
        """Flush everything that has arrived by now; without `wait` nothing happens while another process flushes."""
        report = FlushReport()
        with self._log.flush_lock(wait=wait) as alone:
            wanted = self._log.bounds().last
            while alone and self._log.marks().flushed < wanted:
                self._flush_range(report)
        return report

    def _flush_range(self, report: FlushReport) -> None:
        marks = self._log.marks()
        done, target = marks.flushed, marks.flushing
        if target <= done:
            target = min(self._log.bounds().last, done + MAX_RANGE)
            self._log.note_flushing(target)
        for table, deltas in self._by_table(done, target).items():
            self._store.append(table, deltas, gateway=self._gateway, sequence=target)
            report.tables[table] = report.tables.get(table, 0) + len(deltas)
        self._log.note_flushed(target)

    def _by_table(self, done: int, target: int) -> dict[str, list[RowDelta]]:
        found: dict[str, list[RowDelta]] = {}
        for record in read_all(self._log, done, target):
            delta = stored_delta(record.body)
            found.setdefault(delta.table, []).append(delta)
        return found


class FlushTimer:
    """A thread that flushes when enough has gathered or the oldest delta has waited long enough."""

    def __init__(
        self,
        log: DeltaLog,
        flush: Callable[[], FlushReport],
        *,
        max_bytes: int,
        max_seconds: float,
        done: Callable[[FlushReport], None],
        failed: Callable[[DriftlineError], None],
        tick: float = 1.0,
    ) -> None:
        self._log = log
        self._flush = flush
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._done = done
        self._failed = failed
        self._tick = tick
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flush", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, after the flush it may be at."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause = self._tick
        while not self._stop.wait(pause):
            try:
                if self._is_due():
                    self._done(self._flush())
                pause = self._tick
            except DriftlineError as error:
                self._failed(error)
                pause = min(pause * 2, 60.0)

    def _is_due(self) -> bool:
        waiting = self._log.waiting()
        if waiting.since_ms is None:
            return False
        age = time.time() - waiting.since_ms / 1000
        return age >= self._max_seconds or waiting.size >= self._max_bytes

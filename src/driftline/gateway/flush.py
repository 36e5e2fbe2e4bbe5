"""Flush: what the log has and the lake has not, in the background, exactly once.

Before anything is written the end of the range is noted in the log. A process that dies on the way finds the same
range again, and the lake refuses a range that it has: files without a commit are nobody's, a commit is never made
twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from driftline.deltas import RowDelta
from driftline.errors import DriftlineError, LakeError
from driftline.gateway.claiming import LakeTie
from driftline.gateway.configuration import close_gateway
from driftline.gateway.log import DeltaLog, read_all
from driftline.gateway.push import stored_delta

if TYPE_CHECKING:
    from driftline.lake._store.flush import FlushResult

MAX_RANGE = 20_000  # deltas of one round, which is what is held in memory

_TRIES = 5


@dataclass(slots=True)
class FlushReport:
    """What a flush did: deltas that went out by table, and those that did not go the usual way."""

    tables: dict[str, int] = field(default_factory=dict)
    known: int = 0  # the lake had them already
    waiting: int = 0  # no schema takes them
    set_aside: int = 0  # they came below the lake's retention horizon
    notices: list[str] = field(default_factory=list)  # what an operator should know
    due: list[str] = field(default_factory=list)  # tables that should be compacted

    @property
    def deltas(self) -> int:
        """Deltas that went out."""
        return sum(self.tables.values())

    def add(self, result: FlushResult) -> None:
        """Count one table's part of a range."""
        self.tables[result.table] = self.tables.get(result.table, 0) + result.deltas
        self.known += result.known
        self.waiting += result.waiting
        self.set_aside += result.set_aside


class Flusher:
    """Moves the log's tail to the lake, one process at a time."""

    def __init__(self, tie: LakeTie) -> None:
        self._tie = tie
        self._log = tie.log
        self._untold: list[str] = []  # notices of looks whose flush failed afterwards

    def flush(self, *, wait: bool = True) -> FlushReport:
        """Flush everything that has arrived by now; without `wait` nothing happens while another process flushes."""
        report = FlushReport()
        with self._log.flush_lock(wait=wait) as alone:
            wanted = self._log.bounds().last
            while alone and self._log.flush_progress().flushed < wanted:
                self._look()
                self._flush_range(report)
        return self._told(report)

    def look(self) -> FlushReport:
        """See how log and lake stand to each other."""
        report = FlushReport()
        with self._log.flush_lock(wait=True):
            self._look()
        return self._told(report)

    def _told(self, report: FlushReport) -> FlushReport:
        report.notices, self._untold = self._untold, []
        return report

    def _look(self) -> None:
        try:
            standing = self._tie.look()
        except DriftlineError as error:
            if error.code == "other_log":
                close_gateway(self._log, error.message)
            raise
        # A log that was replaced takes no more, but what it acknowledged still goes out.
        close_gateway(self._log, standing.closed)
        if standing.set_back is not None:
            self._untold.append(standing.set_back)

    def _flush_range(self, report: FlushReport) -> None:
        for _ in range(_TRIES):
            try:
                return self._try_range(report)
            except LakeError as error:
                if error.code != "log_set_back":
                    raise
                self._look()  # a copy of this log has flushed in between
        raise LakeError("copies of this log keep flushing into the lake", code="commit_conflict")

    def _try_range(self, report: FlushReport) -> None:
        from driftline.lake._store.flush import LogRange

        progress, identity = self._log.flush_progress(), self._log.identity()
        done, target = progress.flushed, progress.flushing
        if target <= done:
            target = min(self._log.bounds().last, done + MAX_RANGE)
            self._log.note_flushing(target)
        arrival = self._log.arrival_at(target) or 0
        log_range = LogRange(self._tie.gateway, identity.log_id, target, arrival)
        by_table = self._by_table(done, target)
        results = [self._tie.store.append(table, deltas, log_range) for table, deltas in by_table.items()]
        self._log.note_flushed(target)
        for result in results:
            report.add(result)
        # Where the lake knew every delta of a table without a schema, nothing was written that names this log.
        if any(result.format != "json" or result.waiting for result in results):
            self._tie.note_committed(identity.log_id, target)

    def _by_table(self, done: int, target: int) -> dict[str, list[RowDelta]]:
        found: dict[str, list[RowDelta]] = {}
        for record in read_all(self._log, done, target):
            if not record.is_foreign:
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

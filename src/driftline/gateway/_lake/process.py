"""The work on the lake, in dedicated processes: Parquet, folds and JSON never delay a response.

One process flushes, registers schemas and refreshes the copy of the lake's facts; killed in the middle, it leaves a
range that the next one finishes. Two others fold and serve snapshots, one more compacts tables.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from driftline.core import block_pandas
from driftline.deltas import TableSchema, physical_ms
from driftline.errors import DriftlineError, GatewayError, LakeError
from driftline.gateway._lake import flush as flushing
from driftline.gateway._lake.snapshot import Request, Snapshots
from driftline.gateway._log.log import UNSEEDED, unavailable
from driftline.gateway._settings import CompactionSettings, GatewaySettings

REFRESHED = "refreshed"  # document: when the copy of the lake's facts was refreshed, in milliseconds
SNAPSHOTS_AT_ONCE = 2
SNAPSHOT_WAIT_SECONDS = 10.0  # how long a request waits for an idle process

_NICENESS = 5  # pushes have priority
_COMPACTION_NICENESS = 5  # on top of it
_END_SECONDS = 1.0
_FOLD_SECONDS, _PAGE_SECONDS = 300.0, 30.0
_CUT_SECONDS = 600.0  # between two looks for old entries of Delta logs
_logger = logging.getLogger("driftline.gateway")

MakeDesk = Callable[..., Any]  # makes, inside the process, the object whose methods are called, at the end `close`


class PipedProcess:
    """Calls methods of an object in another process, which the first call starts and the server's end stops."""

    def __init__(self, name: str, make_desk: MakeDesk, *arguments: Any) -> None:
        self._name = name
        self._arguments = (make_desk, *arguments)
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, question: str, *details: Any, seconds: float | None = None) -> Any:
        """The result of the method `question`; one call at a time."""
        with self._lock:
            try:
                pipe = self._connected()
                pipe.send((question, *details))
                if not pipe.poll(seconds):
                    message = f"the {self._name} process takes longer than {seconds:g} s"
                    raise LakeError(f"{message}; the next start goes on with it", code="deadline", seconds=seconds)
                answer = pipe.recv()
            except (EOFError, OSError) as error:
                self._drop()
                message = f"the {self._name} process ended before its work was done; it will be tried again"
                raise LakeError(message) from error
        if isinstance(answer, DriftlineError):
            raise answer
        return answer

    def close(self) -> None:
        """Stop the process, after the call it may be in."""
        with self._lock:
            self._drop()

    def kill(self) -> None:
        """Kill the process, also inside a call, which then raises."""
        process = self._process
        if process is not None:
            process.kill()
        self.close()

    def _connected(self) -> Connection:
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            arguments = (theirs, *self._arguments)
            self._process = context.Process(target=_serve, args=arguments, name=self._name, daemon=True)
            self._process.start()
            theirs.close()
        return self._pipe

    def _drop(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.join(_END_SECONDS)
            self._process.kill()
            self._process.join()
        self._pipe = self._process = None


def _serve(pipe: Connection, make_desk: MakeDesk, *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the server
    os.nice(_NICENESS)
    block_pandas()
    desk = make_desk(*arguments)
    with contextlib.suppress(EOFError, OSError):  # the server has stopped
        while True:
            question, *details = pipe.recv()
            try:
                answer: Any = getattr(desk, question)(*details)
            except DriftlineError as error:
                answer = error
            except Exception as error:  # noqa: BLE001 - the caller gets it, and the next call is served
                answer = LakeError(f"{type(error).__name__}: {error}", code="INTERNAL_ERROR")
            pipe.send(answer)
    desk.close()


class Compactor:
    """A thread that compacts due tables in a process, one after the other."""

    def __init__(self, lake: str, settings: CompactionSettings, done: Callable[[str, str | None], None]) -> None:
        self._process = PipedProcess("compaction", _CompactionDesk, lake, settings)
        self._done = done
        self._due: list[str] = []
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
        self._thread.start()

    def take(self, tables: Sequence[str]) -> None:
        """Add tables that are due."""
        with self._changed:
            self._due += [table for table in tables if table not in self._due]
            self._changed.notify()

    def close(self) -> None:
        """Kill the process, also in the middle: uncommitted files are never read."""
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
                self._done(table, self._process.ask("compact", table))
            except DriftlineError as error:
                if not self._closing:
                    fields = {"table": table, "code": error.code, "error": error.message}
                    _logger.warning("compaction", extra={"fields": fields})
            with self._changed:  # a table that is still due is named again with the next flush
                self._due.remove(table)


class _CompactionDesk:
    """Compacts one table at a time; the first one opens the engine for all."""

    def __init__(self, lake: str, settings: CompactionSettings) -> None:
        from driftline.lake import Lake

        os.nice(_COMPACTION_NICENESS)
        self._lake = Lake(lake)
        self._settings = settings
        self._open = ExitStack()
        self._options: dict[str, Any] | None = None

    def compact(self, table: str) -> str | None:
        from driftline.lake import compact

        if self._options is None:
            engine = self._settings.open_engine
            self._options = {} if engine is None else {"engine": self._open.enter_context(engine())}
        return compact(self._lake, table, feed=self._settings.feed, **self._options).notice

    def close(self) -> None:
        self._open.close()


class SnapshotProcesses:
    """The processes that fold snapshots and cut pages; a request beyond their number is refused for now."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._processes = [PipedProcess("snapshot", _snapshots, settings) for _ in range(SNAPSHOTS_AT_ONCE)]
        self._idle = deque(self._processes)

    def page(self, request: Request) -> bytes:
        """One page of a snapshot."""
        try:
            process = self._idle.popleft()
        except IndexError as error:
            raise snapshots_busy() from error
        try:
            token = process.ask("prepare", request, seconds=_FOLD_SECONDS)
            return bytes(process.ask("page", replace(request, page=token), seconds=_PAGE_SECONDS))
        except LakeError as error:
            if error.code != "deadline":
                raise
            process.kill()  # the next request starts it anew
            message = f"the snapshot takes longer than {error.seconds:g} s"
            raise unavailable(message, "snapshot_deadline", retry_after=60) from error
        finally:
            self._idle.append(process)

    def close(self) -> None:
        """Stop the processes."""
        for process in self._processes:
            process.close()


def _snapshots(settings: GatewaySettings) -> Snapshots:
    from driftline.lake import FlushTarget

    folder = settings.data / "snapshots"
    return Snapshots(settings.open_log(), FlushTarget(settings.lake_location), folder, settings.snapshot_bytes)


def snapshots_busy() -> GatewayError:
    """The error of a request for which no process is idle."""
    return unavailable(f"{SNAPSHOTS_AT_ONCE} snapshots are being read already", "snapshots", retry_after=1)


class LakeDesk:
    """The work on a log and its lake, inside the process."""

    def __init__(self, settings: GatewaySettings) -> None:
        from driftline.lake import FlushTarget

        self._log = settings.open_log()
        self._store = FlushTarget(settings.lake_location)
        self._compaction = settings.compaction
        self._history_days, self._cut_at = settings.history_days, 0.0
        tie = flushing.LakeTie(self._log, self._store, settings.gateway, settings.run, settings.adopt_lake)
        self._flusher = flushing.Flusher(tie)

    def start(self) -> flushing.FlushReport:
        """Check the tie of log and lake, and copy the lake's schemas and horizons."""
        report = self._flusher.look()
        flushing.copy_facts(self._log, self._store)
        return report

    def flush(self, wait: bool = True) -> flushing.FlushReport:
        """Flush everything that has arrived by now; without `wait` nothing happens while another server flushes."""
        report = self._flusher.flush(wait=wait)
        report.due = self._due_tables() if report.deltas else []
        return report

    def register(self, schema: TableSchema) -> None:
        """Register a table's schema in the lake, then in the copy."""
        self._store.register(schema)
        flushing.note_registered(self._log, schema)

    def refresh(self) -> flushing.FlushReport:
        """Refresh the copy of schemas and horizons, import deltas of other writers, and cut old logs."""
        from driftline.lake import cut_logs

        with self._log.flush_lock(wait=False) as alone:
            if not alone:
                return flushing.FlushReport()
            self._log.change_document(REFRESHED, lambda _: str(physical_ms()).encode())
            flushing.copy_facts(self._log, self._store)
            imported, refused, is_complete = flushing.import_foreign(self._log, self._store)
            if is_complete and self._log.document(UNSEEDED) is not None:
                flushing.seed_rows(self._log, self._store)
            if self._history_days is not None and time.monotonic() >= self._cut_at:
                for table in self._store.tables():
                    cut_logs(self._store.lake, table, self._history_days)
                self._cut_at = time.monotonic() + _CUT_SECONDS
            return flushing.FlushReport(imported=imported, due=self._due_tables(), notices=refused)

    def _due_tables(self) -> list[str]:
        """The tables with enough pending deltas to compact."""
        from driftline.lake import CompactionPolicy, backlog_of

        if self._compaction is None:
            return []
        policy = CompactionPolicy(self._compaction.deltas, self._compaction.size, self._compaction.seconds)
        return [table for table in self._store.tables() if policy.is_due(backlog_of(self._store.lake, table))]

    def close(self) -> None:
        """Close the log."""
        self._log.close()

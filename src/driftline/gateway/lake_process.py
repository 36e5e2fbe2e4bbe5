"""The lake's work in a process of its own: encoding Parquet and JSON never holds up an answer.

The process is started by the first question and speaks over a pipe. It ends with its server; killed in the middle, it
leaves a range that the next one finishes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from driftline.deltas import TableSchema
from driftline.deltas.clock import physical_ms
from driftline.errors import DriftlineError, LakeError
from driftline.gateway.claiming import LakeTie
from driftline.gateway.configuration import copy_facts, note_registered
from driftline.gateway.flush import Flusher, FlushReport
from driftline.gateway.importing import import_foreign
from driftline.gateway.lake_store import LakeStore
from driftline.gateway.sqlite_log import SqliteLog

LOG_FILE = "log.sqlite"
REFRESHED = "refreshed"  # document: when the copy of the lake's facts was renewed, in milliseconds

_NICENESS = 5  # pushes come first
_END_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LakeWork:
    """What the process works on; `run` names the start of the server, see `LakeTie`."""

    data: Path
    lake: str
    gateway: str
    run: str
    adopt: bool = False


class LakeProcess:
    """The lake behind a pipe, one conversation at a time."""

    def __init__(self, work: LakeWork) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def start(self) -> FlushReport:
        """See how log and lake stand to each other, and learn the lake's schemas and horizons."""
        return self._report("start")

    def flush(self, *, wait: bool = True, seconds: float | None = None) -> FlushReport:
        """Flush everything that has arrived by now; without `wait` nothing happens while another server flushes."""
        return self._report("flush", wait, seconds=seconds)

    def register(self, schema: TableSchema) -> None:
        """Give the lake a table's schema, then the copy."""
        self._ask("register", schema)

    def refresh(self) -> int:
        """Renew the copy of schemas and horizons and take in what others brought; how many deltas that was."""
        return int(self._ask("refresh"))

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._drop()

    def _report(self, *question: Any, seconds: float | None = None) -> FlushReport:
        report = self._ask(*question, seconds=seconds)
        assert isinstance(report, FlushReport)
        return report

    def _ask(self, *question: Any, seconds: float | None = None) -> Any:
        with self._lock:
            try:
                pipe = self._connected()
                pipe.send(question)
                if not pipe.poll(seconds):
                    raise LakeError("the flush takes longer than there is time; the next start goes on with it")
                answer = pipe.recv()
            except (EOFError, OSError) as error:
                self._drop()
                raise LakeError("the lake's process ended before its work was done; it will be tried again") from error
        if isinstance(answer, DriftlineError):
            raise answer
        return answer

    def _connected(self) -> Connection:
        if self._pipe is None:
            self._pipe, theirs = multiprocessing.get_context("spawn").Pipe()
            process = multiprocessing.get_context("spawn").Process(
                target=_serve, args=(theirs, self._work), name="lake", daemon=True
            )
            process.start()
            theirs.close()
            self._process = process
        return self._pipe

    def _drop(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.join(_END_SECONDS)
            self._process.kill()
            self._process.join()
        self._pipe = self._process = None


def _serve(pipe: Connection, work: LakeWork) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to hear
    os.nice(_NICENESS)
    log = SqliteLog(work.data / LOG_FILE)
    desk = _Desk(LakeTie(log, LakeStore(work.lake), work.gateway, work.run, work.adopt))
    with contextlib.suppress(EOFError, OSError):  # the server has gone
        while True:
            question, *details = pipe.recv()
            try:
                answer: Any = getattr(desk, question)(*details)
            except DriftlineError as error:
                answer = error
            pipe.send(answer)
    log.close()


class _Desk:
    """Answers the questions of `LakeProcess`, each by the method of its name."""

    def __init__(self, tie: LakeTie) -> None:
        self._tie = tie
        self._flusher = Flusher(tie)

    def start(self) -> FlushReport:
        report = self._flusher.look()
        copy_facts(self._tie.log, self._tie.store.facts())
        return report

    def flush(self, wait: bool) -> FlushReport:
        return self._flusher.flush(wait=wait)

    def register(self, schema: TableSchema) -> None:
        self._tie.store.register(schema)
        note_registered(self._tie.log, schema)

    def refresh(self) -> int:
        log = self._tie.log
        with log.flush_lock(wait=False) as alone:
            if not alone:
                return 0
            log.change_document(REFRESHED, lambda _: str(physical_ms()).encode())
            copy_facts(log, self._tie.store.facts())
            return import_foreign(log, self._tie.store)

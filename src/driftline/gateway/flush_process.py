"""Flushing in a process of its own: encoding Parquet and JSON never holds up an answer.

The process is started by the first flush and speaks over a pipe. It ends with its server; killed in the middle, it
leaves a range that the next one finishes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from driftline.errors import DriftlineError, LakeError
from driftline.gateway.flush import Flusher, FlushReport
from driftline.gateway.lake_store import LakeStore
from driftline.gateway.sqlite_log import SqliteLog

LOG_FILE = "log.sqlite"

_NICENESS = 5  # pushes come first
_END_SECONDS = 1.0


class FlushProcess:
    """A flusher behind a pipe, one conversation at a time."""

    def __init__(self, data: Path, lake: str, gateway: str) -> None:
        self._arguments = (data, lake, gateway)
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def flush(self, *, wait: bool = True, seconds: float | None = None) -> FlushReport:
        """Flush everything that has arrived by now; without `wait` nothing happens while another server flushes."""
        report = self._ask("flush", wait, seconds=seconds)
        assert isinstance(report, FlushReport)
        return report

    def horizons(self) -> dict[str, int]:
        """By table, the hlc below which the lake takes no deltas any more."""
        found = self._ask("horizons")
        assert isinstance(found, dict)
        return found

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._drop()

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
                raise LakeError("the flush process ended before its work was done; it will be tried again") from error
        if isinstance(answer, DriftlineError):
            raise answer
        return answer

    def _connected(self) -> Connection:
        if self._pipe is None:
            self._pipe, theirs = multiprocessing.get_context("spawn").Pipe()
            process = multiprocessing.get_context("spawn").Process(
                target=_serve, args=(theirs, *self._arguments), name="flush", daemon=True
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


def _serve(pipe: Connection, data: Path, lake: str, gateway: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to hear
    os.nice(_NICENESS)
    log = SqliteLog(data / LOG_FILE)
    store = LakeStore(lake)
    flusher = Flusher(log, store, gateway)
    with contextlib.suppress(EOFError, OSError):  # the server has gone
        while True:
            question, *details = pipe.recv()
            try:
                answer: Any = flusher.flush(wait=details[0]) if question == "flush" else _horizons(log, store)
            except DriftlineError as error:
                answer = error
            pipe.send(answer)
    log.close()


def _horizons(log: SqliteLog, store: LakeStore) -> dict[str, int]:
    floors = {table: store.refused_before(table) for table in log.table_names()}
    return {table: floor for table, floor in floors.items() if floor is not None}

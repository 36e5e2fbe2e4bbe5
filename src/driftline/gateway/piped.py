"""A process behind a pipe, for work that must not hold up an answer: it is started by the first question.

It ends with its server. One conversation at a time; whoever has to know whether it is free asks `try_lock`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from driftline.core._processes import leave_pandas_out
from driftline.errors import DriftlineError, LakeError

_NICENESS = 5  # pushes come first
_END_SECONDS = 1.0

# Makes, inside the process, the object whose methods answer the questions, and what to call at the end.
MakeDesk = Callable[..., tuple[Any, Callable[[], None]]]


class PipedProcess:
    """Asks methods of an object in another process."""

    def __init__(self, name: str, make_desk: MakeDesk, *arguments: Any) -> None:
        self._name = name
        self._arguments = (make_desk, *arguments)
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, question: str, *details: Any, seconds: float | None = None) -> Any:
        """What the method `question` answers."""
        with self._lock:
            return self._ask((question, *details), seconds)

    def try_ask(self, question: str, *details: Any) -> tuple[bool, Any]:
        """Like `ask`, if the process is free; whether it was."""
        if not self._lock.acquire(blocking=False):
            return False, None
        try:
            return True, self._ask((question, *details), None)
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process, after the conversation it may be at."""
        with self._lock:
            self._drop()

    def kill(self) -> None:
        """End the process in the middle of whatever it does; who waits for an answer hears of it."""
        process = self._process
        if process is not None:
            process.kill()
        self.close()

    def _ask(self, question: tuple[Any, ...], seconds: float | None) -> Any:
        try:
            pipe = self._connected()
            pipe.send(question)
            if not pipe.poll(seconds):
                raise LakeError("the flush takes longer than there is time; the next start goes on with it")
            answer = pipe.recv()
        except (EOFError, OSError) as error:
            self._drop()
            raise LakeError(
                f"the {self._name} process ended before its work was done; it will be tried again"
            ) from error
        if isinstance(answer, DriftlineError):
            raise answer
        return answer

    def _connected(self) -> Connection:
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(
                target=_serve, args=(theirs, *self._arguments), name=self._name, daemon=True
            )
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to hear
    os.nice(_NICENESS)
    leave_pandas_out()
    desk, close = make_desk(*arguments)
    with contextlib.suppress(EOFError, OSError):  # the server has gone
        while True:
            question, *details = pipe.recv()
            try:
                answer: Any = getattr(desk, question)(*details)
            except DriftlineError as error:
                answer = error
            except Exception as error:  # noqa: BLE001 - whoever asked is told, and the next question is answered
                answer = LakeError(f"{type(error).__name__}: {error}", code="INTERNAL_ERROR")
            pipe.send(answer)
    close()

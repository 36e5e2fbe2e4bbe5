"""What work on a caller's input may use: time, which whoever loops over input looks at now and then, and stack.

The deadline of the work in hand is known to the thread (`current`), so that code which is called by a library, such as
a filter of a JSONPath, can look at it too.

>>> with Deadline(30, "the comparison").held() as deadline:
...     current() is deadline
True
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token

from driftline.errors import PayloadError


class Deadline:
    """A point in time, the words for passing it, and the patterns that were given up on the way."""

    __slots__ = ("at", "given_up", "name", "seconds", "started", "what")

    def __init__(self, seconds: float, what: str, started: float | None = None, name: str = "timeout_seconds") -> None:
        self.name = name
        self.seconds = seconds
        self.what = what
        self.started = time.monotonic() if started is None else started
        self.at = self.started + seconds
        self.given_up: dict[str, None] = {}  # texts of patterns; not tried again before the deadline's work is done

    def left(self) -> float:
        """Seconds that are left; raises `TIMEOUT` where there are none."""
        self.check()
        return self.at - time.monotonic()

    def check(self) -> None:
        """Raise `TIMEOUT` once the time is up; cooperative, so it works in threads and Spark tasks."""
        if time.monotonic() >= self.at:
            raise PayloadError(
                f"{self.what} took longer than {self.seconds:g} seconds ({self.name})",
                code="TIMEOUT",
                details={"reason": self.name, "limit": self.seconds},
            )

    @contextmanager
    def held(self) -> Iterator[Deadline]:
        """Make this the deadline of the work in hand."""
        token = hold(self)
        try:
            yield self
        finally:
            let_go(token)


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def current() -> Deadline:
    """The deadline of the work in hand; where nobody set any, a new one that never comes and remembers nothing."""
    return _current.get() or Deadline(float("inf"), "the work")


def hold(deadline: Deadline) -> Token[Deadline | None]:
    """Begin what `held` does, for code that cannot afford a context manager; `let_go` ends it."""
    return _current.set(deadline)


def let_go(held: Token[Deadline | None]) -> None:
    """Give the work in hand the deadline back that it had before."""
    _current.reset(held)


_stack_lock = threading.Lock()
_frames_wanted: list[int] = []
_limit_before = 0


@contextmanager
def room_on_the_stack(frames: int) -> Iterator[None]:
    """Raise the recursion limit, which is the whole process's, until the last user is done."""
    global _limit_before
    with _stack_lock:
        if not _frames_wanted:
            _limit_before = sys.getrecursionlimit()
        _frames_wanted.append(frames)
        sys.setrecursionlimit(max(_limit_before, *_frames_wanted))
    try:
        yield
    finally:
        with _stack_lock:
            _frames_wanted.remove(frames)
            sys.setrecursionlimit(max(_limit_before, *_frames_wanted) if _frames_wanted else _limit_before)

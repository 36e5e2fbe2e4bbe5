"""Limits of a comparison: its configuration, the deadline of the current work, and the depth of the stack.

The deadline is a context variable (`current`), so that code which a library calls, such as a filter of a JSONPath, can
check it too.

>>> EngineConfig.of({"fail_fast": True}).fail_fast
True
>>> with Deadline(30, "the comparison") as deadline:
...     current() is deadline
True
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from driftline.errors import PayloadError
from driftline.payloads._values.values import kind_of

LOG_LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
BYTES_PER_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Limits and switches of a comparison (payloads §7)."""

    max_depth: int = 100
    max_payload_size_mb: float = 50
    timeout_seconds: float = 30
    schema_timeout_seconds: float = 30  # of CPU time, for compiling a schema
    strict_schema_validation: bool = True
    collect_statistics: bool = True
    log_level: str = "INFO"
    trace_rule_application: bool = False
    fail_fast: bool = False

    @classmethod
    def of(cls, value: EngineConfig | Mapping[str, Any] | None) -> EngineConfig:
        """A configuration from a mapping; unknown names and wrong types are refused."""
        if isinstance(value, EngineConfig):
            return value
        if value is None:
            return _DEFAULT
        if not isinstance(value, Mapping):
            raise _refusal(f"config must be an object, not {kind_of(value)}", "config")
        for name, given in value.items():
            _check(name, given)
        return cls(**value)

    @property
    def max_payload_bytes(self) -> int:
        """The size limit of each side in bytes."""
        return int(self.max_payload_size_mb * BYTES_PER_MB)


_DEFAULT = EngineConfig()
_SWITCHES = {field.name for field in fields(EngineConfig) if field.type == "bool"}
_NAMES = [field.name for field in fields(EngineConfig)]


def _check(name: object, given: object) -> None:
    if name not in _NAMES:
        near = get_close_matches(str(name), _NAMES, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(_NAMES)}"
        raise _refusal(f"unknown config property {name!r}{hint}", str(name))
    if name in _SWITCHES:
        is_right, needed = isinstance(given, bool), "true or false"
    elif name == "log_level":
        is_right, needed = given in LOG_LEVELS, f"one of {', '.join(LOG_LEVELS)}"
    else:
        allowed, kind = (int, "an integer") if name == "max_depth" else ((int, float), "a number")
        # `0 <= nan` is false, so a NaN is refused too.
        is_right = isinstance(given, allowed) and not isinstance(given, bool) and 0 <= given < float("inf")
        needed = f"{kind} that is not negative"
    if not is_right:
        raise _refusal(f"config property {name} must be {needed}", str(name))


def _refusal(message: str, name: str) -> PayloadError:
    return PayloadError(message, details={"reason": message, "property": name})


class Deadline:
    """A point in time, the message for passing it, and the patterns that were given up on the way.

    In a `with` statement it is the deadline of the current work. With `is_cpu_time` the clock is that of this thread's
    work, so that a busy machine does not shorten the limit.
    """

    __slots__ = ("_token", "at", "clock", "given_up", "name", "seconds", "started", "what")

    def __init__(self, seconds: float, what: str, name: str = "timeout_seconds", *, is_cpu_time: bool = False) -> None:
        self.name = name
        self.seconds = seconds
        self.what = what
        self.clock = time.thread_time if is_cpu_time else time.monotonic
        self.started = self.clock()
        self.at = self.started + seconds
        self.given_up: dict[str, None] = {}  # texts of patterns; not tried again before the deadline's work is done

    def left(self) -> float:
        """Seconds that are left; raises `TIMEOUT` where there are none."""
        self.check()
        return self.at - self.clock()

    def check(self) -> None:
        """Raise `TIMEOUT` once the time is up; cooperative, so it works in threads and Spark tasks."""
        if self.clock() >= self.at:
            raise PayloadError(
                f"{self.what} took longer than {self.seconds:g} seconds ({self.name})",
                code="TIMEOUT",
                details={"reason": self.name, "limit": self.seconds},
            )

    def __enter__(self) -> Deadline:
        self._token = _current.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.reset(self._token)


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def current() -> Deadline:
    """The deadline of the current work; without one, a new deadline that never passes."""
    return _current.get() or Deadline(float("inf"), "the work")


_stack_lock = threading.Lock()
_frames_needed: list[int] = []
_limit_before = 0


@contextmanager
def stack_space(frames: int) -> Iterator[None]:
    """Raise the recursion limit, which is the whole process's, until the last user is done."""
    global _limit_before
    with _stack_lock:
        if not _frames_needed:
            _limit_before = sys.getrecursionlimit()
        _frames_needed.append(frames)
        sys.setrecursionlimit(max(_limit_before, *_frames_needed))
    try:
        yield
    finally:
        with _stack_lock:
            _frames_needed.remove(frames)
            sys.setrecursionlimit(max(_limit_before, *_frames_needed) if _frames_needed else _limit_before)

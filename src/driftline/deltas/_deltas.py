"""Hybrid logical clock: 48 bits of wall milliseconds, 16 bits of counter, one integer that orders by `<`.

>>> clock = Clock(wall=lambda: 1_000_000)
>>> [split_hlc(clock.now()) for _ in range(2)]
[(1000000, 0), (1000000, 1)]
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from driftline.errors import ClockDriftError, DeltaError

COUNTER_BITS = 16
MAX_COUNTER = (1 << COUNTER_BITS) - 1
MAX_DRIFT_MS = 5000
MAX_HLC = (1 << 63) - 1  # `_hlc` is a signed int64 in Parquet, so wall clocks stay below 2^47
_MAX_WALL_MS = MAX_HLC >> COUNTER_BITS


def make_hlc(wall_ms: int, counter: int = 0) -> int:
    """The timestamp of a wall clock and a counter; a full counter carries into the wall clock."""
    if counter > MAX_COUNTER:
        wall_ms, counter = wall_ms + 1, 0
    if not 0 <= wall_ms <= _MAX_WALL_MS:
        raise DeltaError(f"wall clock {wall_ms} ms does not fit a timestamp (0 to 2^47 - 1)", wall_ms=wall_ms)
    return wall_ms << COUNTER_BITS | counter


def split_hlc(hlc: int) -> tuple[int, int]:
    """Wall milliseconds and counter of a timestamp."""
    return hlc >> COUNTER_BITS, hlc & MAX_COUNTER


def physical_ms() -> int:
    """Milliseconds since 1970 by this machine's clock."""
    return time.time_ns() // 1_000_000


def check_drift(hlc: int, physical: int) -> None:
    """Refuse a timestamp more than 5000 ms ahead of physical time."""
    ahead = (hlc >> COUNTER_BITS) - physical
    if ahead > MAX_DRIFT_MS:
        raise ClockDriftError(f"Remote clock is {ahead}ms ahead (max drift: {MAX_DRIFT_MS}ms)", ahead_ms=ahead)


class Clock:
    """A hybrid logical clock; every answer is greater than all before it, also under threads.

    `wall` gives physical milliseconds, `last` is the timestamp to go on from (a fresh clock is at 0).
    """

    def __init__(self, wall: Callable[[], int] | None = None, *, last: int = 0) -> None:
        self._wall = wall or physical_ms
        self._last = _checked(last)
        self._lock = threading.Lock()

    @property
    def last(self) -> int:
        """The newest timestamp given so far."""
        return self._last

    def now(self) -> int:
        """The next timestamp."""
        with self._lock:
            self._last = self._next()
            return self._last

    def take(self, count: int) -> range:
        """Several timestamps in a row, in one step."""
        with self._lock:
            first = self._next() if count else self._last
            # Adding carries a full counter into the wall clock, as counting does.
            taken = range(first, first + count)
            self._last = _checked(taken[-1]) if count else self._last
            return taken

    def recv(self, remote: int) -> int:
        """Step past a remote timestamp; one too far ahead is an error and leaves the clock as it was."""
        if type(remote) is not int or remote < 0:
            raise DeltaError(f"a timestamp is a non-negative integer, not {remote!r}")
        with self._lock:
            physical = int(self._wall())
            check_drift(remote, physical)
            self._last = _after(self._last, _checked(remote), physical)
            return self._last

    def _next(self) -> int:
        previous_wall, previous_counter = split_hlc(self._last)
        physical = int(self._wall())
        return make_hlc(physical) if physical > previous_wall else make_hlc(previous_wall, previous_counter + 1)


def _after(last: int, remote: int, physical: int) -> int:
    """The timestamp that follows `last`, `remote` and physical time."""
    previous_wall, previous_counter = split_hlc(last)
    remote_wall, remote_counter = split_hlc(remote)
    local_wall = max(physical, previous_wall)
    local_counter = previous_counter if local_wall == previous_wall else -1
    if remote_wall > local_wall:
        return make_hlc(remote_wall, remote_counter + 1)
    if remote_wall == local_wall:
        return make_hlc(local_wall, max(local_counter, remote_counter) + 1)
    return make_hlc(local_wall, local_counter + 1)


def _checked(hlc: int) -> int:
    if type(hlc) is not int or not 0 <= hlc <= MAX_HLC:
        raise DeltaError(f"timestamp {hlc!r} is not an integer from 0 to 2^63 - 1")
    return hlc

"""Progress reports and cancellation of a job; only the command line draws them.

A job opens phases of a `Tracker` and advances them; the caller passes a listener for the reports. After `cancel()` the
next `advance` or `check` raises `Cancelled`.

>>> seen = []
>>> tracker = Tracker(seen.append, interval=0)
>>> with tracker.phase("read", total=10, unit="rows"):
...     tracker.advance(10)
>>> seen[-1].phase, seen[-1].fraction
('read', 1.0)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from driftline.errors import Cancelled

Unit = Literal["bytes", "rows", "items", "stages"]
Listener = Callable[["Progress"], None]

_SMOOTHING = 0.3  # weight of the newest sample in the moving average
_MIN_SAMPLE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Progress:
    """One report: the phase, how much of it is done, and its rate."""

    phase: str
    done: int
    total: int | None
    unit: Unit
    elapsed: float
    rate: float | None
    eta: float | None
    finished: bool = False

    @property
    def fraction(self) -> float | None:
        """Done as a share of the total, or None where the total is not known."""
        if self.total is None:
            return None
        return 1.0 if self.total == 0 else min(self.done / self.total, 1.0)


class Throughput:
    """A moving average of units per second, fed with totals so far."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._last_done = 0
        self._last_time: float | None = None

    def sample(self, done: int, now: float) -> float | None:
        """Record `done` at time `now`; the smoothed rate."""
        if self._last_time is None:
            self._last_done, self._last_time = done, now
            return None
        span = now - self._last_time
        if span >= _MIN_SAMPLE_SECONDS:
            newest = (done - self._last_done) / span
            self.rate = newest if self.rate is None else _SMOOTHING * newest + (1 - _SMOOTHING) * self.rate
            self._last_done, self._last_time = done, now
        return self.rate


class Tracker:
    """Reports phases to a listener and carries the request to stop; thread-safe."""

    def __init__(
        self, listener: Listener | None = None, *, interval: float = 0.1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._listener = listener
        self._interval = interval
        self._clock = clock
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._phase: _Phase | None = None

    @contextmanager
    def phase(self, name: str, *, total: int | None = None, unit: Unit = "bytes") -> Iterator[None]:
        """Open a phase; the last report of one that succeeds is `finished`."""
        outer = self._phase
        now = self._clock()
        self._phase = _Phase(name, total, unit, now)
        self._phase.throughput.sample(0, now)
        self._report(force=True)
        try:
            self.check()
            yield
            self._report(force=True, finished=True)
        finally:
            self._phase = outer

    def advance(self, amount: int = 1) -> None:
        """Add to what is done in the current phase; raises `Cancelled` after `cancel()`."""
        with self._lock:
            if self._phase is not None:
                self._phase.done += amount
        self.check()
        self._report()

    def branch(self, name: str) -> Tracker:
        """A tracker for parallel work: its phases are prefixed with a name, the request to stop is shared."""

        def named(record: Progress) -> None:
            if self._listener is not None:
                with self._lock:
                    self._listener(replace(record, phase=f"{name}: {record.phase}"))

        inner = Tracker(named if self._listener else None, interval=self._interval, clock=self._clock)
        inner._cancelled = self._cancelled
        return inner

    def cancel(self) -> None:
        """Stop the job at its next check; may be called from a signal handler or another thread."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise `Cancelled` after `cancel`."""
        if self._cancelled.is_set():
            raise Cancelled("cancelled")

    def _report(self, *, force: bool = False, finished: bool = False) -> None:
        phase = self._phase
        if self._listener is None or phase is None:
            return
        now = self._clock()
        with self._lock:
            if not force and now - phase.reported_at < self._interval:
                return
            phase.reported_at = now
            record = phase.record(now, finished)
        self._listener(record)


class _Phase:
    def __init__(self, name: str, total: int | None, unit: Unit, started: float) -> None:
        self.name = name
        self.total = total
        self.unit = unit
        self.started = started
        self.reported_at = started
        self.done = 0
        self.throughput = Throughput()

    def record(self, now: float, finished: bool) -> Progress:
        rate = self.throughput.sample(self.done, now)
        eta = max(self.total - self.done, 0) / rate if self.total is not None and rate else None
        return Progress(self.name, self.done, self.total, self.unit, now - self.started, rate, eta, finished)


def no_progress() -> Tracker:
    """A tracker without a listener."""
    return Tracker()

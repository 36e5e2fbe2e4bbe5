"""Requests per second: a token bucket for each client or address."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from driftline.errors import GatewayError

_MAX_CLIENTS = 10_000


class RateLimiter:
    """A token bucket for each name: `rate` requests a second, twice as many in a burst; 0 is no limit."""

    def __init__(self, rate: float, *, burst: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = max(rate * 2 if burst is None else burst, 1.0)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, what: str = "too many requests") -> None:
        """Count one request; one too many is refused and told when to come back."""
        if self._rate <= 0:
            return
        now = self._clock()
        tokens, before = self._buckets.pop(name, (self._burst, now))
        tokens = min(self._burst, tokens + (now - before) * self._rate)
        self._buckets[name] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._buckets) > _MAX_CLIENTS:
            self._buckets.popitem(last=False)  # the one not seen for longest has a full bucket again
        if tokens < 1:
            wait = math.ceil((1 - tokens) / self._rate)
            raise GatewayError(what, code="RATE_LIMITED", retry_after=max(wait, 1))

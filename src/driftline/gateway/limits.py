"""Limits: requests per client and second, and the size of a body while it streams in."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable

from driftline.errors import GatewayError

_MAX_CLIENTS = 10_000


class RateLimiter:
    """A token bucket for each client: `rate` requests a second, twice as many in a burst; 0 is no limit."""

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = max(rate * 2, 1.0)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client_id: str) -> None:
        """Count one request; one too many is refused and told when to come back."""
        if self._rate <= 0:
            return
        now = self._clock()
        tokens, before = self._buckets.pop(client_id, (self._burst, now))
        tokens = min(self._burst, tokens + (now - before) * self._rate)
        self._buckets[client_id] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._buckets) > _MAX_CLIENTS:
            self._buckets.popitem(last=False)  # the one not seen for longest has a full bucket again
        if tokens < 1:
            wait = math.ceil((1 - tokens) / self._rate)
            raise GatewayError("too many requests", code="RATE_LIMITED", retry_after=max(wait, 1))


async def read_limited(chunks: AsyncIterator[bytes], limit: int, declared: str | None) -> bytes:
    """The whole body, unless it grows beyond the limit; what a header declares only helps to refuse early."""
    if declared is not None and declared.isdecimal() and int(declared[:20]) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        parts.append(chunk)
    return b"".join(parts)


def _too_large(limit: int) -> GatewayError:
    return GatewayError(f"the body is larger than {limit} bytes: push fewer deltas at once", code="PAYLOAD_TOO_LARGE")

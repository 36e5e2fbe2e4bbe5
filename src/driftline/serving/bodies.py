"""Reading request bodies: bounded in size and in time, and bounded together (gateway §12)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from driftline.errors import GatewayError

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How long a body may take, and how much of all bodies together a process keeps in memory."""

    gap_seconds: float = 10.0
    whole_seconds: float = 30.0
    under_way_bytes: int = 64 * MIB


class BodiesUnderWay:
    """The bytes of request bodies that this process holds at the moment."""

    def __init__(self, limits: BodyLimits | None = None) -> None:
        self.limits = limits or BodyLimits()
        self.held = 0

    @contextmanager
    def reading(self) -> Iterator[BodyShare]:
        """The share of one request; it is given back when the request is done with its body."""
        share = BodyShare(self)
        try:
            yield share
        finally:
            self.held -= share.bytes


class BodyShare:
    """What one request holds of the bytes under way."""

    def __init__(self, whole: BodiesUnderWay) -> None:
        self._whole = whole
        self.limits = whole.limits
        self.bytes = 0

    def add(self, size: int) -> None:
        """Hold more bytes; refused while others hold so much that there is no room."""
        others = self._whole.held - self.bytes
        # A body that is alone may be as large as its own limit allows, or it could never be sent.
        if others and self._whole.held + size > self._whole.limits.under_way_bytes:
            raise GatewayError("too many large requests at once: try again", code="BACKPRESSURE_ERROR", retry_after=1)
        self.bytes += size
        self._whole.held += size


async def timed_chunks(scope: Scope, receive: Receive, *, whole: bool = False) -> AsyncIterator[bytes]:
    """The chunks of a body; one that stops coming, or takes too long as a `whole`, is a 408.

    Streams that are answered while they come in have no limit as a whole.
    """
    times = share_of(scope).limits
    deadline = time.monotonic() + times.whole_seconds
    while True:
        patience = min(times.gap_seconds, deadline - time.monotonic()) if whole else times.gap_seconds
        try:
            message = await asyncio.wait_for(receive(), max(patience, 0.001))
        except TimeoutError as error:
            raise GatewayError("the body took too long to arrive", code="REQUEST_TIMEOUT") from error
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body", False):
            return


async def read_limited(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body, unless it grows beyond the limit; what a header declares only helps to refuse early."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if declared.isdigit() and int(declared[:20]) > limit:
        raise too_large(limit)
    share = share_of(scope)
    parts: list[bytes] = []
    size = 0
    async for chunk in timed_chunks(scope, receive, whole=True):
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        share.add(len(chunk))
        parts.append(chunk)
    return b"".join(parts)


def share_of(scope: Scope) -> BodyShare:
    """The request's share of the bytes under way, which its frame has opened."""
    share = scope["body_share"]
    assert isinstance(share, BodyShare)
    return share


def too_large(limit: int) -> GatewayError:
    """A body beyond the limit of its route."""
    message = f"the body is larger than {limit} bytes: send less at once"
    return GatewayError(message, code="PAYLOAD_TOO_LARGE", limit=limit)

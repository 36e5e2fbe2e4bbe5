"""Connections with deadlines and caps, so that slow and greedy clients cannot keep others out (gateway §12).

uvicorn itself waits for ever for the rest of a request's headers, and for a client that does not read its answer.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from driftline.serving.errors import raw_refusal

ACCEPTED_AT_ONCE = 16
# For the log, the lake, pipes to other processes, and connections on their way to being refused.
_SPARE_FILES = 64 + 4 * ACCEPTED_AT_ONCE
_HEADER_SECONDS = 10.0
_BLOCKED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one process grants its clients; 0 per address is no limit (behind a proxy all come from one)."""

    connections: int = 3000
    per_address: int = 100
    header_seconds: float = _HEADER_SECONDS
    blocked_seconds: float = _BLOCKED_SECONDS


@dataclass(slots=True)
class _OpenConnections:
    """How many connections this process has, by address."""

    limits: ConnectionLimits
    by_address: Counter[str] = field(default_factory=Counter)
    total: int = 0

    def enter(self, address: str) -> bytes | None:
        """Count a connection in; the refusal where there is no room for it."""
        if self.total >= self.limits.connections:
            return raw_refusal("OVERLOADED", "too many connections: try again")
        if 0 < self.limits.per_address <= self.by_address[address]:
            return raw_refusal("RATE_LIMITED", "too many connections from this address")
        self.total += 1
        self.by_address[address] += 1
        return None

    def leave(self, address: str) -> None:
        self.total -= 1
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for headers and for clients that stop reading."""

    def __init__(self, *arguments: Any, open_connections: _OpenConnections, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._open = open_connections
        self._address: str | None = None  # None: not counted, refused
        self._header_deadline: asyncio.TimerHandle | None = None
        self._blocked_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or say why not and close it."""
        address = _address(transport.get_extra_info("peername"))
        refusal = self._open.enter(address)
        if refusal is not None:
            transport.write(refusal)
            transport.close()
            return
        self._address = address
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Feed the parser; the clock runs from the first byte of a request to the end of its headers."""
        if self._address is None:
            return
        if self._header_deadline is None and self._is_between_requests():
            self._await_headers()
        super().data_received(data)
        if not self._is_between_requests():
            self._cancel_header_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection out."""
        if self._address is None:
            return
        self._open.leave(self._address)
        self._cancel_header_deadline()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read: it has a while to begin again."""
        super().pause_writing()
        self._blocked_deadline = self.loop.call_later(self._open.limits.blocked_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._blocked_deadline is not None:
            self._blocked_deadline.cancel()
            self._blocked_deadline = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP gets the same error body as everything else."""
        self.transport.write(raw_refusal("VALIDATION_ERROR", "this is not an HTTP request"))
        self.transport.close()

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_headers(self) -> None:
        self._header_deadline = self.loop.call_later(self._open.limits.header_seconds, self._headers_are_late)

    def _cancel_header_deadline(self) -> None:
        if self._header_deadline is not None:
            self._header_deadline.cancel()
            self._header_deadline = None

    def _headers_are_late(self) -> None:
        self._header_deadline = None
        if self._is_between_requests() and not self.transport.is_closing():
            self.transport.write(raw_refusal("REQUEST_TIMEOUT", "the request's headers took too long"))
            self.transport.close()


def limited_protocol(limits: ConnectionLimits) -> Callable[..., LimitedProtocol]:
    """The protocol for uvicorn, with counts of its own; more files than the system grants are not promised."""
    granted = _raise_file_limit(limits.connections + _SPARE_FILES)
    connections = min(limits.connections, max(granted - _SPARE_FILES, 1))
    held = ConnectionLimits(connections, limits.per_address, limits.header_seconds, limits.blocked_seconds)
    return partial(LimitedProtocol, open_connections=_OpenConnections(held))


def _raise_file_limit(wanted: int) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    if soft == infinite or soft >= wanted:
        return wanted
    granted = wanted if hard == infinite else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    return granted


def _address(peer: Any) -> str:
    """What counts as one client: an IPv4 address, or the 64-bit network that one IPv6 host usually owns."""
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except (ValueError, TypeError, IndexError):
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)

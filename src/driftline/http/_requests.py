"""Middleware of every service: request id, log line, metrics, bounded bodies, rate limits, and errors as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import mmap
import os
import re
import secrets
import struct
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftline.errors import DriftlineError, GatewayError, StorageError

MIB = 1 << 20
# By code its status, and the members for programs beside its message (gateway §3); `positions` are those of a push.
_CODES: dict[str, list[Any]] = json.loads(resources.files("driftline.http").joinpath("codes.json").read_text("utf-8"))
STATUS_OF_CODE: dict[str, int] = {code: status for code, (status, *_) in _CODES.items()}
_MEMBERS: dict[str, list[str]] = {code: members for code, (_, *members) in _CODES.items()}
_CODE_OF_STATUS = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
_RETRY_LATER_SECONDS = 5
_MAX_CLIENTS = 10_000
_LINGER_SECONDS = 2.0
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_JSON = "application/json"
_logger = logging.getLogger("driftline.requests")


class RequestMiddleware:
    """Serves every request; an unexpected exception becomes a plain 500."""

    def __init__(self, app: ASGIApp, metrics: Metrics, limits: BodyLimits | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._bodies = BodiesInMemory(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        with ExitStack() as stack:
            request = _ServedRequest(scope, send)
            stack.callback(self._finished, request)
            scope["request_id"] = request.id
            scope["body_share"] = stack.enter_context(self._bodies.reading())
            await request.serve(self._app, receive)

    def _finished(self, request: _ServedRequest) -> None:
        seconds = time.perf_counter() - request.started
        scope, status = request.scope, request.status
        route = scope.get("route_name", "other")
        self._metrics.request(route, status, seconds)
        # Comparisons are many and short: only refused ones get a line.
        level = logging.DEBUG if route == "compare" and status < 400 else logging.INFO
        if _logger.isEnabledFor(level):
            fields = {
                "requestId": scope["request_id"],
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(seconds * 1000, 2),
            }
            client = {"clientId": scope["client_id"]} if "client_id" in scope else {}
            _logger.log(level, "request", extra={"fields": {**fields, **client}})


class _ServedRequest:
    """One request and its status."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope = scope
        self.id = _request_id(scope)
        self.status = 0
        self.started = time.perf_counter()
        self._send = send

    async def serve(self, app: ASGIApp, receive: Receive) -> None:
        try:
            await app(self.scope, receive, self.send)
        except ClientDisconnect:
            self.status = self.status or 400
        except DriftlineError as error:
            await self._respond(error_response(self.scope, error), receive)
        except Exception as error:
            _logger.exception("internal error", extra={"fields": {"requestId": self.id}})
            await self._respond(error_response(self.scope, _fault(error)), receive)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.id.encode())]
            names = {name for name, _ in self.scope["headers"]}
            if {b"content-length", b"transfer-encoding"} <= names:  # a proxy may see another request in what follows
                message["headers"].append((b"connection", b"close"))
        await self._send(message)

    async def _respond(self, response: Response, receive: Receive) -> None:
        if self.status == 0:  # a response that has started can only break off
            await response(self.scope, receive, self.send)


def error_response(scope: Scope, error: DriftlineError) -> Response:
    """The response for an error; what the client may not see is written to the log."""
    public = public_error(error)
    if public is not error:
        fields = {"requestId": scope.get("request_id", ""), "code": error.code, "error": error.message}
        _logger.error("failed", extra={"fields": fields})
    body = error_body(public.code.wire, public.message, scope.get("request_id", ""), **error_members(public))
    kind = _LingeringResponse if public.code == "PAYLOAD_TOO_LARGE" else Response
    return kind(body, STATUS_OF_CODE[public.code.wire], error_headers(public), media_type=_JSON)


class _LingeringResponse(Response):
    """Responds at once, then drops the rest of the request for a while.

    A connection that is closed with unread bytes is reset, and a client that is still sending loses the response.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                    pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def error_members(error: DriftlineError) -> dict[str, Any]:
    """The members that a program reads, by the error's code."""
    known = {**error.context, "retryAfter": error.context.get("retry_after")}
    return {name: known[name] for name in _MEMBERS.get(error.code.wire, ()) if known.get(name) is not None}


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    otherwise = "VALIDATION_ERROR" if error.status_code < 500 else "INTERNAL_ERROR"
    known = DriftlineError(str(error.detail), code=_CODE_OF_STATUS.get(error.status_code, otherwise))
    response = error_response(request.scope, known)
    response.headers.update(dict(error.headers or {}))
    return response


def _fault(error: Exception) -> DriftlineError:
    return DriftlineError(f"internal error ({type(error).__name__})", code="INTERNAL_ERROR")


EXCEPTION_HANDLERS: dict[Any, Any] = {
    DriftlineError: lambda request, error: error_response(request.scope, error),
    HTTPException: _on_http_exception,
    # The middleware logs it: the framework raises it again.
    Exception: lambda request, error: error_response(request.scope, _fault(error)),
}


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value.decode("latin-1")):
            return str(value.decode("latin-1"))
    return secrets.token_hex(8)


# Errors: `{error, code, requestId}`, and the status of each code (gateway §3).


def public_error(error: DriftlineError) -> DriftlineError:
    """The error as a client may see it.

    A storage error can be retried; a code that is not part of the protocol is an internal error. The texts of both may
    contain paths, so the client gets a general message and the log the complete one.
    """
    if error.code.wire in STATUS_OF_CODE:
        return error
    if isinstance(error, StorageError):
        message = "the store cannot be used just now"
        return DriftlineError(message, code="BACKPRESSURE_ERROR", retry_after=_RETRY_LATER_SECONDS)
    return DriftlineError(f"internal error ({error.code})", code="INTERNAL_ERROR")


def error_headers(error: DriftlineError) -> dict[str, str]:
    """The headers of an error."""
    headers = {}
    if "retry_after" in error.context:
        headers["Retry-After"] = str(error.context["retry_after"])
    if error.code == "AUTH_ERROR":
        headers["WWW-Authenticate"] = "Bearer"
    if error.code in ("REQUEST_TIMEOUT", "PAYLOAD_TOO_LARGE"):
        headers["Connection"] = "close"  # the rest of the body is not waited for
    return headers


def error_body(code: str, message: str, request_id: str = "", **more: Any) -> bytes:
    """The body of an error; some codes have further members."""
    content = {"error": message, "code": code, "requestId": request_id, **more}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def raw_refusal(code: str, message: str) -> bytes:
    """A complete HTTP/1.1 response for a connection without a request; it closes the connection."""
    status = HTTPStatus(STATUS_OF_CODE[code])
    body = error_body(code, message)
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


# Request bodies: bounded in size and in time, and bounded together (gateway §12).


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How long a body may take, and how many bytes of all bodies together a process holds in memory."""

    gap_seconds: float = 10.0
    whole_seconds: float = 30.0
    under_way_bytes: int = 64 * MIB


class BodiesInMemory:
    """The bytes of request bodies that this process currently holds in memory."""

    def __init__(self, limits: BodyLimits | None = None) -> None:
        self.limits = limits or BodyLimits()
        self.held = 0

    @contextmanager
    def reading(self) -> Iterator[BodyShare]:
        """The share of one request, released at the end of the block."""
        share = BodyShare(self)
        try:
            yield share
        finally:
            self.held -= share.bytes


@dataclass(slots=True)
class BodyShare:
    """The bytes that one request holds."""

    whole: BodiesInMemory
    bytes: int = 0

    def add(self, size: int) -> None:
        """Hold more bytes; refused while the other requests hold too many."""
        # A single body may be as large as its own limit allows, or it could never be sent.
        if self.whole.held > self.bytes and self.whole.held + size > self.whole.limits.under_way_bytes:
            raise GatewayError("too many large requests at once: try again", code="BACKPRESSURE_ERROR", retry_after=1)
        self.bytes += size
        self.whole.held += size


async def stream_body(scope: Scope, receive: Receive, *, whole: bool = False) -> AsyncIterator[bytes]:
    """The chunks of a body; a gap that is too long is a 408, and so is a `whole` body that takes too long.

    Streams with a response while they are read have no limit as a whole.
    """
    times: BodyLimits = scope["body_share"].whole.limits  # which the middleware has opened
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


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The complete body, unless it exceeds the limit; a declared length only helps to refuse early."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if declared.isdigit() and int(declared[:20]) > limit:
        raise too_large(limit)
    share: BodyShare = scope["body_share"]
    parts: list[bytes] = []
    size = 0
    async for chunk in stream_body(scope, receive, whole=True):
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        share.add(len(chunk))
        parts.append(chunk)
    return b"".join(parts)


def too_large(limit: int) -> GatewayError:
    """The error for a body above the limit of its route."""
    message = f"the body is larger than {limit} bytes: send less at once"
    return GatewayError(message, code="PAYLOAD_TOO_LARGE", limit=limit)


class RateLimiter:
    """A token bucket for each name: `rate` requests a second, twice as many in a burst; 0 is no limit."""

    def __init__(self, rate: float, *, burst: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = max(rate * 2 if burst is None else burst, 1.0)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, what: str = "too many requests") -> None:
        """Count one request; one too many is refused with a `Retry-After`."""
        if self._rate <= 0:
            return
        now = self._clock()
        tokens, before = self._buckets.pop(name, (self._burst, now))
        tokens = min(self._burst, tokens + (now - before) * self._rate)
        self._buckets[name] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._buckets) > _MAX_CLIENTS:
            self._buckets.popitem(last=False)  # the least recent one has a full bucket again
        if tokens < 1:
            wait = math.ceil((1 - tokens) / self._rate)
            raise GatewayError(what, code="RATE_LIMITED", retry_after=max(wait, 1))


# Prometheus counters of all worker processes: each has a memory-mapped file, a scrape adds them up.


ROUTES = (
    *("push", "pull", "feed", "snapshot", "flush", "schema", "sync-rules"),
    *("compare", "index", "docs", "openapi", "health", "ready", "metrics", "other"),
)
STATUSES = (200, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 429, 500, 503)
LATENCY_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TIMED_ROUTES = ("push", "pull", "compare")

# The plain counters and their help texts.
_PLAIN: dict[str, str] = json.loads(resources.files("driftline.http").joinpath("metrics.json").read_text("utf-8"))
_WORD = struct.Struct("<d")


def _request_series() -> Iterable[str]:
    for route in ROUTES:
        for status in STATUSES:
            yield f'driftline_requests_total{{route="{route}",status="{status}"}}'


def _latency_series() -> Iterable[str]:
    for route in TIMED_ROUTES:
        for bound in (*LATENCY_BOUNDS, "+Inf"):
            yield f'driftline_request_seconds_bucket{{route="{route}",le="{bound}"}}'
        yield f'driftline_request_seconds_sum{{route="{route}"}}'
        yield f'driftline_request_seconds_count{{route="{route}"}}'


SERIES = (*_PLAIN, *_request_series(), *_latency_series())
_SLOT = {name: position * _WORD.size for position, name in enumerate(SERIES)}
_SIZE = len(SERIES) * _WORD.size


class Metrics:
    """The counters of this process, in a file that the other workers can read."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        with open(directory / f"{os.getpid()}.counters", "w+b") as file:
            file.truncate(_SIZE)
            self._memory = mmap.mmap(file.fileno(), _SIZE)

    def add(self, name: str, amount: float = 1) -> None:
        """Increase a counter."""
        slot = _SLOT[name]
        _WORD.pack_into(self._memory, slot, _WORD.unpack_from(self._memory, slot)[0] + amount)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        known = status if status in STATUSES else 200 if status < 400 else 400 if status < 500 else 500
        self.add(f'driftline_requests_total{{route="{route}",status="{known}"}}')
        if route in TIMED_ROUTES:
            for bound in LATENCY_BOUNDS:
                if seconds <= bound:
                    self.add(f'driftline_request_seconds_bucket{{route="{route}",le="{bound}"}}')
            self.add(f'driftline_request_seconds_bucket{{route="{route}",le="+Inf"}}')
            self.add(f'driftline_request_seconds_sum{{route="{route}"}}', seconds)
            self.add(f'driftline_request_seconds_count{{route="{route}"}}')

    def totals(self) -> dict[str, float]:
        """Every counter, added up over all processes."""
        sums = [0.0] * len(SERIES)
        for path in self._directory.glob("*.counters"):
            data = path.read_bytes()
            if len(data) == _SIZE:
                sums = [total + value for total, (value,) in zip(sums, _WORD.iter_unpack(data), strict=True)]
        return dict(zip(SERIES, sums, strict=True))

    def close(self) -> None:
        """Release the memory; the file stays for the other workers."""
        self._memory.close()


def clear(directory: Path) -> None:
    """Remove the counts of an earlier server; called before workers start."""
    for path in directory.glob("*.counters"):
        path.unlink(missing_ok=True)


def prometheus_text(totals: Mapping[str, float], gauges: Mapping[str, tuple[str, float]]) -> str:
    """The Prometheus text format; request series without a count are left out."""
    lines = []
    for name, text in _PLAIN.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} counter", f"{name} {totals[name]:.17g}"]
    lines += ["# HELP driftline_requests_total Finished requests.", "# TYPE driftline_requests_total counter"]
    lines += [f"{name} {totals[name]:.17g}" for name in _request_series() if totals[name]]
    lines += ["# HELP driftline_request_seconds Time to answer.", "# TYPE driftline_request_seconds histogram"]
    lines += [f"{name} {totals[name]:.17g}" for name in _latency_series()]
    for name, (text, value) in gauges.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {value:.17g}"]
    return "\n".join(lines) + "\n"

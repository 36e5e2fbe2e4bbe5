"""The compare service over HTTP: stateless, one pair or a stream of pairs, with limits.

Plain ASGI, because a comparison takes a fraction of a millisecond and a framework's request objects would not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from starlette.types import Receive, Scope, Send

from driftline.errors import DriftlineError, GatewayError, PayloadError
from driftline.http._requests import STATUS_OF_CODE, error_headers, public_error, read_limited, timed_chunks
from driftline.payloads import error_response
from driftline.payloads._values.limits import BYTES_PER_MB
from driftline.payloads._values.text import encode
from driftline.web.answers import JSON_TYPE, Headers, send_bytes, send_json
from driftline.web.compare_openapi import compare_document
from driftline.web.compare_requests import (
    ConfigCaps,
    PlanOf,
    answer_pair,
    answer_request,
    id_of,
    open_batch,
    too_large,
)
from driftline.web.openapi_page import openapi_page

NDJSON_TYPE = b"application/x-ndjson"
_WAIT_SECONDS = 0.01
_JSON_FRAME_BYTES = 1 << 20  # room for the schema and the names around two payloads

Answer = TypeVar("Answer")
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
Authorize = Callable[[Scope], None]  # raises what the caller lacks


@dataclass(frozen=True, slots=True)
class CompareLimits:
    """What one server process takes."""

    payload_mb: float = 50
    max_in_flight: int = 64
    timeout_seconds: float = 30
    max_depth: int = 500
    compile_seconds: float = 10
    threads: int = 8

    @property
    def caps(self) -> ConfigCaps:
        """What a caller may ask for at most."""
        return ConfigCaps(self.payload_mb, self.timeout_seconds, self.max_depth, self.compile_seconds)

    @property
    def body_bytes(self) -> int:
        """Both payloads of a request, and what stands around them."""
        return int(2 * self.payload_mb * BYTES_PER_MB) + _JSON_FRAME_BYTES


class CompareService:
    """An ASGI application; its only state is the number of comparisons under way.

    All work on a caller's input is done by threads, so that no comparison, however slow, keeps others from an answer.
    """

    paths = frozenset(
        {"/v1/compare", "/v1/compare/batch", "/v1/compare/openapi.json", "/v1/compare/docs", "/v1/compare/health"}
    )

    def __init__(self, limits: CompareLimits | None = None, *, authorize: Authorize | None = None) -> None:
        self.limits = limits or CompareLimits()
        self._authorize = authorize
        self._in_flight = 0
        self._threads = ThreadPoolExecutor(self.limits.threads, thread_name_prefix="compare")
        self._document = encode(compare_document())
        self._routes: dict[str, tuple[str, Handler]] = {
            "/v1/compare": ("POST", self._single),
            "/v1/compare/batch": ("POST", self._batch),
            "/v1/compare/openapi.json": ("GET", self._openapi),
            "/v1/compare/docs": ("GET", self._docs),
            "/v1/compare/health": ("GET", self._health),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        scope["route_name"] = "compare"
        method, handler = self._routes[scope["path"]]
        try:
            if scope["method"] != method and not (method == "GET" and scope["method"] == "HEAD"):
                raise PayloadError(f"use {method}", code="METHOD_NOT_ALLOWED", allow=method)
            if method == "GET":
                await handler(scope, receive, send)
            else:
                if self._authorize is not None:
                    self._authorize(scope)
                await handler(scope, receive, send)
        except DriftlineError as error:
            await _refuse(scope, send, error)

    async def _work(self, function: Callable[..., Answer], *arguments: object) -> Answer:
        """Do something in a thread; a body that is still coming in takes no place."""
        if self._in_flight >= self.limits.max_in_flight:
            raise PayloadError("too many requests under way: try again", code="OVERLOADED", retry_after=1)
        self._in_flight += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, partial(function, *arguments))
        finally:
            self._in_flight -= 1

    async def _single(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_limited(scope, receive, self.limits.body_bytes)
        await send_bytes(send, 200, await self._work(answer_request, body, self.limits.caps), JSON_TYPE)

    async def _batch(self, scope: Scope, receive: Receive, send: Send) -> None:
        lines = _lines(timed_chunks(scope, receive), self.limits.body_bytes)
        first: list[bytes | None] = await anext(lines, [b""])
        if first[0] is None:
            raise too_large(self.limits.body_bytes, self.limits.body_bytes)
        plan_of = await self._work(open_batch, first[0], self.limits.caps)
        head: Headers = [(b"content-type", NDJSON_TYPE)]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await self._answer_lines(first[1:], plan_of, send)
        try:
            async for group in lines:
                await self._answer_lines(group, plan_of, send)
        except GatewayError as error:  # the answer has begun: what went wrong becomes its last line
            last = encode({"id": None, **error_response(_payload_error(error))}) + b"\n"
            await send({"type": "http.response.body", "body": last, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _answer_lines(self, lines: list[bytes | None], plan_of: PlanOf, send: Send) -> None:
        while self._in_flight >= self.limits.max_in_flight:  # the answer has begun: wait for a place
            await asyncio.sleep(_WAIT_SECONDS)
        answers = await self._work(lambda: b"".join([self._answer_line(line, plan_of) for line in lines]))
        if answers:
            await send({"type": "http.response.body", "body": answers, "more_body": True})

    def _answer_line(self, line: bytes | None, plan_of: PlanOf) -> bytes:
        """One line of the answer: a report, or the error of this pair alone."""
        if line is not None and not line.strip():
            return b""
        try:
            if line is None:
                raise too_large(self.limits.body_bytes, self.limits.body_bytes)
            identity, report = answer_pair(line, plan_of)
            return b'{"id":%b,"report":%b}\n' % (identity, report)
        except PayloadError as error:
            identity = id_of(line) if line is not None else b"null"
            return b'{"id":%b,%b\n' % (identity, encode(error_response(error))[1:])

    async def _openapi(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_bytes(send, 200, self._document, JSON_TYPE)

    async def _docs(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_bytes(send, 200, openapi_page(compare_document()), b"text/html; charset=utf-8")

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, 200, {"status": "ok"})


async def _refuse(scope: Scope, send: Send, error: DriftlineError) -> None:
    """The error response of the comparison (payloads §6), with the members that every error of the server has."""
    told = error if isinstance(error, PayloadError) else public_error(error)
    status = 422 if told.code == "VALIDATION_ERROR" else STATUS_OF_CODE.get(told.code, 422)
    headers = {**error_headers(told), **({"Allow": told.allow} if "allow" in told.context else {})}
    body = {**error_response(_payload_error(told)), "code": told.code, "requestId": scope["request_id"]}
    await send_json(send, status, body, [(name.lower().encode(), value.encode()) for name, value in headers.items()])


def _payload_error(error: DriftlineError) -> PayloadError:
    if isinstance(error, PayloadError):
        return error
    limit = {"limit_bytes": error.limit} if "limit" in error.context else {}
    return PayloadError(error.message, code=error.code, details=limit)


async def _lines(chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[list[bytes | None]]:
    """Groups of whole lines as they arrive; None stands for a line beyond the limit, which is not kept."""
    rest: list[bytes] = []
    size = 0
    async for chunk in chunks:
        head, *tail = chunk.split(b"\n")
        rest.append(head)
        size += len(head)
        if size > limit:
            rest = [b""]  # remembers only that it was too long
        if not tail:
            continue
        whole: list[bytes | None] = [b"".join(rest) if size <= limit else None, *tail[:-1]]
        rest, size = [tail[-1]], len(tail[-1])
        yield whole
    if size > limit:
        yield [None]
    elif size:
        yield [b"".join(rest)]

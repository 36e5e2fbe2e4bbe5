"""The compare service over HTTP: stateless, one pair or a stream of pairs, with limits; its document and its pages.

Plain ASGI, because a comparison takes a fraction of a millisecond and a framework's request objects would not.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import Any, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from driftline.errors import DriftlineError, GatewayError, PayloadError
from driftline.http import STATUS_OF_CODE, error_headers, public_error, read_body, stream_body
from driftline.payloads import (
    BYTES_PER_MB,
    EngineConfig,
    PayloadPlan,
    check_members,
    compile as compile_schema,
    error_response,
    parse_json,
    raw_members,
    readable_members,
    to_json_bytes,
)
from driftline.sinks import environment
from driftline.version import __version__

Headers = list[tuple[bytes, bytes]]
JSON_TYPE = b"application/json"
NDJSON_TYPE = b"application/x-ndjson"
_WAIT_SECONDS = 0.01
_JSON_FRAME_BYTES = 1 << 20  # space for the schema and the names around two payloads
_RAW_MEMBERS = frozenset({"old_json", "new_json", "schema_fragment", "old", "new", "id"})
Answer = TypeVar("Answer")
Authorize = Callable[[Scope], None]  # raises what the caller lacks

_OLD = '{"id": 7, "total": 10.0, "status": "OPEN"}'
_NEW = '{"id": 7, "total": 10.004, "status": "open"}'
_RULES = """type: object
properties:
  total: {type: number, x-migration-precision: 0.01}
  status: {type: string, x-migration-case-insensitive: true}
"""
_DEEPEST = 6


# Responses as ASGI messages.
async def send_bytes(send: Send, status: int, body: bytes, media_type: bytes, headers: Headers | None = None) -> None:
    head = [(b"content-type", media_type), (b"content-length", str(len(body)).encode()), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


# Requests: their JSON, and the plan and payloads that they name.
class CompareRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One comparison (payloads §1.1), with `root`."""

    old_json: msgspec.Raw
    new_json: msgspec.Raw
    schema_fragment: msgspec.Raw
    config: dict[str, Any] | None = None
    root: str | None = None


class BatchHeader(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of a batch: one schema, or several by endpoint."""

    schema_fragment: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    schemas: dict[str, msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    config: dict[str, Any] | None = None
    root: str | None = None


class BatchPair(msgspec.Struct, forbid_unknown_fields=True):
    """A further line of a batch; its payloads are JSON text."""

    old: msgspec.Raw
    new: msgspec.Raw
    id: msgspec.Raw = msgspec.Raw(b"null")
    endpoint: str | None = None


_request = msgspec.json.Decoder(CompareRequest).decode
_header = msgspec.json.Decoder(BatchHeader).decode
_pair = msgspec.json.Decoder(BatchPair).decode


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
    def body_bytes(self) -> int:
        """Both payloads of a request, and what stands around them."""
        return int(2 * self.payload_mb * BYTES_PER_MB) + _JSON_FRAME_BYTES

    def limited(self, config: dict[str, Any] | None) -> dict[str, Any]:
        """The caller's settings within the caps: larger payloads are cut down to them, other settings are refused."""
        settings = dict(config or {})
        for name in ("timeout_seconds", "max_depth"):
            requested, cap = settings.get(name), getattr(self, name)
            if isinstance(requested, int | float) and requested > cap:
                message = f"config property {name} can be at most {cap:g} here, not {requested:g}"
                raise PayloadError(message, details={"reason": message, "property": name, "limit": cap})
        settings.setdefault("timeout_seconds", min(EngineConfig().timeout_seconds, self.timeout_seconds))
        requested = settings.get("max_payload_size_mb", self.payload_mb)
        if isinstance(requested, int | float) and not isinstance(requested, bool):
            settings["max_payload_size_mb"] = min(requested, self.payload_mb)
        return settings


PlanOf = Callable[[str | None], PayloadPlan]


def answer_request(body: bytes, limits: CompareLimits) -> bytes:
    """The report of one request; raises `PayloadError`."""
    request: CompareRequest = _decoded(_request, CompareRequest, body, "the request")
    plan = _plan(request.schema_fragment, request.config, request.root, limits)
    return plan.compare(bytes(request.old_json), bytes(request.new_json)).to_json()


def open_batch(line: bytes, limits: CompareLimits) -> PlanOf:
    """The plans that a batch's first line declares, by endpoint."""
    header: BatchHeader = _decoded(_header, BatchHeader, line, "the first line")
    if isinstance(header.schemas, dict):
        plans = {name: _plan(schema, header.config, header.root, limits) for name, schema in header.schemas.items()}
        return lambda endpoint: _chosen(plans, endpoint)
    if isinstance(header.schema_fragment, msgspec.UnsetType):
        raise PayloadError(
            "the first line needs schema_fragment or schemas", details={"reason": "no schema", "line": 1, "column": 1}
        )
    plan = _plan(header.schema_fragment, header.config, header.root, limits)
    return lambda endpoint: plan


def answer_pair(line: bytes, plan_of: PlanOf) -> tuple[bytes, bytes]:
    """The id and the report of one line, both as JSON; raises `PayloadError`."""
    pair: BatchPair = _decoded(_pair, BatchPair, line, "the line")
    report = plan_of(pair.endpoint).compare(bytes(pair.old), bytes(pair.new))
    return bytes(pair.id), report.to_json()


def _chosen(plans: dict[str, PayloadPlan], endpoint: str | None) -> PayloadPlan:
    if (endpoint or "") not in plans:
        raise PayloadError(f"no schema for the endpoint {endpoint!r}", details={"reason": "unknown endpoint"})
    return plans[endpoint or ""]


def _plan(schema: msgspec.Raw, config: dict[str, Any] | None, root: str | None, limits: CompareLimits) -> PayloadPlan:
    content: Any = bytes(schema)
    if content[:1] == b'"':
        content = msgspec.json.decode(content)  # YAML or JSON as text
    return compile_schema(content, limits.limited(config), root, seconds=limits.compile_seconds)


def _decoded(decode: Callable[[bytes], Any], kind: type[Any], data: bytes, what: str) -> Any:
    try:
        decoded = decode(data)
        check_members(data)
        return decoded
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        # Says line and column where it is not JSON at all; lone surrogates are read the slow way.
        members = raw_members(data, what)
        if "\\ud" in data.decode("utf-8", "replace").lower():
            return _from_members(kind, members, what)
        raise PayloadError(f"{what} is not valid: {error}", details={"reason": str(error)}) from None


def _from_members(kind: type[Any], members: dict[str, msgspec.Raw], what: str) -> Any:
    """A request from members that are JSON text still."""
    raw = {name: value for name, value in members.items() if name in _RAW_MEMBERS}
    plain = {name: parse_json(bytes(value), what) for name, value in members.items() if name not in raw}
    try:
        return msgspec.convert({**raw, **plain}, kind)
    except msgspec.ValidationError as error:
        raise PayloadError(f"{what} is not valid: {error}", details={"reason": str(error)}) from None


def too_large(size: int, limit: int) -> PayloadError:
    """A body or line beyond the server's limit."""
    return PayloadError(
        f"the body has more than {limit / BYTES_PER_MB:g} MB",
        code="PAYLOAD_TOO_LARGE",
        details={"bytes": size, "limit_bytes": limit},
    )


# The service.
class CompareService:
    """An ASGI application; its only state is the number of comparisons under way.

    All work on a caller's input is done by threads, so that no comparison, however slow, keeps others from an answer.
    """

    def __init__(self, limits: CompareLimits | None = None, *, authorize: Authorize | None = None) -> None:
        self.limits = limits or CompareLimits()
        self._authorize = authorize
        self._in_flight = 0
        self._threads = ThreadPoolExecutor(self.limits.threads, thread_name_prefix="compare")
        self._routes = {"/v1/compare": self._single, "/v1/compare/batch": self._batch}
        self._read: dict[str, Callable[[], tuple[bytes, bytes]]] = {
            "/v1/compare/openapi.json": lambda: (to_json_bytes(compare_document()), JSON_TYPE),
            "/v1/compare/docs": lambda: (openapi_page(compare_document()), b"text/html; charset=utf-8"),
            "/v1/compare/health": lambda: (b'{"status":"ok"}', JSON_TYPE),
        }
        self.paths = frozenset([*self._routes, *self._read])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route_name"] = "compare"
        path, method = scope["path"], "GET" if scope["path"] in self._read else "POST"
        try:
            if scope["method"] != method and not (method == "GET" and scope["method"] == "HEAD"):
                raise PayloadError(f"use {method}", code="METHOD_NOT_ALLOWED", allow=method)
            if method == "GET":
                await send_bytes(send, 200, *self._read[path]())
                return
            if self._authorize is not None:
                self._authorize(scope)
            await self._routes[path](scope, receive, send)
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
        body = await read_body(scope, receive, self.limits.body_bytes)
        await send_bytes(send, 200, await self._work(answer_request, body, self.limits), JSON_TYPE)

    async def _batch(self, scope: Scope, receive: Receive, send: Send) -> None:
        lines = _lines(stream_body(scope, receive), self.limits.body_bytes)
        first: list[bytes | None] = await anext(lines, [b""])
        if first[0] is None:
            raise too_large(self.limits.body_bytes, self.limits.body_bytes)
        plan_of = await self._work(open_batch, first[0], self.limits)
        head: Headers = [(b"content-type", NDJSON_TYPE)]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await self._answer_lines(first[1:], plan_of, send)
        try:
            async for group in lines:
                await self._answer_lines(group, plan_of, send)
        except GatewayError as error:  # the answer has begun: what went wrong becomes its last line
            last = to_json_bytes({"id": None, **error_response(_payload_error(error))}) + b"\n"
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
            identity = to_json_bytes(
                None if line is None else readable_members(line).get("id")
            )  # as far as it is there
            return b'{"id":%b,%b\n' % (identity, to_json_bytes(error_response(error))[1:])


async def _refuse(scope: Scope, send: Send, error: DriftlineError) -> None:
    """The error response of the comparison (payloads §6), with the members that every error of the server has."""
    public = error if isinstance(error, PayloadError) else public_error(error)
    status = 422 if public.code == "VALIDATION_ERROR" else STATUS_OF_CODE.get(public.code.wire, 422)
    headers = {**error_headers(public), **({"Allow": public.allow} if "allow" in public.context else {})}
    body = {**error_response(_payload_error(public)), "code": public.code.wire, "requestId": scope["request_id"]}
    shown = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send_bytes(send, status, to_json_bytes(body), JSON_TYPE, shown)


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
            rest = [b""]  # records only that it was too long
        if not tail:
            continue
        whole: list[bytes | None] = [b"".join(rest) if size <= limit else None, *tail[:-1]]
        rest, size = [tail[-1]], len(tail[-1])
        yield whole
    if size > limit:
        yield [None]
    elif size:
        yield [b"".join(rest)]


# The OpenAPI document, and the pages on which an API can be tried.
def compare_document() -> dict[str, Any]:
    """The document of `/v1/compare` and `/v1/compare/batch`: `compare_openapi.json`, with the version."""
    document: dict[str, Any] = json.loads((files("driftline.web") / "compare_openapi.json").read_bytes())
    document["info"]["version"] = __version__
    return document


# Pages. Each is self-contained: styles and script are inline, and its policy allows those two and this server alone.
def openapi_page(*documents: dict[str, Any]) -> bytes:
    """The page of one or more documents: their operations, then their schemas."""
    return _page("api.html", here="docs", documents=documents, operations=lambda document: list(_operations(document)))


def server_page(gateway: str | None) -> bytes:
    return _page("server.html", here="start", version=__version__, gateway=gateway, old=_OLD, new=_NEW, rules=_RULES)


def _page(template: str, **shown: object) -> bytes:
    look, script, policy = _parts()
    text = environment("driftline.web").get_template(template).render(look=look, script=script, policy=policy, **shown)
    return text.encode()


@cache
def _parts() -> tuple[str, str, str]:
    """Styles and script, and a policy that names them by their hashes."""
    sheets = (files("driftline.sinks") / "templates/look.css", files("driftline.web") / "_console/static/console.css")
    look = "".join(sheet.read_text("utf-8") for sheet in sheets)
    script = (files("driftline.web") / "templates" / "try.js").read_text("utf-8")
    style_hash, script_hash = (b64encode(sha256(text.encode()).digest()).decode() for text in (look, script))
    policy = (
        f"default-src 'none'; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return look, script, policy


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The operations of an API, each with what a form needs to try it."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            kind = next(iter(content), "")
            yield {
                "description": "",
                **operation,
                "method": method,
                "path": path,
                "parameters": [
                    {"description": "", "required": False, "value": each.get("schema", {}).get("enum", [""])[0], **each}
                    for each in operation.get("parameters", ())
                ],
                "type": kind,
                "example": _example_text(content[kind]["schema"], document, kind) if kind else "",
                "answers": [(status, answer["description"]) for status, answer in operation["responses"].items()],
            }


def _example_text(schema: dict[str, Any], document: dict[str, Any], kind: str) -> str:
    if kind == "application/x-ndjson":
        return f'{{"schema_fragment": {{}}}}\n{{"id": 1, "old": {_OLD}, "new": {_NEW}}}\n'
    return json.dumps(_example(schema, document["components"]["schemas"], _DEEPEST), indent=2)


def _example(schema: dict[str, Any], schemas: dict[str, Any], depth: int) -> Any:
    """A small value that fits a schema, as far as its required members say."""
    if "$ref" in schema:
        return _example(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth - 1)
    for word in ("example", "const", "default"):
        if word in schema:
            return schema[word]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" and depth > 0:
        members = schema.get("properties", {})
        return {
            name: _example(members[name], schemas, depth - 1) for name in schema.get("required", ()) if name in members
        }
    if kind == "array" and depth > 0:
        return [_example(schema["items"], schemas, depth - 1)] if "items" in schema else []
    return {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}.get(str(kind), {})

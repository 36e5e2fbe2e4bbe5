"""The HTTP routes of the sync protocol (gateway §4 to §8), and their OpenAPI document."""

from __future__ import annotations

import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from driftline.core import JsonObject
from driftline.deltas import COLUMN_TYPES, MAX_ID_LENGTH, physical_ms
from driftline.errors import GatewayError
from driftline.gateway._auth import Caller
from driftline.gateway._lake.snapshot import ARROW, DEFAULT_LIMIT as SNAPSHOT_LIMIT, NDJSON
from driftline.gateway._service import Gateway
from driftline.gateway._settings import GatewaySettings
from driftline.gateway._sync.feed import wait_of
from driftline.gateway._sync.pull import DEFAULT_LIMIT, REASONS
from driftline.gateway._sync.push import MAX_DELTAS
from driftline.gateway._sync.rules import FILTER_OPS, OPEN, OPERATIONS, READ
from driftline.http import read_body
from driftline.version import __version__

Handler = Callable[[Gateway, Request], Awaitable[Response]]

_JSON = "application/json"
_STREAMING = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # proxies must not buffer events
_HLC = {"type": "string", "pattern": "^[0-9]{1,19}$", "description": "hybrid logical clock, a decimal string"}
_ID = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
_TABLE = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_]{0,63}$"}
_COLUMN = {"type": "string", "minLength": 1, "maxLength": 255}
_COLUMN_TYPE = {
    "anyOf": [{"enum": list(COLUMN_TYPES)}, {"type": "string", "pattern": r"^decimal\(([0-9]|[12][0-9]|3[0-8])\)$"}]
}
_ERRORS = {
    400: "malformed (VALIDATION_ERROR)",
    401: "no valid token (AUTH_ERROR)",
    403: "not allowed (FORBIDDEN)",
    409: "from too far in the future (CLOCK_DRIFT) or too old (TOO_OLD)",
    410: "the cursor is gone, for the given reason (MUST_REFETCH)",
    413: "the body is too large (PAYLOAD_TOO_LARGE)",
    415: "an encoded body (UNSUPPORTED_MEDIA_TYPE)",
    422: "against the schema (SCHEMA_ERROR)",
    429: "too many requests (RATE_LIMITED)",
    503: "try again later (BACKPRESSURE_ERROR)",
}
_GENERAL = (401, 403, 429, 503)


async def push(gateway: Gateway, request: Request) -> Response:
    """Accept a batch of deltas."""
    caller = _caller(gateway, request)
    body = await _body(gateway, request)
    if caller is None:
        caller = _insecure_caller(gateway, _claimed_client(body))
        gateway.limiter.take(caller.client_id)
    push, appended = await gateway.push(caller, body)
    fresh = b",".join([push.entries[position].body for position in appended.fresh])
    answer = b'{"serverHlc":"%d","serverTime":%d,"accepted":%d,"deltas":[%b]}' % (
        appended.server_hlc,
        physical_ms(),
        len(push.entries),
        fresh,
    )
    if appended.hidden:
        answer = b'%b,"hidden":[%b]}' % (answer[:-1], b",".join(b"%d" % position for position in appended.hidden))
    return Response(answer, media_type=_JSON)


async def pull(gateway: Gateway, request: Request) -> Response:
    """Send a page of deltas; with `wait` and no new delta, as soon as there is one."""
    caller, query = _client(gateway, request), dict(request.query_params)
    seconds = wait_of(query)
    page = await (gateway.feeds.long_poll(caller, query, seconds) if seconds else gateway.pull(caller, query))
    answer = b'{"deltas":[%b],"serverHlc":"%d","serverTime":%d,"hasMore":%b,"cursor":"%b"}' % (
        b",".join(page.deltas),
        gateway.server_hlc(),
        physical_ms(),
        b"true" if page.has_more else b"false",
        page.cursor.encode().encode(),
    )
    if types := gateway.exact_types(caller):
        answer = b'%b,"types":%b}' % (answer[:-1], msgspec.json.encode(types))
    gateway.metrics.add("driftline_deltas_pulled_total", len(page.deltas))
    gateway.metrics.add("driftline_sent_bytes_total", len(answer))
    return Response(answer, media_type=_JSON)


async def feed(gateway: Gateway, request: Request) -> Response:
    """Send deltas as they arrive."""
    caller, query = _client(gateway, request), dict(request.query_params)
    last = request.headers.get("last-event-id")
    if last:
        query = {**query, "cursor": last}
    return FeedResponse(gateway, caller, query)


class FeedResponse(Response):
    """A stream of events; its listener is counted while it is open."""

    def __init__(self, gateway: Gateway, caller: Caller, query: dict[str, str]) -> None:
        super().__init__(media_type="text/event-stream")
        self._gateway = gateway
        self._caller = caller
        self._query = query

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse an invalid cursor, then stream."""
        feeds = self._gateway.feeds
        with feeds.listening(self._caller.client_id):
            first = await feeds.first_event(self._caller, self._query)
            events = feeds.events(self._caller, self._query, first)
            await StreamingResponse(events, media_type=self.media_type, headers=_STREAMING)(scope, receive, send)


async def snapshot(gateway: Gateway, request: Request) -> Response:
    """Send a page of the state, for a new client."""
    caller, query = _client(gateway, request), dict(request.query_params)
    as_arrow = ARROW in request.headers.get("accept", "")
    page = await gateway.snapshot(caller, query, as_arrow=as_arrow)
    if as_arrow or "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(page, media_type=ARROW if as_arrow else NDJSON, headers={"Vary": "Accept, Accept-Encoding"})
    packed = await gateway.in_thread(gzip.compress, page, 1)
    return Response(packed, media_type=NDJSON, headers={"Content-Encoding": "gzip", "Vary": "Accept, Accept-Encoding"})


async def flush(gateway: Gateway, request: Request) -> Response:
    """Flush the log to the lake."""
    _admin(gateway, request)
    report = await gateway.flush()
    unusual = {"known": report.known, "setAside": report.set_aside}
    found = {name: count for name, count in unusual.items() if count}
    return _json_response({"flushed": report.deltas, "tables": report.tables, **found})


async def set_schema(gateway: Gateway, request: Request) -> Response:
    """Register a table's schema."""
    _admin(gateway, request)
    schema = await gateway.set_schema(await _body(gateway, request))
    return _json_response(schema.to_wire())


async def set_rules(gateway: Gateway, request: Request) -> Response:
    """Set (POST) or remove (DELETE) the sync rules."""
    _admin(gateway, request)
    rules = await gateway.set_rules(None if request.method == "DELETE" else await _body(gateway, request))
    return _json_response({"buckets": 0 if rules is None else len(rules.buckets)})


async def admin_metrics(gateway: Gateway, request: Request) -> Response:
    """The gateway's state in numbers."""
    _admin(gateway, request)
    bounds = await gateway.in_thread(gateway.log.bounds)
    identity = await gateway.in_thread(gateway.log.identity)
    totals = gateway.metrics.totals()
    names = ("accepted", "applied", "pulled")
    return _json_response(
        {
            "gateway": gateway.settings.gateway,
            "serverHlc": str(gateway.server_hlc()),
            "log": {
                "id": identity.log_id,
                "was": list(identity.was),
                "pruned": bounds.pruned,
                "last": bounds.last,
                "flushed": gateway.log.flush_progress().flushed,
            },
            "lake": {"setBack": int(totals["driftline_set_back_total"]), "closed": gateway.configuration().closed},
            "pending": gateway.pending,
            "deltas": {name: int(totals[f"driftline_deltas_{name}_total"]) for name in names},
            "lastSeenHlc": {client: str(hlc) for client, hlc in gateway.last_seen.items()},
        }
    )


_ROUTES: tuple[tuple[str, str, list[str], Handler], ...] = (
    ("push", "/sync/{gw}/push", ["POST"], push),
    ("pull", "/sync/{gw}/pull", ["GET"], pull),
    ("feed", "/sync/{gw}/feed", ["GET"], feed),
    ("snapshot", "/sync/{gw}/snapshot", ["GET"], snapshot),
    ("flush", "/admin/flush/{gw}", ["POST"], flush),
    ("schema", "/admin/schema/{gw}", ["POST"], set_schema),
    ("sync-rules", "/admin/sync-rules/{gw}", ["POST", "DELETE"], set_rules),
    ("metrics", "/admin/metrics/{gw}", ["GET"], admin_metrics),
)


def gateway_routes(gateway: Gateway) -> list[BaseRoute]:
    """The routes of the sync protocol; the server also offers them under `/v1`."""
    return [Route(path, _endpoint(gateway, name, handler), methods=methods) for name, path, methods, handler in _ROUTES]


def _endpoint(gateway: Gateway, name: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        request.scope["route_name"] = name
        await gateway.fetch_keys(request.scope)
        return await handler(gateway, request)

    return endpoint


def _caller(gateway: Gateway, request: Request) -> Caller | None:
    """The authenticated caller, allowed on this gateway and within its rate limit; None in insecure mode."""
    wanted = request.path_params["gw"]
    caller = gateway.authenticate(request.scope)
    if caller is None:
        if wanted != gateway.settings.gateway:
            raise GatewayError("this server is another gateway", code="FORBIDDEN")
        return None
    request.scope["client_id"] = caller.client_id
    if not caller.gateway == wanted == gateway.settings.gateway:
        raise GatewayError("the token is not for this gateway", code="FORBIDDEN")
    gateway.limiter.take(caller.client_id)
    return caller


def _client(gateway: Gateway, request: Request) -> Caller:
    """The caller of a read; a `clientId` in its query must be its own."""
    caller, claimed = _caller(gateway, request), request.query_params.get("clientId")
    if caller is None:
        caller = _insecure_caller(gateway, claimed)
        gateway.limiter.take(caller.client_id)
    elif claimed is not None and claimed != caller.client_id:
        raise GatewayError("clientId is not the token's subject", code="FORBIDDEN")
    return caller


def _admin(gateway: Gateway, request: Request) -> None:
    caller = _caller(gateway, request)
    if caller is not None and not caller.is_admin:
        raise GatewayError("this needs the role admin", code="FORBIDDEN")


def _insecure_caller(gateway: Gateway, client_id: str | None) -> Caller:
    if not client_id:
        raise GatewayError("clientId is required")
    return Caller(client_id, gateway.settings.gateway, "client", {"sub": client_id, "gw": gateway.settings.gateway})


class _ClientOnly(msgspec.Struct):
    clientId: str = ""  # noqa: N815 - the wire's name


def _claimed_client(body: bytes) -> str | None:
    try:
        return msgspec.json.decode(body, type=_ClientOnly).clientId
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise GatewayError(f"the body is not a push: {str(error)[:200]}") from error


async def _body(gateway: Gateway, request: Request) -> bytes:
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise GatewayError(f"content encoding {encoding[:40]!r} is not taken", code="UNSUPPORTED_MEDIA_TYPE")
    return await read_body(request.scope, request.receive, gateway.settings.body_limit)


def _json_response(content: Any) -> Response:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "replace"), media_type=_JSON)


# The OpenAPI document.


def openapi_document(settings: GatewaySettings) -> JsonObject:
    """The document for one gateway; it is also true of `/v1`."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "driftline sync gateway", "version": __version__},
        "servers": [{"url": "/"}, {"url": "/v1"}],
        "security": [] if settings.insecure else [{"token": []}],
        "paths": _paths(settings.gateway),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
            "schemas": _schemas(),
        },
    }


def _paths(gateway: str) -> JsonObject:
    own = {"name": "gw", "in": "path", "required": True, "schema": {"type": "string", "enum": [gateway]}}
    return {
        "/sync/{gw}/push": {
            "post": _operation(
                "Push a batch of deltas, all or nothing", "PushAnswer", (400, 409, 413, 415, 422), [own], "Push"
            )
        },
        "/sync/{gw}/pull": {
            "get": _operation(
                "Pull deltas in arrival order; with wait=N, where there are none, as soon as there are (at most 30 s)",
                "PullAnswer",
                (400, 410),
                [own, *_pull_parameters()],
            )
        },
        "/sync/{gw}/feed": {"get": _feed_operation(own)},
        "/sync/{gw}/snapshot": {"get": _snapshot_operation(own)},
        "/admin/flush/{gw}": {"post": _operation("Flush the log to the lake", "Flushed", (), [own])},
        "/admin/schema/{gw}": {
            "post": _operation("Register a table's schema", "TableSchema", (400, 413, 415, 422), [own], "TableSchema")
        },
        "/admin/sync-rules/{gw}": {
            "post": _operation("Set the sync rules", "RulesSet", (400, 413, 415), [own], "SyncRules"),
            "delete": _operation("Remove the sync rules", "RulesSet", (), [own]),
        },
        "/admin/metrics/{gw}": {"get": _operation("The gateway in numbers", "Numbers", (), [own])},
        "/health": {"get": _open_operation("Alive", "Status")},
        "/ready": {"get": _open_operation("Able to take pushes", "Status", (503,))},
        "/metrics": {"get": _metrics_operation()},
        "/openapi.json": {"get": _open_operation("This document", "Document")},
    }


def _operation(
    summary: str, answer: str, errors: tuple[int, ...], parameters: list[Any], body: str | None = None
) -> JsonObject:
    operation: JsonObject = {"summary": summary, "parameters": parameters}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json_of(body)}
    operation["responses"] = _responses(answer, (*errors, *_GENERAL))
    return operation


def _feed_operation(own: JsonObject) -> JsonObject:
    parameters = [each for each in _pull_parameters() if each["name"] in ("clientId", "since", "cursor")]
    operation = _operation("Deltas as they arrive, as server-sent events", "Document", (400, 410), [own, *parameters])
    content = {"text/event-stream": {"schema": {"type": "string"}}}
    operation["responses"]["200"] = {"description": "events until one side ends them", "content": content}
    return operation


def _snapshot_operation(own: JsonObject) -> JsonObject:
    page = {"name": "page", "in": "query", "required": False, "schema": {"type": "string"}}
    limit = {**page, "name": "limit", "schema": {"type": "integer", "minimum": 1, "default": SNAPSHOT_LIMIT}}
    operation = _operation("The state to begin with, in pages", "Document", (400, 410), [own, page, limit])
    kinds = (NDJSON, ARROW)
    operation["responses"]["200"]["content"] = {kind: {"schema": {"type": "string"}} for kind in kinds}
    return operation


def _open_operation(summary: str, answer: str, errors: tuple[int, ...] = ()) -> JsonObject:
    return {"summary": summary, "security": [], "responses": _responses(answer, errors)}


def _metrics_operation() -> JsonObject:
    content = {"text/plain": {"schema": {"type": "string"}}}
    answer = {"200": {"description": "metrics", "content": content}}
    return {"summary": "Prometheus metrics", "security": [], "responses": answer}


def _responses(answer: str, errors: tuple[int, ...]) -> JsonObject:
    responses: JsonObject = {"200": {"description": "done", "content": _json_of(answer)}}
    for status in sorted(errors):
        responses[str(status)] = {"description": _ERRORS[status], "content": _json_of("Error")}
    return responses


def _pull_parameters() -> list[JsonObject]:
    def parameter(name: str, schema: JsonObject, text: str) -> JsonObject:
        return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}

    limit = {"type": "integer", "minimum": 1, "default": DEFAULT_LIMIT}
    return [
        parameter("clientId", _ID, "must be the token's subject"),
        parameter("since", _HLC, "deltas with a greater hlc; since or cursor is required"),
        parameter("cursor", {"type": "string"}, "where the last page ended; wins over since"),
        parameter("limit", limit, "page size, at most 10,000"),
    ]


def _json_of(name: str) -> JsonObject:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _object(required: JsonObject, optional: JsonObject | None = None) -> JsonObject:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
        "additionalProperties": False,
    }


def _list(item: JsonObject, **limits: int) -> JsonObject:
    return {"type": "array", "items": item, **limits}


def _ref(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas() -> JsonObject:
    number, text, deltas = {"type": "integer"}, {"type": "string"}, _list(_ref("Delta"))
    counts = {"type": "object", "additionalProperties": number}
    server = {"serverHlc": _HLC, "serverTime": {**number, "description": "the gateway's wall clock, in milliseconds"}}
    return {
        "Delta": _delta(),
        "Push": _object(
            {"clientId": _ID, "deltas": _list(_ref("Delta"), maxItems=MAX_DELTAS)},
            {"lastSeenHlc": {"anyOf": [_HLC, {"type": "null"}]}},
        ),
        "PushAnswer": _object(
            {**server, "accepted": number, "deltas": deltas},
            {"hidden": {**_list(number), "description": "accepted deltas after which the caller does not see the row"}},
        ),
        "PullAnswer": _object(
            {"deltas": deltas, **server, "hasMore": {"type": "boolean"}, "cursor": text},
            {"types": {"type": "object", "description": "by table and column, the types of exact numbers"}},
        ),
        "TableSchema": _object(
            {"table": _TABLE, "columns": _list(_object({"name": _COLUMN, "type": _COLUMN_TYPE}))},
            {"key": _list(_COLUMN)},
        ),
        "SyncRules": _object({"version": {"const": 1}, "buckets": _list(_bucket())}, {"writes": _writes()}),
        "RulesSet": _object({"buckets": number}),
        "Flushed": _object({"flushed": number, "tables": counts}, {"known": number, "setAside": number}),
        "Numbers": {"type": "object"},
        "Status": _object({"status": text}),
        "Document": {"type": "object"},
        "Error": _object({"error": text, "code": text, "requestId": text}, _error_members()),
    }


def _error_members() -> JsonObject:
    number, text = {"type": "integer"}, {"type": "string"}
    refetch = "with 410 " + ", ".join(REASONS)
    return {
        "positions": {**_list(number), "description": "the refused deltas of a push, in order"},
        "column": {**text, "description": "of the first refused delta"},
        "reason": {**text, "description": f"with 403, 410 and 503; {refetch}"},
        "snapshot": {**text, "description": "with 410: the address of the state to begin with"},
        "limit": {**number, "description": "bytes of a body, or deltas of a push"},
        "retryAfter": {**number, "description": "seconds, as the header says"},
        "aheadMs": number,
        "maxDriftMs": number,
        "maxHlc": _HLC,
        "serverHlc": _HLC,
        "serverTime": number,
    }


def _delta() -> JsonObject:
    return _object(
        {
            "op": {"enum": ["INSERT", "UPDATE", "DELETE"]},
            "table": _TABLE,
            "rowId": _ID,
            "clientId": _ID,
            "columns": _list(_object({"column": _COLUMN, "value": {}})),
            "hlc": _HLC,
            "deltaId": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        }
    )


def _filters() -> JsonObject:
    return _list(_object({"column": _COLUMN, "op": {"enum": list(FILTER_OPS)}, "value": {}}))


def _bucket() -> JsonObject:
    return _object({"name": {"type": "string"}, "tables": _list(_TABLE, minItems=1)}, {"filters": _filters()})


def _writes() -> JsonObject:
    side = {"anyOf": [{"const": READ}, _filters()]}
    columns = _object({}, {"only": _list(_COLUMN), "except": _list(_COLUMN)})
    condition = _object({}, {"before": side, "after": side, "columns": columns, "ids": {"type": "string"}})
    allowed = {"anyOf": [{"enum": [READ, False]}, condition]}
    entry = _object({"tables": _list(_TABLE, minItems=1)}, dict.fromkeys(OPERATIONS, allowed))
    return {"anyOf": [{"const": OPEN}, _list(entry)]}

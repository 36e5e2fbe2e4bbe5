"""The HTTP routes of the sync protocol (gateway §4 to §8), and their OpenAPI document."""

from __future__ import annotations

import gzip
import json
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from driftline.core import JsonObject
from driftline.deltas import physical_ms
from driftline.errors import GatewayError
from driftline.gateway._auth import Caller
from driftline.gateway._lake.snapshot import ARROW, NDJSON
from driftline.gateway._service import Gateway
from driftline.gateway._settings import GatewaySettings
from driftline.gateway._sync.feed import wait_of
from driftline.http import read_body
from driftline.version import __version__

Handler = Callable[[Gateway, Request], Awaitable[Response]]

_JSON = "application/json"
_STREAMING = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # proxies must not buffer events


async def push(gateway: Gateway, request: Request) -> Response:
    """Accept a batch of deltas."""
    caller = _caller(gateway, request)
    body = await _body(gateway, request)
    if caller is None:
        try:
            claimed = msgspec.json.decode(body, type=_ClientOnly).clientId
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise GatewayError(f"the body is not a push: {str(error)[:200]}") from error
        caller = _insecure_caller(gateway, claimed)
    push, appended = await gateway.push(caller, body)
    fresh = b",".join([push.entries[position].body for position in appended.fresh])
    parts = (appended.server_hlc, physical_ms(), len(push.entries), fresh)
    answer = b'{"serverHlc":"%d","serverTime":%d,"accepted":%d,"deltas":[%b]}' % parts
    if appended.hidden:
        answer = b'%b,"hidden":[%b]}' % (answer[:-1], b",".join(b"%d" % position for position in appended.hidden))
    return Response(answer, media_type=_JSON)


async def pull(gateway: Gateway, request: Request) -> Response:
    """Send a page of deltas; with `wait` and no new delta, as soon as there is one."""
    caller, query = _client(gateway, request), dict(request.query_params)
    seconds = wait_of(query)
    page = await (gateway.feeds.long_poll(caller, query, seconds) if seconds else gateway.pull(caller, query))
    has_more, cursor = b"true" if page.has_more else b"false", page.cursor.encode().encode()
    parts = (b",".join(page.deltas), gateway.server_hlc(), physical_ms(), has_more, cursor)
    answer = b'{"deltas":[%b],"serverHlc":"%d","serverTime":%d,"hasMore":%b,"cursor":"%b"}' % parts
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
    head = await gateway.in_thread(gateway.log.head)
    identity = await gateway.in_thread(gateway.log.identity)
    totals = gateway.metrics.totals()
    names, shown = ("accepted", "applied", "pulled"), ("pruned", "last", "flushed")
    return _json_response(
        {
            "gateway": gateway.settings.gateway,
            "serverHlc": str(gateway.server_hlc()),
            "log": {"id": identity.log_id, "was": list(identity.was), **{name: getattr(head, name) for name in shown}},
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
    requested = request.path_params["gw"]
    caller = gateway.authenticate(request.scope)
    if caller is None:
        if requested != gateway.settings.gateway:
            raise GatewayError("this server is another gateway", code="FORBIDDEN")
        return None
    request.scope["client_id"] = caller.client_id
    if not caller.gateway == requested == gateway.settings.gateway:
        raise GatewayError("the token is not for this gateway", code="FORBIDDEN")
    gateway.limiter.take(caller.client_id)
    return caller


def _client(gateway: Gateway, request: Request) -> Caller:
    """The caller of a read; a `clientId` in its query must be its own."""
    caller, claimed = _caller(gateway, request), request.query_params.get("clientId")
    if caller is None:
        caller = _insecure_caller(gateway, claimed)
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
    gateway.limiter.take(client_id)
    return Caller(client_id, gateway.settings.gateway, "client", {"sub": client_id, "gw": gateway.settings.gateway})


class _ClientOnly(msgspec.Struct):
    clientId: str = ""  # noqa: N815 - the wire's name


async def _body(gateway: Gateway, request: Request) -> bytes:
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise GatewayError(f"content encoding {encoding[:40]!r} is not taken", code="UNSUPPORTED_MEDIA_TYPE")
    return await read_body(request.scope, request.receive, gateway.settings.body_limit)


def _json_response(content: Any) -> Response:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "replace"), media_type=_JSON)


def openapi_document(settings: GatewaySettings) -> JsonObject:
    """The OpenAPI document of one gateway, which is also true of `/v1`; it is a file beside this one."""
    text = resources.files("driftline.gateway").joinpath("openapi.json").read_text("utf-8")
    document: JsonObject = json.loads(text.replace("{gateway}", settings.gateway))
    document["info"]["version"] = __version__
    return document | ({"security": []} if settings.insecure else {})

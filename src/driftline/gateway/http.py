"""The gateway over HTTP: routes, and the frame around every request (id, log line, metrics, errors as JSON)."""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftline.errors import DriftlineError, GatewayError
from driftline.gateway.auth import Caller
from driftline.gateway.limits import read_limited
from driftline.gateway.metrics import exposition
from driftline.gateway.openapi import openapi_document
from driftline.gateway.service import Gateway

Handler = Callable[[Gateway, Request], Awaitable[Response]]

STATUS_OF_CODE = {
    "VALIDATION_ERROR": 400,
    "AUTH_ERROR": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "CLOCK_DRIFT": 409,
    "TOO_OLD": 409,
    "MUST_REFETCH": 410,
    "PAYLOAD_TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "SCHEMA_ERROR": 422,
    "RATE_LIMITED": 429,
    "INTERNAL_ERROR": 500,
    "BACKPRESSURE_ERROR": 503,
}
_CODE_OF_STATUS = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_JSON = "application/json"
_logger = logging.getLogger("driftline.gateway.requests")


# --- the routes ----------------------------------------------------------------------------------------------------


async def push(gateway: Gateway, request: Request) -> Response:
    """Take a batch of deltas."""
    caller = _caller(gateway, request)
    body = await _body(gateway, request)
    if caller is None:
        caller = _insecure_caller(gateway, _claimed_client(body))
        gateway.limiter.take(caller.client_id)
    push, appended = await gateway.push(caller, body)
    fresh = b",".join([push.entries[position].body for position in appended.fresh])
    answer = b'{"serverHlc":"%d","accepted":%d,"deltas":[%b]}' % (appended.server_hlc, len(push.entries), fresh)
    return Response(answer, media_type=_JSON)


async def pull(gateway: Gateway, request: Request) -> Response:
    """Give a page of deltas."""
    caller = _caller(gateway, request)
    query = dict(request.query_params)
    claimed = query.get("clientId")
    if caller is None:
        caller = _insecure_caller(gateway, claimed)
        gateway.limiter.take(caller.client_id)
    elif claimed is not None and claimed != caller.client_id:
        raise GatewayError("clientId is not the token's subject", code="FORBIDDEN")
    page = await gateway.pull(caller, query)
    answer = b'{"deltas":[%b],"serverHlc":"%d","hasMore":%b,"cursor":"%b"}' % (
        b",".join(page.deltas),
        gateway.server_hlc(),
        b"true" if page.has_more else b"false",
        page.cursor.encode().encode(),
    )
    gateway.metrics.add("driftline_sent_bytes_total", len(answer))
    return Response(answer, media_type=_JSON)


async def flush(gateway: Gateway, request: Request) -> Response:
    """Write what the log has to the lake, now."""
    _admin(gateway, request)
    report = await gateway.flush()
    return _json_response({"flushed": report.deltas, "tables": report.tables})


async def set_schema(gateway: Gateway, request: Request) -> Response:
    """Register a table's schema."""
    _admin(gateway, request)
    schema = await gateway.set_schema(await _body(gateway, request))
    return _json_response(schema.to_wire())


async def set_rules(gateway: Gateway, request: Request) -> Response:
    """Set (POST) or remove (DELETE) the sync rules."""
    _admin(gateway, request)
    rules = await gateway.set_rules(None if request.method == "DELETE" else await _body(gateway, request))
    return Response(msgspec.json.encode({"buckets": 0 if rules is None else len(rules.buckets)}), media_type=_JSON)


async def admin_metrics(gateway: Gateway, request: Request) -> Response:
    """The gateway's state in numbers, for people and scripts."""
    _admin(gateway, request)
    bounds = await gateway.in_thread(gateway.log.bounds)
    totals = gateway.metrics.totals()
    names = ("accepted", "applied", "pulled")
    return _json_response(
        {
            "gateway": gateway.settings.gateway,
            "serverHlc": str(gateway.server_hlc()),
            "log": {"pruned": bounds.pruned, "last": bounds.last, "flushed": gateway.log.marks().flushed},
            "pending": gateway.pending,
            "deltas": {name: int(totals[f"driftline_deltas_{name}_total"]) for name in names},
            "lastSeenHlc": {client: str(hlc) for client, hlc in gateway.last_seen.items()},
        }
    )


async def health(gateway: Gateway, request: Request) -> Response:
    """Alive."""
    return _json_response({"status": "ok"})


async def ready(gateway: Gateway, request: Request) -> Response:
    """Able to take pushes."""
    await gateway.check_ready()
    return _json_response({"status": "ready"})


async def metrics(gateway: Gateway, request: Request) -> Response:
    """Prometheus metrics."""
    bounds = gateway.log.bounds()
    server_ms = gateway.server_hlc() >> 16
    lag = max((server_ms - (hlc >> 16) for hlc in gateway.last_seen.values()), default=0)
    gauges = {
        "driftline_log_last_sequence": ("Newest sequence of the log.", bounds.last),
        "driftline_log_pruned_sequence": ("Everything up to this sequence is forgotten.", bounds.pruned),
        "driftline_log_flushed_sequence": ("Everything up to this is in the lake.", gateway.log.marks().flushed),
        "driftline_log_wal_bytes": ("Size of the write-ahead log.", gateway.log.size()),
        "driftline_pending_deltas": ("Deltas waiting to be written (this process).", gateway.pending),
        "driftline_last_seen_lag_ms": ("How far the hindmost client's lastSeenHlc lies back (this process).", lag),
    }
    text = exposition(gateway.metrics.totals(), gauges)
    return Response(text, media_type="text/plain; version=0.0.4")


async def openapi(gateway: Gateway, request: Request) -> Response:
    """The OpenAPI document."""
    return _json_response(openapi_document(gateway.settings))


_ROUTES: tuple[tuple[str, str, list[str], Handler], ...] = (
    ("push", "/sync/{gw}/push", ["POST"], push),
    ("pull", "/sync/{gw}/pull", ["GET"], pull),
    ("flush", "/admin/flush/{gw}", ["POST"], flush),
    ("schema", "/admin/schema/{gw}", ["POST"], set_schema),
    ("sync-rules", "/admin/sync-rules/{gw}", ["POST", "DELETE"], set_rules),
    ("metrics", "/admin/metrics/{gw}", ["GET"], admin_metrics),
    ("health", "/health", ["GET"], health),
    ("ready", "/ready", ["GET"], ready),
    ("metrics", "/metrics", ["GET"], metrics),
    ("openapi", "/openapi.json", ["GET"], openapi),
)


def gateway_routes(gateway: Gateway) -> list[BaseRoute]:
    """Every route, unversioned and under `/v1`."""
    routes = [
        Route(path, _endpoint(gateway, name, handler), methods=methods) for name, path, methods, handler in _ROUTES
    ]
    return [*routes, Mount("/v1", routes=routes)]


def gateway_app(gateway: Gateway) -> ASGIApp:
    """The gateway as an application of its own; closing it is the server's task."""
    cors = [
        Middleware(
            CORSMiddleware,
            allow_origins=list(gateway.settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    ]
    app = Starlette(
        routes=gateway_routes(gateway),
        middleware=cors if gateway.settings.cors_origins else [],
        exception_handlers=EXCEPTION_HANDLERS,
    )
    return RequestFrame(app, gateway)


# --- errors --------------------------------------------------------------------------------------------------------


def error_response(scope: Scope, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """The body every error has."""
    content = {"error": message, "code": code, "requestId": scope.get("request_id", "")}
    return _json_response(content, STATUS_OF_CODE.get(code, 500), headers)


def _on_driftline_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DriftlineError)
    headers = {}
    if "retry_after" in error.context:
        headers["Retry-After"] = str(error.context["retry_after"])
    if error.code == "AUTH_ERROR":
        headers["WWW-Authenticate"] = "Bearer"
    code = error.code if error.code in STATUS_OF_CODE else "BACKPRESSURE_ERROR"
    if code != error.code:  # the lake or a file is in trouble: said in the log, the client may try again
        _logger.error("failed", extra={"fields": {"code": error.code, "error": error.message}})
        return error_response(request.scope, code, "the store cannot be used just now", {"Retry-After": "5"})
    return error_response(request.scope, code, error.message, headers)


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODE_OF_STATUS.get(error.status_code, "VALIDATION_ERROR")
    return error_response(request.scope, code, str(error.detail), dict(error.headers or {}))


def _on_fault(request: Request, error: Exception) -> Response:
    return error_response(request.scope, "INTERNAL_ERROR", f"internal error ({type(error).__name__})")


EXCEPTION_HANDLERS: dict[Any, Any] = {
    DriftlineError: _on_driftline_error,
    HTTPException: _on_http_exception,
    Exception: _on_fault,
}


# --- the frame -----------------------------------------------------------------------------------------------------


class RequestFrame:
    """Gives every request an id, counts it and writes one line about it; what nobody caught becomes a plain 500."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request inside its frame."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        scope["request_id"] = request_id = _request_id(scope)
        status = 0

        async def framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, framed)
        except ClientDisconnect:
            status = status or 400
        except Exception as error:
            _logger.exception("internal error", extra={"fields": {"requestId": request_id}})
            if status == 0:
                response = error_response(scope, "INTERNAL_ERROR", f"internal error ({type(error).__name__})")
                await response(scope, receive, framed)
        finally:
            self._finished(scope, status, time.perf_counter() - started)

    def _finished(self, scope: Scope, status: int, seconds: float) -> None:
        self._gateway.metrics.request(scope.get("route_name", "other"), status, seconds)
        fields = {
            "requestId": scope["request_id"],
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "ms": round(seconds * 1000, 2),
        }
        if "client_id" in scope:
            fields["clientId"] = scope["client_id"]
        _logger.info("request", extra={"fields": fields})


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value.decode("latin-1")):
            return str(value.decode("latin-1"))
    return secrets.token_hex(8)


def _endpoint(gateway: Gateway, name: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        request.scope["route_name"] = name
        return await handler(gateway, request)

    return endpoint


def _caller(gateway: Gateway, request: Request) -> Caller | None:
    """The authenticated caller, allowed on this gateway and within its rate; None in insecure mode."""
    wanted = request.path_params["gw"]
    if gateway.authenticator is None:
        if wanted != gateway.settings.gateway:
            raise GatewayError("this server is another gateway", code="FORBIDDEN")
        return None
    caller = gateway.authenticator.caller(request.headers.get("authorization"))
    request.scope["client_id"] = caller.client_id
    if not caller.gateway == wanted == gateway.settings.gateway:
        raise GatewayError("the token is not for this gateway", code="FORBIDDEN")
    gateway.limiter.take(caller.client_id)
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
    declared = request.headers.get("content-length")
    return await read_limited(request.stream(), gateway.settings.body_limit, declared)


def _json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "replace"), status, headers, media_type=_JSON)

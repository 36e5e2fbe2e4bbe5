"""The server as one ASGI application: the compare service, a gateway if there is one, and their shared routes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from driftline.errors import GatewayError
from driftline.http import EXCEPTION_HANDLERS, Metrics, RequestMiddleware, prometheus_text
from driftline.version import __version__
from driftline.web._compare import Authorize, CompareLimits, CompareService, compare_document, openapi_page, server_page

if TYPE_CHECKING:
    from driftline.gateway import Gateway

_METRICS_TYPE = "text/plain; version=0.0.4"
# The routes of every server, which are also offered under `/v1`, by the names of their handlers.
_PATHS = {"index": "/", "docs": "/docs", "openapi": "/openapi.json"}
_PATHS.update({name: f"/{name}" for name in ("health", "ready", "metrics")})
_ALLOWED_HEADERS = ["Authorization", "Content-Type", "Last-Event-ID", "X-Request-Id"]
_EXPOSED_HEADERS = ["Retry-After", "X-Request-Id"]  # what a browser's client needs beside the body


def application(metrics: Metrics, limits: CompareLimits, gateway: Gateway | None = None) -> ASGIApp:
    """Everything that a server process offers, with its middleware."""
    routes = Front(metrics, gateway).routes()
    if gateway is not None:
        from driftline.gateway import gateway_routes

        routes += gateway_routes(gateway)
    rest = Starlette(routes=[*routes, Mount("/v1", routes=routes)], exception_handlers=EXCEPTION_HANDLERS)
    comparing = CompareService(limits, authorize=None if gateway is None else _guard(gateway))

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        # Looked up directly: a comparison takes less time than a router's search.
        await (comparing if scope["path"] in comparing.paths else rest)(scope, receive, send)

    app: ASGIApp = either
    origins = () if gateway is None else gateway.settings.cors_origins
    if origins:
        methods, allowed, exposed = ["GET", "POST", "DELETE"], _ALLOWED_HEADERS, _EXPOSED_HEADERS
        app = CORSMiddleware(app, list(origins), methods, allow_headers=allowed, expose_headers=exposed)
    return RequestMiddleware(app, metrics)


def _guard(gateway: Gateway) -> Authorize | None:
    """Comparing beside a gateway needs one of its tokens, unless the operator opened it."""
    if gateway.settings.open_compare or gateway.authenticator is None:
        return None

    def authorize(scope: Scope) -> None:
        caller = gateway.authenticate(scope)
        if caller is not None and caller.gateway != gateway.settings.gateway:
            raise GatewayError("the token is not for this gateway", code="FORBIDDEN")

    return authorize


class Front:
    """The routes of every server, with a gateway or without: start, documents, health, metrics (gateway §2)."""

    def __init__(self, metrics: Metrics, gateway: Gateway | None) -> None:
        self._counters = metrics
        self._gateway = gateway

    def routes(self) -> list[BaseRoute]:
        handlers = {name: _named(name, getattr(self, f"_{name}")) for name in _PATHS}
        return [Route(_PATHS[name], handler, methods=["GET"]) for name, handler in handlers.items()]

    async def _index(self, request: Request) -> Response:
        gateway = None if self._gateway is None else self._gateway.settings.gateway
        links = {**_PATHS, "compare": "/v1/compare", **({} if gateway is None else {"sync": f"/v1/sync/{gateway}"})}
        del links["index"]
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(server_page(gateway))
        return JSONResponse({"service": "driftline", "version": __version__, "gateway": gateway, "links": links})

    async def _docs(self, request: Request) -> Response:
        return HTMLResponse(openapi_page(*self._documents()))

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(self._documents()[0])

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        if self._gateway is not None:
            await self._gateway.check_ready()
        return JSONResponse({"status": "ready"})

    async def _metrics(self, request: Request) -> Response:
        gauges = {} if self._gateway is None else await self._gateway.in_thread(self._gateway.gauges)
        return Response(prometheus_text(self._counters.totals(), gauges), media_type=_METRICS_TYPE)

    def _documents(self) -> list[dict[str, Any]]:
        if self._gateway is None:
            return [compare_document()]
        from driftline.gateway import openapi_document

        return [openapi_document(self._gateway.settings), compare_document()]


def _named(name: str, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Any:
        request.scope["route_name"] = name
        return await handler(request)

    return endpoint

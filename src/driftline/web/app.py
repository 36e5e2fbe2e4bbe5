"""The one server as an application: the compare service, the gateway where there is one, and what both share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from driftline.errors import GatewayError
from driftline.http._metrics import Metrics
from driftline.http._requests import EXCEPTION_HANDLERS, RequestFrame
from driftline.web.compare_service import Authorize, CompareLimits, CompareService
from driftline.web.front import Front

if TYPE_CHECKING:
    from driftline.gateway._service import Gateway

_ALLOWED_HEADERS = ["Authorization", "Content-Type", "Last-Event-ID", "X-Request-Id"]
_EXPOSED_HEADERS = ["Retry-After", "X-Request-Id"]  # what a browser's client needs beside the body


def application(metrics: Metrics, limits: CompareLimits, gateway: Gateway | None = None) -> ASGIApp:
    """Everything that a server process offers, framed."""
    routes = Front(metrics, gateway).routes()
    if gateway is not None:
        from driftline.gateway._http import gateway_routes

        routes += gateway_routes(gateway)
    rest = Starlette(
        routes=[*routes, Mount("/v1", routes=routes)],
        exception_handlers=EXCEPTION_HANDLERS,
    )
    comparing = CompareService(limits, authorize=None if gateway is None else _guard(gateway))
    app = _compose(comparing, rest)
    origins = () if gateway is None else gateway.settings.cors_origins
    return RequestFrame(_with_cors(app, origins) if origins else app, metrics)


def _compose(comparing: CompareService, rest: ASGIApp) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Looked up directly: a comparison takes less time than a router's search.
        await (comparing if scope["path"] in comparing.paths else rest)(scope, receive, send)

    return app


def _guard(gateway: Gateway) -> Authorize | None:
    """Comparing beside a gateway needs one of its tokens, unless the operator opened it."""
    if gateway.settings.open_compare or gateway.authenticator is None:
        return None

    def authorize(scope: Scope) -> None:
        caller = gateway.authenticate(scope)
        if caller is not None and caller.gateway != gateway.settings.gateway:
            raise GatewayError("the token is not for this gateway", code="FORBIDDEN")

    return authorize


def _with_cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=_ALLOWED_HEADERS,
        expose_headers=_EXPOSED_HEADERS,
    )

"""The frame around every request: an id, a log line, counts, its share of memory, and errors in one shape."""

from __future__ import annotations

import logging
import re
import secrets
import time
from contextlib import ExitStack
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftline.errors import DriftlineError
from driftline.serving.bodies import BodiesUnderWay, BodyLimits
from driftline.serving.errors import STATUS_OF_CODE, code_of_status, error_body, error_headers, public_error
from driftline.serving.metrics import Metrics

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_JSON = "application/json"
# What a refetch tells a client beside its code: why, and where the state to begin with is (gateway §3).
_REFETCH_MEMBERS = ("reason", "snapshot")
_logger = logging.getLogger("driftline.requests")


class RequestFrame:
    """Serves every request inside its frame; what nobody caught becomes a plain 500."""

    def __init__(self, app: ASGIApp, metrics: Metrics, limits: BodyLimits | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._under_way = BodiesUnderWay(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        with ExitStack() as stack:
            request = _Framed(scope, send)
            stack.callback(self._finished, request)
            scope["request_id"] = request.id
            scope["body_share"] = stack.enter_context(self._under_way.reading())
            await request.serve(self._app, receive)

    def _finished(self, request: _Framed) -> None:
        seconds = time.perf_counter() - request.started
        scope, status = request.scope, request.status
        route = scope.get("route_name", "other")
        self._metrics.request(route, status, seconds)
        # Comparisons are many and short: only those that were refused get a line.
        level = logging.DEBUG if route == "compare" and status < 400 else logging.INFO
        if _logger.isEnabledFor(level):
            _logger.log(level, "request", extra={"fields": _line(scope, status, seconds)})


class _Framed:
    """One request under way."""

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
            await self._answer(error_response(self.scope, error), receive)
        except Exception as error:
            _logger.exception("internal error", extra={"fields": {"requestId": self.id}})
            await self._answer(error_response(self.scope, _fault(error)), receive)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.id.encode())]
        await self._send(message)

    async def _answer(self, response: Response, receive: Receive) -> None:
        if self.status == 0:  # an answer that has begun can only break off
            await response(self.scope, receive, self.send)


def error_response(scope: Scope, error: DriftlineError) -> Response:
    """The answer that tells a client about an error; what it may not see is written to the log."""
    told = public_error(error)
    if told is not error:
        fields = {"requestId": scope.get("request_id", ""), "code": error.code, "error": error.message}
        _logger.error("failed", extra={"fields": fields})
    body = error_body(told.code, told.message, scope.get("request_id", ""), **refetch_members(told))
    return Response(body, STATUS_OF_CODE[told.code], error_headers(told), media_type=_JSON)


def refetch_members(error: DriftlineError) -> dict[str, Any]:
    """The members that only a refetch has."""
    if error.code != "MUST_REFETCH":
        return {}
    return {name: error.context[name] for name in _REFETCH_MEMBERS if name in error.context}


def _on_driftline_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DriftlineError)
    return error_response(request.scope, error)


def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = DriftlineError(str(error.detail), code=code_of_status(error.status_code))
    response = error_response(request.scope, known)
    response.headers.update(dict(error.headers or {}))
    return response


def _on_fault(request: Request, error: Exception) -> Response:
    return error_response(request.scope, _fault(error))  # the frame logs it: the framework raises it again


def _fault(error: Exception) -> DriftlineError:
    return DriftlineError(f"internal error ({type(error).__name__})", code="INTERNAL_ERROR")


EXCEPTION_HANDLERS: dict[Any, Any] = {
    DriftlineError: _on_driftline_error,
    HTTPException: _on_http_exception,
    Exception: _on_fault,
}


def _line(scope: Scope, status: int, seconds: float) -> dict[str, Any]:
    fields = {
        "requestId": scope["request_id"],
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "ms": round(seconds * 1000, 2),
    }
    if "client_id" in scope:
        fields["clientId"] = scope["client_id"]
    return fields


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value.decode("latin-1")):
            return str(value.decode("latin-1"))
    return secrets.token_hex(8)

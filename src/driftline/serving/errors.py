"""The one shape of an error over HTTP: `{error, code, requestId}`, and the status of each code (gateway §3)."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from driftline.errors import DriftlineError, StorageError

STATUS_OF_CODE = {
    "VALIDATION_ERROR": 400,
    "AUTH_ERROR": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "REQUEST_TIMEOUT": 408,
    "CLOCK_DRIFT": 409,
    "TOO_OLD": 409,
    "MUST_REFETCH": 410,
    "PAYLOAD_TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "SCHEMA_ERROR": 422,
    "RATE_LIMITED": 429,
    "INTERNAL_ERROR": 500,
    "BACKPRESSURE_ERROR": 503,
    "OVERLOADED": 503,
}
_CODE_OF_STATUS = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
_RETRY_LATER_SECONDS = 5


def code_of_status(status: int) -> str:
    """The code of a refusal that a framework made."""
    return _CODE_OF_STATUS.get(status, "VALIDATION_ERROR" if status < 500 else "INTERNAL_ERROR")


def public_error(error: DriftlineError) -> DriftlineError:
    """The error as a client may see it.

    A store in trouble is worth another try; a code that the protocol does not know is a fault of the server, and its
    text may hold paths, so both are told in general words and written to the log in full.
    """
    if error.code in STATUS_OF_CODE:
        return error
    if isinstance(error, StorageError):
        message = "the store cannot be used just now"
        return DriftlineError(message, code="BACKPRESSURE_ERROR", retry_after=_RETRY_LATER_SECONDS)
    return DriftlineError(f"internal error ({error.code})", code="INTERNAL_ERROR")


def error_headers(error: DriftlineError) -> dict[str, str]:
    """What goes with an error beside its body."""
    headers = {}
    if "retry_after" in error.context:
        headers["Retry-After"] = str(error.context["retry_after"])
    if error.code == "AUTH_ERROR":
        headers["WWW-Authenticate"] = "Bearer"
    if error.code in ("REQUEST_TIMEOUT", "PAYLOAD_TOO_LARGE"):
        headers["Connection"] = "close"  # the rest of the body is not waited for
    return headers


def error_body(code: str, message: str, request_id: str = "", **more: Any) -> bytes:
    """The body every error has; some have members of their own."""
    content = {"error": message, "code": code, "requestId": request_id, **more}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def raw_refusal(code: str, message: str) -> bytes:
    """A whole HTTP/1.1 answer, for connections that have no request yet; it closes them."""
    status = HTTPStatus(STATUS_OF_CODE[code])
    body = error_body(code, message)
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body

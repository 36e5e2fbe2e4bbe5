"""Answers as ASGI messages: JSON bodies with their headers."""

from __future__ import annotations

from starlette.types import Send

from driftline.payloads._values.text import encode

Headers = list[tuple[bytes, bytes]]
JSON_TYPE = b"application/json"


async def send_json(send: Send, status: int, content: object, headers: Headers | None = None) -> None:
    """Send a value as JSON."""
    await send_bytes(send, status, encode(content), JSON_TYPE, headers)


async def send_bytes(send: Send, status: int, body: bytes, media_type: bytes, headers: Headers | None = None) -> None:
    """Send a whole body."""
    head = [(b"content-type", media_type), (b"content-length", str(len(body)).encode()), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})

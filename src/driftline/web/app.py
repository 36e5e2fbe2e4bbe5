"""The one server: groups of paths, each with its own application.

A group is a set of exact paths and an ASGI application; the first group that knows a path serves it, and `rest`
(the sync gateway, where there is one) gets everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from driftline.web.answers import send_json


class PathGroup(NamedTuple):
    """Paths that one application serves."""

    paths: frozenset[str]
    app: ASGIApp


def compose(groups: Sequence[PathGroup], rest: ASGIApp | None = None) -> ASGIApp:
    """An application that hands each request to the group that knows its path."""
    by_path: dict[str, ASGIApp] = {}
    for group in groups:
        for path in group.paths:
            by_path.setdefault(path, group.app)
    fallback = rest if rest is not None else _not_found

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await by_path.get(scope["path"], fallback)(scope, receive, send)
        elif rest is not None:
            await rest(scope, receive, send)

    return app


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    error = {"code": "NOT_FOUND", "message": f"there is nothing at {scope['path']}", "details": {}}
    await send_json(send, 404, {"success": False, "error": error, "partial_result": None})

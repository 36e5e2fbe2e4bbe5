"""What the pages of the console share: handlers, checked forms, responses, pages of rows, and templates."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import cache, wraps
from typing import Any
from urllib.parse import parse_qs

from jinja2 import Environment
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from driftline.core import missing_extra
from driftline.errors import DriftlineError
from driftline.sinks import environment

PAGE_ROWS = 50
_STATUS = {"not_found": 404, "file_changed": 409}
_LARGEST_FORM = 1 << 20
Form = dict[str, list[str]]  # empty fields are left out
Endpoint = Callable[[Request], Awaitable[Response]]


def handler(handle: Callable[[Any, Request], Awaitable[Response]]) -> Callable[[Any], Endpoint]:
    """A route's function, to be bound to a console; errors become a page, or JSON for scripts."""

    def bound(console: object) -> Endpoint:
        @wraps(handle)
        async def answer(request: Request) -> Response:
            try:
                return await handle(console, request)
            except DriftlineError as error:
                return error_answer(request, error)
            except ModuleNotFoundError as error:  # a page may need a package that was not installed
                missing = missing_extra(error)
                if missing is None:
                    raise
                return error_answer(request, missing)

        return answer

    return bound


async def checked_form(request: Request) -> Form:
    """The fields of a form that a page of ours sent."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_FORM:
            raise HTTPException(413, "this form is too large")
    form = parse_qs(body.decode("utf-8", "replace"), max_num_fields=10_000)
    given = form.get("form_token", [""])[0]
    if not hmac.compare_digest(given.encode(), str(request.scope["form_token"]).encode()):
        raise HTTPException(403, "this form is out of date: go back, load the page again and send it once more")
    return form


def page(request: Request, template: str, status: int = 200, **shown: object) -> Response:
    """A template, filled in."""
    shown = {"navigation": request.scope.get("navigation"), "section": "Tables", **shown}
    return HTMLResponse(render(template, form_token=request.scope.get("form_token", ""), **shown), status)


def page_count(rows: int) -> int:
    """How many pages some rows fill, at least one."""
    return max(1, -(-rows // PAGE_ROWS))


def status_of(error: DriftlineError) -> int:
    """The status of HTTP that an error has."""
    return _STATUS.get(error.code, 422)


def error_answer(request: Request, error: DriftlineError) -> Response:
    """An error as a page, or as JSON for scripts."""
    status = status_of(error)
    if request.headers.get("x-fragment") or request.method == "PUT":
        return JSONResponse({"code": error.code, "message": error.message}, status)
    return page(request, "error.html", status, code=error.code, message=error.message)


async def plain_error(request: Request, error: Exception) -> Response:
    """An error of HTTP itself."""
    assert isinstance(error, HTTPException)
    words = "there is nothing at this address" if error.status_code == 404 else error.detail
    return page(request, "error.html", error.status_code, code=str(error.status_code), message=words)


# Templates, and the filters that format sizes and times.
def render(template: str, **shown: object) -> str:
    """A template of this folder, filled in."""
    return _templates().get_template(template).render(**shown)


def compile_templates() -> None:
    """Make every template ready."""
    templates = _templates()
    for name in templates.list_templates():
        templates.get_template(name)


@cache
def _templates() -> Environment:
    templates = environment("driftline.web._console")
    templates.filters.update(bytes=byte_size, timestamp=timestamp, moment=moment, seconds=seconds)
    return templates


def byte_size(count: int) -> str:
    """A size in the unit that reads best."""
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def timestamp(value: str) -> str:
    """A time as a date and a time of day."""
    return datetime.fromisoformat(value).astimezone(UTC).strftime("%-d %b %Y %H:%M")


def moment(value: float) -> str:
    """Seconds since 1970 as a date and a time of day."""
    return datetime.fromtimestamp(value, UTC).strftime("%-d %b %Y %H:%M")


def seconds(value: float) -> str:
    """A duration, with as many digits as matter."""
    return f"{value:.1f} s" if value < 100 else f"{int(value // 60)} min {int(value % 60)} s"

"""What the pages of the console share: routes, checked forms, responses, views that turn pages, and templates."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from inspect import iscoroutinefunction
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from driftline.core import missing_extra
from driftline.errors import DriftlineError
from driftline.sinks import environment

PAGE_ROWS = 50
_STATUS = {"not_found": 404, "file_changed": 409}
_LARGEST_FORM = 1 << 20
Form = ImmutableMultiDict[str, str]  # empty fields are left out
Handler = Callable[..., Any]  # of the console, a request and, if it is a POST, its form


class Pages:
    """The routes of a section, collected by decorators; a handler that is no coroutine runs in a thread."""

    def __init__(self, section: str = "Tables") -> None:
        self._section = section
        self._handlers: list[tuple[str, str, Handler]] = []

    def __call__(self, path: str, method: str = "GET") -> Callable[[Handler], Handler]:
        def add(handle: Handler) -> Handler:
            self._handlers.append((path, method, handle))
            return handle

        return add

    def routes(self, console: object) -> list[Route]:
        return [
            Route(path, self._endpoint(console, method, handle), methods=[method])
            for path, method, handle in self._handlers
        ]

    def _endpoint(self, console: object, method: str, handle: Handler) -> Callable[[Request], Awaitable[Response]]:
        """The handler behind the check of a form; errors become a page, or JSON for scripts."""

        async def answer(request: Request) -> Response:
            request.scope["section"] = self._section
            given = [console, request, *([await checked_form(request)] if method == "POST" else [])]
            try:
                answer = handle(*given) if iscoroutinefunction(handle) else run_in_threadpool(handle, *given)
                response: Response = await answer
                return response
            except DriftlineError as error:
                return error_answer(request, error)
            except ModuleNotFoundError as error:  # a page may need a package that was not installed
                missing = missing_extra(error)
                if missing is None:
                    raise
                return error_answer(request, missing)

        return answer


async def checked_form(request: Request) -> Form:
    """The fields of a form that a page of ours sent."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_FORM:
            raise HTTPException(413, "this form is too large")
    form = Form(parse_qsl(body.decode("utf-8", "replace"), max_num_fields=10_000))
    if not hmac.compare_digest(form.get("form_token", "").encode(), str(request.scope["form_token"]).encode()):
        raise HTTPException(403, "this form is out of date: go back, load the page again and send it once more")
    return form


def page(request: Request, template: str, status: int = 200, /, **shown: Any) -> Response:
    shown = {"section": request.scope.get("section"), **shown}
    return HTMLResponse(render(template, form_token=request.scope.get("form_token", ""), **shown), status)


def view_page(request: Request, name: str, /, **shown: Any) -> Response:
    """A page with a view, or the view alone for the script that swaps it."""
    return page(request, f"{name}_body.html" if request.headers.get("x-fragment") else f"{name}.html", **shown)


def to_job(job: Any) -> Response:
    """Go on to the page of work under way."""
    return RedirectResponse(f"/jobs/{job.id}", 303)


class View(SimpleNamespace):
    """What one address shows: `query` has the words of the address, which are attributes beside what is found."""

    def __init__(self, address: str, query: Mapping[str, str], page: str = "", **found: object) -> None:
        super().__init__(**{"total": 0, "problem": "", **query, **found})
        self.address, self.query, self.page = address, query, number(page) or 1

    @property
    def pages(self) -> int:
        """How many pages the rows fill, at least one."""
        return max(1, -(-int(self.total) // PAGE_ROWS))

    @property
    def first(self) -> int:
        """The number of the first row of this page."""
        return (self.page - 1) * PAGE_ROWS

    def link(self, **change: object) -> str:
        """The address of a neighbouring view; every change but that of the page leads to its first page."""
        kept = {name: str(value) for name, value in {**self.query, **change}.items() if value not in ("", None)}
        if kept.get("page") == "1":
            del kept["page"]
        return f"{self.address}?{urlencode(kept)}" if kept else self.address


def number(text: str) -> int | None:
    """A small number of an address, or None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


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


# Templates, and the filters that format times.
def render(template: str, **shown: object) -> str:
    """A template of this folder, filled in."""
    return _templates().get_template(template).render(**shown)


def compile_templates() -> None:
    templates = _templates()
    for name in templates.list_templates():
        templates.get_template(name)


@cache
def _templates() -> Environment:
    templates = environment("driftline.web._console")
    templates.filters.update(timestamp=timestamp, moment=moment, seconds=seconds)
    return templates


def timestamp(value: str) -> str:
    return datetime.fromisoformat(value).astimezone(UTC).strftime("%-d %b %Y %H:%M")


def moment(value: float) -> str:
    return datetime.fromtimestamp(value, UTC).strftime("%-d %b %Y %H:%M")


def seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else f"{int(value // 60)} min {int(value % 60)} s"

"""The console's pages and what their forms do."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from functools import wraps
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from driftline.errors import DriftlineError, InputError
from driftline.web.console.diff_view import DiffView, view_of
from driftline.web.console.pages import render
from driftline.web.console.results import Comparison, Job, Results
from driftline.web.console.uploads import store_upload
from driftline.web.console.workspace import Workspace

_HERE = Path(__file__).parent
_STATUS = {"not_found": 404, "file_changed": 409}
_LARGEST_FORM = 1 << 20
Form = dict[str, list[str]]  # empty fields are left out
Handler = Callable[["Console", Request], Awaitable[Response]]


def handler(handle: Handler) -> Callable[[Console], Callable[[Request], Awaitable[Response]]]:
    """A route's function, bound to a console; errors become a page, or JSON for scripts."""

    def bound(console: Console) -> Callable[[Request], Awaitable[Response]]:
        @wraps(handle)
        async def answer(request: Request) -> Response:
            try:
                return await handle(console, request)
            except DriftlineError as error:
                return _error_answer(request, error)

        return answer

    return bound


class Console:
    """One folder shown in a browser."""

    def __init__(self, root: Path) -> None:
        self.workspace = Workspace(root)
        self.results = Results(self.workspace)

    def app(self) -> Starlette:
        """The ASGI application, without its guard."""
        routes = [
            Route("/", _start(self)),
            Route("/columns", _columns(self)),
            Route("/compare", _compare(self), methods=["POST"]),
            Route("/uploads/{name}", _upload(self), methods=["PUT"]),
            Route("/jobs/{id}", _job(self)),
            Route("/jobs/{id}/cancel", _cancel(self), methods=["POST"]),
            Route("/results/{id}", _result(self)),
            Route("/results/{id}/again", _again(self), methods=["POST"]),
            Route("/results/{id}/download", _download(self)),
            Route("/open", _open_file(self)),
            Route("/static/look.css", _look),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _plain_error})


# --- start -----------------------------------------------------------------------------------------------------------


@handler
async def _start(console: Console, request: Request) -> Response:
    tables = await run_in_threadpool(console.workspace.tables)
    recent = await run_in_threadpool(console.results.recent)
    return _page(request, "start.html", tables=tables, recent=recent, root=console.workspace.root.name, error="")


@handler
async def _columns(console: Console, request: Request) -> Response:
    """Columns of the chosen tables with how well each would serve as a key."""
    from driftline.web.console.key_columns import key_columns

    sides = [console.workspace.table_address(request.query_params.get(side, "")) for side in "ab"]
    return _page(request, "columns.html", columns=await run_in_threadpool(key_columns, *sides))


@handler
async def _compare(console: Console, request: Request) -> Response:
    form = await _checked_form(request)
    job = console.results.start(Comparison(form.get("a", [""])[0], form.get("b", [""])[0], _options(form)))
    return RedirectResponse(f"/jobs/{job.id}", 303)


def _options(form: Form) -> dict[str, Any]:
    """The options of a diff from the fields of the form; empty fields are left out."""
    options: dict[str, Any] = {}
    if key := form.get("key"):
        options["key"] = key
    if "ignore_column_order" in form:
        options["header_mode"] = "sorted"
    if "ignore_row_order" in form:
        options["ignore_row_order"] = True
    if delimiter := form.get("delimiter", [""])[0]:
        options["delimiter"] = "\t" if delimiter == "tab" else delimiter
    return options


@handler
async def _upload(console: Console, request: Request) -> Response:
    name = await store_upload(console.workspace, request.path_params["name"], request)
    return JSONResponse({"name": name})


# --- jobs ------------------------------------------------------------------------------------------------------------


@handler
async def _job(console: Console, request: Request) -> Response:
    job = console.results.job(request.path_params["id"])
    if job.done and job.error is None:
        return RedirectResponse(f"/results/{job.id}", 303)
    if request.headers.get("x-progress"):
        return JSONResponse(_progress(job))
    return _page(request, "job.html", job=job, progress=_progress(job))


def _progress(job: Job) -> dict[str, Any]:
    record = job.progress
    fraction = record.fraction if record is not None else None
    eta = record.eta if record is not None else None
    return {
        "done": job.done,
        "phase": record.phase if record is not None else "waiting",
        "percent": None if fraction is None else round(100 * fraction),
        "left": None if eta is None else round(eta),
        "error": None if job.error is None else {"code": job.error.code, "message": job.error.message},
    }


@handler
async def _cancel(console: Console, request: Request) -> Response:
    await _checked_form(request)
    job = console.results.job(request.path_params["id"])
    job.tracker.cancel()
    return RedirectResponse(f"/jobs/{job.id}", 303)


# --- results ---------------------------------------------------------------------------------------------------------


@handler
async def _result(console: Console, request: Request) -> Response:
    result = console.results.get(request.path_params["id"])
    view = await run_in_threadpool(
        lambda: view_of(console.results.events(result.id), request.url.path, request.query_params)
    )
    return _diff_page(request, view, result=result, name=None)


@handler
async def _open_file(console: Console, request: Request) -> Response:
    """An events file that a command wrote into the folder."""
    name = request.query_params.get("path", "")
    path = console.workspace.path_of(name)
    base = f"/open?{urlencode({'path': name})}"
    view = await run_in_threadpool(lambda: view_of(console.results.open(path), base, request.query_params))
    return _diff_page(request, view, result=None, name=name)


def _diff_page(request: Request, view: DiffView, **shown: Any) -> Response:
    return _page(request, "diff_body.html" if request.headers.get("x-fragment") else "diff.html", view=view, **shown)


@handler
async def _again(console: Console, request: Request) -> Response:
    await _checked_form(request)
    job = console.results.start(console.results.get(request.path_params["id"]).comparison)
    return RedirectResponse(f"/jobs/{job.id}", 303)


_DOWNLOADS = {"jsonl": "application/x-ndjson", "csv": "text/csv", "html": "text/html", "markdown": "text/markdown"}
_ENDINGS = {"markdown": "md"}


@handler
async def _download(console: Console, request: Request) -> Response:
    wanted = request.query_params.get("format", "jsonl")
    if wanted not in _DOWNLOADS:
        raise InputError(f"there is no download as {wanted!r}", code="not_found")
    result = console.results.get(request.path_params["id"])
    path = console.results.folder / result.id / "events.jsonl"
    body = await run_in_threadpool(_written, path, wanted)
    name = f"changes.{_ENDINGS.get(wanted, wanted)}"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(body, media_type=_DOWNLOADS[wanted], headers=headers)


def _written(path: Path, wanted: str) -> Any:
    """The events in another format, spooled to a temporary file that goes with its last reader."""
    import tempfile

    from driftline.sinks.formats import write_events

    out = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the answer was sent
    with path.open("rb") as lines:
        write_events(lines, out, wanted)
    out.seek(0)
    return iter(lambda: out.read(1 << 20), b"")


async def _look(request: Request) -> Response:
    """The stylesheet that reports carry inside them."""
    return FileResponse(str(files("driftline.sinks") / "templates" / "look.css"), media_type="text/css")


# --- answers ---------------------------------------------------------------------------------------------------------


async def _checked_form(request: Request) -> Form:
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


def _page(request: Request, template: str, status: int = 200, **shown: Any) -> Response:
    return HTMLResponse(render(template, form_token=request.scope.get("form_token", ""), **shown), status)


def _error_answer(request: Request, error: DriftlineError) -> Response:
    status = _STATUS.get(error.code, 422)
    if request.headers.get("x-fragment") or request.method == "PUT":
        return JSONResponse({"code": error.code, "message": error.message}, status)
    return _page(request, "error.html", status, code=error.code, message=error.message)


async def _plain_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = "there is nothing at this address" if error.status_code == 404 else error.detail
    return _page(request, "error.html", error.status_code, code=str(error.status_code), message=words)

"""The start page: choose two tables, a key and rules, see what the rules do, and compare."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from driftline.core._progress import Tracker
from driftline.errors import DriftlineError
from driftline.web.console.answers import Form, checked_form, handler, page
from driftline.web.console.jobs import Job
from driftline.web.console.option_form import form_groups, options_of
from driftline.web.console.preview import LARGE_BYTES, Preview
from driftline.web.console.results import Comparison
from driftline.web.console.uploads import store_upload

if TYPE_CHECKING:
    from driftline.web.console.app import Console


def routes(console: Console) -> list[Route]:
    """The start page, and what is under way."""
    return [
        Route("/", _start(console)),
        Route("/columns", _columns(console)),
        Route("/preview", _preview(console), methods=["POST"]),
        Route("/compare", _compare(console), methods=["POST"]),
        Route("/uploads/{name}", _upload(console), methods=["PUT"]),
        Route("/jobs/{id}", _job(console)),
        Route("/jobs/{id}/cancel", _cancel(console), methods=["POST"]),
    ]


@handler
async def _start(console: Console, request: Request) -> Response:
    """The form; `?from=RESULT` fills it in with what was compared before."""
    known = request.query_params.get("from")
    before = console.results.get(known).comparison if known else Comparison("", "")
    return page(
        request,
        "start.html",
        tables=await run_in_threadpool(console.workspace.tables),
        recent=await run_in_threadpool(console.results.recent),
        written=await run_in_threadpool(console.workspace.events_files),
        root=console.workspace.root.name,
        before=before,
        groups=form_groups(before.options),
    )


@handler
async def _columns(console: Console, request: Request) -> Response:
    """Columns of the chosen tables with how well each would serve as a key."""
    from driftline.web.console.key_columns import key_columns

    sides = [console.workspace.table_address(request.query_params.get(side, "")) for side in "ab"]
    return page(request, "columns.html", columns=await run_in_threadpool(key_columns, *sides), chosen=None)


@handler
async def _compare(console: Console, request: Request) -> Response:
    job = console.results.start(_comparison(await checked_form(request)))
    return RedirectResponse(f"/jobs/{job.id}", 303)


def _comparison(form: Form) -> Comparison:
    return Comparison(form.get("a", [""])[0], form.get("b", [""])[0], options_of(form))


@handler
async def _preview(console: Console, request: Request) -> Response:
    """What the rules do to the counts, or what is wrong with them."""
    form = await checked_form(request)
    shown: dict[str, Any] = {"preview": None, "size": 0, "error": ""}
    try:
        comparison = _comparison(form)
        shown["size"] = await run_in_threadpool(console.previews.size, comparison)
        if shown["size"] <= LARGE_BYTES or "now" in form:
            preview = shown["preview"] = await _counted(console, request, comparison)
            shown["error"] = preview.ruled.error
    except DriftlineError as error:  # half-written rules are no fault of the page
        shown["error"] = error.message
    return page(request, "preview.html", **shown)


async def _counted(console: Console, request: Request, comparison: Comparison) -> Preview:
    """The work stops when nobody waits for it any more."""
    tracker = Tracker()
    work = asyncio.ensure_future(run_in_threadpool(console.previews.preview, comparison, tracker))
    while not work.done():
        await asyncio.wait([work], timeout=0.3)
        if await request.is_disconnected():
            tracker.cancel()
    return work.result()


@handler
async def _upload(console: Console, request: Request) -> Response:
    name = await store_upload(console.workspace, request.path_params["name"], request)
    return JSONResponse({"name": name})


# --- what is under way -----------------------------------------------------------------------------------------------


@handler
async def _job(console: Console, request: Request) -> Response:
    job = console.jobs.get(request.path_params["id"])
    if job.done and job.error is None:
        return RedirectResponse(job.address, 303)
    if request.headers.get("x-progress"):
        return JSONResponse(_progress(job))
    return page(request, "job.html", job=job, progress=_progress(job))


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
    await checked_form(request)
    job = console.jobs.get(request.path_params["id"])
    job.tracker.cancel()
    return RedirectResponse(f"/jobs/{job.id}", 303)

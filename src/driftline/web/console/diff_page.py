"""The pages of a diff: of a result that the console keeps, or of an events file that a command wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from driftline.errors import InputError
from driftline.web.console.answers import checked_form, handler, page
from driftline.web.console.diff_view import DiffView, view_of

if TYPE_CHECKING:
    from driftline.web.console.app import Console

_DOWNLOADS = {"jsonl": "application/x-ndjson", "csv": "text/csv", "html": "text/html", "markdown": "text/markdown"}
_ENDINGS = {"markdown": "md"}


def routes(console: Console) -> list[Route]:
    """The pages of diffs."""
    return [
        Route("/results/{id}", _result(console)),
        Route("/results/{id}/again", _again(console), methods=["POST"]),
        Route("/results/{id}/download", _download(console)),
        Route("/open", _open_file(console)),
        Route("/open/download", _download_file(console)),
    ]


@handler
async def _result(console: Console, request: Request) -> Response:
    result = console.results.get(request.path_params["id"])
    view = await run_in_threadpool(
        lambda: view_of(console.results.events(result.id), request.url.path, request.query_params)
    )
    return _diff_page(request, view, result=result, name=None, download=f"/results/{result.id}/download?")


@handler
async def _open_file(console: Console, request: Request) -> Response:
    """An events file that a command wrote into the folder."""
    name = request.query_params.get("path", "")
    path = console.workspace.path_of(name)
    query = urlencode({"path": name})
    view = await run_in_threadpool(lambda: view_of(console.results.open(path), f"/open?{query}", request.query_params))
    return _diff_page(request, view, result=None, name=name, download=f"/open/download?{query}&")


def _diff_page(request: Request, view: DiffView, **shown: Any) -> Response:
    return page(request, "diff_body.html" if request.headers.get("x-fragment") else "diff.html", view=view, **shown)


@handler
async def _again(console: Console, request: Request) -> Response:
    await checked_form(request)
    job = console.results.start(console.results.get(request.path_params["id"]).comparison)
    return RedirectResponse(f"/jobs/{job.id}", 303)


@handler
async def _download(console: Console, request: Request) -> Response:
    result = console.results.get(request.path_params["id"])
    return await _converted(request, console.results.folder / result.id / "events.jsonl")


@handler
async def _download_file(console: Console, request: Request) -> Response:
    path = console.workspace.path_of(request.query_params.get("path", ""))
    console.results.open(path)  # says what is wrong with a file that holds no events
    return await _converted(request, path)


async def _converted(request: Request, path: Path) -> Response:
    wanted = request.query_params.get("format", "jsonl")
    if wanted not in _DOWNLOADS:
        raise InputError(f"there is no download as {wanted!r}", code="not_found")
    body = await run_in_threadpool(_written, path, wanted)
    name = f"changes.{_ENDINGS.get(wanted, wanted)}"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(body, media_type=_DOWNLOADS[wanted], headers=headers)


def _written(path: Path, wanted: str) -> Iterator[bytes]:
    """The events in another format, spooled to a temporary file that goes with its last reader."""
    import tempfile

    from driftline.sinks._formats import write_events

    out = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the answer was sent
    with path.open("rb") as lines:
        write_events(lines, out, wanted)
    out.seek(0)
    return iter(lambda: out.read(1 << 20), b"")

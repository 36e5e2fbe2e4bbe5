"""Pages about code: compare two revisions, then files, their definitions, and bodies side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from driftline.web.console.answers import checked_form, handler, page

if TYPE_CHECKING:
    from driftline.web.console.app import Console


def routes(console: Console) -> list[Route]:
    """The pages of code."""
    return [
        Route("/code", _start(console)),
        Route("/code", _compare(console), methods=["POST"]),
        Route("/code/revisions", _revisions(console)),
        Route("/code/{id}", _review(console)),
    ]


@handler
async def _start(console: Console, request: Request) -> Response:
    repositories = await run_in_threadpool(console.reviews.repositories)
    revisions = await run_in_threadpool(console.reviews.revisions, repositories[0]) if repositories else []
    recent = await run_in_threadpool(console.reviews.recent)
    return page(
        request,
        "code.html",
        section="Code",
        root=console.workspace.root.name,
        repositories=repositories,
        revisions=revisions,
        recent=recent,
    )


@handler
async def _revisions(console: Console, request: Request) -> Response:
    return JSONResponse(await run_in_threadpool(console.reviews.revisions, request.query_params.get("repository", "")))


@handler
async def _compare(console: Console, request: Request) -> Response:
    form = await checked_form(request)
    name, before, after = (form.get(field, [usual])[0] for field, usual in _FIELDS)
    job = await run_in_threadpool(console.reviews.start, name, before, after)
    return RedirectResponse(f"/jobs/{job.id}", 303)


_FIELDS = (("repository", "."), ("before", "HEAD~1"), ("after", "HEAD"))


@handler
async def _review(console: Console, request: Request) -> Response:
    review = console.reviews.get(request.path_params["id"])
    sections = await run_in_threadpool(console.reviews.sections, review)
    wanted = request.query_params.get("file", "")
    chosen = next((section for section in sections if section.path == wanted), sections[0] if sections else None)
    bodies = await run_in_threadpool(console.reviews.bodies, review, chosen) if chosen else []
    template = "review_body.html" if request.headers.get("x-fragment") else "review.html"
    return page(request, template, section="Code", review=review, sections=sections, chosen=chosen, bodies=bodies)

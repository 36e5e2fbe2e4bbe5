"""Pages about pipelines: which there are, a run as a picture with its limits and trends, and starting one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from driftline.errors import PipelineError
from driftline.web.console.answers import checked_form, handler, page
from driftline.web.console.pipeline_runs import BOX_HEIGHT, BOX_WIDTH, counts_in_short, picture, runs_by_day, trends

if TYPE_CHECKING:
    from driftline.web.console.app import Console


def routes(console: Console) -> list[Route]:
    """The pages of pipelines."""
    return [
        Route("/pipelines", _list(console)),
        Route("/pipelines/run", _run(console)),
        Route("/pipelines/start", _begin(console), methods=["POST"]),
    ]


@handler
async def _list(console: Console, request: Request) -> Response:
    known = await run_in_threadpool(console.pipelines.known)
    return page(request, "pipelines.html", section="Pipelines", known=known, root=console.workspace.root.name)


@handler
async def _run(console: Console, request: Request) -> Response:
    name, run_id = request.query_params.get("path", ""), request.query_params.get("run")
    shown = await run_in_threadpool(_shown, console, name, run_id)
    return page(request, "run.html", section="Pipelines", name=name, **shown)


def _shown(console: Console, name: str, run_id: str | None) -> dict[str, Any]:
    declared = console.pipelines.load(name)
    known = next((each for each in console.pipelines.known() if each.name == name), None)
    days = runs_by_day(known.runs if known else [])
    try:
        report = console.pipelines.report(name, run_id)
    except PipelineError as error:
        if error.code != "no_runs":
            raise
        return {"pipeline": declared, "days": days, "report": None}
    boxes, width, height = picture(report)
    links = {output: console.pipelines.address(declared, output) for stage in report.stages for output in stage.outputs}
    size = {"width": width, "height": height, "box_width": BOX_WIDTH, "box_height": BOX_HEIGHT}
    drawn = {
        "warnings": console.pipelines.warnings.get(report.run_id, []),
        "boxes": boxes,
        "size": size,
        "trends": trends(report),
        "links": links,
        "counts_of": counts_in_short,
    }
    return {"pipeline": declared, "days": days, "report": report, **drawn}


@handler
async def _begin(console: Console, request: Request) -> Response:
    form = await checked_form(request)
    wish = form.get("wish", [""])[0]
    job = await run_in_threadpool(console.pipelines.start, form.get("path", [""])[0], wish)
    return RedirectResponse(f"/jobs/{job.id}", 303)

"""Pages about pipelines: their runs by day, the report of a run as a picture, and starting one.

Running a pipeline may call what its file declares. So only files in the folder itself are run, never one that
was dropped onto a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from driftline.errors import Cancelled, DriftlineError, InputError, PipelineError
from driftline.sinks import number
from driftline.web._console.answers import checked_form, handler, page
from driftline.web._console.folder import HIDDEN_FOLDER, Folder
from driftline.web._console.results import Job, Jobs

if TYPE_CHECKING:
    from driftline.pipeline import Pipeline, ReportStage, RunReport, Selection
    from driftline.web._console.app import Console

_MOST_PIPELINES = 100
BOX_WIDTH, BOX_HEIGHT, COLUMN_WIDTH, ROW_HEIGHT = 206, 56, 250, 70
_SIGNS = {"added": "+", "removed": "−", "changed": "~"}


@dataclass(frozen=True)
class Known:
    """A pipeline of the folder with its last runs, newest first; or why it cannot be read."""

    name: str
    title: str
    runs: list[dict[str, Any]]
    error: str = ""


@dataclass(frozen=True)
class Box:
    """A stage in the picture: where it stands, and the lines to it from what it needs."""

    stage: ReportStage
    x: int
    y: int
    lines: list[str]


class Pipelines:
    """Finds pipelines, reads their runs and starts them."""

    def __init__(self, folder: Folder, jobs: Jobs) -> None:
        self.folder = folder
        self._jobs = jobs
        self.warnings: dict[str, list[str]] = {}  # error messages of the hooks of runs that were started here

    def known(self) -> list[Known]:
        """Every file that declares a pipeline."""
        names = [name for name in self.folder.names((".toml",)) if self._declares(name)]
        return [self._known(name) for name in names[:_MOST_PIPELINES]]

    def load(self, name: str) -> Pipeline:
        """The declared pipeline."""
        from driftline.pipeline import load

        path = self.folder.path_of(name)
        if HIDDEN_FOLDER in path.relative_to(self.folder.root).parts or path.suffix != ".toml":
            raise InputError(f"there is no pipeline {name!r} in this folder", code="not_found")
        return load(path)

    def report(self, name: str, run_id: str | None) -> RunReport:
        """The report of a run: the one that is named, or the newest."""
        from driftline.pipeline import run_report

        return run_report(self.load(name), run_id or None)

    def start(self, name: str, wish: str) -> Job:
        """Run a pipeline: all of it, what failed the last time (`failed`), or one flow (`NAME/*`)."""
        declared = self.load(name)
        selection = self._selection(declared, wish)
        return self._jobs.start(f"{declared.name}: run", lambda job: self._run(job, name, declared, selection))

    def address(self, pipeline: Pipeline, path: str) -> str | None:
        """The page that shows an output of a stage: events, a batch of payloads, a changeset; None for other files."""
        try:
            found = (pipeline.file.parent / path).resolve(strict=True)
            shown = self.folder.relative(found)
        except (OSError, ValueError):
            return None
        if (found / "aggregate.json").is_file():
            return f"/payloads/batch?{urlencode({'path': shown})}"
        if found.suffix == ".jsonl" and self.folder.begins_as_events(shown):
            return f"/open?{urlencode({'path': shown})}"
        return None

    def _declares(self, name: str) -> bool:
        try:
            with (self.folder.root / name).open("rb") as file:
                return b"[pipeline]" in file.read(1 << 16)
        except OSError:
            return False

    def _known(self, name: str) -> Known:
        from driftline.pipeline import RecordStore, state_directory

        try:
            declared = self.load(name)
            runs = [record for _, record in RecordStore(state_directory(declared)).runs() if record is not None]
            return Known(name, declared.name, runs)
        except DriftlineError as error:
            return Known(name, name, [], error.message)

    def _selection(self, declared: Pipeline, wish: str) -> Selection:
        from driftline.pipeline import RecordStore, Selection, failed_stages, state_directory

        if wish == "failed":
            return Selection(failed=failed_stages(RecordStore(state_directory(declared)).last_run()))
        return Selection(patterns=(wish,) if wish else ())

    def _run(self, job: Job, name: str, declared: Pipeline, selection: Selection) -> str:
        from driftline.pipeline import failed_before_start, notify, run_pipeline

        try:
            record = run_pipeline(declared, tracker=job.tracker, selection=selection)
        except Cancelled:
            raise
        except DriftlineError as error:  # it could not start: hooks and metrics report it
            notify(declared, failed_before_start(declared, error))
            raise
        self.warnings[record.run_id] = notify(declared, record)
        return f"/pipelines/run?{urlencode({'path': name, 'run': record.run_id})}"


def runs_by_day(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Runs under the day they began, newest day first; within a day in the order of the clock."""
    days = groupby(runs, lambda run: str(run["started_at"])[:10])
    return [(day, list(reversed(list(of_day)))) for day, of_day in days]


def picture(report: RunReport) -> tuple[list[Box], int, int]:
    """The stages as boxes with lines between them, and the size of the whole."""
    places = {
        stage.name: (stage.column * COLUMN_WIDTH + 8, stage.row * ROW_HEIGHT + 8) for stage in report.shown_stages
    }
    boxes = []
    for stage in report.shown_stages:
        x, y = places[stage.name]
        lines = [_line(*places[need], x, y) for need in stage.needs if need in places]
        boxes.append(Box(stage, x, y, lines))
    width = max((x for x, _ in places.values()), default=0) + BOX_WIDTH + 8
    height = max((y for _, y in places.values()), default=0) + BOX_HEIGHT + 8
    return boxes, width, height


def _line(from_x: int, from_y: int, to_x: int, to_y: int) -> str:
    start_x, start_y, end_y = from_x + BOX_WIDTH, from_y + BOX_HEIGHT // 2, to_y + BOX_HEIGHT // 2
    bend = (COLUMN_WIDTH - BOX_WIDTH) // 2
    return f"M{start_x},{start_y} C{start_x + bend},{start_y} {to_x - bend},{end_y} {to_x},{end_y}"


@dataclass(frozen=True)
class Trend:
    """A row of bars: one for each run, the last is the one that is shown."""

    name: str
    values: list[int | float]
    labels: list[str]

    @property
    def bars(self) -> list[tuple[float, float, str]]:
        """Where each bar stands, its height of 100, and its words."""
        most = max(self.values, default=0) or 1
        return [
            (place * 10, max(2.0, 100 * value / most) if value else 0.0, label)
            for place, (value, label) in enumerate(zip(self.values, self.labels, strict=True))
        ]


def counts_in_short(counts: Mapping[str, int]) -> list[str]:
    """The counts of a comparison with their signs; of anything else the first two in words."""
    signed = [f"{_SIGNS[name]}{number(count)}" for name, count in counts.items() if name in _SIGNS]
    return signed or [f"{name} {number(count)}" for name, count in list(counts.items())[:2]]


def trends(report: RunReport) -> list[Trend]:
    """How long runs took, and what each table's comparisons counted."""
    times = [f"{run.started_at[:16]}: {run.seconds:.1f} s" for run in report.runs]
    found = [Trend("seconds", [run.seconds for run in report.runs], times)]
    for table in dict.fromkeys(name for run in report.runs for name in run.changes):
        done = [(run.started_at[:16], run.changes.get(table, {})) for run in report.runs]
        labels = [f"{when}: {' '.join(counts_in_short(counts)) or 'not compared'}" for when, counts in done]
        found.append(Trend(table, [sum(counts.values()) for _, counts in done], labels))
    return found


# The pages.
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
    return page(request, "pipelines.html", section="Pipelines", known=known, root=console.folder.root.name)


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

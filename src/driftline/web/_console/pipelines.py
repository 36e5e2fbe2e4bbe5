"""Pages about pipelines: their runs by day, the report of a run as a picture, and starting one.

Running a pipeline may call what its file declares. So only files in the folder itself are run, never one that
was dropped onto a page.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from driftline.errors import Cancelled, DriftlineError, InputError, PipelineError
from driftline.web._console.answers import Form, Pages, page, to_job
from driftline.web._console.folder import HIDDEN_FOLDER, Folder
from driftline.web._console.results import Job, Jobs

if TYPE_CHECKING:
    from driftline.pipeline import PastRun, Pipeline, Selection
    from driftline.web._console.app import Console

_MOST_PIPELINES = 100
_DECLARED = re.compile(rb"^(?:name\s*=|\[(?:tables|databases|payloads)\.)", re.MULTILINE)  # of a pipeline: one of them
pages = Pages("Pipelines")


class Pipelines:
    """Finds pipelines, reads their runs and starts them."""

    def __init__(self, folder: Folder, jobs: Jobs) -> None:
        self.folder = folder
        self._jobs = jobs
        self.warnings: dict[str, list[str]] = {}  # error messages of the hooks of runs that were started here

    def known(self) -> list[dict[str, Any]]:
        """Every file that declares a pipeline with its last runs, newest first; or why it cannot be read."""
        names = [name for name in self.folder.names((".toml",)) if self._declares(name)]
        return [self._known(name) for name in names[:_MOST_PIPELINES]]

    def load(self, name: str) -> Pipeline:
        from driftline.pipeline import load

        path = self.folder.path_of(name)
        if HIDDEN_FOLDER in path.relative_to(self.folder.root).parts or path.suffix != ".toml":
            raise InputError(f"there is no pipeline {name!r} in this folder", code="not_found")
        return load(path)

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
        head = self.folder.head(name)
        return b"[pipeline]" in head and _DECLARED.search(head) is not None

    def _known(self, name: str) -> dict[str, Any]:
        from driftline.pipeline import run_history

        try:
            declared = self.load(name)
            runs = [run for run in run_history(declared) if run.result != "damaged"]
            return {"name": name, "title": declared.name, "runs": runs, "error": ""}
        except DriftlineError as error:
            return {"name": name, "title": name, "runs": [], "error": error.message}

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


@pages("/pipelines")
def _list(console: Console, request: Request) -> Response:
    return page(request, "pipelines.html", known=console.pipelines.known(), root=console.folder.root.name)


@pages("/pipelines/run")
def _run(console: Console, request: Request) -> Response:
    from driftline.pipeline import run_report

    name, run_id = request.query_params.get("path", ""), request.query_params.get("run")
    declared = console.pipelines.load(name)
    runs: list[PastRun] = next((each["runs"] for each in console.pipelines.known() if each["name"] == name), [])
    # Newest day first; within a day in the order of the clock.
    days = [(day, [*of_day][::-1]) for day, of_day in groupby(runs, lambda run: run.started_at[:10])]
    shown: dict[str, Any] = {"name": name, "pipeline": declared, "days": days, "report": None}
    try:
        report = run_report(declared, run_id or None)
    except PipelineError as error:
        if error.code != "no_runs":
            raise
        return page(request, "run.html", **shown)
    shown |= {"report": report, "warnings": console.pipelines.warnings.get(report.run_id, [])}
    return page(request, "run.html", link=partial(console.pipelines.address, declared), **shown)


@pages("/pipelines/start", "POST")
def _begin(console: Console, request: Request, form: Form) -> Response:
    return to_job(console.pipelines.start(form.get("path", ""), form.get("wish", "")))

"""Pages about code: two revisions compared, stored as events, and shown file by file with bodies side by side."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from driftline import codeindex  # its names are loaded when they are first used
from driftline.core import Tracker, write_atomically
from driftline.errors import IndexRefError, InputError
from driftline.web._console.answers import Form, Pages, page, to_job, view_page
from driftline.web._console.folder import Folder
from driftline.web._console.results import Job, Jobs, keep, newest, stored, time_now

if TYPE_CHECKING:
    from driftline.codeindex import BodyRow, IndexEvent, Section
    from driftline.web._console.app import Console

_FIELDS = (("repository", "."), ("before", "HEAD~1"), ("after", "HEAD"))
_API = "api.json"
_MOST = 200
_MOST_REVISIONS = 300
_DEEPEST = 3
pages = Pages("Code")


@pages("/code")
def _start(console: Console, request: Request) -> Response:
    reviews = console.reviews
    repositories = reviews.repositories()
    revisions = reviews.revisions(repositories[0]) if repositories else []
    shown: dict[str, Any] = {
        "repositories": repositories,
        "revisions": revisions,
        "recent": newest(reviews.stored, Review, 30),
    }
    return page(request, "code.html", root=console.folder.root.name, **shown)


@pages("/code/revisions")
def _revisions(console: Console, request: Request) -> Response:
    return JSONResponse(console.reviews.revisions(request.query_params.get("repository", "")))


@pages("/code", "POST")
def _compare(console: Console, request: Request, form: Form) -> Response:
    return to_job(console.reviews.start(*(form.get(field, usual) for field, usual in _FIELDS)))


@pages("/code/{id}")
def _review(console: Console, request: Request) -> Response:
    """The overview, or one file with its definitions."""
    review = console.reviews.get(request.path_params["id"])
    events, report = console.reviews.read(review)
    judged = codeindex.review(events)
    requested = request.query_params.get("file", "")
    chosen = next((file.section for file in judged.files if file.path == requested), None)
    if requested and chosen is None:
        raise InputError(f"nothing changed in {requested}", code="not_found")
    bodies = console.reviews.bodies(review, events, chosen) if chosen else []
    definitions = sum((Counter(mode["chunks"]) for mode in review.summary["modesSummary"].values()), Counter())
    surfaced = [each for each in report.get("changes", ()) if (each["after"] or each["before"])["file"] == requested]
    shown = {"judged": judged, "report": report, "chosen": chosen, "bodies": bodies, "most": _MOST}
    return view_page(request, "review", review=review, definitions=definitions, surfaced=surfaced, **shown)


@dataclass(frozen=True)
class Review:
    """What was compared, and what that added up to."""

    id: str
    repository: str
    before: str
    after: str
    when: str = ""
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.repository} {self.before} → {self.after}"


class Reviews:
    """Makes diffs of code and reads them."""

    def __init__(self, folder: Folder, jobs: Jobs) -> None:
        self.folder = folder
        self._jobs = jobs
        self.stored = folder.hidden / "code"

    def repositories(self) -> list[str]:
        """Folders with a repository of their own."""
        return self.folder.folders(_has_repository, _DEEPEST)

    def revisions(self, name: str) -> list[str]:
        """Branches, tags and the newest commits of a repository."""
        directory = self._repository(name)
        listed = _git(directory, "for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags")
        commits = _git(directory, "log", "-n", "30", "--format=%h")
        return ["HEAD", "HEAD~1", *listed, *commits][:_MOST_REVISIONS]

    def start(self, name: str, before: str, after: str) -> Job:
        directory = self._repository(name)
        return self._jobs.start(
            f"{name} {before} → {after}", lambda job: self._run(job, Review(job.id, name, before, after), directory)
        )

    def _run(self, job: Job, review: Review, directory: Path) -> str:
        sides = (f"git:{review.before}", f"git:{review.after}")
        requested = codeindex.IndexDiffJob.of(*sides, None, repo=str(directory), persist=False)
        request, cache = requested.prepare(job.tracker)
        result = codeindex.compute(request, cache, requested.keeping, tracker=job.tracker).result
        folder = self.stored / job.id
        folder.mkdir(parents=True)
        lines = [json.dumps(event, ensure_ascii=False) for event in result.events]
        write_atomically(folder / "events.jsonl", "\n".join(lines).encode("utf-8", "surrogatepass"))
        write_atomically(folder / _API, json.dumps(_api(*sides, directory, job.tracker)).encode())
        keep(folder, replace(review, when=time_now(), summary=result.summary))
        return f"/code/{job.id}"

    def get(self, review_id: str) -> Review:
        found = stored(self.stored, review_id, Review)
        if found is None:
            raise InputError("there is no such diff of code here", code="not_found")
        return found

    def read(self, review: Review) -> tuple[list[IndexEvent], dict[str, Any]]:
        """The events, and what `index api` says; a diff that an older version stored has no word on the API."""
        folder = self.stored / review.id
        with (folder / "events.jsonl").open(encoding="utf-8", errors="surrogatepass") as lines:
            events = [json.loads(line) for line in lines if line.strip()]
        found = (folder / _API).read_bytes() if (folder / _API).exists() else b'{"problem": "compare again to see it"}'
        return events, json.loads(found)

    def bodies(
        self, review: Review, events: Sequence[IndexEvent], section: Section
    ) -> list[tuple[IndexEvent, list[BodyRow]]]:
        """The definitions of a file and what is between them, each with its lines side by side."""
        shown = [*section.symbols, *([section.file_event] if section.file_event else [])]
        paths = {path for event in shown for path in _paths(event)}
        needed = [event for event in events if event["kind"].startswith("file.") and paths & _paths(event)]
        repository = codeindex.GitRepository(self._repository(review.repository))
        source = codeindex.ReviewSource([*needed, *section.symbols], repository, complete=True)
        return [(event, source.rows(event)) for event in shown]

    def _repository(self, name: str) -> Path:
        path = self.folder.path_of(name or ".")
        if not _has_repository(path):  # git would look for one in the folders above
            raise InputError(f"there is no repository {name!r} in this folder", code="not_found")
        return path


def _has_repository(folder: Path) -> bool:
    inner = folder / ".git"
    return inner.is_dir() and not inner.is_symlink()


def _git(directory: Path, *words: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(directory), *words], capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []


def _paths(event: IndexEvent) -> set[str]:
    return {event[side]["file"] for side in ("before", "after") if side in event}


def _api(before: str, after: str, directory: Path, tracker: Tracker) -> dict[str, Any]:
    """What `index api` says, or why it says nothing."""
    try:
        report = codeindex.api(before, after, repo=directory, tracker=tracker)
    except IndexRefError as error:
        return {"problem": error.message}
    return {"line": report.verdict_line.removeprefix("verdict: "), **report.to_dict()}

"""Pages about code: two revisions compared, stored as events, and shown file by file with bodies side by side."""

from __future__ import annotations

import difflib
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from driftline.core import write_atomically
from driftline.errors import InputError
from driftline.sinks import Part, highlight
from driftline.web._console.answers import Form, Pages, page, to_job, view_page
from driftline.web._console.folder import Folder
from driftline.web._console.results import Job, Jobs, keep, newest, stored, time_now

if TYPE_CHECKING:
    from driftline.codeindex import Section
    from driftline.web._console.app import Console

_FIELDS = (("repository", "."), ("before", "HEAD~1"), ("after", "HEAD"))
_CONTEXT = 3
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
    review = console.reviews.get(request.path_params["id"])
    sections = console.reviews.sections(review)
    wanted = request.query_params.get("file", "")
    chosen = next((section for section in sections if section.path == wanted), sections[0] if sections else None)
    bodies = console.reviews.bodies(review, chosen) if chosen else []
    return view_page(request, "review", review=review, sections=sections, chosen=chosen, bodies=bodies)


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


BodyLine = tuple[bool, list[Part] | None, list[Part] | None]  # changed, before, after; None: no such line


class Reviews:
    """Makes diffs of code and reads them."""

    def __init__(self, folder: Folder, jobs: Jobs) -> None:
        self.folder = folder
        self._jobs = jobs
        self.stored = folder.hidden / "code"

    def repositories(self) -> list[str]:
        """Folders with a repository of their own."""
        root, found = self.folder.root, []
        waiting = [root]
        while waiting:
            folder = waiting.pop(0)
            if _has_repository(folder):
                found.append(self.folder.relative(folder))
            elif len(folder.relative_to(root).parts) < _DEEPEST:
                inner = (each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
                waiting += sorted(each for each in inner if not each.name.startswith("."))
        return found

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
        from driftline.codeindex import IndexDiffJob, compute

        sides = (f"git:{review.before}", f"git:{review.after}")
        wanted = IndexDiffJob.of(*sides, None, repo=str(directory), persist=False)
        request, cache = wanted.prepare(job.tracker)
        result = compute(request, cache, wanted.keeping, tracker=job.tracker).result
        folder = self.stored / job.id
        folder.mkdir(parents=True)
        lines = [json.dumps(event, ensure_ascii=False) for event in result.events]
        write_atomically(folder / "events.jsonl", "\n".join(lines).encode("utf-8", "surrogatepass"))
        keep(folder, replace(review, when=time_now(), summary=result.summary))
        return f"/code/{job.id}"

    def get(self, review_id: str) -> Review:
        found = stored(self.stored, review_id, Review)
        if found is None:
            raise InputError("there is no such diff of code here", code="not_found")
        return found

    def sections(self, review: Review) -> list[Section]:
        from driftline.codeindex import review_sections as sections

        with (self.stored / review.id / "events.jsonl").open(encoding="utf-8", errors="surrogatepass") as lines:
            return sections([json.loads(line) for line in lines if line.strip()])

    def bodies(self, review: Review, section: Section) -> list[tuple[dict[str, Any], list[BodyLine]]]:
        """The definitions of a file, each with its lines side by side; none where nothing of the body changed."""
        from driftline.codeindex import GitRepository, ReviewSource

        events = [event for event in (section.file_event, *section.symbols) if event is not None]
        source = ReviewSource(events, GitRepository(self._repository(review.repository)))
        shown = []
        for event in section.symbols:
            texts = [source.text(event, side) for side in ("before", "after")]
            signatures = [event[side]["signature"] if side in event else "" for side in ("before", "after")]
            before, after = (text if text is not None else signatures[at] for at, text in enumerate(texts))
            shown.append((dict(event), list(_aligned(before.splitlines(), after.splitlines()))))
        return shown

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


def _aligned(before: Sequence[str], after: Sequence[str]) -> Iterator[BodyLine]:
    """Lines side by side, with some that did not change around those that did."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        for tag, first, last, start, end in group:
            for row in range(max(last - first, end - start)):
                left = before[first + row] if first + row < last else None
                right = after[start + row] if start + row < end else None
                yield _body_line(tag != "equal", left, right)


def _body_line(changed: bool, left: str | None, right: str | None) -> BodyLine:
    if changed and left is not None and right is not None:
        return True, *highlight(left, right)
    return changed, None if left is None else [(left, False)], None if right is None else [(right, False)]

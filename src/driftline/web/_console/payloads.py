"""Pages about payloads: batches run and stored with suggestions, differences, failed pairs, and accepted rules.

A batch that `driftline payloads batch` wrote is shown too. Only one that was run from here has its pairs and rules,
and so has suggestions.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from driftline.core import sha256_hex, write_atomically
from driftline.errors import DriftlineError, InputError
from driftline.web._console.answers import PAGE_ROWS, Form, Pages, View, page, to_job, view_page
from driftline.web._console.folder import HIDDEN_FOLDER, Folder
from driftline.web._console.results import Job, Jobs, keep, read_record, time_now

if TYPE_CHECKING:
    from driftline.payloads import BatchJob, RuleEdit
    from driftline.web._console.app import Console

_MOST_PAIRS = 50_000  # that suggestions are made from
_MOST_FAILURES = 1000
_FAILED = b'"success":false'
_RECORD, _SUGGESTIONS = "study.json", "suggestions.json"
_RULE_ENDINGS = (".yaml", ".yml", ".json")
_SCHEMA_WORDS = re.compile(rb"\b(?:properties|openapi|x-migration-[a-z-]+)\b")  # most other JSON and YAML lacks them
_PAIR_ENDINGS = (".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst", ".parquet")
_VIEWS = {"places": "Places", "failed": "Failed pairs", "rules": "Suggested rules", "unused": "Rules never used"}
Endpoint = str | None
pages = Pages("Payloads")


@dataclass(frozen=True)
class Study:
    """What is compared: a file of pairs under rules, each for an endpoint or (None) for all others."""

    pairs: str
    rules: tuple[tuple[Endpoint, str], ...] = ()
    root: str | None = None
    when: str = ""
    seconds: float = 0.0

    @property
    def title(self) -> str:
        files = ", ".join(file for _, file in self.rules)
        return f"{self.pairs} under {files}" if files else self.pairs


@dataclass(frozen=True)
class Batch:
    """The output of a batch, read from its folder."""

    name: str
    study: Study | None
    summary: dict[str, Any]
    places: list[dict[str, Any]]
    coverage: list[dict[str, Any]]
    suggestions: list[dict[str, Any]]
    failures: list[dict[str, Any]]

    def chosen(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Rules by their names: suggestions, and those that would accept the differences of a place."""
        requested = set(names)
        found = [one for one in self.suggestions if one["plain_rule"] and _name(one) in requested]
        return found + [one for row in self.places if (one := row["remedy"]) and _name(one) in requested]


@dataclass(frozen=True)
class Change:
    """What accepting rules would write into one file; `digest` names the text that the change was made for."""

    file: str
    edit: RuleEdit
    digest: str
    rules: list[dict[str, Any]]


class Studies:
    """Runs batches and reads them."""

    def __init__(self, folder: Folder, jobs: Jobs) -> None:
        self.folder = folder
        self._jobs = jobs

    def start(self, study: Study) -> Job:
        self._batch_job(study)  # what is wrong with the files is said at once
        return self._jobs.start(study.title, lambda job: self._run(job, study))

    def _run(self, job: Job, study: Study) -> str:
        from driftline.payloads import local_scheduler, run_batch, to_json_bytes

        began = time.monotonic()
        name = f"{HIDDEN_FOLDER}/payloads/{job.id}"
        folder = self.folder.root / name
        batch = self._batch_job(study)
        with local_scheduler(batch, workers=1) as scheduler:
            run_batch(batch, folder, scheduler, job.tracker)
        with job.tracker.phase("suggest", total=max(1, len(study.rules)), unit="items"):
            found = [one for rules in study.rules or ((None, ""),) for one in self._suggestions(study, rules, job)]
        write_atomically(folder / _SUGGESTIONS, to_json_bytes(found))
        keep(folder, replace(study, when=time_now(), seconds=round(time.monotonic() - began, 3)), _RECORD)
        return f"/payloads/batch?path={name}"

    def _remedy(self, row: Mapping[str, Any], study: Study | None) -> dict[str, Any] | None:
        """The rule that would accept the differences of a place, in the form of a suggestion."""
        from driftline.payloads import remedy_of

        found = remedy_of(row) if study is not None else None
        if found is None or study is None:
            return None
        files = dict(study.rules)
        plain = {"endpoint": row["endpoint"], "path": row["path"], "place": list(found.place), "hides": found.hides}
        name = f"{row['path']}:{row['type']}:{'+'.join(found.rule)}"
        file = files.get(row["endpoint"]) or files.get(None, "")
        return {**plain, "id": name, "plain_rule": found.rule, "file": file}

    def _batch_job(self, study: Study) -> BatchJob:
        from driftline.payloads import BatchJob, open_source

        source = open_source(self.folder.path_of(study.pairs), "pairs")
        schemas = {endpoint: self._schema(file, study.root) for endpoint, file in study.rules}
        names = {endpoint: str(self.folder.root / file) for endpoint, file in study.rules}
        return BatchJob((source,), schemas or {None: b"{}"}, root=study.root, schema_names=names)

    def _schema(self, file: str, root: str | None) -> Any:
        from driftline.payloads import bundle_of

        path = self.folder.new_path(file)
        if not path.exists():
            return b"{}"  # rules that are still to be written
        bundle = bundle_of(self.folder.path_of(file), root)
        for read in bundle.files:
            if not Path(read).resolve().is_relative_to(self.folder.root):
                raise InputError(f"{file} refers to a file outside this folder", code="not_found")
        return bundle if bundle.files else bundle.main

    def _suggestions(self, study: Study, rules: tuple[Endpoint, str], job: Job) -> Iterator[dict[str, Any]]:
        from driftline.payloads import read_pairs, suggest

        endpoint, file = rules
        others = [other for other, _ in study.rules if other is not None]
        found_pairs = read_pairs(self.folder.path_of(study.pairs), endpoint, without=others, skip_bad=True)
        pairs = islice(found_pairs, _MOST_PAIRS)
        path = self.folder.new_path(file) if file else None
        try:
            found = suggest(_ticking(pairs, job), (), path if path is not None and path.exists() else None, study.root)
        except DriftlineError as error:
            if error.code == "cancelled":
                raise
            found = []  # rules that cannot be read as a whole fail the batch itself, which says why
        job.tracker.advance()
        for one in found:
            plain = {**one.to_dict(), "place": list(one.place), "plain_rule": one.rule, "file": file}
            yield {**plain, "endpoint": endpoint, "is_preserving": one.is_preserving}

    def batches(self) -> list[tuple[str, Study | None, dict[str, Any]]]:
        """Batches in the folder with their counts: those of the console newest first, then others by name."""
        own = self.folder.hidden / "payloads"
        folders = sorted(own.iterdir(), reverse=True) if own.is_dir() else []
        folders += [path.parent for path in self.folder.find("aggregate.json")]
        found = []
        for folder in folders[:200]:
            summary = _json(folder / "summary.json")
            if isinstance(summary, dict) and "matched" in summary:
                found.append((self.folder.relative(folder), read_record(folder / _RECORD, Study), summary))
        return found

    def open(self, name: str) -> Batch:
        from driftline.payloads import BatchView

        folder = self.folder.path_of(name)
        summary, places = _json(folder / "summary.json"), _json(folder / "aggregate.json")
        if not isinstance(summary, dict) or not isinstance(places, list):
            raise InputError(f"{name} holds no batch of payloads", code="bad_batch")
        coverage, suggestions = (_json(folder / file) or [] for file in ("coverage.json", _SUGGESTIONS))
        study = read_record(folder / _RECORD, Study)
        shown = [{**row, "remedy": self._remedy(row, study)} for row in BatchView(summary, places).places]
        return Batch(name, study, summary, shown, coverage, suggestions, _failures(folder / "reports.jsonl"))

    def changes(self, batch: Batch, ids: Iterable[str], new_file: str) -> list[Change]:
        """What accepting suggestions would write, file by file; `new_file` takes rules that have no file yet."""
        from driftline.payloads import Remedy, apply_rules

        by_file: dict[str, list[dict[str, Any]]] = {}
        for one in batch.chosen(ids):
            by_file.setdefault(one["file"] or new_file, []).append(one)
        root = batch.study.root if batch.study else None
        changes = []
        for file, found in by_file.items():
            text = self._text(file)
            data = text.encode("utf-8", "surrogatepass")
            rules = [Remedy(tuple(one["place"]), one["plain_rule"]) for one in found]
            changes.append(Change(file, apply_rules(text, rules, root if text else None), sha256_hex(data), found))
        return changes

    def accept(self, batch: Batch, changes: Sequence[Change], shown: Sequence[str]) -> Job:
        """Write the changes that were shown, and compare again."""
        if batch.study is None:
            raise InputError("this batch does not know its pairs: compare them from here first", code="no_pairs")
        if [change.digest for change in changes] != list(shown):
            raise InputError("the rules were changed since they were shown: look again", code="file_changed")
        for change in changes:
            write_atomically(self.folder.new_path(change.file), change.edit.after.encode())
        rules = batch.study.rules or tuple((None, change.file) for change in changes)
        return self.start(Study(batch.study.pairs, rules, batch.study.root))

    def _text(self, file: str) -> str:
        from driftline.payloads import read_text

        if not file.endswith(_RULE_ENDINGS):
            raise InputError(f"{file}: rules are kept in a file that ends with .yaml, .yml or .json", code="bad_name")
        path = self.folder.new_path(file)
        return read_text(path) if path.exists() else ""


def _name(suggestion: dict[str, Any]) -> str:
    return f"{suggestion['endpoint'] or ''} {suggestion['id']}"


def _ticking(pairs: Iterable[Any], job: Job) -> Iterator[Any]:
    for pair in pairs:
        job.tracker.check()
        yield pair


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _failures(reports: Path) -> list[dict[str, Any]]:
    """The first pairs that could not be compared, with reasons."""
    found = []
    try:
        with reports.open("rb") as lines:
            for line in lines:
                if _FAILED in line and isinstance(plain := json.loads(line), dict) and "error" in plain:
                    found.append(plain)
                if len(found) == _MOST_FAILURES:
                    break
    except (OSError, ValueError):
        return found
    return found


@pages("/payloads")
def _batches(console: Console, request: Request) -> Response:
    folder = console.folder
    offered: dict[str, Any] = {
        "pairs": folder.names(_PAIR_ENDINGS),
        "rules": [name for name in folder.names(_RULE_ENDINGS) if _SCHEMA_WORDS.search(folder.head(name))],
        "root": folder.root.name,
    }
    return page(request, "payloads.html", batches=console.studies.batches(), **offered)


@pages("/payloads/compare", "POST")
def _compare(console: Console, request: Request, form: Form) -> Response:
    return to_job(console.studies.start(_requested_study(form)))


def _requested_study(form: Form) -> Study:
    lines = [line.strip().rpartition("=") for line in form.get("rules", "").splitlines() if line.strip()]
    rules = tuple((endpoint or None, file) for endpoint, _, file in lines)
    return Study(form.get("pairs", ""), rules, form.get("root"))


@pages("/payloads/batch")
def _batch(console: Console, request: Request) -> Response:
    from driftline.payloads import BatchView

    given = request.query_params
    batch = console.studies.open(given.get("path", ""))
    query = {"path": batch.name, "show": given.get("show", ""), "endpoint": given.get("endpoint", "")}
    query["show"] = query["show"] if query["show"] in _VIEWS else "places"
    view = View("/payloads/batch", query | {"q": given.get("q", "").strip()[:200]}, given.get("page", ""))
    lists = {
        "places": batch.places,
        "failed": batch.failures,
        "rules": batch.suggestions,
        "unused": [row for row in batch.coverage if not row.get("used")],
    }
    counts = {name: len(rows) for name, rows in lists.items()} | {"failed": int(batch.summary["failed"])}
    view.tabs = [(show, name, counts[show]) for show, name in _VIEWS.items()]
    known = sorted(batch.summary.get("endpoints", {}).items(), key=lambda item: -item[1].get("different", 0))
    view.endpoints = [(name, counts, BatchView.share(counts)) for name, counts in known]
    words = view.q.lower()
    for_all = (None,) if view.show in ("rules", "unused") else ()
    here = (row for row in lists[view.show] if not view.endpoint or row.get("endpoint") in (view.endpoint, *for_all))
    listed = [row for row in here if not words or words in str(row).lower()]
    view.total, view.rows = len(listed), listed[view.first : view.first + PAGE_ROWS]
    return view_page(request, "batch", view=view, batch=batch)


@pages("/payloads/pair")
def _pair(console: Console, request: Request) -> Response:
    """What differs in one pair; its id is given as JSON."""
    from driftline.payloads import find_reports, with_values

    given = request.query_params
    batch, identity = console.studies.open(given.get("path", "")), given.get("id", "")
    try:
        (found,) = find_reports(console.folder.path_of(batch.name), [json.loads(identity)]).values()
    except ValueError:
        raise InputError(f"{batch.name} has no pair with the id {identity}", code="not_found") from None
    report = found.get("report") or found.get("partial_result") or {"diffs": [], "warnings": []}
    entries = [with_values(entry, entry["type"]) for entry in (*report["diffs"], *report["warnings"])]
    return page(request, "pair.html", batch=batch, pair=found, entries=entries)


@pages("/payloads/again", "POST")
def _again(console: Console, request: Request, form: Form) -> Response:
    study = console.studies.open(form.get("path", "")).study or _requested_study(form)
    return to_job(console.studies.start(Study(study.pairs, study.rules, study.root)))


@pages("/payloads/accept")
def _look(console: Console, request: Request) -> Response:
    """What accepting the chosen suggestions would change, before anything is written."""
    query = request.query_params
    batch = console.studies.open(query.get("path", ""))
    known = [_name(one) for one in batch.chosen(query.getlist("rule"))]
    file = query.get("file", "") or "rules.yaml"
    changes = console.studies.changes(batch, known, file)
    return page(request, "accept.html", batch=batch, changes=changes, rules=known, file=file)


@pages("/payloads/accept", "POST")
def _accept(console: Console, request: Request, form: Form) -> Response:
    batch = console.studies.open(form.get("path", ""))
    changes = console.studies.changes(batch, form.getlist("rule"), form.get("file", "rules.yaml"))
    return to_job(console.studies.accept(batch, changes, form.getlist("digest")))

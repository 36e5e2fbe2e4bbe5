"""The start page: choose two tables, a key and rules, see what the rules do, and compare."""

from __future__ import annotations

import asyncio
import os
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from driftline.core import Tracker, atomic_write
from driftline.errors import Cancelled, DriftlineError, InputError
from driftline.tables import OPTION_GROUPS, OPTIONS, Option, check_options, first_rows, reading_of, remedies
from driftline.web._console.answers import Form, Pages, page, status_of, to_job
from driftline.web._console.event_file import identity
from driftline.web._console.folder import HIDDEN_FOLDER, Folder, newest_pairs
from driftline.web._console.results import Comparison, Job, Result, newest, run_apart, run_diff

if TYPE_CHECKING:
    from driftline.web._console.app import Console

_ROWS = 20_000
# The key has a place of its own; the others shape an output that the console does not write, or a check.
NOT_OFFERED = ("key_columns", "mode", "emit_unchanged", "column_stats", "fail_if", "changed_columns_only")
GROUPS = {
    title: tuple(name for name in names if name not in NOT_OFFERED)
    for title, names in OPTION_GROUPS.items()
    if not set(names) <= set(NOT_OFFERED)
}
RULES = (*GROUPS["Values"], "ignore", "only", "rename")  # what a preview leaves out to show what they do
LARGE_BYTES = 64 << 20  # of both sides; more is counted on demand only
_MOST_KEPT = 32
_MOST_COLUMNS = 40
_MOST_LISTED = 2_000
_MOST_NAMED = 8
_FLAG = re.compile(r"--([a-z][a-z-]+)")
_MOST_BYTES = 4 << 30
pages = Pages()
_NAME = re.compile(r"[^/\\\x00-\x1f]{1,200}")


@pages("/")
def _start(console: Console, request: Request) -> Response:
    """The form; `?from=RESULT` fills it in with what was compared before."""
    known = request.query_params.get("from")
    return _form(console, request, console.results.get(known).comparison if known else Comparison("", ""))


def _form(
    console: Console, request: Request, before: Comparison, error: DriftlineError | None = None, status: int = 200
) -> Response:
    """The start page, filled in; an error is shown above what led to it, with a button for each way out."""
    tables = console.folder.tables()
    return page(
        request,
        "start.html",
        status,
        count=len(tables),
        tables=sorted(tables, key=lambda entry: (-entry.modified, entry.name))[:_MOST_LISTED],
        pairs=newest_pairs(tables),
        recent=newest(console.results.stored, Result),
        written=console.folder.events_files(),
        root=console.folder.root.name,
        before=before,
        problem=None if error is None else explained(error, before, console.folder),
        groups=[
            (title, [Field(name, OPTIONS[name], before.options.get(name)) for name in GROUPS[title]])
            for title in GROUPS
        ],
    )


@pages("/columns")
def _columns(console: Console, request: Request) -> Response:
    """Columns of the chosen tables with how well each would serve as a key."""
    names = [request.query_params.get(side, "") for side in "ab"]
    a, b = map(console.folder.table_address, names)
    found = key_columns(a, b, reading_of(a, b, {"mode": "positional"}))
    return page(request, "columns.html", columns=found, pair="\t".join(names))


@pages("/compare", "POST")
def _compare(console: Console, request: Request, form: Form) -> Response:
    requested = _comparison(form)
    try:
        check_options(**requested.options)
        return to_job(console.results.start(_read(requested, console.folder, form)))
    except DriftlineError as error:
        return _form(console, request, requested, error, status_of(error))


def _comparison(form: Form) -> Comparison:
    """What a form requests; a key that was offered for two other tables was not chosen for these."""
    a, b = form["pair"].partition("\t")[::2] if "pair" in form else (form.get("a", ""), form.get("b", ""))
    of_others = {"key"} if form.get("offered", f"{a}\t{b}") != f"{a}\t{b}" else set()
    return Comparison(a, b, options_of({name: form.getlist(name) for name in form if name not in of_others}))


def _read(requested: Comparison, folder: Folder, form: Form) -> Comparison:
    """With options that read both tables, and a key; where the form offered columns, none is a choice."""
    sides = (folder.table_address(requested.a), folder.table_address(requested.b))
    chooses = not requested.key and form.get("offered") != f"{requested.a}\t{requested.b}"
    by_place = {} if chooses or requested.key else {"mode": "positional"}
    chosen = reading_of(*sides, {**requested.options, **by_place})
    key = chosen.pop("key_columns", [])
    options = {**({"key": key} if key else {}), **chosen, **requested.options}
    return replace(requested, options=options, chosen_key=chooses)


@pages("/preview", "POST")
async def _preview(console: Console, request: Request, form: Form) -> Response:
    """What the rules do to the counts, or what is wrong with them."""
    shown: dict[str, Any] = {"preview": None, "size": 0, "problem": None}
    requested = comparison = _comparison(form)
    try:
        check_options(**comparison.options)
        comparison = await run_in_threadpool(lambda: _read(requested, console.folder, form))
        names = (comparison.a, comparison.b)
        shown["size"] = await run_in_threadpool(lambda: sum(map(console.folder.table_size, names)))
        if shown["size"] <= LARGE_BYTES or "now" in form:
            preview = shown["preview"] = await _counted(console, request, comparison)
            if preview["ruled"].error is not None:
                raise preview["ruled"].error
    except DriftlineError as error:  # half-written rules are no fault of the page
        shown["problem"] = await run_in_threadpool(explained, error, comparison, console.folder)
    return page(request, "preview.html", **shown)


async def _counted(console: Console, request: Request, comparison: Comparison) -> dict[str, Any]:
    """Count in a thread; the work is cancelled when the browser disconnects."""
    job = Job("", "preview")
    work = asyncio.ensure_future(run_in_threadpool(console.previews.preview, comparison, job))
    while not work.done():
        await asyncio.wait([work], timeout=0.3)
        if await request.is_disconnected():
            job.tracker.cancel()
    return work.result()


@pages("/jobs/{id}")
def _job(console: Console, request: Request) -> Response:
    job = console.jobs.get(request.path_params["id"])
    if job.done and job.error is None:
        return RedirectResponse(job.address, 303)
    if request.headers.get("x-progress"):
        return JSONResponse(_progress(job))
    if job.error is not None and job.comparison is not None:
        return _form(console, request, job.comparison, job.error)
    return page(request, "job.html", job=job, progress=_progress(job))


def _progress(job: Job) -> dict[str, Any]:
    record = job.progress
    fraction = record.fraction if record is not None else None
    return {
        "done": job.done,
        "phase": record.phase if record is not None else "waiting",
        "percent": None if fraction is None else round(100 * fraction),
        "error": None if job.error is None else {"code": job.error.code, "message": job.error.message},
    }


@pages("/jobs/{id}/cancel", "POST")
def _cancel(console: Console, request: Request, form: Form) -> Response:
    job = console.jobs.get(request.path_params["id"])
    job.tracker.cancel()
    return to_job(job)


# Key candidates, judged by the first rows of both tables.
class KeyColumn(NamedTuple):
    """A column that both sides have, and how well it would serve as a key in the rows that were looked at."""

    name: str
    is_unique: bool
    verdict: str


def key_columns(a: str, b: str, options: Mapping[str, Any] | None = None) -> list[KeyColumn]:
    """Columns that both sides have, in the order of A, unique ones first; `options` say how files are read."""
    heads = first_rows(a, b, check_options(**(options or {})), _ROWS)
    shared = [name for name in heads[0] if name in heads[1]]
    found = [_judge(name, [head[name] for head in heads]) for name in shared]
    return sorted(found, key=lambda column: not column.is_unique)


def _judge(name: str, sides: list[list[str]]) -> KeyColumn:
    present = [[cell for cell in side if cell not in ("", "null", '""')] for side in sides]
    repeated = sum(len(values) - len(set(values)) for values in present)
    missing = sum(map(len, sides)) - sum(map(len, present))
    words = [f"{count:,} {what}" for count, what in ((repeated, "repeats"), (missing, "empty")) if count]
    return KeyColumn(name, not words, ", ".join(words) or "unique")


# What is wrong with a comparison, and the ways out as options that one click adds.
class Problem(NamedTuple):
    """An error in words, and what each button beside it adds to the options."""

    code: str
    message: str
    remedies: tuple[tuple[str, str], ...] = ()  # words, `option=value`


def explained(error: DriftlineError, requested: Comparison, folder: Folder) -> Problem:
    """The error with its ways out; of two headers only what differs is said."""
    if error.code != "header_mismatch":
        message = _FLAG.sub(r"\1", error.message)  # the form's fields have the names of the command line's options
        return Problem(error.code, message, tuple(map(tuple, remedies().get(error.code, {}).get("ways", ()))))
    sides = (folder.table_address(requested.a), folder.table_address(requested.b))
    headers = [list(head) for head in first_rows(*sides, check_options(**requested.options), 1)]
    only = [[name for name in headers[at] if name not in headers[1 - at]] for at in (0, 1)]
    if not any(only):
        words = "Both tables have the same columns, in another order."
        return Problem(error.code, words, (("Compare the columns in any order", "header_mode=sorted"),))
    parts = [f"only {side} has {_named(names)}" for side, names in zip(("before", "after"), only, strict=True) if names]
    common = len(headers[0]) - len(only[0])
    ways = ((f"Compare the {common} common column{'' if common == 1 else 's'}", "header_mode=common"),)
    return Problem(error.code, f"The columns differ: {'; '.join(parts)}.", ways if common else ())


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


# The form of a diff's options, made from `tables.OPTIONS`.
@dataclass(frozen=True)
class Field:
    """One option as a field of the form, with what is filled in."""

    name: str
    option: Option
    value: Any = None

    @property
    def label(self) -> str:
        """The name as the command line writes it."""
        return self.option.flag.removeprefix("--")

    @property
    def control(self) -> str:
        if self.option.given == "flag":
            return "checkbox"
        if self.option.given == "text":
            return "select" if self.option.words else "input"
        return "lines"

    @property
    def lines(self) -> str:
        """Several values, one a line; the empty word is visible."""
        return "\n".join(line or '""' for line in self.value or ())


def options_of(form: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The options of a form, not checked; empty fields are left out, and a button of a way out adds its own."""
    applied = dict(pair.split("=", 1) for pair in form.get("apply", ()) if "=" in pair)
    form = {**form, **{name: [value] for name, value in applied.items()}}
    options: dict[str, Any] = {"key": list(form["key"])} if form.get("key") else {}
    for name in (name for names in GROUPS.values() for name in names):
        option, given = OPTIONS[name], form.get(name, [""])[0]
        if option.given == "flag":
            options |= {name: True} if name in form else {}
        elif option.given == "text":
            options |= {name: given} if given not in ("", *option.words[:1]) else {}
        elif lines := ["" if line == '""' else line for line in given.splitlines() if line.strip()]:
            options[name] = lines
    return options


# The effect of rules: the same tables compared with them and without them.
class Counts(NamedTuple):
    """The counts of one comparison, or why there are none."""

    stats: dict[str, Any] | None
    changed: dict[str, int]
    error: DriftlineError | None = None


class Previews:
    """Counts of comparisons, kept as long as their files do not change."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._known: OrderedDict[str, Counts] = OrderedDict()

    def preview(self, comparison: Comparison, job: Job) -> dict[str, Any]:
        """Counts without and with the rules, and the columns of which the rules hide changes."""
        options = {name: value for name, value in comparison.options.items() if name not in RULES}
        plain = ruled = self._counts(comparison, job)
        if options != comparison.options:
            plain = self._counts(Comparison(comparison.a, comparison.b, options), job)
        names = dict.fromkeys([*plain.changed, *ruled.changed])
        both = [(name, plain.changed.get(name, 0), ruled.changed.get(name, 0)) for name in names]
        columns = [row for row in both if row[1] != row[2]][:_MOST_COLUMNS]
        return {"plain": plain, "ruled": ruled, "has_rules": plain is not ruled, "columns": columns}

    def _counts(self, comparison: Comparison, job: Job) -> Counts:
        sides = [self.folder.table_address(name) for name in (comparison.a, comparison.b)]
        states = [identity(os.stat(side)) if os.path.isfile(side) else None for side in sides]
        name = repr((sides, states, sorted(comparison.options.items())))
        if name not in self._known:
            size = sum(map(self.folder.table_size, (comparison.a, comparison.b)))
            counts = run_apart(size, job, _count, sides, comparison.options)
            if None in states:  # a folder or a database may change without a sign
                return counts
            self._known[name] = counts
            while len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
        return self._known[name]


def _count(tracker: Tracker, sides: list[str], options: dict[str, Any]) -> Counts:
    try:
        stats = run_diff(tracker, sides, options, lambda data: None, profile=False)
        return Counts(stats.to_event(), dict(stats.columns))
    except Cancelled:
        raise
    except DriftlineError as error:
        return Counts(None, {}, error)


@pages("/uploads/{name}", "PUT")
async def _upload(console: Console, request: Request) -> Response:
    """Keep a file that was dropped onto the page; how the console calls it from then on."""
    name = request.path_params["name"]
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise InputError("a dropped file needs a plain name", code="bad_name")
    uploads = console.folder.hidden / "uploads"
    uploads.mkdir(parents=True, exist_ok=True)
    taken = 0
    with atomic_write(uploads / name) as out:
        async for chunk in request.stream():
            taken += len(chunk)
            if taken > _MOST_BYTES:
                raise InputError("a dropped file may have 4 GiB at most: copy it into the folder", code="too_large")
            out.write(chunk)
    return JSONResponse({"name": f"{HIDDEN_FOLDER}/uploads/{name}"})

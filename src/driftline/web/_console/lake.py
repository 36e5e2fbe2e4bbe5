"""Pages about lakes: tables, rows at a point in time, a row's history with reasons, the log, and proofs."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from driftline.errors import DriftlineError, InputError
from driftline.web._console.answers import PAGE_ROWS, checked_form, handler, page, page_count
from driftline.web._console.folder import Folder
from driftline.web._console.results import Job, Jobs

if TYPE_CHECKING:
    from driftline.lake import HistoryEntry, Lake, TableStatus, Verification
    from driftline.web._console.app import Console

ROW_ID = "_row_id"
_DEEPEST = 4
_MOST_STATES = 6  # states of tables that are kept to turn pages in
_MOST_MOMENTS = 200
_VIEWS = {"rows": "Rows", "row": "History of a row", "log": "Log", "proof": "Verify"}


@dataclass(frozen=True)
class LakeTable:
    """A table of a lake and how far its state is; or why that cannot be read."""

    name: str
    status: TableStatus | None
    error: str = ""


@dataclass(frozen=True)
class ShownDelta:
    """One delta of a row's history, with for each column its value and why that counts or not."""

    entry: HistoryEntry
    when: str
    columns: list[tuple[str, Any, bool, str]]


class State:
    """The rows of a table at a moment, spooled to a file that turns pages by byte offsets."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self.starts = [0]
        file.seek(0)
        for line in file:
            self.starts.append(self.starts[-1] + len(line))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def rows(self, page: int) -> list[dict[str, Any]]:
        """The rows of a page."""
        first = (page - 1) * PAGE_ROWS
        last = min(first + PAGE_ROWS, len(self))
        if first >= last:
            return []
        with self._lock:
            self._file.seek(self.starts[first])
            data = self._file.read(self.starts[last] - self.starts[first])
        return [json.loads(line) for line in data.splitlines()]


class Lakes:
    """Finds lakes and answers questions about them."""

    def __init__(self, folder: Folder, jobs: Jobs) -> None:
        self.folder = folder
        self._jobs = jobs
        self._states: OrderedDict[tuple[Any, ...], State] = OrderedDict()
        self._lock = threading.Lock()
        self.proofs: dict[tuple[str, str], Verification] = {}

    def names(self) -> list[str]:
        """Folders that look like lakes."""
        found = []
        for folder, inner, _ in os.walk(self.folder.root):
            depth = len(Path(folder).relative_to(self.folder.root).parts)
            is_lake = any(Path(folder).glob("tables/*/deltas/_delta_log"))
            if is_lake:
                found.append(self.folder.relative(Path(folder)))
            stops = is_lake or depth >= _DEEPEST
            inner[:] = [] if stops else sorted(name for name in inner if not name.startswith((".", "_")))
        return found

    def open(self, name: str) -> Lake:
        """A lake by the name of its folder."""
        from driftline.lake import Lake

        path = self.folder.path_of(name or ".")
        if not (path / "tables").is_dir():
            raise InputError(f"{name} is no lake", code="not_found")
        self.folder.refuse_links_out(path, name)
        return Lake(str(path))

    def tables(self, lake: Lake) -> list[LakeTable]:
        """The tables of a lake."""
        from driftline.lake import status_of

        found = []
        for name in lake.tables():
            try:
                found.append(LakeTable(name, status_of(lake, name)))
            except DriftlineError as error:
                found.append(LakeTable(name, None, error.message))
        return found

    def moments(self, lake: Lake, table: str) -> list[int]:
        """The timestamps at which deltas ended that came together, oldest first: the stops of the slider."""
        from driftline.lake import lake_log

        ends = {entry.max_hlc for entry in lake_log(lake, table) if entry.part == "deltas"}
        stops = sorted(end for end in ends if end is not None)
        step = -(-len(stops) // _MOST_MOMENTS) or 1
        return stops[::-1][::step][::-1]

    def state(self, lake: Lake, table: str, as_of: int | None) -> State:
        """The rows of a table at a moment; kept until deltas come or many others were looked at."""
        from driftline.lake import lake_log, materialize

        key = (lake.root, table, as_of, len(lake_log(lake, table)))
        with self._lock:
            if key in self._states:
                self._states.move_to_end(key)
                return self._states[key]
        file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the state
        materialize(lake, table, file, as_of=as_of)
        state = State(file)
        with self._lock:
            self._states[key] = state
            while len(self._states) > _MOST_STATES:
                self._states.popitem(last=False)
        return state

    def history(self, lake: Lake, table: str, row_id: str) -> list[ShownDelta]:
        """Every delta of a row, newest first, and why each of its values counts or not."""
        from driftline.lake import row_history, timestamp_text

        entries = row_history(lake, table, row_id)
        return [
            ShownDelta(entry, timestamp_text(entry.delta.hlc), _reasons(entry, entries[number + 1 :]))
            for number, entry in reversed(list(enumerate(entries)))
        ]

    def prove(self, name: str, table: str) -> Job:
        """Begin to prove that the state of a table is the replay of its deltas."""
        from driftline.lake import verify

        lake = self.open(name)
        lake.table_name(table)

        def work(job: Job) -> str:
            self.proofs[name, table] = verify(lake, table, tracker=job.tracker)
            return f"/lake/view?{urlencode({'path': name, 'table': table, 'show': 'proof'})}"

        return self._jobs.start(f"verify {table}", work)


def _reasons(entry: HistoryEntry, later: Sequence[HistoryEntry]) -> list[tuple[str, Any, bool, str]]:
    return [
        (each.column, each.value, each.column in entry.won, _reason(entry, each.column, later))
        for each in entry.delta.columns
    ]


def _reason(entry: HistoryEntry, column: str, later: Sequence[HistoryEntry]) -> str:
    """Why a value counts, or which delta came after it in the order of replay (deltas and the lake §2)."""
    if column in entry.won:
        return "the last to set it"
    for other in later:
        if other.delta.op == "DELETE":
            return f"the row was deleted later, by {other.delta.client_id}"
        if any(each.column == column for each in other.delta.columns):
            if other.delta.hlc > entry.delta.hlc:
                return f"{other.delta.client_id} set it later"
            if other.delta.client_id != entry.delta.client_id:
                return f"same clock, and {other.delta.client_id} comes after {entry.delta.client_id}"
            return "same clock and client, and the other delta's id is greater"
    return "the row was deleted"


# The pages.
def routes(console: Console) -> list[Route]:
    """The pages of lakes."""
    return [
        Route("/lake", _list(console)),
        Route("/lake/view", _view(console)),
        Route("/lake/verify", _verify(console), methods=["POST"]),
    ]


@dataclass
class LakeView:
    """What one address shows of a lake."""

    name: str
    table: str
    show: str
    at: int | None  # which stop of the slider; None: now
    page: int
    row: str
    tables: list[LakeTable]
    moments: list[int]
    total: int = 0
    rows: list[dict[str, Any]] | None = None
    history: list[ShownDelta] | None = None
    log: list[Any] | None = None
    proof: Any = None
    problem: str = ""

    @property
    def tabs(self) -> list[tuple[str, str]]:
        """The views."""
        return list(_VIEWS.items())

    @property
    def columns(self) -> list[str]:
        """The columns that the rows of this page have, in the order in which they come."""
        return list(dict.fromkeys(name for row in self.rows or () for name in row if name != ROW_ID))

    @property
    def pages(self) -> int:
        """How many pages the rows fill."""
        return page_count(self.total)

    @property
    def moment(self) -> str:
        """The chosen moment in words."""
        from driftline.lake import timestamp_text

        return "now" if self.at is None else timestamp_text(self.moments[self.at])

    def link(self, **change: object) -> str:
        """The address of a neighbouring view."""
        at = "" if self.at is None else str(self.at)
        kept = {"path": self.name, "table": self.table, "show": self.show, "at": at, "row": self.row, **change}
        return f"/lake/view?{urlencode({name: value for name, value in kept.items() if value != ''})}"


@handler
async def _list(console: Console, request: Request) -> Response:
    names = await run_in_threadpool(console.lakes.names)
    if len(names) == 1:
        return RedirectResponse(f"/lake/view?{urlencode({'path': names[0]})}", 303)
    return page(request, "lakes.html", section="Lake", names=names, root=console.folder.root.name)


@handler
async def _view(console: Console, request: Request) -> Response:
    view = await run_in_threadpool(_shown, console, dict(request.query_params))
    template = "lake_body.html" if request.headers.get("x-fragment") else "lake.html"
    return page(request, template, section="Lake", view=view)


def _shown(console: Console, query: dict[str, str]) -> LakeView:
    lake = console.lakes.open(query.get("path", ""))
    tables = console.lakes.tables(lake)
    table = query.get("table", "") or (tables[0].name if tables else "")
    if table:
        table = lake.table_name(table)
    moments = console.lakes.moments(lake, table) if table else []
    at = _number(query.get("at", ""))
    at = at if at is not None and at < len(moments) - 1 else None  # the last stop is now
    show = query.get("show", "") if query.get("show") in _VIEWS else "rows"
    view = LakeView(
        query.get("path", ""), table, show, at, max(1, _number(query.get("page", "")) or 1), query.get("row", ""),
        tables, moments,
    )  # fmt: skip
    if table:
        try:
            _fill(console, lake, view)
        except DriftlineError as error:
            view.problem = error.message
    return view


def _fill(console: Console, lake: Any, view: LakeView) -> None:
    from driftline.lake import lake_log

    if view.show == "rows":
        state = console.lakes.state(lake, view.table, None if view.at is None else view.moments[view.at])
        view.total, view.rows = len(state), state.rows(view.page)
    elif view.show == "row" and view.row:
        view.history = console.lakes.history(lake, view.table, view.row)
    elif view.show == "log":
        view.log = list(reversed(lake_log(lake, view.table)))[:500]
    elif view.show == "proof":
        view.proof = console.lakes.proofs.get((view.name, view.table))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


@handler
async def _verify(console: Console, request: Request) -> Response:
    form = await checked_form(request)
    job = await run_in_threadpool(console.lakes.prove, form.get("path", [""])[0], form.get("table", [""])[0])
    return RedirectResponse(f"/jobs/{job.id}", 303)

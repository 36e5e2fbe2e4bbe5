"""Pages about lakes: tables, rows at a point in time, a row's history with reasons, the log, and proofs."""

from __future__ import annotations

import json
import tempfile
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from driftline.errors import DriftlineError, InputError
from driftline.web._console.answers import PAGE_ROWS, Form, Pages, View, number, page, to_job, view_page
from driftline.web._console.folder import Folder

if TYPE_CHECKING:
    from driftline.lake import Lake, Verification
    from driftline.web._console.app import Console
    from driftline.web._console.results import Job

_ROW_ID = "_row_id"
_DEEPEST = 4
_MOST_STATES = 6  # states of tables that are kept to turn pages in
_MOST_STOPS = 200
_VIEWS = {"rows": "Rows", "row": "History of a row", "log": "Log", "proof": "Verify"}
pages = Pages("Lake")


class State:
    """The rows of a table at a point in time, spooled to a file that turns pages by byte offsets."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._starts = [0]
        file.seek(0)
        for line in file:
            self._starts.append(self._starts[-1] + len(line))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def rows(self, first: int) -> list[dict[str, Any]]:
        """The rows of the page that begins with the row of that number."""
        starts = self._starts[first : first + PAGE_ROWS + 1]
        if len(starts) < 2:
            return []
        with self._lock:
            self._file.seek(starts[0])
            data = self._file.read(starts[-1] - starts[0])
        return [json.loads(line) for line in data.splitlines()]


class Lakes:
    """The lakes of a folder, with states that pages are turned in, and proofs."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._states: OrderedDict[tuple[Any, ...], State] = OrderedDict()
        self._lock = threading.Lock()
        self.proofs: dict[tuple[str, str], Verification] = {}

    def names(self) -> list[str]:
        return self.folder.folders(lambda path: any(path.glob("tables/*/deltas/_delta_log")), _DEEPEST)

    def open(self, name: str) -> Lake:
        """A lake by the name of its folder."""
        from driftline.lake import Lake

        path = self.folder.path_of(name or ".")
        if not (path / "tables").is_dir():
            raise InputError(f"{name} is no lake", code="not_found")
        self.folder.refuse_links_out(path, name)
        return Lake(str(path))

    def state(self, lake: Lake, table: str, as_of: int | None) -> State:
        """The rows of a table at a point in time; cached until deltas are added or many others were opened."""
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


@pages("/lake")
def _list(console: Console, request: Request) -> Response:
    names = console.lakes.names()
    if len(names) == 1:
        return RedirectResponse(f"/lake/view?{urlencode({'path': names[0]})}", 303)
    return page(request, "lakes.html", names=names, root=console.folder.root.name)


@pages("/lake/view")
def _view(console: Console, request: Request) -> Response:
    from driftline.lake import timestamp_text

    given = request.query_params
    lake = console.lakes.open(given.get("path", ""))
    tables = [_table(lake, name) for name in lake.tables()]
    table = given.get("table", "") or (tables[0]["name"] if tables else "")
    table = lake.table_name(table) if table else ""
    stops = _stops(lake, table) if table else []
    at = number(given.get("at", ""))
    at = at if at is not None and at < len(stops) - 1 else None  # the last stop is now
    show = given.get("show", "") if given.get("show") in _VIEWS else "rows"
    query = {"path": given.get("path", ""), "table": table, "show": show, "row": given.get("row", "")}
    query["at"] = "" if at is None else str(at)
    view = View("/lake/view", query, given.get("page", ""), tables=tables, stops=stops, tabs=_VIEWS.items())
    view.rows, view.history, view.log, view.proof = [], [], [], None
    view.time = "now" if at is None else timestamp_text(stops[at])
    if table:
        try:
            _fill(console, lake, view, None if at is None else stops[at])
        except DriftlineError as error:
            view.problem = error.message
    return view_page(request, "lake", view=view)


def _table(lake: Lake, name: str) -> dict[str, Any]:
    """A table of a lake and how far its state is; or why that cannot be read."""
    from driftline.lake import status_of

    try:
        return {"name": name, "status": status_of(lake, name), "error": ""}
    except DriftlineError as error:
        return {"name": name, "status": None, "error": error.message}


def _stops(lake: Lake, table: str) -> list[int]:
    """The last timestamp of each group of deltas that were ingested together, oldest first: the stops of the slider."""
    from driftline.lake import lake_log

    ends = {entry.max_hlc for entry in lake_log(lake, table) if entry.part == "deltas"}
    stops = sorted(end for end in ends if end is not None)
    step = -(-len(stops) // _MOST_STOPS) or 1
    return stops[::-1][::step][::-1]


def _fill(console: Console, lake: Lake, view: View, as_of: int | None) -> None:
    from driftline.lake import lake_log, row_history

    if view.show == "rows":
        state = console.lakes.state(lake, view.table, as_of)
        view.total, view.rows = len(state), state.rows(view.first)
        view.columns = list(dict.fromkeys(name for row in view.rows for name in row if name != _ROW_ID))
    elif view.show == "row":
        view.history = row_history(lake, view.table, view.row)[::-1] if view.row else []
    elif view.show == "log":
        view.log = list(reversed(lake_log(lake, view.table)))[:500]
    else:
        view.proof = console.lakes.proofs.get((view.path, view.table))


@pages("/lake/verify", "POST")
def _verify(console: Console, request: Request, form: Form) -> Response:
    """Begin to prove that the state of a table is the replay of its deltas."""
    from driftline.lake import verify

    name, table = form.get("path", ""), form.get("table", "")
    lake = console.lakes.open(name)
    lake.table_name(table)

    def work(job: Job) -> str:
        console.lakes.proofs[name, table] = verify(lake, table, tracker=job.tracker)
        return f"/lake/view?{urlencode({'path': name, 'table': table, 'show': 'proof'})}"

    return to_job(console.jobs.start(f"verify {table}", work))

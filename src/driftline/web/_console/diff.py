"""Pages of a diff, stored by the console or written by a command: chosen rows, columns, links, downloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from driftline.errors import InputError
from driftline.sinks import EventFormat, column_rates, event_formats
from driftline.web._console.answers import PAGE_ROWS, Form, Pages, View, to_job, view_page
from driftline.web._console.event_file import KINDS, EventFile, Selection

if TYPE_CHECKING:
    from driftline.web._console.app import Console

_MOST_COLUMNS = 120  # of a page; a browser with thousands of columns stands still
_LONGEST_SEARCH = 200
pages = Pages()


def view_of(
    events: EventFile, address: str, name: str, query: Mapping[str, str], compared: list[str] | None = None
) -> View:
    """The view of an address; parameters that are not valid are ignored. `compared` are columns, if that is known."""
    kind, column, words = (query.get(each, "") for each in ("kind", "column", "q"))
    kind, column = kind if kind in KINDS else "", column if column in events.columns else ""
    selection = Selection(kind, column, words[:_LONGEST_SEARCH].strip())
    cols = "changed" if query.get("cols") == "changed" else ""
    kept = {"path": name, "kind": kind, "column": column, "q": selection.words, "cols": cols}
    view = View(address, kept, query.get("page", ""), events=events, stats=events.stats)
    view.chooses_all = selection.chooses_all
    if view.chooses_all and view.page == 1:
        view.rows, view.total = events.first(PAGE_ROWS), events.total
    else:
        chosen = events.select(selection)
        view.total = len(chosen)
        view.page = min(view.page, view.pages)
        view.rows = events.read(chosen[view.first : view.first + PAGE_ROWS])
    # The names of the key columns, as the rows carry them; rows without a key are known by where they stand.
    view.key = next((list(row["key"]) for row in view.rows if isinstance(row.get("key"), dict)), [])
    view.has_row_numbers = any("row_index" in row for row in view.rows)
    touched = {name for row in view.rows for name in row.get("changed", ())}
    names = [name for name in events.columns if name not in view.key and (not cols or name in touched)]
    view.columns = names[:_MOST_COLUMNS]
    view.hidden_columns = 0 if cols else len(names) - len(view.columns)
    counts = events.column_counts()
    changes = None if counts is None else {name: counts[name] for name in counts if name not in view.key}
    view.rates = None if changes is None else column_rates(changes, events.schema, events.stats, compared)
    return view


@pages("/results/{id}")
def _result(console: Console, request: Request) -> Response:
    result = console.results.get(request.path_params["id"])
    events, query = console.results.events(result.id), request.query_params
    view = view_of(events, request.url.path, "", query, result.compared)
    return _diff_page(request, view, result=result, name=None, download=f"/results/{result.id}/download?")


@pages("/open")
def _open_file(console: Console, request: Request) -> Response:
    """An events file that a command wrote into the folder."""
    name = request.query_params.get("path", "")
    view = view_of(console.results.open(console.folder.path_of(name)), "/open", name, request.query_params)
    return _diff_page(request, view, result=None, name=name, download=f"/open/download?{urlencode({'path': name})}&")


def _diff_page(request: Request, view: View, **shown: Any) -> Response:
    return view_page(request, "diff", view=view, downloads=_downloads(), **shown)


def _downloads() -> dict[str, EventFormat]:
    return {name: each for name, each in event_formats().items() if each.media_type is not None}


@pages("/results/{id}/again", "POST")
def _again(console: Console, request: Request, form: Form) -> Response:
    return to_job(console.results.start(console.results.get(request.path_params["id"]).comparison))


@pages("/results/{id}/download")
def _download(console: Console, request: Request) -> Response:
    result = console.results.get(request.path_params["id"])
    return _converted(request, console.results.stored / result.id / "events.jsonl")


@pages("/open/download")
def _download_file(console: Console, request: Request) -> Response:
    path = console.folder.path_of(request.query_params.get("path", ""))
    console.results.open(path)  # says what is wrong with a file that holds no events
    return _converted(request, path)


def _converted(request: Request, path: Path) -> Response:
    requested = request.query_params.get("format", "jsonl")
    chosen = _downloads().get(requested)
    if chosen is None:
        raise InputError(f"there is no download as {requested!r}", code="not_found")
    headers = {"content-disposition": f'attachment; filename="changes{chosen.suffixes[0]}"'}
    return StreamingResponse(_written(path, requested), media_type=chosen.media_type, headers=headers)


def _written(path: Path, requested: str) -> Iterator[bytes]:
    """The events in another format, spooled to a temporary file that goes with its last reader."""
    import tempfile

    from driftline.sinks import write_events

    out = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the answer was sent
    with path.open("rb") as lines:
        write_events(lines, out, requested)
    out.seek(0)
    return iter(lambda: out.read(1 << 20), b"")

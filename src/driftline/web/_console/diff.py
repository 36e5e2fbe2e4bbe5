"""Pages of a diff, stored by the console or written by a command: chosen rows, columns, links, downloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from driftline.errors import InputError
from driftline.sinks import EventFormat, event_formats
from driftline.web._console.answers import PAGE_ROWS, checked_form, handler, page, page_count
from driftline.web._console.event_file import KINDS, Event, EventFile, Selection

if TYPE_CHECKING:
    from driftline.web._console.app import Console

_MOST_COLUMNS = 120  # of a page; a browser with thousands of columns stands still
_LONGEST_SEARCH = 200


@dataclass(frozen=True)
class ColumnRate:
    """How often a column's cells match."""

    name: str
    changed: int
    rate: float


@dataclass(frozen=True)
class DiffView:
    """One page of a diff."""

    events: EventFile
    base: str
    selection: Selection
    only_changed: bool
    page: int
    total: int
    rows: list[Event]

    @property
    def stats(self) -> dict[str, Any]:
        """The counts of the whole diff."""
        return self.events.stats

    @property
    def kinds(self) -> list[tuple[str, str, int]]:
        """Each kind with its sign and its count."""
        signs = {"added": "+", "removed": "−", "changed": "~"}
        return [(kind, signs[kind], int(self.stats.get(f"rows_{kind}", 0))) for kind in KINDS]

    @property
    def pages(self) -> int:
        """How many pages the selection fills."""
        return page_count(self.total)

    @property
    def key(self) -> list[str]:
        """The names of the key columns, as the rows carry them."""
        return next((list(row["key"]) for row in self.rows if isinstance(row.get("key"), dict)), [])

    @property
    def has_row_numbers(self) -> bool:
        """Whether rows are known by where they stand."""
        return any("row_index" in row for row in self.rows)

    @property
    def columns(self) -> list[str]:
        """The columns of this page: not the key, and on wish only those that changed on it."""
        names = [name for name in self.events.columns if name not in self.key]
        if self.only_changed:
            touched = {name for row in self.rows for name in row.get("changed", ())}
            names = [name for name in names if name in touched]
        return names[:_MOST_COLUMNS]

    @property
    def hidden_columns(self) -> int:
        """How many columns are too many for a page."""
        return max(0, len(self.events.columns) - len(self.key) - _MOST_COLUMNS) if not self.only_changed else 0

    @property
    def rates(self) -> list[ColumnRate] | None:
        """Match rates by column, most changed first; None while they are counted."""
        counts = self.events.column_counts()
        if counts is None:
            return None
        compared = int(self.stats.get("rows_total_compared", 0))
        key = set(self.key)
        rates = [
            ColumnRate(name, count, 100 * (compared - count) / compared if compared else 100.0)
            for name, count in counts.items()
            if name not in key
        ]
        return sorted(rates, key=lambda rate: -rate.changed)[: _MOST_COLUMNS * 5]

    def link(self, **change: Any) -> str:
        """The address of a neighbouring view; every change of the selection leads to its first page."""
        selection = replace(self.selection, **{k: v for k, v in change.items() if k in ("kind", "column", "words")})
        only_changed = change.get("only_changed", self.only_changed)
        query = {"kind": selection.kind, "column": selection.column, "q": selection.words}
        query |= {"cols": "changed" if only_changed else "", "page": str(change.get("page", 1))}
        kept = {name: value for name, value in query.items() if value and (name, value) != ("page", "1")}
        mark = "&" if "?" in self.base else "?"
        return self.base + (mark + urlencode(kept) if kept else "")

    def hidden_fields(self) -> Iterator[tuple[str, str]]:
        """What a form that changes one thing has to carry along."""
        path = self.base.partition("?path=")[2]
        if path:
            from urllib.parse import unquote_plus

            yield "path", unquote_plus(path)
        for name, value in (("kind", self.selection.kind), ("column", self.selection.column)):
            if value:
                yield name, value


def view_of(events: EventFile, base: str, query: Mapping[str, str]) -> DiffView:
    """The view of an address; parameters that are not valid are ignored."""
    kind = query.get("kind", "")
    selection = Selection(
        kind=kind if kind in KINDS else "",
        column=query.get("column", "") if query.get("column", "") in events.columns else "",
        words=query.get("q", "")[:_LONGEST_SEARCH].strip(),
    )
    page = _page_number(query.get("page", ""))
    if selection.chooses_all and page == 1:
        rows, total = events.first(PAGE_ROWS), events.total
    else:
        chosen = events.select(selection)
        total = len(chosen)
        page = min(page, page_count(total))
        rows = events.read(chosen[(page - 1) * PAGE_ROWS : page * PAGE_ROWS])
    return DiffView(events, base, selection, query.get("cols") == "changed", page, total, rows)


def _page_number(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 12 else 1


def routes(console: Console) -> list[Route]:
    """The pages of diffs."""
    return [
        Route("/results/{id}", _result(console)),
        Route("/results/{id}/again", _again(console), methods=["POST"]),
        Route("/results/{id}/download", _download(console)),
        Route("/open", _open_file(console)),
        Route("/open/download", _download_file(console)),
    ]


@handler
async def _result(console: Console, request: Request) -> Response:
    result = console.results.get(request.path_params["id"])
    view = await run_in_threadpool(
        lambda: view_of(console.results.events(result.id), request.url.path, request.query_params)
    )
    return _diff_page(request, view, result=result, name=None, download=f"/results/{result.id}/download?")


@handler
async def _open_file(console: Console, request: Request) -> Response:
    """An events file that a command wrote into the folder."""
    name = request.query_params.get("path", "")
    path = console.folder.path_of(name)
    query = urlencode({"path": name})
    view = await run_in_threadpool(lambda: view_of(console.results.open(path), f"/open?{query}", request.query_params))
    return _diff_page(request, view, result=None, name=name, download=f"/open/download?{query}&")


def _diff_page(request: Request, view: DiffView, **shown: Any) -> Response:
    body = "diff_body.html" if request.headers.get("x-fragment") else "diff.html"
    return page(request, body, view=view, downloads=_downloads(), **shown)


def _downloads() -> dict[str, EventFormat]:
    return {name: each for name, each in event_formats().items() if each.media_type is not None}


@handler
async def _again(console: Console, request: Request) -> Response:
    await checked_form(request)
    job = console.results.start(console.results.get(request.path_params["id"]).comparison)
    return RedirectResponse(f"/jobs/{job.id}", 303)


@handler
async def _download(console: Console, request: Request) -> Response:
    result = console.results.get(request.path_params["id"])
    return await _converted(request, console.results.stored / result.id / "events.jsonl")


@handler
async def _download_file(console: Console, request: Request) -> Response:
    path = console.folder.path_of(request.query_params.get("path", ""))
    console.results.open(path)  # says what is wrong with a file that holds no events
    return await _converted(request, path)


async def _converted(request: Request, path: Path) -> Response:
    wanted = request.query_params.get("format", "jsonl")
    chosen = _downloads().get(wanted)
    if chosen is None:
        raise InputError(f"there is no download as {wanted!r}", code="not_found")
    body = await run_in_threadpool(_written, path, wanted)
    headers = {"content-disposition": f'attachment; filename="changes{chosen.suffixes[0]}"'}
    return StreamingResponse(body, media_type=chosen.media_type, headers=headers)


def _written(path: Path, wanted: str) -> Iterator[bytes]:
    """The events in another format, spooled to a temporary file that goes with its last reader."""
    import tempfile

    from driftline.sinks import write_events

    out = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the answer was sent
    with path.open("rb") as lines:
        write_events(lines, out, wanted)
    out.seek(0)
    return iter(lambda: out.read(1 << 20), b"")

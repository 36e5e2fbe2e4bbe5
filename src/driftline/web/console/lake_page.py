"""Pages about lakes: tables, rows at a moment under a slider, a row's history, the log, and proofs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from driftline.errors import DriftlineError
from driftline.web.console.answers import checked_form, handler, page
from driftline.web.console.lake_views import PAGE_ROWS, ROW_ID, Deed, LakeTable

if TYPE_CHECKING:
    from driftline.web.console.app import Console

_VIEWS = {"rows": "Rows", "row": "History of a row", "log": "Log", "proof": "Verify"}


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
    history: list[Deed] | None = None
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
        return max(1, -(-self.total // PAGE_ROWS))

    @property
    def moment(self) -> str:
        """The chosen moment in words."""
        from driftline.lake._store.lake import timestamp_text

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
    return page(request, "lakes.html", section="Lake", names=names, root=console.workspace.root.name)


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

"""Pages about changesets: the rows of a file, its SQL, its inverse, and what applying it would do, tried on a copy."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from driftline.errors import DriftlineError, InputError
from driftline.web._console.answers import PAGE_ROWS, handler, page, page_count

if TYPE_CHECKING:
    from driftline.changesets import Applied, Conflict, Operation
    from driftline.web._console.app import Console

_ENDINGS = (".bin", ".changeset", ".patchset")
_DATABASES = (".db", ".sqlite", ".sqlite3")
_VIEWS = {"rows": "Rows", "sql": "SQL", "inverse": "Inverse", "apply": "Try to apply"}
_POLICIES = ("abort", "omit", "replace")
_LARGEST_COPY = 1 << 30  # of a database that a change is tried on
_MOST_CONFLICTS = 500
_MARKERS = (b"T", b"P")


def routes(console: Console) -> list[Route]:
    """The pages of changesets."""
    return [
        Route("/changesets", _list(console)),
        Route("/changesets/view", _view(console)),
        Route("/changesets/inverse", _inverse(console)),
    ]


@dataclass(frozen=True)
class ShownRow:
    """One operation: its table, and for each column the value before and after; absent ones are left out."""

    kind: str
    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    old: dict[str, Any]
    new: dict[str, Any]


@dataclass(frozen=True)
class FileView:
    """What one address shows of a changeset."""

    name: str
    database: str
    show: str
    table: str
    page: int
    policy: str
    is_patchset: bool
    tables: list[tuple[str, Counter[str]]]
    rows: list[ShownRow]
    statements: list[str]
    problem: str
    outcome: Applied | None

    @property
    def total(self) -> int:
        """How many operations the chosen tables have."""
        return sum(counts.total() for name, counts in self.tables if self.table in ("", name))

    @property
    def pages(self) -> int:
        """How many pages they fill."""
        return page_count(self.total)

    @property
    def counts(self) -> Counter[str]:
        """All operations by kind."""
        return sum((counts for _, counts in self.tables), Counter())

    @property
    def tabs(self) -> list[tuple[str, str]]:
        """The lists; a patchset has no inverse."""
        return [(show, name) for show, name in _VIEWS.items() if show != "inverse" or not self.is_patchset]

    @property
    def conflicts(self) -> list[tuple[str, str, list[str], list[tuple[str, list[str]]]]]:
        """The conflicts as text: kind, resolution, columns, and the rows that meet."""
        found = self.outcome.conflicts[:_MOST_CONFLICTS] if self.outcome else []
        return [(conflict.describe(), action, *_meeting_rows(conflict)) for conflict, action in found]

    def link(self, **change: object) -> str:
        """The address of a neighbouring view."""
        kept = {"path": self.name, "database": self.database, "show": self.show, "table": self.table, **change}
        return f"/changesets/view?{urlencode({name: value for name, value in kept.items() if value})}"


@handler
async def _list(console: Console, request: Request) -> Response:
    files = await run_in_threadpool(_files, console)
    databases = await run_in_threadpool(console.folder.names, _DATABASES)
    return page(request, "changesets.html", section="Changesets", files=files, databases=databases)


def _files(console: Console) -> list[str]:
    uploads = console.folder.hidden / "uploads"
    dropped = sorted(uploads.iterdir()) if uploads.is_dir() else []
    names = console.folder.names(_ENDINGS) + [
        console.folder.relative(path) for path in dropped if path.suffix in _ENDINGS
    ]
    return [name for name in names if (console.folder.root / name).open("rb").read(1) in _MARKERS]


@handler
async def _view(console: Console, request: Request) -> Response:
    view = await run_in_threadpool(_shown, console, dict(request.query_params))
    template = "changeset_body.html" if request.headers.get("x-fragment") else "changeset.html"
    databases = await run_in_threadpool(console.folder.names, _DATABASES)
    return page(request, template, section="Changesets", view=view, databases=databases, policies=_POLICIES)


def _shown(console: Console, query: dict[str, str]) -> FileView:
    from driftline.changesets import PATCHSET_MARKER, summary, tables_from_database

    name, database = query.get("path", ""), query.get("database", "")
    path = console.folder.path_of(name)
    declared = tables_from_database(str(console.folder.path_of(database))) if database else []
    with path.open("rb") as stream:
        found = summary(stream, declared)
    show = query.get("show", "") if query.get("show") in _VIEWS else "rows"
    number = query.get("page", "")
    at = max(1, int(number)) if number.isascii() and number.isdigit() and len(number) < 9 else 1
    table = query.get("table", "")
    policy = query.get("policy", "") if query.get("policy") in _POLICIES else "omit"
    tables = _counted((section.table.name, section.statistics()) for section in found.sections)
    rows: list[ShownRow] = []
    statements: list[str] = []
    problem, outcome = "", None
    try:
        if show == "apply" and database:
            outcome = _tried(path, console.folder.path_of(database), policy)
        elif show != "apply":
            chosen = _operations(path, declared, table, (at - 1) * PAGE_ROWS, inverse=show == "inverse")
            rows, statements = _rendered(chosen, show)
    except DriftlineError as error:
        problem = error.message
    return FileView(
        name, database, show, table, at, policy, found.marker == PATCHSET_MARKER,
        tables, rows, statements, problem, outcome,
    )  # fmt: skip


def _counted(sections: Iterable[tuple[str, dict[str, int]]]) -> list[tuple[str, Counter[str]]]:
    tables: dict[str, Counter[str]] = {}
    for name, counts in sections:
        known = tables.setdefault(name, Counter())
        known.update({kind: counts[kind] for kind in ("insert", "update", "delete")})
    return list(tables.items())


def _operations(path: Path, declared: Any, table: str, skip: int, *, inverse: bool) -> list[Operation]:
    from driftline.changesets import invert_to, operations_of

    with tempfile.TemporaryFile() as inverted, path.open("rb") as stream:
        if inverse:
            invert_to(inverted, path)
            inverted.seek(0)
        found = operations_of(inverted if inverse else stream, declared)
        of_table: Iterator[Operation] = (each for each in found if table in ("", each.table.name))
        return list(islice(of_table, skip, skip + PAGE_ROWS))


def _rendered(operations: list[Operation], show: str) -> tuple[list[ShownRow], list[str]]:
    from driftline.changesets import to_sql as statements

    if show in ("sql", "inverse"):
        return [], list(statements(operations))
    return [_row(each) for each in operations], []


def _row(operation: Operation) -> ShownRow:
    from driftline.changesets import plain_operation

    plain = plain_operation(operation) or {}
    table = operation.table
    key = tuple(table.column_names[index] for index in table.key_indexes)
    return ShownRow(operation.kind, table.name, tuple(table.column_names), key, plain["old"] or {}, plain["new"] or {})


def _tried(path: Path, database: Path, policy: str) -> Applied:
    """Apply the file to a copy of the database that is thrown away."""
    import apsw

    from driftline.changesets import apply, connect

    if database.stat().st_size > _LARGEST_COPY:
        raise InputError(f"{database.name} is too large to try it on a copy: use a smaller one", code="too_large")
    with tempfile.TemporaryDirectory() as folder:
        copy = str(Path(folder, "copy.db"))
        with connect(str(database)) as source:
            target = apsw.Connection(copy)
            with target.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(10_000)
            target.close()
        # `abort` would stop at the first conflict; all of them are shown, so they are left out of the copy.
        return apply(path, copy, "omit" if policy == "abort" else policy)  # type: ignore[arg-type]


def _meeting_rows(conflict: Conflict) -> tuple[list[str], list[tuple[str, list[str]]]]:
    from driftline.changesets import UNDEFINED, sql_literal

    if conflict.operation is None:
        return [], []
    operation = conflict.operation
    rows = (("expected", operation.old), ("in the database", conflict.current), ("wanted", operation.new))
    shown = [
        (words, ["" if value is UNDEFINED else sql_literal(value) for value in row])
        for words, row in rows
        if row is not None
    ]
    return list(operation.table.column_names), shown


@handler
async def _inverse(console: Console, request: Request) -> Response:
    """The inverse as a file."""
    path = console.folder.path_of(request.query_params.get("path", ""))
    data = await run_in_threadpool(_inverted, path)
    headers = {"content-disposition": 'attachment; filename="inverse.bin"'}
    return Response(data, media_type="application/octet-stream", headers=headers)


def _inverted(path: Path) -> bytes:
    from driftline.changesets import invert_to

    with tempfile.TemporaryFile() as out:
        invert_to(out, path)
        out.seek(0)
        return out.read()

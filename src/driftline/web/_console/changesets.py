"""Pages about changesets: the rows of a file, its SQL, its inverse, and what applying it would do, tried on a copy."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from driftline.errors import DriftlineError, InputError
from driftline.web._console.answers import PAGE_ROWS, Pages, View, page, view_page

if TYPE_CHECKING:
    from driftline.changesets import Applied, Operation
    from driftline.web._console.app import Console

_ENDINGS = (".bin", ".changeset", ".patchset")
_DATABASES = (".db", ".sqlite", ".sqlite3")
_VIEWS = {"rows": "Rows", "sql": "SQL", "inverse": "Inverse", "apply": "Try to apply"}
_POLICIES = ("abort", "omit", "replace")
_LARGEST_COPY = 1 << 30  # of a database that a change is tried on
_MOST_CONFLICTS = 500
_MARKERS = (b"T", b"P")
pages = Pages("Changesets")


@pages("/changesets")
def _list(console: Console, request: Request) -> Response:
    folder = console.folder
    uploads = folder.hidden / "uploads"
    dropped = sorted(uploads.iterdir()) if uploads.is_dir() else []
    names = folder.names(_ENDINGS) + [folder.relative(path) for path in dropped if path.suffix in _ENDINGS]
    files = [name for name in names if (folder.root / name).open("rb").read(1) in _MARKERS]
    return page(request, "changesets.html", files=files, databases=folder.names(_DATABASES))


@pages("/changesets/view")
def _view(console: Console, request: Request) -> Response:
    from driftline.changesets import summary, tables_from_database, to_sql

    query = {name: request.query_params.get(name, "") for name in ("path", "database", "show", "table")}
    query["show"] = query["show"] if query["show"] in _VIEWS else "rows"
    policy = request.query_params.get("policy", "")
    path, database = console.folder.path_of(query["path"]), query["database"]
    declared = tables_from_database(str(console.folder.path_of(database))) if database else []
    with path.open("rb") as stream:
        found = summary(stream, declared)
    view = View(
        "/changesets/view",
        query,
        request.query_params.get("page", ""),
        policy=policy if policy in _POLICIES else "omit",
        found=found,
        total=found.tables[query["table"]] if query["table"] else len(found),
        applied=None,
    )
    # A patchset has no inverse.
    view.tabs = [(show, name) for show, name in _VIEWS.items() if show != "inverse" or not found.is_patchset]
    try:
        if view.show == "apply" and database:
            view.applied = _tried(path, console.folder.path_of(database), view.policy)
            view.conflicts = view.applied.conflicts[:_MOST_CONFLICTS]
        elif view.show != "apply":
            chosen = _operations(path, declared, view.table, view.first, inverse=view.show == "inverse")
            view.rows = [_row(each) for each in chosen] if view.show == "rows" else []
            view.statements = [] if view.show == "rows" else list(to_sql(chosen))
    except DriftlineError as error:
        view.problem = error.message
    databases = console.folder.names(_DATABASES)
    return view_page(request, "changeset", view=view, databases=databases, policies=_POLICIES)


def _operations(path: Path, declared: Any, table: str, skip: int, *, inverse: bool) -> list[Operation]:
    from driftline.changesets import invert_to, operations_of

    with tempfile.TemporaryFile() as inverted, path.open("rb") as stream:
        if inverse:
            invert_to(inverted, path)
            inverted.seek(0)
        found = operations_of(inverted if inverse else stream, declared)
        of_table: Iterator[Operation] = (each for each in found if table in ("", each.table.name))
        return list(islice(of_table, skip, skip + PAGE_ROWS))


def _row(operation: Operation) -> dict[str, Any]:
    """One operation: its table, and for each column the value before and after; absent ones are left out."""
    from driftline.changesets import plain_operation

    plain = plain_operation(operation) or {}
    table = operation.table
    return {
        "kind": operation.kind,
        "table": table.name,
        "columns": table.column_names,
        "key": [table.column_names[index] for index in table.key_indexes],
        "old": plain["old"] or {},
        "new": plain["new"] or {},
    }


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


@pages("/changesets/inverse")
def _inverse(console: Console, request: Request) -> Response:
    """The inverse as a file."""
    from driftline.changesets import invert_to

    with tempfile.TemporaryFile() as out:
        invert_to(out, console.folder.path_of(request.query_params.get("path", "")))
        out.seek(0)
        data = out.read()
    headers = {"content-disposition": 'attachment; filename="inverse.bin"'}
    return Response(data, media_type="application/octet-stream", headers=headers)

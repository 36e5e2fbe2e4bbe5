"""`driftline.diff`: what changed between two tables, databases, revisions of a code base, or JSON documents."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from driftline.core import is_sqlite_file, names_revision
from driftline.errors import OptionError

if TYPE_CHECKING:
    from driftline.payloads import Report
    from driftline.tables import DiffRules, TableDiff, TableInput


@overload
def diff(a: TableInput, b: TableInput, **options: Unpack[DiffRules]) -> TableDiff: ...
@overload
def diff(a: object, b: object, *, schema: Any, **options: Any) -> Report: ...
@overload
def diff(a: Any, b: Any, **options: Any) -> Any: ...
def diff(a: Any, b: Any, **options: Any) -> Any:
    """What changed from `a` to `b`, as a `Diff`: what the two are decides how they are compared.

    - Two SQLite database files: `changesets.diff`, a `DatabaseDiff`.
    - Two references of which one is `git:REVISION`: `codeindex.diff`, an `IndexDiff`; `repo` names the repository.
    - Two JSON documents with a `schema` (None: all is strict): `compare`, a `Report`. A text is the name of a file.
    - Everything else is a table, with the rules of `driftline diff`: `tables.diff`, a `TableDiff`.

    >>> [event["type"] for event in diff([{"id": 1, "v": "x"}], [{"id": 1, "v": "y"}], key="id").changes()]
    ['changed']
    >>> diff({"total": 1}, {"total": 2}, schema=None)
    mismatch: 1 difference, 0 warnings
      $.total VALUE_MISMATCH: Values differ: 1 != 2
    """
    if "schema" in options:
        from driftline.payloads import compare

        schema = options.pop("schema")
        old, new = (Path(side) if isinstance(side, str) else side for side in (a, b))
        if schema is not None:
            options["schema"] = schema
        return _run("JSON documents", compare, old, new, options)
    if names_revision(a) or names_revision(b):
        from driftline.codeindex import diff as diff_revisions

        return _run("revisions", diff_revisions, a, b, options)
    if all(isinstance(side, str | os.PathLike) and is_sqlite_file(side) for side in (a, b)):
        from driftline.changesets import diff as diff_databases

        what = "databases (to compare tables, name one of each, as FILE.db::TABLE)"
        return _run(what, diff_databases, a, b, options)
    from driftline.tables import diff as diff_tables

    return diff_tables(a, b, **options)


def _run(what: str, compare: Callable[..., Any], a: object, b: object, options: dict[str, Any]) -> Any:
    """The comparison of a package, with the options that it takes."""
    known = inspect.signature(compare).parameters
    for name in options:
        if name not in known:
            taken = ", ".join(list(known)[2:])
            raise OptionError(f"{name} is no option for two {what}: {taken}", code="invalid_option")
    return compare(a, b, **options)

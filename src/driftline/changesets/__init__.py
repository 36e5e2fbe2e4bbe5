"""SQLite changesets and patchsets, byte for byte: made, read, combined, applied, recorded and compared.

Names are loaded when they are first used: a file can be inverted without NumPy and Arrow, which build from columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftline.core._extras import load

if TYPE_CHECKING:
    from driftline.changesets._apply import Applied, Conflict, TableReport, apply
    from driftline.changesets._cdc.convert import Captured, from_cdc
    from driftline.changesets._format.changeset import ChangeFile, Changeset, Patchset, concat, invert, parse, rebase
    from driftline.changesets._format.encoding import UNDEFINED
    from driftline.changesets._format.streams import iterate
    from driftline.changesets._format.table import Column, Operation, Table
    from driftline.changesets._make.databases import Diff, Note, Problem, diff
    from driftline.changesets._make.record import Session
    from driftline.changesets._make.rows import from_deltas, from_events
    from driftline.changesets._make.sections import write_columns

_LAZY: dict[str, str] = {
    "UNDEFINED": "_format.encoding",
    "Applied": "_apply",
    "Captured": "_cdc.convert",
    "ChangeFile": "_format.changeset",
    "Changeset": "_format.changeset",
    "Column": "_format.table",
    "Conflict": "_apply",
    "Diff": "_make.databases",
    "Note": "_make.databases",
    "Operation": "_format.table",
    "Patchset": "_format.changeset",
    "Problem": "_make.databases",
    "Session": "_make.record",
    "Table": "_format.table",
    "TableReport": "_apply",
    "apply": "_apply",
    "concat": "_format.changeset",
    "diff": "_make.databases",
    "from_cdc": "_cdc.convert",
    "from_deltas": "_make.rows",
    "from_events": "_make.rows",
    "invert": "_format.changeset",
    "iterate": "_format.streams",
    "parse": "_format.changeset",
    "rebase": "_format.changeset",
    "write_columns": "_make.sections",
}

__all__ = [
    "UNDEFINED",
    "Applied",
    "Captured",
    "ChangeFile",
    "Changeset",
    "Column",
    "Conflict",
    "Diff",
    "Note",
    "Operation",
    "Patchset",
    "Problem",
    "Session",
    "Table",
    "TableReport",
    "apply",
    "concat",
    "diff",
    "from_cdc",
    "from_deltas",
    "from_events",
    "invert",
    "iterate",
    "parse",
    "rebase",
    "write_columns",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(load(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})

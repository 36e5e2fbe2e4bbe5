"""SQLite changesets and patchsets, byte for byte: made, read, combined, applied, recorded and compared.

Names are loaded when they are first used: a file can be inverted without NumPy and Arrow, which build from columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftline.core._extras import load

if TYPE_CHECKING:
    from driftline.changesets.applying import Applied, TableReport, apply
    from driftline.changesets.cdc.converting import Captured, from_cdc
    from driftline.changesets.changeset import ChangeFile, Changeset, Patchset, concat, invert, parse, rebase
    from driftline.changesets.conflicts import Conflict
    from driftline.changesets.database_diff import Diff, Note, Problem, diff
    from driftline.changesets.delta_changes import from_deltas
    from driftline.changesets.event_changes import from_events
    from driftline.changesets.format import UNDEFINED
    from driftline.changesets.operations import Operation
    from driftline.changesets.recording import Session
    from driftline.changesets.sections import write_columns
    from driftline.changesets.summaries import iterate
    from driftline.changesets.table import Column, Table

_LAZY: dict[str, str] = {
    "UNDEFINED": "format",
    "Applied": "applying",
    "Captured": "cdc.converting",
    "ChangeFile": "changeset",
    "Changeset": "changeset",
    "Column": "table",
    "Conflict": "conflicts",
    "Diff": "database_diff",
    "Note": "database_diff",
    "Operation": "operations",
    "Patchset": "changeset",
    "Problem": "database_diff",
    "Session": "recording",
    "Table": "table",
    "TableReport": "applying",
    "apply": "applying",
    "concat": "changeset",
    "diff": "database_diff",
    "from_cdc": "cdc.converting",
    "from_deltas": "delta_changes",
    "from_events": "event_changes",
    "invert": "changeset",
    "iterate": "summaries",
    "parse": "changeset",
    "rebase": "changeset",
    "write_columns": "sections",
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

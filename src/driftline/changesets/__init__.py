"""SQLite changesets and patchsets, byte for byte: made, read, combined, applied, recorded and compared."""

from __future__ import annotations

from driftline.changesets.applying import Applied, TableReport, apply, rebase
from driftline.changesets.cdc.converting import Captured, from_cdc
from driftline.changesets.changeset import ChangeFile, Changeset, Patchset, concat, invert, parse
from driftline.changesets.conflicts import Conflict
from driftline.changesets.database_diff import Diff, Note, Problem, diff
from driftline.changesets.format import UNDEFINED
from driftline.changesets.from_deltas import from_deltas
from driftline.changesets.from_events import from_events
from driftline.changesets.operations import Operation
from driftline.changesets.recording import Session
from driftline.changesets.spooling import write_columns
from driftline.changesets.streams import iterate
from driftline.changesets.table import Column, Table

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

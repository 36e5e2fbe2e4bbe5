"""SQLite changesets and patchsets, byte for byte, without a database."""

from __future__ import annotations

from driftline.changesets.applying import Applied, Conflict, apply, diff, rebase
from driftline.changesets.changeset import ChangeFile, Changeset, Patchset, concat, invert, parse
from driftline.changesets.format import UNDEFINED
from driftline.changesets.operations import Operation
from driftline.changesets.streaming import write_columns
from driftline.changesets.table import Column, Table

__all__ = [
    "UNDEFINED",
    "Applied",
    "ChangeFile",
    "Changeset",
    "Column",
    "Conflict",
    "Operation",
    "Patchset",
    "Table",
    "apply",
    "concat",
    "diff",
    "invert",
    "parse",
    "rebase",
    "write_columns",
]

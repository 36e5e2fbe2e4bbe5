"""The tables of a lake: what a store of tables does (`TableStore`, `StoredTable`), and how the lake opens and commits.

A table is a list of files with a schema, properties and transactions. A commit makes its next version. Versions are
opaque: only the store counts them, others compare them and walk back with `commits`. `_store/delta.py` is the store.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from driftline.core import JsonObject
from driftline.deltas import check_table_name
from driftline.errors import LakeError
from driftline.lake._store.lake import Lake, Part, relative
from driftline.lake._store.parquet import DataFile

MAX_TRIES = 12
Version = int  # opaque: a later version compares greater, and only the store decides which one is next


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: files to add and remove, application transactions and metadata."""

    adds: Sequence[DataFile] = ()
    removes: Sequence[str] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    data_change: bool = True
    overwrite: bool = False  # replaces every file, and the schema with them


class CommitEntry(NamedTuple):
    """A commit in the log of a table."""

    version: Version
    timestamp: int  # milliseconds
    operation: str  # of the commit's metadata, else the store's own word
    details: JsonObject  # the metadata of the commit
    transactions: Mapping[str, int]
    adds: Sequence[str]
    new_data: Sequence[str]  # those of `adds` that changed the rows
    removed: int


class StoredTable(Protocol):
    """A table at one version. What changes it returns False after a conflict; after either it must be opened anew."""

    def version(self) -> Version:
        """The version that was opened."""

    def schema(self) -> pa.Schema:
        """The columns, with the metadata of their fields."""

    def files(self) -> list[DataFile]:
        """The files of this version."""

    def property(self, name: str) -> str | None:
        """A property of the table."""

    def transaction(self, application: str) -> int | None:
        """The number of an application's last transaction."""

    def append(self, commit: Commit, schema: pa.Schema | None = None) -> bool:
        """Commit; an overwriting commit may bring another schema."""

    def add_columns(self, columns: Sequence[pa.Field], details: JsonObject) -> bool:
        """Add columns, which are null in the files so far."""

    def set_properties(self, values: Mapping[str, str], details: JsonObject) -> bool:
        """Set some properties."""

    def merge(self, rows: pa.RecordBatchReader, commit: Commit) -> bool:
        """Make these the rows, by their ids; rows that are the same stay, and the feed of changes has the others."""

    def versions_since(self, milliseconds: float) -> list[Version]:
        """The versions that were committed at that time or later."""

    def vacuum(self, keep: Sequence[Version], hours: int, dry_run: bool) -> list[str]:
        """Remove files older than so many hours that no kept version has; their paths."""


class TableStore(Protocol):
    """Where the tables of a lake are. Another one passes `tests/lake/test_table_store.py`."""

    def open(self, path: str, version: Version | None = None) -> StoredTable | None:
        """The table at a path below the lake's root, now or at a version; None where there is none."""

    def create(self, path: str, name: str, schema: pa.Schema, commit: Commit) -> bool:
        """Create a table with its first files; False if it was created meanwhile."""

    def commits(self, path: str, newest: Version) -> Iterator[CommitEntry | None]:
        """The commits from a version back to the first; None at the end where the log has been cut."""

    def cut_log(self, path: str, keep: Version | None, milliseconds: float, commits: int | None = None) -> int:
        """Remove what a log has from before a time and needs neither now nor from `keep` on; the number of files.

        With `commits` also what is younger, where so many later ones stay.
        """


def load(lake: Lake, table: str, part: Part, version: Version | None = None) -> StoredTable | None:
    """The stored table, fresh from its log, or None if there is none (or not at that version any more)."""
    return load_at(lake, relative(check_table_name(table), part), version)


def loaded(lake: Lake, table: str, part: Part = "deltas", version: Version | None = None) -> StoredTable:
    """The stored table where there must be one."""
    stored = load(lake, table, part, version)
    if stored is not None:
        return stored
    if version is not None:
        raise LakeError(f"version {version} of tables/{table}/{part} is no longer in its log", code="bad_log")
    raise LakeError(f"table {table!r} has no schema", code="no_schema", table=table)


def load_at(lake: Lake, path: str, version: Version | None = None) -> StoredTable | None:
    """The stored table at a path below the lake's root, or None."""
    return lake.store().open(path, version)


def create(lake: Lake, table: str, part: Part, schema: pa.Schema, commit: Commit) -> bool:
    """Create a stored table with its first files; False if it was created meanwhile."""
    return create_at(lake, relative(check_table_name(table), part), f"{table}.{part}", schema, commit)


def create_at(lake: Lake, path: str, name: str, schema: pa.Schema, commit: Commit) -> bool:
    """Create a stored table at a path below the lake's root; False if it was created meanwhile."""
    lake.make_directory(path)
    return lake.store().create(path, name, schema, commit)


def retried(attempt: Callable[[], bool], what: str) -> None:
    """Retry until it succeeds, with pauses for commits of other writers."""
    for number in range(MAX_TRIES):
        if attempt():
            return
        time.sleep(random.uniform(0, 0.05 * (number + 1)))
    message = f"{what}: other writers kept committing, {MAX_TRIES} tries failed; run it again"
    raise LakeError(message, code="commit_conflict")


def transaction_version(stored: StoredTable | None, application: str) -> int | None:
    """The number of an application's last transaction."""
    return None if stored is None else stored.transaction(application)


def commits_of(lake: Lake, table: str, part: Part, newest: Version | None = None) -> Iterator[CommitEntry | None]:
    """The commits of a table, newest first, from its current version or an earlier one; None where its log was cut."""
    stored = load(lake, table, part) if newest is None else None
    newest = stored.version() if stored is not None else newest
    if newest is None:
        return iter(())
    return lake.store().commits(relative(table, part), newest)


def version_of_commit(lake: Lake, table: str, part: Part, token: str) -> Version:
    """The version of the commit with this token."""
    for entry in commits_of(lake, table, part):
        if entry is not None and entry.details.get("token") == token:
            return entry.version
    raise LakeError(f"the commit to tables/{table}/{part} is not in its log", code="bad_log")

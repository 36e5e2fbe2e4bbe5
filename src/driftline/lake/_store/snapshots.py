"""Snapshots: versions of `base` with the versions of deltas and deletes that they pin; the history of loads.

The pins are application transactions of the base commit (metadata is removed by log clean-up, transactions stay).
Readers use the pinned versions, never the latest; where a pin is lost, the caller folds in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.fs as pa_fs

from driftline.core import JsonObject, canonical_json, sha256_hex
from driftline.deltas import MAX_HLC, ColumnSchema
from driftline.errors import LakeError
from driftline.lake._store.flush import waiting_envelopes
from driftline.lake._store.lake import Lake, relative
from driftline.lake._store.parquet import DataFile
from driftline.lake._store.rows import META_COLUMNS, STAMPS, unescape_name
from driftline.lake._store.schemas import GENERATION
from driftline.lake._store.tables import StoredTable, commits_of, load, transaction_version

LOAD = "load"
MAX_WINDOWS = 400  # of one commit; older snapshots stay in the lake and can no longer be corrected
FOLDED_DELTAS = "compact"  # version of `deltas` that the snapshot folds
PINNED_DELETES = "compact:deletes"  # version of `deletes` that goes with it
GREATEST_HLC = "compact:max-hlc"  # greatest hlc among the folded deltas
FOLDED_GENERATION = "compact:generation"  # generation of the table that the deltas are of

Pins = tuple[int, int, int]
ReadOffsets = Mapping[str, "ReadFile"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of `base`, what it folds and the files that make it up."""

    base_version: int
    deltas_version: int
    deletes_version: int
    max_hlc: int
    columns: frozenset[str]
    base: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...]
    generation: int = 1

    @property
    def pins(self) -> Pins:
        """What its base commit pins."""
        return self.deltas_version, self.deletes_version, self.max_hlc

    def covers(self, columns: Sequence[ColumnSchema], lake: Lake, table: str) -> bool:
        """Whether it can replace the deltas it folds: no column that these deltas may set has been left out."""
        missing = {column.name for column in columns} - self.columns
        if not missing:
            return True
        deltas_then = load(lake, table, "deltas", self.deltas_version)
        return deltas_then is not None and not missing & _column_names(deltas_then)


def newest_snapshot(lake: Lake, table: str) -> Snapshot | None:
    """The latest snapshot, or None if there is none or its pins are lost."""
    return snapshot_of(lake, table, load(lake, table, "base"))


def snapshot_as_of(lake: Lake, table: str, as_of: int, base_table: StoredTable | None) -> Snapshot | None:
    """The newest snapshot whose greatest hlc is not after `as_of` and whose files still exist."""
    if base_table is None:
        return None
    for entry in commits_of(lake, table, "base", base_table.version()):
        if entry is None:
            return None
        greatest = entry.transactions.get(GREATEST_HLC)
        if greatest is not None and greatest <= as_of:
            snapshot = snapshot_of(lake, table, load(lake, table, "base", entry.version))
            if snapshot is not None and snapshot.max_hlc <= as_of and _files_exist(lake, table, snapshot):
                return snapshot
    return None


def pins_of(base_table: StoredTable | None) -> Pins | None:
    """Folded deltas version, pinned deletes version and greatest hlc; None if there is no base or a pin is lost."""
    folded, deletes, greatest = (
        transaction_version(base_table, name) for name in (FOLDED_DELTAS, PINNED_DELETES, GREATEST_HLC)
    )
    if folded is None or deletes is None or greatest is None:
        return None
    return folded, deletes, greatest


def snapshot_of(lake: Lake, table: str, base_table: StoredTable | None) -> Snapshot | None:
    """The snapshot that a loaded version of `base` is, or None if there is none or its pins are lost."""
    pins = pins_of(base_table)
    if base_table is None or pins is None:
        return None
    folded, deletes, greatest = pins
    deletes_table = load(lake, table, "deletes", deletes)
    if deletes_table is None:
        return None
    return Snapshot(
        base_table.version(),
        folded,
        deletes,
        greatest,
        frozenset(_column_names(base_table)),
        tuple(base_table.files()),
        tuple(deletes_table.files()),
        transaction_version(base_table, FOLDED_GENERATION) or 1,
    )


def _files_exist(lake: Lake, table: str, snapshot: Snapshot) -> bool:
    parts = {"base": snapshot.base, "deletes": snapshot.deletes}
    paths = [relative(table, part, file.path) for part, files in parts.items() for file in files]
    return all(info.type == pa_fs.FileType.File for info in lake.files().get_file_info(paths))


def _column_names(delta_table: StoredTable) -> set[str]:
    return {unescape_name(name) for name in delta_table.schema().names if name not in META_COLUMNS and name != STAMPS}


# The load history: which snapshots were loaded, stored in the commits of the loads (deltas-and-lake §12). Every load is
# one commit to the deltas table, and that commit has the complete history: a window of timestamps for each snapshot and
# what was loaded into it. So the history cannot disagree with the lake: a lake that was restored, replaced or lost has
# its own, and a load that was killed left none.


@dataclass(frozen=True, slots=True)
class Window:
    """One loaded snapshot: the timestamps that belong to it, and its content.

    Loads are counted: `verified` is the one after which its state was the snapshot, `written` the last one that wrote
    deltas into it, `since` the first one with this content.
    """

    label: str
    start: int
    last: int
    content: str
    by: str
    deltas: int = 0
    verified: int = 0
    written: int = 0
    since: int = 0

    def to_wire(self) -> list[Any]:
        """The window as plain data; timestamps are text, because JSON numbers end at 2^53."""
        counts = [self.deltas, self.verified, self.written, self.since]
        return [self.label, str(self.start), str(self.last), self.content, self.by, *counts]

    @classmethod
    def from_wire(cls, entry: Sequence[Any]) -> Window:
        """The window of plain data."""
        label, start, last, content, by, *counts = entry
        return cls(label, int(start), int(last), content, by, *counts)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """How far a file of change events was read: so many bytes and their hash; `mark` is its version if that was all."""

    offset: int
    digest: str
    mark: str = ""

    def to_wire(self) -> list[Any]:
        """The position as plain data."""
        return [self.offset, self.digest, self.mark]


@dataclass(frozen=True, slots=True)
class LoadHistory:
    """The windows of a table in the order of time, and other writers since the last load.

    `number` counts the loads of all generations, so that two that run at once are noticed. A table that follows change
    events has no windows; `changes` says how far each of their files was read.
    """

    windows: tuple[Window, ...] = ()
    number: int = 0
    others: frozenset[str] = frozenset()
    changes: ReadOffsets = field(default_factory=dict)
    changes_key: tuple[str, ...] = ()  # the columns that rows of change events are known by

    @property
    def newest(self) -> Window | None:
        """The window of the current state."""
        return self.windows[-1] if self.windows else None

    def find(self, label: str) -> Window | None:
        """The window of a snapshot."""
        return next((window for window in self.windows if window.label == label), None)

    def before(self, start: int) -> Window | None:
        """The last window that starts before a timestamp."""
        return next((window for window in reversed(self.windows) if window.start < start), None)

    def after(self, start: int) -> Window | None:
        """The first window that starts after a timestamp."""
        return next((window for window in self.windows if window.start > start), None)

    def end_of(self, window: Window) -> int:
        """The last timestamp that may belong to a window."""
        following = self.after(window.start)
        return following.start - 1 if following else MAX_HLC

    def digest(self, until: int | None = None) -> str:
        """A text for the state up to a timestamp: it changes when a load writes deltas up to there.

        Loads are counted, so the greatest number of one that wrote into these windows is enough.
        """
        written = (window.written for window in self.windows if until is None or window.start <= until)
        positions = {name: [each.offset, each.digest] for name, each in self.changes.items()}
        return sha256_hex(canonical_json([max(written, default=0), positions, sorted(self.others)]))

    def holds(self, label: str, content: str) -> bool:
        """Whether the state as of a snapshot has this content: it had once, and no earlier window has changed since."""
        known = self.find(label)
        return known is not None and known.content == content and self._sound()[self.windows.index(known)]

    def _sound(self) -> list[bool]:
        """Each window depends on those before it, back to a sound one with the same content when it was verified."""
        found: list[bool] = []
        for index, window in enumerate(self.windows):
            found.append(True)
            for earlier in range(index - 1, -1, -1):
                other = self.windows[earlier]
                if found[earlier] and other.since <= window.verified:
                    break
                if other.written > window.verified:
                    found[index] = False
                    break
        return found

    def with_window(self, window: Window) -> LoadHistory:
        """The history after the load of a window."""
        number = self.number + 1
        known = next((other for other in self.windows if other.start == window.start), None)
        is_same = known is not None and known.content == window.content
        done = replace(
            window,
            verified=number,
            written=number if window.deltas else known.written if known else 0,
            since=known.since if known is not None and is_same else number,
        )
        windows = sorted([*(other for other in self.windows if other is not known), done], key=lambda each: each.start)
        return LoadHistory(tuple(windows[-MAX_WINDOWS:]), number)

    def with_changes(self, changes: ReadOffsets, key: Sequence[str]) -> LoadHistory:
        """The history after a load of change events."""
        return LoadHistory((), self.number + 1, changes=dict(changes), changes_key=tuple(key))

    def to_wire(self) -> JsonObject:
        """The history as plain data."""
        windows = {"number": self.number, "windows": [window.to_wire() for window in self.windows]}
        changes = {name: position.to_wire() for name, position in self.changes.items()}
        return {**windows, "changes": changes, "changes_key": list(self.changes_key)} if changes else windows


def load_history(lake: Lake, table: str) -> LoadHistory:
    """The history in the newest load of a table, and the writers after it."""
    deltas_table = load(lake, table, "deltas")
    if deltas_table is None:
        return LoadHistory()
    number = deltas_table.transaction(LOAD) or 0
    others: set[str] = {"waiting envelopes"} if waiting_envelopes(lake, table, deltas_table) else set()
    for commit in commits_of(lake, table, "deltas", deltas_table.version()):
        if commit is None:
            raise LakeError(
                f"the log of tables/{table}/deltas no longer holds its first versions, so what was loaded is not "
                "known: --full-refresh loads it anew",
                code="unknown_lake",
            )
        details = commit.details
        if details.get("operation") == LOAD:
            held = details["ledger"]
            windows = tuple(Window.from_wire(entry) for entry in held["windows"])
            changes = {name: ReadFile(*entry) for name, entry in held.get("changes", {}).items()}
            return LoadHistory(windows, number, frozenset(others), changes, tuple(held.get("changes_key", ())))
        if details.get("operation") == GENERATION:
            break
        if commit.new_data:
            others.add(str(details.get("gateway") or "somebody"))
    return LoadHistory((), number, frozenset(others))


def greatest_hlc(lake: Lake, table: str) -> int:
    """The greatest timestamp of the table's delta files."""
    deltas_table = load(lake, table, "deltas")
    return 0 if deltas_table is None else max((file.max_hlc or 0 for file in deltas_table.files()), default=0)

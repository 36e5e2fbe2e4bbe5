"""Snapshots: versions of `base` with the versions of deltas and deletes that they pin.

The pins are application transactions of the base commit (metadata goes with log clean-up, transactions stay).
Readers use the pinned versions, never the latest; where a pin is lost, the caller folds in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow.fs as pa_fs
from deltalake import DeltaTable

from driftline.deltas import ColumnSchema
from driftline.lake.columns import META_COLUMNS, STAMPS, unescape_name
from driftline.lake.delta_tables import commit_entries, files_of, load, transaction_version
from driftline.lake.layout import Lake, Part, relative
from driftline.lake.parquet_files import DataFile

FOLDED_DELTAS = "compact"  # version of `deltas` that the snapshot folds
PINNED_DELETES = "compact:deletes"  # version of `deletes` that goes with it
GREATEST_HLC = "compact:max-hlc"  # greatest hlc among the folded deltas
FOLDED_GENERATION = "compact:generation"  # generation of the table that the deltas are of

Pins = tuple[int, int, int]


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
        """Whether it can stand for the deltas it folds: no column that these deltas may set has been left out."""
        missing = {column.name for column in columns} - self.columns
        if not missing:
            return True
        deltas_then = load(lake, table, "deltas", self.deltas_version)
        return deltas_then is not None and not missing & _column_names(deltas_then)


def newest_snapshot(lake: Lake, table: str) -> Snapshot | None:
    """The latest snapshot, or None if there is none or its pins are lost."""
    return snapshot_of(lake, table, load(lake, table, "base"))


def snapshot_as_of(lake: Lake, table: str, as_of: int, base_table: DeltaTable | None) -> Snapshot | None:
    """The newest snapshot whose greatest hlc is not after `as_of` and whose files are still there."""
    for version in _versions_up_to(lake, table, as_of, base_table):
        snapshot = snapshot_of(lake, table, load(lake, table, "base", version))
        if snapshot is not None and snapshot.max_hlc <= as_of and _files_are_there(lake, table, snapshot):
            return snapshot
    return None


def pins_of(base_table: DeltaTable | None) -> Pins | None:
    """Folded deltas version, pinned deletes version and greatest hlc; None if there is no base or a pin is lost."""
    folded, deletes, greatest = (
        transaction_version(base_table, name) for name in (FOLDED_DELTAS, PINNED_DELETES, GREATEST_HLC)
    )
    if folded is None or deletes is None or greatest is None:
        return None
    return folded, deletes, greatest


def snapshot_of(lake: Lake, table: str, base_table: DeltaTable | None) -> Snapshot | None:
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
        tuple(files_of(base_table)),
        tuple(files_of(deletes_table)),
        transaction_version(base_table, FOLDED_GENERATION) or 1,
    )


def _versions_up_to(lake: Lake, table: str, as_of: int, base_table: DeltaTable | None) -> Iterator[int]:
    """Versions of `base` that set a greatest hlc, newest first."""
    if base_table is None:
        return
    for version in range(base_table.version(), -1, -1):
        entries = commit_entries(lake, table, "base", version)
        if entries is None:
            return
        marks = [entry["txn"]["version"] for entry in entries if entry.get("txn", {}).get("appId") == GREATEST_HLC]
        if marks and marks[0] <= as_of:
            yield version


def _files_are_there(lake: Lake, table: str, snapshot: Snapshot) -> bool:
    parts: tuple[tuple[Part, tuple[DataFile, ...]], ...] = (("base", snapshot.base), ("deletes", snapshot.deletes))
    paths = [relative(table, part, file.path) for part, files in parts for file in files]
    return all(info.type == pa_fs.FileType.File for info in lake.files().get_file_info(paths))


def _column_names(delta_table: DeltaTable) -> set[str]:
    names = (field.name for field in delta_table.schema().fields)
    return {unescape_name(name) for name in names if name not in META_COLUMNS and name != STAMPS}

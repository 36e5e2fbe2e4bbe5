"""Compaction: previous base, pinned deletes and new deltas become a new snapshot.

Stages: plan, fold (files with attempt-unique names), commit `deletes`, commit `base` with the pins, commit `state`. A
kill before the commit of `base` leaves files that no commit refers to; the next run starts from the pins again. One
before the commit of `state` leaves it behind `base`, which the next run fixes.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.core import Tracker
from driftline.deltas import ColumnSchema
from driftline.errors import LakeError
from driftline.lake._fold.local import RangeInput, RangeJob, Result, fold_range, run_locally
from driftline.lake._fold.plan import ROWS_PER_RANGE, TARGET_FILE_BYTES, FoldPlan, plan_fold
from driftline.lake._store.flush import flush_envelopes
from driftline.lake._store.lake import Lake, Part, attempt_token, merged_file_name, relative
from driftline.lake._store.parquet import DataFile, read_file, write_file
from driftline.lake._store.rows import (
    META_COLUMNS,
    ROW_ID,
    STAMPS,
    base_file_schema,
    deletes_file_schema,
    delta_file_schema,
    escape_name,
    state_file_schema,
    unescape_name,
)
from driftline.lake._store.schemas import column_type, every_column
from driftline.lake._store.snapshots import (
    FOLDED_DELTAS,
    FOLDED_GENERATION,
    GREATEST_HLC,
    PINNED_DELETES,
    newest_snapshot,
    pins_of,
)
from driftline.lake._store.tables import (
    MAX_TRIES,
    Commit,
    StoredTable,
    create,
    load,
    retried,
    transaction_version,
    version_of_commit,
)

FOLLOWED_BASE = "state:base"  # application transaction: the version of `base` that the state shows
SMALL_BYTES = 4 << 20
MIN_FILES = 16  # of one day and gateway, before merging is worth it

_COMPRESSED_SHARE = 0.5  # of the bytes in memory, about what a base file takes on disk
_MERGED_BYTES = 64 << 20

Engine = Callable[[FoldPlan, RangeJob, Tracker | None], Iterable[Result]]
Stage = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction; `is_new` is False when there was nothing to do or another run had done it."""

    table: str
    is_new: bool
    deltas_version: int
    base_version: int | None
    deltas_folded: int = 0
    files_written: int = 0
    files_replaced: int = 0
    full: bool = False


@dataclass(frozen=True)
class WriteSnapshot(RangeJob):
    """The job of a compaction: fold a range and write its base and deletes files."""

    target_file_bytes: int = TARGET_FILE_BYTES
    base_part: Part = "base"
    with_deletes: bool = True
    every_range: bool = False

    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        """Fold and write; the result names the range and its new files."""
        folded = fold_range(plan, given)
        dead = folded.deletes
        if plan.horizon is not None:  # no delta can be older than the tombstones before it
            dead = dead.filter(pc.greater_equal(pc.struct_field(dead["_deleted"], ["hlc"]), plan.horizon))
        return [
            {
                "range": given.key_range.index,
                "base": self._write(plan, self.base_part, folded.base, given.key_range.index),
                "deletes": self._write(plan, "deletes", dead, given.key_range.index) if self.with_deletes else [],
            }
        ]

    def _write(self, plan: FoldPlan, part: str, rows: pa.Table, index: int) -> list[list[Any]]:
        if rows.num_rows == 0:
            return []
        pieces = max(1, round(rows.nbytes * _COMPRESSED_SHARE / self.target_file_bytes))
        size = -(-rows.num_rows // pieces)
        files = []
        for number, start in enumerate(range(0, rows.num_rows, size)):
            name = f"part-{index:05d}-{number:03d}-{attempt_token()}.parquet"
            piece = rows.slice(start, size)
            file = write_file(plan.lake, relative(plan.table, part), name, piece)
            files.append([file.path, file.size, file.rows, file.min_row_id, file.max_row_id])
            if part == "base":
                write_state_file(plan.lake, plan.table, name, piece, plan.columns)
        return files


@dataclass
class SnapshotChanges:
    """What the ranges of a compaction replace and write."""

    base: list[DataFile] = field(default_factory=list)
    deletes: list[DataFile] = field(default_factory=list)
    replaced_base: set[str] = field(default_factory=set)
    replaced_deletes: set[str] = field(default_factory=set)


def compact(
    lake: Lake,
    table: str,
    *,
    full: bool = False,
    engine: Engine = run_locally,
    tracker: Tracker | None = None,
    target_file_bytes: int = TARGET_FILE_BYTES,
    rows_per_range: int = ROWS_PER_RANGE,
    at_stage: Stage = lambda name: None,
) -> CompactionResult:
    """Fold new deltas into a new snapshot; after the commit of another compaction the fold is planned anew."""
    flush_envelopes(lake, table)
    sizes = {"rows_per_range": rows_per_range, "target_file_bytes": target_file_bytes}
    for _ in range(MAX_TRIES):
        plan = plan_fold(lake, table, full=full, envelopes=False, **sizes)
        at_stage("planned")
        if not full and not plan.deltas and (not _columns_changed(plan) if plan.snapshot else plan.base_pins is None):
            version = plan.snapshot.base_version if plan.snapshot else None
            follow_base(lake, table)
            return CompactionResult(table, False, plan.deltas_version, version)
        job = WriteSnapshot(target_file_bytes, every_range=_columns_changed(plan))
        changes = collect_changes(plan, engine(plan, job, tracker))
        at_stage("folded")
        deletes_version = _commit_deletes(plan, changes)
        at_stage("deletes committed")
        result = _commit_base(plan, changes, deletes_version)
        if result is not None:
            at_stage("base committed")
            follow_base(lake, table)
            at_stage("state committed")
            if result.is_new:
                merge_small_files(lake, table)
            return result
    raise LakeError(f"compacting {table}: other compactors kept committing; run it again", code="commit_conflict")


def _columns_changed(plan: FoldPlan) -> bool:
    """Whether every file is rewritten, so that readers see one schema and removed columns leave base."""
    return plan.snapshot is not None and plan.snapshot.columns != {column.name for column in plan.columns}


def collect_changes(plan: FoldPlan, results: Iterable[Result]) -> SnapshotChanges:
    """The results of a `WriteSnapshot` job, joined."""
    changes = SnapshotChanges()
    for result in results:
        key_range = plan.ranges[result["range"]]
        changes.base += [DataFile(*entry) for entry in result["base"]]
        changes.deletes += [DataFile(*entry) for entry in result["deletes"]]
        changes.replaced_base |= {file.path for file in key_range.base}
        changes.replaced_deletes |= {file.path for file in key_range.deletes}
    return changes


def _commit_deletes(plan: FoldPlan, changes: SnapshotChanges) -> int:
    """Make the latest version of `deletes` the pinned one with the touched files replaced; its version."""
    pinned = {file.path: file for file in plan.snapshot.deletes} if plan.snapshot else {}
    wanted = {path: file for path, file in pinned.items() if path not in changes.replaced_deletes}
    wanted.update({file.path: file for file in changes.deletes})
    token = attempt_token()
    details = {"operation": "compact", "token": token}

    def attempt() -> bool:
        latest = load(plan.lake, plan.table, "deletes")
        if latest is None:
            first = Commit(adds=list(wanted.values()), metadata=details)
            return create(plan.lake, plan.table, "deletes", deletes_file_schema(), first)
        present = {file.path for file in latest.files()}
        commit = Commit(
            adds=[file for path, file in wanted.items() if path not in present],
            removes=sorted(present - set(wanted)),
            metadata=details,
        )
        return latest.append(commit)

    retried(attempt, f"compacting {plan.table}")
    return version_of_commit(plan.lake, plan.table, "deletes", token)


def _commit_base(plan: FoldPlan, changes: SnapshotChanges, deletes_version: int) -> CompactionResult | None:
    """Commit the snapshot; None when another one was committed and the fold must be planned anew."""
    token = attempt_token()
    pins = {FOLDED_DELTAS: plan.deltas_version, PINNED_DELETES: deletes_version, GREATEST_HLC: plan.max_hlc}
    marks = {**pins, FOLDED_GENERATION: plan.generation}
    details = {"operation": "compact", "token": token, "deltas": plan.delta_count, "pins": pins}
    overwrite = plan.snapshot is None or _columns_changed(plan)
    removes = () if overwrite else sorted(changes.replaced_base)
    commit = Commit(changes.base, removes, marks, details, overwrite=overwrite)
    latest, schema = load(plan.lake, plan.table, "base"), base_file_schema(plan.columns)
    if latest is None:
        done = create(plan.lake, plan.table, "base", schema, commit)
    else:
        done = pins_of(latest) == plan.base_pins and latest.append(commit, schema if overwrite else None)
    if not done:
        return None
    return CompactionResult(
        plan.table,
        True,
        plan.deltas_version,
        version_of_commit(plan.lake, plan.table, "base", token),
        plan.delta_count,
        len(changes.base) + len(changes.deletes),
        len(changes.replaced_base) + len(changes.replaced_deletes),
        plan.snapshot is None,
    )


def merge_small_files(lake: Lake, table: str, *, small_bytes: int = SMALL_BYTES, min_files: int = MIN_FILES) -> int:
    """Merge the small folded files of each day and gateway; the number of files removed."""
    gone = 0

    def attempt() -> bool:
        nonlocal gone
        deltas_table = load(lake, table, "deltas")
        files = [] if deltas_table is None else deltas_table.files()
        if not _groups(files, small_bytes, min_files):
            return True  # also without those that are not folded
        snapshot = newest_snapshot(lake, table)
        pinned = None if snapshot is None else load(lake, table, "deltas", snapshot.deltas_version)
        folded = set() if pinned is None else {file.path for file in pinned.files()}
        groups = _groups([file for file in files if file.path in folded], small_bytes, min_files)
        if deltas_table is None or not groups:
            return True
        schema = delta_file_schema(every_column(deltas_table))
        merged = [_merge(lake, table, group, schema) for group in groups]
        removes = [file.path for group in groups for file in group]
        details = {"operation": "merge files"}
        if not deltas_table.append(Commit(merged, removes, {}, details, data_change=False)):
            return False
        gone = len(removes)
        return True

    retried(attempt, f"merging small files of {table}")
    return gone


def _groups(files: Iterable[DataFile], small_bytes: int, min_files: int) -> list[list[DataFile]]:
    """Small files of one day and gateway that make a file of bounded size, where there are enough of them."""
    by_folder: dict[str, list[DataFile]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.path):
        if file.size < small_bytes:
            by_folder[file.path.rpartition("/")[0]].append(file)
    groups: list[list[DataFile]] = []
    for members in by_folder.values():
        groups.append([])
        for file in members:
            if sum(each.size for each in groups[-1]) > _MERGED_BYTES:
                groups.append([])
            groups[-1].append(file)
    return [group for group in groups if len(group) >= min_files]


def _merge(lake: Lake, table: str, group: list[DataFile], schema: object) -> DataFile:
    root = relative(table, "deltas")
    rows = pa.concat_tables([read_file(lake, f"{root}/{file.path}", schema) for file in group]).sort_by("_hlc")
    low = min(file.min_hlc or 0 for file in group)
    high = max(file.max_hlc or 0 for file in group)
    folder = group[0].path.rpartition("/")[0]
    return write_file(lake, root, merged_file_name(folder, low, high), rows)


# The state table: the rows of the newest snapshot as a plain Delta table (deltas-and-lake §8.2). It has one file for
# each file of `base`, under the same name, without stamps. So an update is a difference of two sets, and a compaction
# that changes few ranges rewrites few files here too.


def write_state_file(lake: Lake, table: str, name: str, rows: pa.Table, columns: Sequence[ColumnSchema]) -> DataFile:
    """Write the plain rows of a base file under its name."""
    arrays = [rows[ROW_ID], *(rows[escape_name(column.name)] for column in columns)]
    plain = pa.Table.from_arrays(arrays, schema=state_file_schema(columns))
    return write_file(lake, relative(table, "state"), name, plain)


def follow_base(lake: Lake, table: str) -> None:
    """Bring `state` to the newest `base`; files that are there already stay."""

    def attempt() -> bool:
        base = load(lake, table, "base")
        state = load(lake, table, "state")
        if base is None or (transaction_version(state, FOLLOWED_BASE) or -1) >= base.version():
            return True
        columns = _columns_of(base)
        schema = state_file_schema(columns)
        wanted = {file.path: file for file in base.files()}
        pins = {FOLLOWED_BASE: base.version()}
        details = {"operation": "state", "base": base.version()}
        if state is None:
            files = [_state_file(lake, table, file, columns) for file in wanted.values()]
            return create(lake, table, "state", schema, Commit(files, (), pins, details))
        overwrite = _columns_of(state, str) != columns
        present = set() if overwrite else {file.path for file in state.files()}
        adds = [_state_file(lake, table, file, columns) for path, file in wanted.items() if path not in present]
        commit = Commit(adds, sorted(present - set(wanted)), pins, details, overwrite=overwrite)
        return state.append(commit, schema if overwrite else None)

    retried(attempt, f"writing the state of {table}")


def _state_file(lake: Lake, table: str, base: DataFile, columns: Sequence[ColumnSchema]) -> DataFile:
    """The plain file of a base file: as the fold wrote it, or made from it now."""
    path = relative(table, "state", base.path)
    with contextlib.suppress(Exception):  # whatever is wrong with a file that a killed task left, it is written again
        with lake.files().open_input_file(path) as source:
            is_complete = pq.ParquetFile(source).metadata.num_rows == base.rows
        if is_complete:
            size = lake.files().get_file_info(path).size
            return DataFile(base.path, size, base.rows, base.min_row_id, base.max_row_id)
    rows = read_file(lake, relative(table, "base", base.path), base_file_schema(columns))
    return write_state_file(lake, table, base.path, rows, columns)


def _columns_of(delta_table: StoredTable, plain_name: Callable[[str], str] = unescape_name) -> list[ColumnSchema]:
    """The table's own columns, by the types of the files; json is a string to every reader."""
    fields = [field for field in delta_table.schema() if field.name not in META_COLUMNS and field.name != STAMPS]
    return [ColumnSchema(plain_name(field.name), column_type(field.type)) for field in fields]

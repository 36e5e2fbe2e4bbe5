"""Compaction (previous base, pinned deletes and new deltas become a new snapshot) and maintenance of a lake.

Stages: plan, fold (files with attempt-unique names), commit `deletes`, commit `base` with the pins, commit `state`. A
kill before the commit of `base` leaves files that no commit refers to; the next run starts from the pins again. One
before the commit of `state` leaves it behind `base`, which the next run fixes.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.core import JsonObject, Tracker, sha256_hex
from driftline.deltas import ColumnSchema, make_hlc, physical_ms
from driftline.errors import LakeError, OptionError
from driftline.lake._fold.local import RangeInput, RangeJob, Result, fold_range, run_locally
from driftline.lake._fold.plan import ROWS_PER_RANGE, TARGET_FILE_BYTES, FoldPlan, new_files, plan_fold, usable_snapshot
from driftline.lake._store import rows as stored, schemas, tables
from driftline.lake._store.envelopes import envelope_paths, envelope_transaction, maker_of, origin_of
from driftline.lake._store.flush import count_set_aside, count_waiting, flush_envelopes, log_transaction
from driftline.lake._store.lake import Lake, Part, attempt_token, merged_file_name, relative
from driftline.lake._store.parquet import DataFile, read_batches, read_file, write_file

FOLLOWED_BASE = "state:base"  # application transaction: a number made of the files of `base` that the state shows
FEED_PROPERTY = "delta.enableChangeDataFeed"  # of `state`; set by `--state-feed`, and every compaction keeps to it
KEPT_COMMITS = 500  # of `deltas`, that a cut of its log leaves
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
    notice: str | None = None  # for the operator: the state's change data feed was switched on or off

    def to_dict(self) -> JsonObject:
        """The result as plain data."""
        folded = {"new": self.is_new, "snapshot": self.base_version, "deltas": self.deltas_folded}
        files = {"filesWritten": self.files_written, "filesReplaced": self.files_replaced}
        return {"table": self.table, **folded, **files}


@dataclass(frozen=True)
class WriteSnapshot(RangeJob):
    """The job of a compaction: fold a range and write its base and deletes files."""

    target_file_bytes: int = TARGET_FILE_BYTES
    base_part: Part = "base"
    with_deletes: bool = True
    every_range: bool = False
    with_state: bool = True  # a state with a change data feed has files of its own

    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        """Fold and write; the result names the range and its new files."""
        folded = fold_range(plan, given)
        dead = folded.deletes
        if plan.horizon is not None:  # no delta can be older than the tombstones before it
            dead = dead.filter(pc.greater_equal(pc.struct_field(dead["_deleted"], ["hlc"]), plan.horizon))
        index = given.key_range.index
        base = self._write(plan, self.base_part, folded.base, index)
        deletes = self._write(plan, "deletes", dead, index) if self.with_deletes else []
        return [{"range": index, "base": base, "deletes": deletes}]

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
            if part == "base" and self.with_state:
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
    feed: bool | None = None,
    at_stage: Stage = lambda name: None,
) -> CompactionResult:
    """Fold new deltas into a new snapshot; after the commit of another compaction the fold is planned anew.

    `feed` switches the change data feed of the table's `state` on or off; by default it stays as it is.
    """
    flush_envelopes(lake, table)
    sized = partial(plan_fold, rows_per_range=rows_per_range, target_file_bytes=target_file_bytes)
    for _ in range(tables.MAX_TRIES):
        plan = sized(lake, table, full=full, envelopes=False)
        at_stage("planned")
        if not full and not plan.deltas and (not _columns_changed(plan) if plan.snapshot else plan.base_pins is None):
            version = plan.snapshot.base_version if plan.snapshot else None
            notice = follow_base(lake, table, feed)
            return CompactionResult(table, False, plan.deltas_version, version, notice=notice)
        is_fed = _has_feed(tables.load(lake, table, "state")) if feed is None else feed
        job = WriteSnapshot(target_file_bytes, every_range=_columns_changed(plan), with_state=not is_fed)
        changes = collect_changes(plan, engine(plan, job, tracker))
        at_stage("folded")
        deletes_version = _commit_deletes(plan, changes)
        at_stage("deletes committed")
        result = _commit_base(plan, changes, deletes_version)
        if result is not None:
            at_stage("base committed")
            notice = follow_base(lake, table, feed)
            at_stage("state committed")
            merge_small_files(lake, table)
            return replace(result, notice=notice)
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
    requested = {path: file for path, file in pinned.items() if path not in changes.replaced_deletes}
    requested.update({file.path: file for file in changes.deletes})
    token = attempt_token()
    details = {"operation": "compact", "token": token}

    def attempt() -> bool:
        latest = tables.load(plan.lake, plan.table, "deletes")
        if latest is None:
            first = tables.Commit(adds=list(requested.values()), metadata=details)
            return tables.create(plan.lake, plan.table, "deletes", stored.deletes_file_schema(), first)
        present = {file.path for file in latest.files()}
        adds = [file for path, file in requested.items() if path not in present]
        return latest.append(tables.Commit(adds, sorted(present - set(requested)), metadata=details))

    tables.retried(attempt, f"compacting {plan.table}")
    return tables.version_of_commit(plan.lake, plan.table, "deletes", token)


def _commit_base(plan: FoldPlan, changes: SnapshotChanges, deletes_version: int) -> CompactionResult | None:
    """Commit the snapshot; None when another one was committed and the fold must be planned anew."""
    token = attempt_token()
    pins = {
        schemas.FOLDED_DELTAS: plan.deltas_version,
        schemas.PINNED_DELETES: deletes_version,
        schemas.GREATEST_HLC: plan.max_hlc,
    }
    marks = {**pins, schemas.FOLDED_GENERATION: plan.generation}
    details = {"operation": "compact", "token": token, "deltas": plan.delta_count, "pins": pins}
    overwrite = plan.snapshot is None or _columns_changed(plan)
    removes = () if overwrite else sorted(changes.replaced_base)
    commit = tables.Commit(changes.base, removes, marks, details, overwrite=overwrite)
    latest, schema = tables.load(plan.lake, plan.table, "base"), stored.base_file_schema(plan.columns)
    if latest is None:
        done = tables.create(plan.lake, plan.table, "base", schema, commit)
    else:
        done = schemas.pins_of(latest) == plan.base_pins and latest.append(commit, schema if overwrite else None)
    if not done:
        return None
    version = tables.version_of_commit(plan.lake, plan.table, "base", token)
    written = len(changes.base) + len(changes.deletes)
    replaced = len(changes.replaced_base) + len(changes.replaced_deletes)
    counts = (plan.delta_count, written, replaced)
    return CompactionResult(plan.table, True, plan.deltas_version, version, *counts, plan.snapshot is None)


def merge_small_files(lake: Lake, table: str, *, small_bytes: int = SMALL_BYTES, min_files: int = MIN_FILES) -> int:
    """Merge the small folded files of each day and gateway; the number of files removed."""
    gone = 0

    def attempt() -> bool:
        nonlocal gone
        deltas_table = tables.load(lake, table, "deltas")
        files = [] if deltas_table is None else deltas_table.files()
        if not _groups(files, small_bytes, min_files):
            return True  # also without those that are not folded
        snapshot = schemas.newest_snapshot(lake, table)
        pinned = None if snapshot is None else tables.load(lake, table, "deltas", snapshot.deltas_version)
        folded = set() if pinned is None else {file.path for file in pinned.files()}
        groups = _groups([file for file in files if file.path in folded], small_bytes, min_files)
        if deltas_table is None or not groups:
            return True
        schema = stored.delta_file_schema(schemas.every_column(deltas_table))
        merged = [_merge(lake, table, group, schema) for group in groups]
        removes = [file.path for group in groups for file in group]
        details = {"operation": "merge files"}
        if not deltas_table.append(tables.Commit(merged, removes, {}, details, data_change=False)):
            return False
        gone = len(removes)
        return True

    tables.retried(attempt, f"merging small files of {table}")
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
    plain = stored.plain_table(rows, columns).cast(stored.state_file_schema(columns))
    return write_file(lake, relative(table, "state"), name, plain)


def follow_base(lake: Lake, table: str, feed: bool | None = None) -> str | None:
    """Bring `state` to the newest `base`, by files or with a feed by rows; a notice where the feed is switched."""
    notice: str | None = None

    def attempt() -> bool:
        nonlocal notice
        # In this order: a process that follows a newer `base` meanwhile makes this commit a conflict.
        state = tables.load(lake, table, "state")
        base = tables.load(lake, table, "base")
        columns = schemas.required(lake, table).columns if base is None else _columns_of(base)
        schema = stored.state_file_schema(columns)
        if state is None and feed:  # the feed begins with the first row
            return tables.create(lake, table, "state", schema, tables.Commit()) and attempt()
        if state is not None and feed is not None and feed != _has_feed(state):
            word = "on" if feed else "off"
            notice = f"{relative(table, 'state')}: the change data feed is {word} after version {state.version()}"
            return state.set_properties({FEED_PROPERTY: str(feed).lower()}, {"operation": f"feed {word}"}) and attempt()
        if base is None:
            return True
        requested = {file.path: file for file in base.files()}
        present = set() if state is None else {file.path for file in state.files()}
        pins = {FOLLOWED_BASE: int(sha256_hex("\n".join(sorted(requested)).encode())[:15], 16)}
        is_followed = tables.transaction_version(state, FOLLOWED_BASE) == pins[FOLLOWED_BASE]
        if is_followed and (_has_feed(state) or present == requested.keys()):
            return True
        details = {"operation": "state", "base": base.version()}
        if state is None:
            files = [_state_file(lake, table, file, columns) for file in requested.values()]
            return tables.create(lake, table, "state", schema, tables.Commit(files, (), pins, details))
        overwrite = _columns_of(state, str) != columns
        if _has_feed(state) and not overwrite:
            rows = pa.RecordBatchReader.from_batches(schema, _rows_of(lake, table, requested.values(), columns))
            return state.merge(rows, tables.Commit(transactions=pins, metadata=details))
        present = set() if overwrite else present
        adds = [_state_file(lake, table, file, columns) for path, file in requested.items() if path not in present]
        commit = tables.Commit(adds, sorted(present - set(requested)), pins, details, overwrite=overwrite)
        return state.append(commit, schema if overwrite else None)

    tables.retried(attempt, f"writing the state of {table}")
    return notice


def _rows_of(
    lake: Lake, table: str, files: Iterable[DataFile], columns: Sequence[ColumnSchema]
) -> Iterator[pa.RecordBatch]:
    """The plain rows of some base files."""
    for file in files:
        for rows in read_batches(lake, relative(table, "base", file.path), stored.base_file_schema(columns)):
            yield from stored.plain_table(rows, columns).cast(stored.state_file_schema(columns)).to_batches()


def _has_feed(state: tables.StoredTable | None) -> bool:
    return state is not None and state.property(FEED_PROPERTY) == "true"


def _state_file(lake: Lake, table: str, base: DataFile, columns: Sequence[ColumnSchema]) -> DataFile:
    """The plain file of a base file: as the fold wrote it, or made from it now."""
    path = relative(table, "state", base.path)
    with contextlib.suppress(Exception):  # whatever is wrong with a file that a killed task left, it is written again
        with lake.files().open_input_file(path) as source:
            is_complete = pq.ParquetFile(source).metadata.num_rows == base.rows
        if is_complete:
            size = lake.files().get_file_info(path).size
            return DataFile(base.path, size, base.rows, base.min_row_id, base.max_row_id)
    rows = read_file(lake, relative(table, "base", base.path), stored.base_file_schema(columns))
    return write_state_file(lake, table, base.path, rows, columns)


def _columns_of(
    delta_table: tables.StoredTable, plain_name: Callable[[str], str] = stored.unescape_name
) -> list[ColumnSchema]:
    """The table's own columns, by the types of the files; json is a string to every reader."""
    fields = [
        field for field in delta_table.schema() if field.name not in stored.META_COLUMNS and field.name != stored.STAMPS
    ]
    return [ColumnSchema(plain_name(field.name), schemas.column_type(field.type)) for field in fields]


# Maintenance: the backlog of unfolded deltas, vacuum, and the retention horizon.


DEFAULT_HOURS = 168


@dataclass(frozen=True, slots=True)
class Backlog:
    """Deltas that no snapshot folds: their number, their bytes, and the commit time of the oldest."""

    deltas: int
    size: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """The backlog at which a table is compacted: one of these is reached."""

    deltas: int = 50_000
    size: int = 64 << 20
    seconds: float = 300.0

    def is_due(self, backlog: Backlog) -> bool:
        """Whether a table with this backlog is compacted."""
        if backlog.since_ms is None:
            return False
        age = time.time() - backlog.since_ms / 1000
        return backlog.deltas >= self.deltas or backlog.size >= self.size or age >= self.seconds


class TableStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a table, for its operator."""

    table: str
    columns: tuple[str, ...] | None  # None: no schema is registered
    rows: int | None  # in `state`; None: it was never compacted
    unfolded: int
    waiting: int
    set_aside: int
    state_age_seconds: int | None  # age of the oldest delta that the state lacks; 0 where it is up to date

    @property
    def backlog(self) -> dict[str, int]:
        """The deltas that the state lacks, by the reason."""
        found = {"unfolded": self.unfolded, "waiting for a schema": self.waiting, "set aside": self.set_aside}
        return {reason: count for reason, count in found.items() if count}

    @property
    def columns_text(self) -> str:
        return "no schema" if self.columns is None else ", ".join(self.columns)

    @property
    def state_text(self) -> str:
        """The age of the state."""
        seconds = self.state_age_seconds
        if not seconds:
            return "never compacted" if seconds is None else "up to date"
        return f"{seconds} s behind" if seconds < 120 else f"{seconds // 60} min behind"

    def to_dict(self) -> JsonObject:
        """The status as plain data."""
        return dict(msgspec.to_builtins(self))


def backlog_of(lake: Lake, table: str) -> Backlog:
    """The backlog of a table."""
    base_table = tables.load(lake, table, "base")
    deltas_table = tables.load(lake, table, "deltas")
    schema = schemas.schema_of(deltas_table)
    if deltas_table is None or schema is None:
        return Backlog(0, 0, None)
    snapshot = usable_snapshot(lake, table, None, schema.columns, deltas_table, base_table)
    found = new_files(lake, table, deltas_table, schemas.pins_of(base_table), snapshot)
    files = deltas_table.files() if found is None else found
    since = min((file.committed_ms for file in files), default=None)
    return Backlog(sum(file.rows for file in files), sum(file.size for file in files), since)


def compact_due(lake: Lake, policy: CompactionPolicy, **options: Any) -> list[str]:
    """Compact the tables whose backlog is large or old enough; their names."""
    due = [table for table in lake.tables() if policy.is_due(backlog_of(lake, table))]
    for table in due:
        compact(lake, table, **options)
    return due


def status_of(lake: Lake, table: str) -> TableStatus:
    """A table's schema, rows and backlog."""
    schema = schemas.schema_of(tables.load(lake, table, "deltas"))
    state = tables.load(lake, table, "state")
    backlog = backlog_of(lake, table)
    age = None if state is None else 0
    if state is not None and backlog.since_ms is not None:
        age = max(0, round(time.time() - backlog.since_ms / 1000))
    return TableStatus(
        table,
        None if schema is None else schema.names,
        None if state is None else sum(file.rows for file in state.files()),
        backlog.deltas,
        count_waiting(lake, table),
        count_set_aside(lake, table),
        age,
    )


# Vacuum removes files that no retained version refers to, and envelopes whose deltas are in Parquet. A snapshot needs
# the versions of `deletes` that it pins, so these are retained with it, whatever their age.


def vacuum(lake: Lake, table: str, *, hours: int = DEFAULT_HOURS, dry_run: bool = False) -> list[str]:
    """Remove what is older than `hours` and not needed; the paths, relative to the lake.

    Snapshots younger than that, and always the newest, stay readable.
    """
    lake.table_name(table)
    cutoff = datetime.now(UTC) - timedelta(hours=hours)
    kept: dict[Part, list[int]] = {"base": [], "deletes": [], "archive": [], "state": []}
    base_table = tables.load(lake, table, "base")
    if base_table is not None:
        kept["base"] = sorted({*base_table.versions_since(cutoff.timestamp() * 1000), base_table.version()})
        pins = [schemas.pins_of(tables.load(lake, table, "base", version)) for version in kept["base"]]
        kept["deletes"] = sorted({pin[1] for pin in pins if pin is not None})
    kept["deltas"] = sorted(schemas.last_versions(lake, table).values())  # earlier generations stay readable
    gone: list[str] = []
    for part, versions in kept.items():
        delta_table = tables.load(lake, table, part)
        if delta_table is not None:
            gone += [relative(table, part, path) for path in delta_table.vacuum(versions, hours, dry_run)]
    names = envelope_paths(lake, table)
    deltas_table = tables.load(lake, table, "deltas") if names else None
    for name in names:
        path = relative(table, "envelopes", name)
        changed = lake.files().get_file_info(path).mtime
        if changed is not None and changed < cutoff and _is_needless(deltas_table, name):
            gone.append(path)
            if not dry_run:
                lake.files().delete_file(path)
    return sorted(gone)


def cut_logs(lake: Lake, table: str, days: float) -> int:
    """Remove entries of the table's Delta logs that are older than so many days, or many; the number of files.

    Versions that the newest snapshot pins stay, and so does the log of a table whose loads or generations it lists.
    """
    deltas_table, snapshot = tables.load(lake, table, "deltas"), schemas.newest_snapshot(lake, table)
    if deltas_table is None or any(
        deltas_table.transaction(name) is not None for name in (schemas.LOAD, schemas.GENERATION)
    ):
        return 0
    kept: dict[Part, int | None] = {"deltas": deltas_table.version(), "base": None, "state": None}  # None: the newest
    if snapshot is not None:
        kept |= {"deltas": snapshot.deltas_version, "deletes": snapshot.deletes_version}
    before, store = physical_ms() - days * 86_400_000, lake.store()
    # Every flush is a version of `deltas`, and opening a table lists its log.
    least = {"deltas": KEPT_COMMITS}
    return sum(store.cut_log(relative(table, part), kept[part], before, least.get(part)) for part in kept)


def _is_needless(deltas_table: tables.StoredTable | None, name: str) -> bool:
    """Whether an envelope can be removed: its deltas are in Parquet and no flush can need it again."""
    marked = [tables.transaction_version(deltas_table, envelope_transaction(each)) for each in (name, *origin_of(name))]
    if None in marked:
        return False
    maker = maker_of(name)
    return maker is None or (tables.transaction_version(deltas_table, log_transaction(maker[0])) or 0) >= maker[1]


# The retention horizon. Stages: refuse older deltas, compact (so that all deltas below the horizon are folded), archive
# the state just before it, set it, remove delta files below it. Each can be repeated after a kill.


def set_horizon(
    lake: Lake, table: str, horizon: int, *, engine: Engine = run_locally, tracker: Tracker | None = None
) -> int:
    """Retain deltas from `horizon` on; the number of delta files removed."""
    lake.table_name(table)
    if horizon > make_hlc(physical_ms()):
        raise OptionError(f"the horizon {horizon} lies in the future: every new delta would be refused")
    before = schemas.horizon_of(tables.load(lake, table, "deltas"))
    if before is not None and horizon < before:
        message = f"table {table!r} keeps history from {before} on: the horizon cannot move back to {horizon}"
        raise LakeError(message, code="TOO_OLD")
    _set_property(lake, table, schemas.REFUSE_PROPERTY, horizon)
    compact(lake, table, engine=engine, tracker=tracker)
    if before != horizon:
        _archive(lake, table, horizon, engine, tracker)
        _set_property(lake, table, schemas.HORIZON_PROPERTY, horizon)
    return _remove_old_files(lake, table, horizon)


def _archive(lake: Lake, table: str, horizon: int, engine: Engine, tracker: Tracker | None) -> None:
    snapshot = schemas.newest_snapshot(lake, table)
    if snapshot is None:
        raise LakeError(f"table {table!r} has nothing to archive", code="no_snapshot")
    plan = plan_fold(lake, table, full=True, as_of=horizon - 1, deltas_version=snapshot.deltas_version, envelopes=False)
    job = WriteSnapshot(every_range=True, base_part="archive", with_deletes=False)
    files = collect_changes(plan, engine(plan, job, tracker)).base
    details = {"operation": "archive", "horizon": str(horizon)}
    commit = tables.Commit(files, (), {schemas.ARCHIVED_BEFORE: horizon}, details, overwrite=True)
    schema = stored.base_file_schema(plan.columns)

    def attempt() -> bool:
        archive = tables.load(lake, table, "archive")
        if archive is None:
            return tables.create(lake, table, "archive", schema, commit)
        return archive.append(commit, schema)

    tables.retried(attempt, f"archiving {table}")


def _set_property(lake: Lake, table: str, name: str, value: int) -> None:
    def attempt() -> bool:
        deltas_table = tables.loaded(lake, table)
        current = schemas.number_property(deltas_table, name)
        if current is not None and current >= value:
            return True
        return deltas_table.set_properties({name: str(value)}, {"operation": "retention"})

    tables.retried(attempt, f"setting the horizon of {table}")


def _remove_old_files(lake: Lake, table: str, horizon: int) -> int:
    removed: list[str] = []

    def attempt() -> bool:
        deltas_table = tables.loaded(lake, table)
        files = deltas_table.files()
        removed[:] = [file.path for file in files if file.max_hlc is not None and file.max_hlc < horizon]
        if not removed:
            return True
        return deltas_table.append(tables.Commit((), removed, {}, {"operation": "retention"}))

    tables.retried(attempt, f"removing old deltas of {table}")
    return len(removed)

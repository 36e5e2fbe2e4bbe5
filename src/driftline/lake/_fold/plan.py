"""Plans of folds: the snapshot to start from, the delta files that are new, and the ranges of row ids."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from driftline.deltas import ColumnSchema
from driftline.lake._store import schemas
from driftline.lake._store.flush import WaitingEnvelope, envelopes_of
from driftline.lake._store.lake import Lake, Part, is_merged, relative
from driftline.lake._store.parquet import DataFile, read_batches, row_group_sizes
from driftline.lake._store.rows import ROW_ID, ROW_ID_FIELD
from driftline.lake._store.tables import StoredTable, load, loaded

ROWS_PER_RANGE = 150_000
TARGET_FILE_BYTES = 32 << 20
STATISTICS_LIMIT = 64  # other tools cut strings here: a longer bound is only a prefix

_SMALL_SHARE = 16  # neighbours below target / 16 are folded together
_BYTES_AT_ONCE = 64 << 20
_SAMPLED_GROUPS = 24
_SAMPLED_IDS = 2000  # of each sampled row group
_ROW_ID_ONLY = pa.schema([ROW_ID_FIELD])

Bounds = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DeltaWork:
    """A unit of reading: some row groups of a delta file, or all of it, and the number of rows."""

    path: str
    rows: int
    row_groups: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """Everything a scheduler needs to fold a table; small, and the same on every machine."""

    lake: Lake
    table: str
    columns: tuple[ColumnSchema, ...]
    key: tuple[str, ...]
    snapshot: schemas.Snapshot | None  # None: fold from the deltas alone (or from the archived base)
    archived: tuple[DataFile, ...]
    deltas: tuple[DataFile, ...]
    deltas_version: int
    ranges: tuple[KeyRange, ...]
    as_of: int | None = None
    horizon: int | None = None
    base_pins: schemas.Pins | None = None  # what `base` pinned when the plan was made
    ever: tuple[ColumnSchema, ...] = ()  # every column the deltas may set, removed ones too
    envelopes: tuple[WaitingEnvelope, ...] = ()  # pending deltas, for readers
    generation: int = 1

    @property
    def delta_count(self) -> int:
        """How many deltas will be read."""
        return sum(file.rows for file in self.deltas) + sum(len(each.row_ids) for each in self.envelopes)

    @property
    def max_hlc(self) -> int:
        """The greatest hlc that is folded once the plan is done."""
        known = [file.max_hlc for file in self.deltas if file.max_hlc is not None]
        return max([*known, self.snapshot.max_hlc if self.snapshot else 0])

    def base_part(self) -> Part:
        """The part with the base files of the ranges."""
        return "archive" if self.snapshot is None else "base"


def plan_fold(
    lake: Lake,
    table: str,
    *,
    as_of: int | None = None,
    full: bool = False,
    snapshot_as_of: int | None = None,
    deltas_version: int | None = None,
    rows_per_range: int = ROWS_PER_RANGE,
    target_file_bytes: int = TARGET_FILE_BYTES,
    envelopes: bool = True,
    with_removed: bool = False,
) -> FoldPlan:
    """The plan for the table's state, now or as of an hlc.

    `full` ignores all snapshots, `snapshot_as_of` those with deltas after another timestamp. A compaction leaves
    `envelopes` out: a snapshot is made of committed files only. `with_removed` also folds columns that the schema no
    longer has.
    """
    # Base before deltas: a snapshot that is committed in between pins more than this plan has, and is noticed.
    base_table = load(lake, table, "base")
    base_pins = schemas.pins_of(base_table)
    newest, schema = schemas.required_table(lake, table)
    deltas_table = newest if deltas_version in (None, newest.version()) else loaded(lake, table, version=deltas_version)
    schema = schemas.schema_of(deltas_table) or schema
    horizon = schemas.horizon_of(newest)
    latest = as_of if snapshot_as_of is None else snapshot_as_of
    schemas.check_horizon(table, latest, horizon)
    ever = tuple(schemas.every_column(deltas_table))
    removed = [each for each in ever if each.name not in schema.names] if with_removed else ()
    columns = (*schema.columns, *removed)
    snapshot = None if full else usable_snapshot(lake, table, latest, columns, deltas_table, base_table)
    new = new_files(lake, table, deltas_table, base_pins, snapshot)
    if new is None:  # the log no longer has that version: fold in full
        snapshot, new = None, deltas_table.files()
    if as_of is not None:
        new = [file for file in new if file.min_hlc is None or file.min_hlc <= as_of]
    kept = [file for file in new if horizon is None or file.max_hlc is None or file.max_hlc >= horizon]
    deltas = tuple(sorted(kept, key=lambda file: file.path))
    archived = tuple(schemas.archive_files(lake, table, horizon)) if snapshot is None else ()
    plan = FoldPlan(
        lake,
        table,
        columns,
        schema.key,
        snapshot,
        archived,
        deltas,
        deltas_table.version(),
        (),
        as_of,
        horizon,
        base_pins,
        ever,
        envelopes_of(lake, table, deltas_table) if envelopes else (),
        schemas.generation_of(deltas_table),
    )
    return _with_ranges(plan, rows_per_range, target_file_bytes)


def with_staged(plan: FoldPlan, files: Sequence[DataFile], timestamp: int) -> FoldPlan:
    """The plan with uncommitted files, whose deltas all have one timestamp after those of the plan."""
    staged = replace(plan, deltas=(*plan.deltas, *files), as_of=timestamp)
    return _with_ranges(staged, ROWS_PER_RANGE, TARGET_FILE_BYTES)


def bounded_rows(rows: int, files: Sequence[DataFile], at_once: int = _BYTES_AT_ONCE) -> int:
    """So many rows, or fewer where rows are large: a unit of work stays below so many bytes of files."""
    total_rows, total_bytes = sum(file.rows for file in files), sum(file.size for file in files)
    return rows if not total_bytes else max(1, min(rows, at_once * total_rows // total_bytes))


def delta_work(plan: FoldPlan, rows_per_task: int) -> list[DeltaWork]:
    """The units of reading of a plan, none with many more rows than `rows_per_task`."""
    work: list[DeltaWork] = []
    for file in plan.deltas:
        path = relative(plan.table, "deltas", file.path)
        if file.rows <= rows_per_task * 3 // 2:
            work.append(DeltaWork(path, file.rows))
            continue
        sizes = row_group_sizes(plan.lake, path)
        for groups in _group_rows(sizes, rows_per_task):
            work.append(DeltaWork(path, sum(sizes[group] for group in groups), groups))
    pending = [each for each in plan.envelopes if each.row_ids]
    return work + [DeltaWork(relative(plan.table, "envelopes", each.name), len(each.row_ids)) for each in pending]


def _with_ranges(plan: FoldPlan, rows_per_range: int, target_file_bytes: int) -> FoldPlan:
    base = plan.snapshot.base if plan.snapshot else plan.archived
    deletes = plan.snapshot.deletes if plan.snapshot else ()
    sizes = (bounded_rows(rows_per_range, [*base, *plan.deltas]), target_file_bytes // _SMALL_SHARE)
    ranges = make_ranges(base, deletes, _sample(plan), plan.delta_count, partial(_exact_bounds, plan), *sizes)
    return replace(plan, ranges=ranges)


def usable_snapshot(
    lake: Lake,
    table: str,
    as_of: int | None,
    columns: Sequence[ColumnSchema],
    deltas_table: StoredTable,
    base_table: StoredTable | None,
) -> schemas.Snapshot | None:
    """The newest snapshot that can replace the deltas it folds, as of an hlc."""
    if as_of is None:
        snapshot = schemas.snapshot_of(lake, table, base_table)
    else:
        snapshot = schemas.snapshot_as_of(lake, table, as_of, base_table)
    if snapshot is None or snapshot.deltas_version > deltas_table.version():
        return None
    if snapshot.generation != schemas.generation_of(deltas_table):
        return None
    return snapshot if snapshot.covers(columns, lake, table) else None


def new_files(
    lake: Lake, table: str, deltas_table: StoredTable, base_pins: schemas.Pins | None, snapshot: schemas.Snapshot | None
) -> list[DataFile] | None:
    """The delta files that a snapshot does not fold, or None where its version of deltas is no longer in the log."""
    files = deltas_table.files()
    if snapshot is None:
        return files
    is_current = snapshot.deltas_version == deltas_table.version()
    then = deltas_table if is_current else load(lake, table, "deltas", snapshot.deltas_version)
    if then is None:
        return None
    folded = {file.path for file in then.files()}
    # Merged files have what the newest snapshot had folded; for an older one they are read again, which does no harm.
    is_newest = snapshot.pins == base_pins
    return [file for file in files if file.path not in folded and not (is_newest and is_merged(file.path))]


def _sample(plan: FoldPlan) -> list[str]:
    """Some row ids of the deltas, sorted: a sample of bounded size."""
    chosen = plan.deltas[:: max(1, -(-len(plan.deltas) // _SAMPLED_GROUPS))]
    groups_per_file = max(1, _SAMPLED_GROUPS // max(1, len(chosen)))
    enveloped = [row_id for each in plan.envelopes for row_id in each.row_ids]
    ids = enveloped[:: -(-len(enveloped) // _SAMPLED_IDS) or 1]
    for file in chosen:
        path = relative(plan.table, "deltas", file.path)
        groups = range(len(row_group_sizes(plan.lake, path)))
        picked = list(groups)[:: max(1, -(-len(groups) // groups_per_file))]
        for batch in read_batches(plan.lake, path, _ROW_ID_ONLY, picked):
            step = max(1, -(-batch.num_rows // _SAMPLED_IDS))
            ids += batch[ROW_ID].take(pa.array(range(0, batch.num_rows, step))).to_pylist()
    return sorted(ids, key=lambda text: text.encode())


def _exact_bounds(plan: FoldPlan, file: DataFile, is_base: bool) -> Bounds:
    by_statistics = bounds_of(file)
    if by_statistics is not None:
        return by_statistics
    path = relative(plan.table, plan.base_part() if is_base else "deletes", file.path)
    groups = len(row_group_sizes(plan.lake, path))
    first, last = read_batches(plan.lake, path, _ROW_ID_ONLY, [0, groups - 1])
    return first[ROW_ID][0].as_py(), last[ROW_ID][-1].as_py()


def _group_rows(sizes: Sequence[int], enough: int) -> list[tuple[int, ...]]:
    groups: list[tuple[int, ...]] = []
    current: list[int] = []
    rows = 0
    for position, size in enumerate(sizes):
        current.append(position)
        rows += size
        if rows >= enough:
            groups.append(tuple(current))
            current, rows = [], 0
    return [*groups, tuple(current)] if current else groups


# Ranges of row ids. Base and deletes files of one range are within its bounds, so ranges never overlap and only changed
# ones are rewritten. A range with too many deltas is cut at sampled row ids; its parts share the files and are always
# folded together.


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Row ids from `low` (None: from the start) up to but not including `high` (None: to the end)."""

    index: int
    low: str | None
    high: str | None
    base: tuple[DataFile, ...] = ()
    deletes: tuple[DataFile, ...] = ()
    is_piece: bool = False  # part of a range that was cut: it is folded even without deltas
    deltas: int = 0  # estimated by the sample

    @property
    def rows(self) -> int:
        """The rows of its files."""
        return sum(file.rows for file in (*self.base, *self.deletes))


def make_ranges(
    base: Iterable[DataFile],
    deletes: Iterable[DataFile],
    sample: Sequence[str],
    delta_count: int,
    exact_bounds: Callable[[DataFile, bool], Bounds],
    rows_per_range: int = ROWS_PER_RANGE,
    small_file_bytes: int = 0,
) -> tuple[KeyRange, ...]:
    """The ranges of a fold; `sample` is sorted and represents `delta_count` deltas."""
    groups = _group_files(base, deletes, exact_bounds, small_file_bytes)
    weight = delta_count / len(sample) if sample else 0.0
    ranges: list[KeyRange] = []
    for group in groups:
        ranges += _cut(group, sample, weight, rows_per_range)
    counts = [stop - start for start, stop in (_positions(each, sample) for each in ranges)]
    return tuple(replace(each, index=index, deltas=round(counts[index] * weight)) for index, each in enumerate(ranges))


def lower_bounds(ranges: Sequence[KeyRange]) -> list[str]:
    """The row ids at which the second, third, … range starts."""
    return [each.low for each in ranges[1:] if each.low is not None]


def bounds_of(file: DataFile) -> Bounds | None:
    """The first and last row id by the statistics, or None where they are missing or may be cut."""
    low, high = file.min_row_id, file.max_row_id
    if low is None or high is None or max(len(low), len(high)) >= STATISTICS_LIMIT:
        return None
    return low, high


def _group_files(
    base: Iterable[DataFile],
    deletes: Iterable[DataFile],
    exact_bounds: Callable[[DataFile, bool], Bounds],
    small_file_bytes: int,
) -> list[KeyRange]:
    """Group files whose row ids overlap, and neighbours while they are small."""
    entries = [(exact_bounds(file, True), True, file) for file in base if file.rows]
    entries += [(exact_bounds(file, False), False, file) for file in deletes if file.rows]
    entries.sort(key=lambda entry: entry[0])
    groups: list[_Group] = []
    for (low, high), is_base, file in entries:
        if not groups or (low > groups[-1].high and groups[-1].bytes + file.size > small_file_bytes):
            groups.append(_Group(low, high))
        group = groups[-1]
        group.high, group.bytes = max(group.high, high), group.bytes + file.size
        (group.base if is_base else group.deletes).append(file)
    if not groups:
        return [KeyRange(0, None, None)]
    lows: list[str | None] = [None, *(group.low for group in groups[1:])]
    highs = [*lows[1:], None]
    return [
        KeyRange(0, low, high, tuple(group.base), tuple(group.deletes))
        for low, high, group in zip(lows, highs, groups, strict=True)
    ]


@dataclass
class _Group:
    low: str
    high: str
    bytes: int = 0
    base: list[DataFile] = field(default_factory=list)
    deletes: list[DataFile] = field(default_factory=list)


def _positions(group: KeyRange, sample: Sequence[str]) -> tuple[int, int]:
    start = 0 if group.low is None else bisect_left(sample, group.low)
    stop = len(sample) if group.high is None else bisect_left(sample, group.high)
    return start, stop


def _cut(group: KeyRange, sample: Sequence[str], weight: float, rows_per_range: int) -> list[KeyRange]:
    start, stop = _positions(group, sample)
    rows = (stop - start) * weight + group.rows
    pieces = max(1, round(rows / rows_per_range)) if stop > start else 1
    cuts = sorted({sample[start + (stop - start) * piece // pieces] for piece in range(1, pieces)})
    cuts = [cut for cut in cuts if group.low is None or cut > group.low]
    if not cuts:
        return [group]
    lows, highs = [group.low, *cuts], [*cuts, group.high]
    shared = bool(group.base or group.deletes)
    return [replace(group, low=low, high=high, is_piece=shared) for low, high in zip(lows, highs, strict=True)]

"""The kernels of every fold (read deltas, split them by range, load a range's files) and the local scheduler.

The kernels are plain functions over Arrow data; a scheduler (threads of this machine, Spark tasks) only decides where
they run.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core import ArrowCodec, SpillStore, Tracker, Workspace, no_progress, string_text
from driftline.deltas import ColumnSchema
from driftline.errors import LakeError
from driftline.lake._fold.fold import Folded, fold, fold_early
from driftline.lake._fold.plan import DeltaWork, FoldPlan, KeyRange, bounded_rows, delta_work, lower_bounds
from driftline.lake._store import rows as stored
from driftline.lake._store.flush import read_taken
from driftline.lake._store.lake import Part, relative
from driftline.lake._store.parquet import DataFile, conform, read_batches, read_file
from driftline.lake._store.stamps import stamp_deltas, stamped_schema

ROWS_PER_TASK = 250_000
ORIGINAL_COLUMNS = ("_op", "_delta_id", "_columns")

_ROWS_HELD = 1_500_000  # before they are folded early, so that hot rows do not fill the memory
_MEMORY_BYTES = 1 << 30

Result = dict[str, Any]  # plain data, or tables for jobs that stay in this process
_Store = SpillStore[int, pa.Table]  # deltas by range


@dataclass(frozen=True, slots=True)
class RangeInput:
    """The input of one range: its deltas, and its part of the snapshot."""

    key_range: KeyRange
    deltas: pa.Table
    base: pa.Table
    deletes: pa.Table


class RangeJob(ABC):
    """The work on a range; picklable, because it may run in another process."""

    needs_originals = False  # whether deltas must have `ORIGINAL_COLUMNS`
    every_range = False  # whether ranges without new deltas are processed too
    checks_ids = False  # whether delta ids are recomputed and checked

    @abstractmethod
    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        """Process one range; the results are small records of plain data."""


class KeepRows(RangeJob):
    """The job that returns the folded rows of every range, in memory."""

    every_range = True

    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        folded = fold_range(plan, given)
        return [{"rows": folded.base, "deletes": folded.deletes}]


def split_work(
    plan: FoldPlan, work: Iterable[DeltaWork], job: RangeJob, bounds: Sequence[str]
) -> list[tuple[int, pa.Table]]:
    """Read some units of work; the stamped deltas of each range that has any, folded early where that pays."""
    pieces: defaultdict[int, list[pa.Table]] = defaultdict(list)
    held, limit = 0, _ROWS_HELD
    for stamped in (group for one in work for group in read_work(plan, one, job)):
        for index, piece in split_by_range(stamped, bounds):
            pieces[index].append(piece)
        held += stamped.num_rows
        if held >= limit:
            pieces.update({index: [_joined(plan, pieces[index], job)] for index in pieces})
            held = sum(joined.num_rows for [joined] in pieces.values())
            limit = max(_ROWS_HELD, 2 * held)
    return [(index, _joined(plan, pieces.pop(index), job)) for index in sorted(pieces)]


def read_work(plan: FoldPlan, work: DeltaWork, job: RangeJob) -> Iterator[pa.Table]:
    """The stamped deltas of a unit of reading within the plan's timestamps, a row group at a time."""
    plain = job.checks_ids or job.needs_originals
    schema = (stored.delta_file_schema if plain else stored.fold_schema)(plan.ever if job.checks_ids else plan.columns)
    if work.path.endswith(".json"):
        name = work.path.removeprefix(relative(plan.table, "envelopes") + "/")
        taken = read_taken(plan.lake, plan.table, name, plan.ever, plan.horizon)
        batches: Iterable[pa.Table] = [conform(taken, schema, work.path)]
    else:
        batches = read_batches(plan.lake, work.path, schema, work.row_groups)
    for batch in batches:
        if job.checks_ids:
            check_delta_ids(plan.table, batch, plan.ever, work.path)
        kept = batch if plan.as_of is None else batch.filter(pc.less_equal(batch["_hlc"], plan.as_of))
        if plan.horizon is not None and plan.snapshot is None:
            kept = kept.filter(pc.greater_equal(kept["_hlc"], plan.horizon))
        try:
            stamped = stamp_deltas(kept, plan.columns)
        except LakeError as error:
            raise LakeError(f"{work.path}: {error.message}", code=error.code, path=work.path) from error
        yield _with_originals(stamped, kept, job.needs_originals)


def _joined(plan: FoldPlan, pieces: Sequence[pa.Table], job: RangeJob) -> pa.Table:
    deltas = pa.concat_tables(pieces)
    return deltas if job.needs_originals else fold_early(plan.columns, deltas)


def split_by_range(stamped: pa.Table, lower_bounds: Sequence[str]) -> list[tuple[int, pa.Table]]:
    """The deltas of each range that has any."""
    if stamped.num_rows == 0:
        return []
    if not lower_bounds:
        return [(0, stamped)]
    import polars as pl  # only folds need it, and many commands fold nothing

    row_ids = pl.Series(stamped["row_id"])
    numbers = pl.Series(lower_bounds).search_sorted(row_ids, side="right").to_numpy().astype(np.int32)
    order = np.argsort(numbers.astype(np.int16) if len(lower_bounds) < 1 << 15 else numbers, kind="stable")
    ordered = stamped.take(pa.array(order))
    found, starts = np.unique(numbers[order], return_index=True)
    stops = [*starts[1:], stamped.num_rows]
    return [
        (int(number), ordered.slice(start, stop - start))
        for number, start, stop in zip(found, starts, stops, strict=True)
    ]


def load_range(plan: FoldPlan, key_range: KeyRange, pieces: Sequence[pa.Table], originals: bool = False) -> RangeInput:
    """A range with its deltas and the rows of its files."""
    empty = _with_originals(
        stamped_schema(plan.columns).empty_table(), stored.delta_file_schema(()).empty_table(), originals
    )
    deltas = pa.concat_tables(pieces) if pieces else empty
    base = load_part(plan, plan.base_part(), key_range.base, key_range, stored.base_file_schema(plan.columns))
    deletes = load_part(plan, "deletes", key_range.deletes, key_range, stored.deletes_file_schema())
    return RangeInput(key_range, deltas, base, deletes)


def fold_range(plan: FoldPlan, given: RangeInput) -> Folded:
    """The new base rows and deletes of a range."""
    if given.deltas.num_rows == 0:
        return Folded(given.base, given.deletes)
    return fold(plan.columns, given.deltas, given.base, given.deletes)


def load_part(
    plan: FoldPlan, part: Part, files: Sequence[DataFile], key_range: KeyRange, schema: pa.Schema
) -> pa.Table:
    """The rows of some of a table's files that are inside a range."""
    tables = [read_file(plan.lake, relative(plan.table, part, file.path), schema) for file in files]
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    if key_range.is_piece and key_range.low is not None:
        table = table.filter(pc.greater_equal(table[stored.ROW_ID], key_range.low))
    if key_range.is_piece and key_range.high is not None:
        table = table.filter(pc.less(table[stored.ROW_ID], key_range.high))
    return table


def _with_originals(stamped: pa.Table, batch: pa.Table, originals: bool) -> pa.Table:
    if originals:
        for name in ORIGINAL_COLUMNS:
            stamped = stamped.append_column(name, batch[name])
    return stamped


# The local scheduler: the kernels on threads of this machine, deltas beyond the memory limit on disk.


def run_locally(
    plan: FoldPlan, job: RangeJob, tracker: Tracker | None = None, *, memory_bytes: int = _MEMORY_BYTES
) -> Iterator[Result]:
    """Run a job over every range of a plan; its results in the order of the ranges."""
    tracker = tracker or no_progress()
    threads = max(1, min(os.cpu_count() or 1, 8))

    def run_range(key_range: KeyRange) -> list[Result]:
        return job(plan, load_range(plan, key_range, store.take(key_range.index), job.needs_originals))

    with Workspace() as workspace, ThreadPoolExecutor(threads) as pool:
        store = _Store(workspace, memory_bytes, ArrowCodec())
        _read(plan, job, store, pool, tracker)
        requested = [each for each in plan.ranges if each.index in store or each.is_piece or job.every_range]
        with tracker.phase("fold", total=len(requested), unit="items"):
            # As many ranges at a time as there are threads, so that memory stays bounded.
            for start in range(0, len(requested), threads):
                some = requested[start : start + threads]
                for results in pool.map(run_range, some):
                    tracker.advance()
                    yield from results


def _read(plan: FoldPlan, job: RangeJob, store: _Store, pool: ThreadPoolExecutor, tracker: Tracker) -> None:
    bounds = lower_bounds(plan.ranges)
    work = delta_work(plan, bounded_rows(ROWS_PER_TASK, plan.deltas))

    with tracker.phase("read deltas", total=plan.delta_count, unit="rows"):
        for start in range(0, len(work), 4):
            some = work[start : start + 4]
            for one, pieces in zip(some, pool.map(lambda one: split_work(plan, [one], job, bounds), some), strict=True):
                for index, piece in pieces:
                    store.add(index, piece)
                tracker.advance(one.rows)


# Delta ids of many rows: the hash input is assembled column by column, only the hashing is row by row.


def delta_ids(table: str, rows: pa.Table, columns: Sequence[ColumnSchema]) -> pa.Array:
    """The ids of rows of delta files, computed from their content."""
    texts = pc.binary_join_element_wise(
        '{"clientId":',
        stored.string_texts(stored.one_array(rows["_client_id"])),
        ',"columns":[',
        column_texts(rows, columns),
        '],"hlc":"',
        pc.cast(stored.one_array(rows["_hlc"]), pa.string()),
        '","rowId":',
        stored.string_texts(stored.one_array(rows["_row_id"])),
        f',"table":{string_text(table)}}}',
        "",
    )
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1].tolist()
    data = memoryview(texts.buffers()[2] or b"")
    sha256 = hashlib.sha256
    return pa.array([sha256(data[start:stop]).hexdigest() for start, stop in pairwise(offsets)], pa.string())


def check_delta_ids(table: str, rows: pa.Table, columns: Sequence[ColumnSchema], path: str) -> None:
    """Raise an error that names the file and the first row whose id does not match its content."""
    given = stored.one_array(rows["_delta_id"])
    wrong = pc.fill_null(pc.not_equal(given, delta_ids(table, rows, columns)), True)
    if pc.any(wrong).as_py():
        position = pc.index(wrong, True).as_py()
        row_id = rows["_row_id"][position].as_py()
        message = f"{path}, row {position} (row id {row_id!r}): the delta id does not match the content"
        raise LakeError(message, code="bad_delta_id", path=path, index=position)


def column_texts(rows: pa.Table, columns: Sequence[ColumnSchema]) -> pa.Array:
    """The canonical JSON of each row's `columns`, without the brackets, in the order of `_columns`."""
    named = stored.one_array(rows["_columns"])
    flat = named.flatten()
    codes = pc.fill_null(pc.index_in(flat, value_set=pa.array([c.name for c in columns], pa.string())), -1)
    numbers = codes.to_numpy(zero_copy_only=False)
    if len(numbers) and numbers.min() < 0:
        unknown = flat[int(np.argmin(numbers))].as_py()
        raise LakeError(f"a delta sets the column {unknown!r}, which the table never had", code="wrong_schema")
    parents = pc.list_parent_indices(named).to_numpy(zero_copy_only=False)
    entries = _entries(rows, columns, numbers, parents)
    offsets = np.zeros(len(named) + 1, dtype=np.int32)
    np.cumsum(pc.list_value_length(named).to_numpy(zero_copy_only=False), out=offsets[1:])
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), entries), ",")


def _entries(rows: pa.Table, columns: Sequence[ColumnSchema], numbers: pa.Array, parents: pa.Array) -> pa.Array:
    """`{"column":…,"value":…}` for every entry of every row."""
    pieces, positions = [pa.array([], pa.string())], [np.array([], dtype=np.int64)]
    for number, column in enumerate(columns):
        chosen = np.flatnonzero(numbers == number)
        if len(chosen):
            values = stored.one_array(rows[stored.escape_name(column.name)]).take(pa.array(parents[chosen]))
            start = f'{{"column":{string_text(column.name)},"value":'
            pieces.append(pc.binary_join_element_wise(start, stored.json_texts(values, column), "}", ""))
            positions.append(chosen)
    order = np.concatenate(positions)
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_arrays(pieces).take(pa.array(back))

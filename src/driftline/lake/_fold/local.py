"""The kernels of every fold: read a piece of the deltas, split it by range of row ids, load a range's files.

Plain functions over Arrow data. The schedulers (threads of this machine, Spark tasks) only decide where they run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.errors import LakeError
from driftline.lake.columns import ROW_ID, base_file_schema, deletes_file_schema, delta_file_schema, fold_schema
from driftline.lake.fold import Folded, fold, fold_early
from driftline.lake.identities import check_delta_ids
from driftline.lake.layout import Part, relative
from driftline.lake.parquet_files import DataFile, conform, read_batches, read_file
from driftline.lake.planning import DeltaWork, FoldPlan
from driftline.lake.ranges import KeyRange
from driftline.lake.stamps import stamp_deltas, stamped_schema
from driftline.lake.waiting import read_taken

_ROWS_HELD = 1_500_000  # before they are folded early, so that hot rows do not fill the memory
ORIGINAL_COLUMNS = ("_op", "_delta_id", "_columns")

Result = dict[str, Any]  # plain data, or tables of those who stay in this process


@dataclass(frozen=True, slots=True)
class RangeInput:
    """What falls into one range: its deltas, and its part of the snapshot."""

    key_range: KeyRange
    deltas: pa.Table
    base: pa.Table
    deletes: pa.Table


class RangeJob(Protocol):
    """What is done with a range; picklable, because it may run in another process."""

    @property
    def needs_originals(self) -> bool:
        """Whether deltas must carry `ORIGINAL_COLUMNS`."""

    @property
    def every_range(self) -> bool:
        """Whether ranges without new deltas are wanted too."""

    @property
    def checks_ids(self) -> bool:
        """Whether delta ids are recomputed on the way."""

    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        """Do it; the results are small records of plain data."""


def split_work(
    plan: FoldPlan, work: Iterable[DeltaWork], job: RangeJob, bounds: Sequence[str]
) -> list[tuple[int, pa.Table]]:
    """Read some pieces of work; the stamped deltas of each range that has any, folded early where that pays."""
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
    """The stamped deltas of a piece of reading that lie within the plan's timestamps, a row group at a time."""
    plain = job.checks_ids or job.needs_originals
    schema = (delta_file_schema if plain else fold_schema)(plan.ever if job.checks_ids else plan.columns)
    for batch in _batches(plan, work, schema):
        if job.checks_ids:
            check_delta_ids(plan.table, batch, plan.ever, work.path)
        kept = _within_timestamps(plan, batch)
        yield _with_originals(_stamp(plan, kept, work.path), kept, job.needs_originals)


def _batches(plan: FoldPlan, work: DeltaWork, schema: pa.Schema) -> Iterable[pa.Table]:
    if not work.path.endswith(".json"):
        return read_batches(plan.lake, work.path, schema, work.row_groups)
    name = work.path.removeprefix(relative(plan.table, "envelopes") + "/")
    return [conform(read_taken(plan.lake, plan.table, name, plan.ever, plan.horizon), schema, work.path)]


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
    """A range with the deltas that were sent to it and the files it covers."""
    deltas = pa.concat_tables(pieces) if pieces else _empty_deltas(plan, originals)
    base = load_part(plan, plan.base_part(), key_range.base, key_range, base_file_schema(plan.columns))
    deletes = load_part(plan, "deletes", key_range.deletes, key_range, deletes_file_schema())
    return RangeInput(key_range, deltas, base, deletes)


def fold_range(plan: FoldPlan, given: RangeInput) -> Folded:
    """The new base rows and deletes of a range."""
    if given.deltas.num_rows == 0:
        return Folded(given.base, given.deletes)
    return fold(plan.columns, given.deltas, given.base, given.deletes)


def load_part(
    plan: FoldPlan, part: Part, files: Sequence[DataFile], key_range: KeyRange, schema: pa.Schema
) -> pa.Table:
    """The rows of some of a table's files that lie inside a range."""
    tables = [read_file(plan.lake, relative(plan.table, part, file.path), schema) for file in files]
    if not tables:
        return schema.empty_table()
    return _inside(pa.concat_tables(tables), key_range)


def _inside(table: pa.Table, key_range: KeyRange) -> pa.Table:
    if not key_range.is_piece:
        return table
    if key_range.low is not None:
        table = table.filter(pc.greater_equal(table[ROW_ID], key_range.low))
    if key_range.high is not None:
        table = table.filter(pc.less(table[ROW_ID], key_range.high))
    return table


def _stamp(plan: FoldPlan, rows: pa.Table, path: str) -> pa.Table:
    try:
        return stamp_deltas(rows, plan.columns)
    except LakeError as error:
        raise LakeError(f"{path}: {error.message}", code=error.code, path=path) from error


def _within_timestamps(plan: FoldPlan, batch: pa.Table) -> pa.Table:
    if plan.as_of is not None:
        batch = batch.filter(pc.less_equal(batch["_hlc"], plan.as_of))
    if plan.horizon is not None and plan.snapshot is None:
        batch = batch.filter(pc.greater_equal(batch["_hlc"], plan.horizon))
    return batch


def _with_originals(stamped: pa.Table, batch: pa.Table, originals: bool) -> pa.Table:
    if originals:
        for name in ORIGINAL_COLUMNS:
            stamped = stamped.append_column(name, batch[name])
    return stamped


def _empty_deltas(plan: FoldPlan, originals: bool) -> pa.Table:
    empty = stamped_schema(plan.columns).empty_table()
    return _with_originals(empty, delta_file_schema(()).empty_table(), originals)

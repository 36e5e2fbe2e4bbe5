"""A whole snapshot against the lake: what must be written so that the table's state is the snapshot.

The snapshot is staged as delta files that are never committed, all of them at the moment of the load. The job then
folds both sides of a range of row ids, the lake's and the staged one, compares them column by column and writes the
differences as deltas. It runs wherever folds run, and nothing of it passes through the driver but names of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core._json import JsonObject
from driftline.deltas import ColumnSchema
from driftline.lake.columns import ROW_ID, STAMPS, delta_file_schema, escaped
from driftline.lake.fold import fold
from driftline.lake.identities import delta_ids
from driftline.lake.kernels import RangeInput, Result
from driftline.lake.layout import attempt_token, delta_file_name, relative
from driftline.lake.parquet_files import write_file
from driftline.lake.planning import FoldPlan

LISTED = 3

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CompareStaged:
    """The job: deltas at `timestamp` are the snapshot, those before it the lake; `writes` is False for a mere look."""

    timestamp: int
    client_id: str
    gateway_id: str
    writes: bool = True
    needs_originals: bool = True  # so that no early fold mixes the two sides
    every_range: bool = True
    checks_ids: bool = False

    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        """Compare one range; the result names the file with its differences."""
        is_staged = pc.equal(given.deltas["hlc"], self.timestamp)
        there = fold(plan.columns, given.deltas.filter(pc.invert(is_staged)), given.base, given.deletes).base
        wanted = fold(plan.columns, given.deltas.filter(is_staged)).base
        rows = difference(plan.columns, there, wanted)
        if rows.num_rows == 0:
            return []
        result: Result = {"rows": rows.num_rows, "listed": rows[ROW_ID][:LISTED].to_pylist(), "file": None}
        if self.writes:
            name = delta_file_name(self.gateway_id, self.timestamp, self.timestamp, attempt_token())
            deltas = self._deltas(plan, rows)
            result["file"] = astuple(write_file(plan.lake, relative(plan.table, "deltas"), name, deltas))
        return [result]

    def _deltas(self, plan: FoldPlan, rows: pa.Table) -> pa.Table:
        """The differences in the form of delta files, all at the moment of the load."""
        count = rows.num_rows
        schema = delta_file_schema(plan.columns)
        given = {name: rows[name] for name in rows.column_names}
        given["_client_id"] = pa.repeat(self.client_id, count)
        given["_hlc"] = pa.repeat(pa.scalar(self.timestamp, pa.int64()), count)
        given["_delta_id"] = pa.repeat("", count)
        deltas = pa.Table.from_arrays([given[name] for name in schema.names], schema=schema)
        ids = delta_ids(plan.table, deltas, plan.columns)
        return deltas.set_column(schema.get_field_index("_delta_id"), schema.field("_delta_id"), ids)


def difference(columns: Sequence[ColumnSchema], there: pa.Table, wanted: pa.Table) -> pa.Table:
    """What leads from one state to the other, in the order of row ids: `_op`, `_row_id`, `_columns` and the values."""
    ids, wanted_ids = _one(there[ROW_ID]), _one(wanted[ROW_ID])
    positions = pc.index_in(wanted_ids, value_set=ids)
    differs = _differing_cells(columns, there, wanted, positions)
    kept = np.flatnonzero(differs.any(axis=1) | _nulls(positions))
    changed = _rows(columns, wanted.take(pa.array(kept)), differs[kept], _nulls(positions)[kept])
    gone = ids.filter(pc.invert(pc.is_in(ids, value_set=wanted_ids)))
    return pa.concat_tables([changed, _removed(columns, gone)]).sort_by(ROW_ID)


def _differing_cells(columns: Sequence[ColumnSchema], there: pa.Table, wanted: pa.Table, positions: pa.Array) -> Bools:
    """Which cells of the wanted rows are not there as they should be; a column that was never set is not null."""
    before = there.take(positions)
    stamps = _one(before[STAMPS])
    differs = np.zeros((wanted.num_rows, max(1, len(columns))), dtype=bool)
    for number, name in enumerate(escaped(columns)):
        old, new = _one(before[name]), _one(wanted[name])
        was_set = pc.is_valid(pc.struct_field(stamps, ["columns", name]))
        same = pc.fill_null(pc.equal(old, new), False)
        both_null = pc.and_(pc.and_(pc.is_null(old), pc.is_null(new)), was_set)
        differs[:, number] = ~_bools(pc.or_(same, both_null))
    return differs


def _rows(columns: Sequence[ColumnSchema], rows: pa.Table, differs: Bools, is_new: Bools) -> pa.Table:
    """Wanted rows with only the cells that must be set: all of a new row, the differing ones of another."""
    sets = (differs | is_new[:, None])[:, : len(columns)]
    values = {}
    for number, name in enumerate(escaped(columns)):
        column = _one(rows[name])
        values[name] = pc.if_else(pa.array(sets[:, number]), column, pa.scalar(None, column.type))
    ops = pc.if_else(pa.array(is_new), "INSERT", "UPDATE")
    return _table(columns, ops, _one(rows[ROW_ID]), _named(columns, sets), values)


def _removed(columns: Sequence[ColumnSchema], gone: pa.Table) -> pa.Table:
    nothing = np.zeros((len(gone), len(columns)), dtype=bool)
    fields = delta_file_schema(columns)
    values = {name: pa.nulls(len(gone), fields.field(name).type) for name in escaped(columns)}
    return _table(columns, pa.repeat("DELETE", len(gone)), gone, _named(columns, nothing), values)


def _table(
    columns: Sequence[ColumnSchema], ops: pa.Array, ids: pa.Array, named: pa.Array, values: JsonObject
) -> pa.Table:
    arrays = {"_op": ops, ROW_ID: ids, "_columns": named, **values}
    schema = delta_file_schema(columns)
    return pa.Table.from_arrays(
        [arrays[name] for name in schema.names if name in arrays],
        schema=pa.schema([field for field in schema if field.name in arrays]),
    )


def _named(columns: Sequence[ColumnSchema], sets: Bools) -> pa.Array:
    """The names of the columns that each row sets, as a list for each."""
    names = pa.array([column.name for column in columns], pa.string())
    offsets = np.zeros(len(sets) + 1, dtype=np.int32)
    np.cumsum(sets.sum(axis=1), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(np.nonzero(sets)[1])))


def _nulls(array: pa.Array) -> Bools:
    return _bools(pc.is_null(array))


def _bools(array: pa.Array) -> Bools:
    found: Bools = array.to_numpy(zero_copy_only=False)
    return found


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

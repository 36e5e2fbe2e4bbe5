"""The rows of a lake for a new client: with their stamps and tombstones, in files that pages are cut from.

A table is folded once, at a pinned version, into an Arrow file in the order of row ids. Deltas that are not in the
table's Parquet files (the log's tail, envelopes) are passed as merged rows; the rows that they change are JSON in the
file, joined with the lake's. So a page is a slice, whatever its reader (deltas-and-lake §11).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from driftline.core import JsonObject, utf16_sort_key
from driftline.deltas import ColumnSchema, RowMerge, Stamp, fold_to_plain
from driftline.errors import LakeError
from driftline.lake._fold.local import KeepRows, Result, run_locally
from driftline.lake._fold.plan import plan_fold
from driftline.lake._store.lake import Lake
from driftline.lake._store.rows import READERS, ROW_ID, STAMPS, base_file_schema, escape_name
from driftline.lake._store.schemas import schema_of
from driftline.lake._store.tables import load

JOINED = "_joined"  # a row that does not fit the table's columns, as JSON

_SIGN = 1 << 63


def write_rows(lake: Lake, table: str, version: int, more: Mapping[str, RowMerge], target: Path) -> None:
    """Write a table's rows at a version of its deltas, joined with further folds; `version` -1: there are no others."""
    columns, ranges = _folded(lake, table, version)
    schema = rows_schema(columns)
    left = dict(more)
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for rows in ranges:
            last = rows[ROW_ID][-1].as_py().encode() if rows.num_rows else b""
            here = {row_id: left.pop(row_id) for row_id in list(left) if row_id.encode() <= last}
            writer.write_table(_joined(rows, here, table, columns, schema), max_chunksize=10_000)
        writer.write_table(
            _joined(base_file_schema(columns).empty_table(), left, table, columns, schema), max_chunksize=10_000
        )


def folded_rows(lake: Lake, table: str, version: int) -> Iterator[tuple[str, RowMerge]]:
    """A table's rows at a version of its deltas, live and deleted ones, with their stamps."""
    columns, ranges = _folded(lake, table, version)
    for rows in ranges:
        for row in rows.to_pylist():
            yield row[ROW_ID], _fold_of(row, columns)


def rows_schema(columns: Sequence[ColumnSchema]) -> pa.Schema:
    """The schema of such a file: the base's, and the column for joined rows."""
    described = json.dumps([[column.name, column.type] for column in columns])
    schema = base_file_schema(columns).append(pa.field(JOINED, pa.string()))
    return schema.with_metadata({"driftline.columns": described})


def columns_in(schema: pa.Schema) -> list[ColumnSchema]:
    """The table's columns that a file was written with."""
    return [ColumnSchema(name, kind) for name, kind in json.loads(schema.metadata[b"driftline.columns"])]


def row_records(rows: pa.Table, table: str, columns: Sequence[ColumnSchema]) -> Iterator[JsonObject]:
    """The rows of such a file as records of a snapshot page."""
    for row in rows.to_pylist():
        if row[JOINED] is not None:
            yield json.loads(row[JOINED])
        else:
            yield record_of(table, row[ROW_ID], _fold_of(row, columns))


def record_of(table: str, row_id: str, fold: RowMerge) -> JsonObject:
    """A row as a line of a snapshot."""
    return {"table": table, "rowId": row_id, **fold_to_plain(fold)}


def watched_values(
    rows: pa.Table, columns: Sequence[ColumnSchema], names: Sequence[str]
) -> Iterator[JsonObject | None]:
    """The named columns that are set in every row, None for a deleted row; other columns are not decoded."""
    chosen = [column for column in columns if column.name in names]
    stamps = rows[STAMPS].combine_chunks()
    living = pc.is_valid(pc.struct_field(stamps, ["live"])).to_pylist()
    values = {
        column.name: (
            pc.is_valid(pc.struct_field(stamps, ["columns", escape_name(column.name)])).to_pylist(),
            rows[escape_name(column.name)].to_pylist(),
            READERS[column.kind],
        )
        for column in chosen
    }
    for index, text in enumerate(rows[JOINED].to_pylist()):
        if text is not None:
            yield json.loads(text).get("columns")
        elif not living[index]:
            yield None
        else:
            yield {name: read(held[index]) for name, (is_set, held, read) in values.items() if is_set[index]}


def _folded(lake: Lake, table: str, version: int) -> tuple[tuple[ColumnSchema, ...], Iterator[pa.Table]]:
    if version < 0:
        return (), iter(())
    if load(lake, table, "deltas", version) is None:
        raise LakeError(f"version {version} of {table} is gone", code="snapshot_gone")
    if schema_of(load(lake, table, "deltas", version)) is None:
        return (), iter(())
    plan = plan_fold(lake, table, deltas_version=version, envelopes=False)
    return plan.columns, (_with_dead(result, plan.columns) for result in run_locally(plan, KeepRows()))


def _with_dead(folded: Result, columns: Sequence[ColumnSchema]) -> pa.Table:
    """Live and deleted rows; a deleted row has no values and no stamp of its life."""
    deletes = folded["deletes"]
    dead = {ROW_ID: deletes[ROW_ID], "deleted": deletes["_deleted"].combine_chunks()}
    return pa.concat_tables([folded["rows"], _table(base_file_schema(columns), dead)]).sort_by(ROW_ID)


def _table(schema: pa.Schema, known: Mapping[str, pa.Array]) -> pa.Table:
    """Rows of which only some columns and stamps are known; the others are null."""
    count, kind = len(known[ROW_ID]), schema.field(STAMPS).type
    members = [
        pc.cast(known[each.name], each.type) if each.name in known else pa.nulls(count, each.type) for each in kind
    ]
    filled = {STAMPS: pa.StructArray.from_arrays(members, fields=list(kind)), **known}
    arrays = [filled[each.name] if each.name in filled else pa.nulls(count, each.type) for each in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _joined(
    rows: pa.Table, more: Mapping[str, RowMerge], table: str, columns: Sequence[ColumnSchema], schema: pa.Schema
) -> pa.Table:
    """The rows of a range, those that further folds touch as JSON."""
    plain = rows.append_column(pa.field(JOINED, pa.string()), pa.nulls(rows.num_rows, pa.string())).cast(schema)
    if not more:
        return plain
    touched = pc.is_in(plain[ROW_ID], value_set=pa.array(list(more), pa.string()))
    folds = dict(more)
    for row in rows.filter(touched).to_pylist():
        known = _fold_of(row, columns)
        known.join(folds[row[ROW_ID]])
        folds[row[ROW_ID]] = known
    texts = {row_id: json.dumps(record_of(table, row_id, fold), ensure_ascii=False) for row_id, fold in folds.items()}
    given = {ROW_ID: pa.array(list(texts), pa.string()), JOINED: pa.array(list(texts.values()), pa.string())}
    joined = _table(schema, given)
    return pa.concat_tables([plain.filter(pc.invert(touched)), joined]).sort_by(ROW_ID)


def _fold_of(row: Mapping[str, Any], columns: Sequence[ColumnSchema]) -> RowMerge:
    stamps = row[STAMPS]
    named = stamps.get("columns") or {}
    held: dict[str, tuple[Stamp, Any]] = {}
    for column in columns:
        name = escape_name(column.name)
        stamp = named.get(name)
        if stamp is not None:
            held[column.name] = (_stamp(stamp, False), READERS[column.kind](row[name]))
    return RowMerge(held, _optional(stamps["live"], False), _optional(stamps["deleted"], True))


def _optional(plain: Mapping[str, Any] | None, is_delete: bool) -> Stamp | None:
    return None if plain is None else _stamp(plain, is_delete)


def _stamp(plain: Mapping[str, Any], is_delete: bool) -> Stamp:
    return plain["hlc"], utf16_sort_key(plain["client"]), f"{plain['mark'] + _SIGN:016x}", is_delete

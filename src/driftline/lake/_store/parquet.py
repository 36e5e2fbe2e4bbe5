"""Parquet files of the lake: written atomically, read with an explicit schema, named when they are damaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.core import io_errors
from driftline.errors import LakeError
from driftline.lake._store.lake import Lake
from driftline.lake._store.rows import HLC, ROW_ID

_ROW_GROUP_ROWS = 1 << 17
_ROW_GROUP_BYTES = 128 << 20
_COMPRESSION = "zstd"
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table: its path below the table's root and its statistics."""

    path: str
    size: int
    rows: int
    min_row_id: str | None = None
    max_row_id: str | None = None
    min_hlc: int | None = None
    max_hlc: int | None = None
    committed_ms: int = 0


def write_file(lake: Lake, root: str, path: str, table: pa.Table) -> DataFile:
    """Write one Parquet file below a Delta table's root (both relative to the lake)."""
    whole = f"{root}/{path}"
    lake.make_directory(whole.rpartition("/")[0])
    with io_errors(whole), lake.files().open_output_stream(whole) as sink:
        pq.write_table(
            table,
            sink,
            compression=_COMPRESSION,
            compression_level=_LEVEL,
            row_group_size=_rows_per_group(table),
            use_dictionary=_repeating_columns(table.schema),
            write_statistics=[ROW_ID, HLC],
        )
    return describe(path, lake.files().get_file_info(whole).size, table)


def describe(path: str, size: int, table: pa.Table) -> DataFile:
    """The file's entry for the log."""
    return DataFile(path, size, table.num_rows, *_bounds(table, ROW_ID), *_bounds(table, HLC))


def read_file(lake: Lake, path: str, schema: pa.Schema, **options: Any) -> pa.Table:
    """A Parquet file as a table of exactly this schema; columns that the file lacks are null."""
    with naming_damage(path), lake.files().open_input_file(path) as source:
        file = pq.ParquetFile(source, **options)
        return conform(file.read(columns=_selected(file, schema)), schema, path)


def read_batches(
    lake: Lake, path: str, schema: pa.Schema, row_groups: Sequence[int] | None = None
) -> Iterator[pa.Table]:
    """The row groups of a Parquet file, one table each."""
    with naming_damage(path), lake.files().open_input_file(path) as source:
        file = pq.ParquetFile(source, read_dictionary=[field.name for field in schema if _is_dictionary(field.type)])
        requested = _selected(file, schema)
        for group in range(file.num_row_groups) if row_groups is None else row_groups:
            yield conform(file.read_row_group(group, columns=requested), schema, path)


def row_group_sizes(lake: Lake, path: str) -> list[int]:
    """The number of rows in each row group."""
    with naming_damage(path), lake.files().open_input_file(path) as source:
        meta = pq.ParquetFile(source).metadata
        return [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]


def conform(table: pa.Table, schema: pa.Schema, path: str) -> pa.Table:
    """The table with exactly the columns of a schema; another type, or a missing driftline column, is an error."""
    arrays = []
    for field in schema:
        index = table.schema.get_field_index(field.name)
        if index < 0 and field.nullable:
            arrays.append(pa.nulls(table.num_rows, field.type))
        elif index < 0:
            raise LakeError(f"{path} has no column {field.name}", code="wrong_schema", path=path)
        else:
            arrays.append(_as_type(table.column(index), field, path))
    return pa.Table.from_arrays(arrays, schema=schema)


@contextmanager
def naming_damage(path: str) -> Iterator[None]:
    """Turn damage of a Parquet file into a `LakeError` that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise LakeError(f"{path} is missing from the lake", code="missing_file", path=path) from error
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0][:200]
        raise LakeError(f"{path} is damaged or cut short: {reason}", code="corrupt_file", path=path) from error


def _rows_per_group(table: pa.Table) -> int:
    bytes_per_row = int(table.nbytes) // max(1, table.num_rows)
    rows: int = min(_ROW_GROUP_ROWS, _ROW_GROUP_BYTES // max(1, bytes_per_row))
    return max(1, rows)


def _selected(file: pq.ParquetFile, schema: pa.Schema) -> list[str]:
    there = set(file.schema_arrow.names)
    return [name for name in schema.names if name in there]


def _as_type(column: pa.ChunkedArray, field: pa.Field, path: str) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    if pa.types.is_struct(field.type) and pa.types.is_struct(column.type):
        chunks = [_widen_array(chunk, field.type) for chunk in getattr(column, "chunks", [column])]
        return pa.chunked_array(chunks, field.type)
    if _is_dictionary(field.type) and _textual(column.type):
        return column.cast(field.type.value_type).dictionary_encode()
    if _textual(column.type) and _textual(field.type):
        return column.cast(field.type)
    if pa.types.is_list(field.type) and (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return column.cast(field.type)
    raise LakeError(
        f"{path}: column {field.name} is {column.type}, {field.type} is wanted", code="wrong_schema", path=path
    )


def _widen_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A struct with exactly the members of `kind`; a missing member is null."""
    members = []
    for field in kind:
        if array.type.get_field_index(field.name) < 0:
            members.append(pa.nulls(len(array), field.type))
            continue
        member = pc.struct_field(array, [field.name])
        members.append(_widen_array(member, field.type) if pa.types.is_struct(field.type) else member.cast(field.type))
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=pc.is_null(array))


def _is_dictionary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind))


def _textual(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or (_is_dictionary(kind) and _textual(kind.value_type))
    )


def _bounds(table: pa.Table, name: str) -> tuple[Any, Any]:
    if table.num_rows == 0 or name not in table.column_names:
        return None, None
    least_greatest = pc.min_max(table[name])
    return least_greatest["min"].as_py(), least_greatest["max"].as_py()


def _repeating_columns(schema: pa.Schema) -> list[str]:
    """Dictionary pages only where values repeat: operations, clients, names of columns and the table's own values."""
    found: list[str] = []
    for field in schema:
        if field.name in ("_op", "_client_id"):
            found.append(field.name)
        elif field.name == "_columns":
            found.append("_columns.list.element")
        elif pa.types.is_struct(field.type):
            found += [path for path in _leaves(field) if path.endswith(".client")]
        elif not field.name.startswith("_"):
            found.append(field.name)
    return found


def _leaves(field: pa.Field) -> list[str]:
    if not pa.types.is_struct(field.type):
        return [field.name]
    return [f"{field.name}.{leaf}" for member in field.type for leaf in _leaves(member)]

"""Row deltas to the rows of delta files and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from driftline.core._json import JsonObject, canonical_json
from driftline.deltas import ColumnDelta, ColumnSchema, RowDelta
from driftline.errors import DeltaError
from driftline.lake.columns import delta_file_schema, escape_name

_EXACT = 1 << 53


def encode_deltas(deltas: Sequence[RowDelta], columns: Sequence[ColumnSchema]) -> pa.Table:
    """An Arrow table in the schema of delta files; a value that is not of its column's type is an error."""
    known = {column.name: column for column in columns}
    values: dict[str, list[Any]] = {name: [None] * len(deltas) for name in known}
    for position, delta in enumerate(deltas):
        for entry in delta.columns:
            column = known.get(entry.column)
            if column is None:
                raise _unknown_column(delta, entry.column)
            values[entry.column][position] = file_value(delta, column, entry.value)
    meta: list[Any] = [
        [delta.op for delta in deltas],
        [delta.row_id for delta in deltas],
        [delta.client_id for delta in deltas],
        [delta.hlc for delta in deltas],
        [delta.delta_id for delta in deltas],
        [[entry.column for entry in delta.columns] for delta in deltas],
    ]
    schema = delta_file_schema(columns)
    arrays = [pa.array(data, field.type) for data, field in zip([*meta, *values.values()], schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def decode_deltas(rows: pa.Table, table: str, columns: Sequence[ColumnSchema]) -> Iterator[RowDelta]:
    """The deltas of rows of delta files."""
    readers = {column.name: READERS[column.type] for column in columns}
    names = {column.name: escape_name(column.name) for column in columns}
    for row in rows.to_pylist():
        yield RowDelta(
            op=row["_op"],
            table=table,
            row_id=row["_row_id"],
            client_id=row["_client_id"],
            columns=tuple(
                ColumnDelta(name, readers[name](row[names[name]])) for name in row["_columns"] if name in names
            ),
            hlc=row["_hlc"],
            delta_id=row["_delta_id"],
        )


def decode_state(rows: pa.Table, columns: Sequence[ColumnSchema]) -> Iterator[tuple[str, JsonObject]]:
    """Row ids and set columns of base rows; an absent column is left out, an explicit null is there."""
    names = [(column.name, escape_name(column.name), READERS[column.type]) for column in columns]
    for row in rows.to_pylist():
        stamps = row["_stamps"].get("columns", {})
        yield row["_row_id"], {name: read(row[file]) for name, file, read in names if stamps[file] is not None}


def file_value(delta: RowDelta, column: ColumnSchema, value: Any) -> Any:
    """The value as the file holds it."""
    if value is None:
        return None
    if not column.accepts(value):
        raise DeltaError(
            f"column {column.name!r} of table {delta.table} is a {column.type}, "
            f"row {delta.row_id!r} has {canonical_json(value)[:60]}",
            code="SCHEMA_ERROR",
            table=delta.table,
            column=column.name,
        )
    return _WRITERS[column.type](value)


def plain_number(value: float | None) -> float | int | None:
    """A double as JSON shows it: whole numbers without a fraction.

    >>> plain_number(42.0), plain_number(0.5)
    (42, 0.5)
    """
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


def _unknown_column(delta: RowDelta, name: str) -> DeltaError:
    return DeltaError(
        f"table {delta.table} has no column {name!r} (row {delta.row_id!r}): register a schema that names it",
        code="SCHEMA_ERROR",
        table=delta.table,
        column=name,
    )


def _number(value: float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


_WRITERS: dict[str, Callable[[Any], Any]] = {
    "string": str,
    "number": _number,
    "boolean": bool,
    "json": canonical_json,
}
READERS: dict[str, Callable[[Any], Any]] = {
    "string": lambda value: value,
    "number": plain_number,
    "boolean": lambda value: value,
    "json": lambda value: None if value is None else json.loads(value),
}

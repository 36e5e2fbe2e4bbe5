"""Whole Arrow, Polars or plain columns as row images of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from driftline.changesets.format import TAG_UNDEFINED
from driftline.changesets.table import Table, plain_value
from driftline.changesets.vectors import Vector, from_arrow, from_values
from driftline.errors import ChangesetError

if TYPE_CHECKING:
    pass

Columns = "pa.Table | pa.RecordBatch | pl.DataFrame | Mapping[str, Any]"


def image_columns(table: Table, data: Any, *, whole: bool = True) -> list[Vector]:
    """The table's columns from `data`, by name; `whole` refuses data that leaves columns out."""
    given = {table.index_of(name): column for name, column in _named_columns(data) if name not in table.generated}
    length = _common_length(table, {table.column_names[index]: column for index, column in given.items()})
    vectors = []
    for index, name in enumerate(table.column_names):
        if index in given:
            vectors.append(_as_vector(given[index], name))
        elif whole or table.key_flags[index]:
            raise ChangesetError(f'table {table.name}: the data has no column "{name}"', code="missing_column")
        else:
            vectors.append(Vector(length, TAG_UNDEFINED))
    return vectors


def _named_columns(data: Any) -> list[tuple[str, Any]]:
    if isinstance(data, Mapping):
        return list(data.items())
    if not isinstance(data, pa.Table | pa.RecordBatch):
        # Polars frames, and anything else that speaks the Arrow C stream.
        data = data.to_arrow() if hasattr(data, "to_arrow") else pa.table(data)
    return list(zip(data.schema.names, data.columns, strict=True))


def _common_length(table: Table, columns: Mapping[str, Any]) -> int:
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise ChangesetError(f"table {table.name}: columns of different lengths, or none", code="row_width_mismatch")
    return lengths.pop()


def _as_vector(column: Any, name: str) -> Vector:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return from_arrow(column, name=name)
    if hasattr(column, "to_arrow"):
        return from_arrow(column.to_arrow(), name=name)
    if hasattr(column, "dtype") and column.dtype.kind in "biuf":
        return from_arrow(pa.array(column), name=name)
    return from_values([plain_value(value) for value in column])

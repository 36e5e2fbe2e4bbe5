"""How a table's columns look in the files: escaped names, Arrow types and the columns that driftline adds.

The characters that Delta forbids in names are written as `%XX` and restored on reading.

>>> escape_name("Unit Price"), unescape_name("Unit%20Price")
('Unit%20Price', 'Unit Price')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

from driftline.deltas import ColumnSchema

ROW_ID = "_row_id"
STAMPS = "_stamps"
HLC = "_hlc"
META_COLUMNS = ("_op", ROW_ID, "_client_id", HLC, "_delta_id", "_columns")

_FORBIDDEN = re.compile(r"[ ,;{}()=%]")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")
_ARROW_TYPES = {"string": pa.string(), "number": pa.float64(), "boolean": pa.bool_(), "json": pa.string()}

# hlc, client id, and the first 8 bytes of the delta id as an integer that orders like the bytes do
STAMP = pa.struct([("hlc", pa.int64()), ("client", pa.string()), ("mark", pa.int64())])


def escape_name(name: str) -> str:
    """A column name as it stands in the files."""
    return _FORBIDDEN.sub(lambda match: f"%{ord(match.group()):02X}", name)


def unescape_name(name: str) -> str:
    """The column name that a name in the files stands for."""
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 16)), name)


def escaped(columns: Iterable[ColumnSchema]) -> list[str]:
    """The names of columns as they stand in the files."""
    return [escape_name(column.name) for column in columns]


def value_fields(columns: Iterable[ColumnSchema]) -> list[pa.Field]:
    """The Arrow fields of a table's own columns; the declared type goes along, because json is a string in the file."""
    return [
        pa.field(escape_name(column.name), _ARROW_TYPES[column.type], metadata={"driftline.type": column.type})
        for column in columns
    ]


def delta_file_schema(columns: Sequence[ColumnSchema]) -> pa.Schema:
    """Delta files: one row per delta; `_columns` tells an explicit null from an absent column."""
    return pa.schema(
        [
            pa.field("_op", pa.string(), nullable=False),
            pa.field(ROW_ID, pa.string(), nullable=False),
            pa.field("_client_id", pa.string(), nullable=False),
            pa.field(HLC, pa.int64(), nullable=False),
            pa.field("_delta_id", pa.string(), nullable=False),
            pa.field("_columns", pa.list_(pa.string()), nullable=False),
            *value_fields(columns),
        ]
    )


def fold_schema(columns: Sequence[ColumnSchema]) -> pa.Schema:
    """Delta files as a fold reads them: the few operations and clients stay encoded."""
    schema = delta_file_schema(columns)
    for name in ("_op", "_client_id"):
        index = schema.get_field_index(name)
        schema = schema.set(index, pa.field(name, pa.dictionary(pa.int32(), pa.string()), nullable=False))
    return schema


def stamps_type(columns: Sequence[ColumnSchema]) -> pa.StructType:
    """The stamps of a base row: of the row's life, of its greatest DELETE and of every column."""
    fields = [pa.field("live", STAMP), pa.field("deleted", STAMP)]
    if columns:  # Parquet has no struct without members
        fields.append(pa.field("columns", pa.struct([(name, STAMP) for name in escaped(columns)])))
    return pa.struct(fields)


def base_file_schema(columns: Sequence[ColumnSchema]) -> pa.Schema:
    """Base files: one row per live row id, with the stamps that let an older delta merge rightly."""
    return pa.schema(
        [
            pa.field(ROW_ID, pa.string(), nullable=False),
            *value_fields(columns),
            pa.field(STAMPS, stamps_type(columns), nullable=False),
        ]
    )


def state_file_schema(columns: Sequence[ColumnSchema]) -> pa.Schema:
    """State files: the rows of a base file for readers who know nothing of driftline, names as they are.

    Without Delta's column mapping, which readers refuse or get wrong: those that we know take any name as it is.
    """
    fields = [pa.field(column.name, _ARROW_TYPES[column.type]) for column in columns]
    return pa.schema([pa.field(ROW_ID, pa.string(), nullable=False), *fields])


def deletes_file_schema() -> pa.Schema:
    """Equality deletes: dead rows with the stamp of their greatest DELETE."""
    return pa.schema([pa.field(ROW_ID, pa.string(), nullable=False), pa.field("_deleted", STAMP, nullable=False)])

"""Rows in the files of a lake: names and types of columns, row deltas as rows and back, rows as JSONL and CSV.

The characters that Delta forbids in names are written as `%XX` and restored on reading.

>>> escape_name("Unit Price"), unescape_name("Unit%20Price")
('Unit%20Price', 'Unit Price')
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core import JsonObject, canonical_json, decimal_text, number_text, string_text
from driftline.deltas import MAX_DIGITS, SAFE_INTEGER, ColumnDelta, ColumnSchema, RowDelta, integer_of, integer_wire
from driftline.errors import DeltaError

ROW_ID = "_row_id"
STAMPS = "_stamps"
HLC = "_hlc"
_META_TYPES = {
    **dict.fromkeys(("_op", ROW_ID, "_client_id"), pa.string()),
    HLC: pa.int64(),
    "_delta_id": pa.string(),
    "_columns": pa.list_(pa.string()),
}
META_COLUMNS = tuple(_META_TYPES)
ROW_ID_FIELD = pa.field(ROW_ID, pa.string(), nullable=False)

_FORBIDDEN = re.compile(r"[ ,;{}()=%]")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")
_NEEDS_ESCAPE = '["\\\\\\x00-\\x1f]'
_ODD_NUMBERS = r"[0-9]e[+-]|0\.0000"  # may be in a text whose numbers Python spells in another way
_EXACT = 1 << 53  # up to here every integer is a double, and Arrow prints it without an exponent, as JavaScript does
_PLAIN_LOW, _PLAIN_HIGH = 1e-3, 1e9  # within these bounds Arrow prints the shortest digits as JavaScript does

# hlc, client id, and the first 8 bytes of the delta id as an integer that orders like the bytes do
STAMP = pa.struct([("hlc", pa.int64()), ("client", pa.string()), ("mark", pa.int64())])


def escape_name(name: str) -> str:
    """The name of a column in the files."""
    return _FORBIDDEN.sub(lambda match: f"%{ord(match.group()):02X}", name)


def unescape_name(name: str) -> str:
    """The column of a name in the files."""
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 16)), name)


def arrow_type(column: ColumnSchema) -> pa.DataType:
    """The type of a column in the files."""
    return KINDS[column.kind].arrow if column.scale is None else pa.decimal128(MAX_DIGITS, column.scale)


def escape_columns(columns: Iterable[ColumnSchema]) -> list[str]:
    """The names of columns in the files."""
    return [escape_name(column.name) for column in columns]


def value_fields(columns: Iterable[ColumnSchema]) -> list[pa.Field]:
    """The Arrow fields of a table's own columns, with the declared type, because json is a string in the file."""
    return [
        pa.field(escape_name(column.name), arrow_type(column), metadata={"driftline.type": column.type})
        for column in columns
    ]


def delta_file_schema(columns: Sequence[ColumnSchema]) -> pa.Schema:
    """Delta files: one row per delta; `_columns` distinguishes an explicit null from an absent column."""
    meta = [pa.field(name, kind, nullable=False) for name, kind in _META_TYPES.items()]
    return pa.schema([*meta, *value_fields(columns)])


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
        fields.append(pa.field("columns", pa.struct([(name, STAMP) for name in escape_columns(columns)])))
    return pa.struct(fields)


def base_file_schema(columns: Sequence[ColumnSchema]) -> pa.Schema:
    """Base files: one row per live row id, with the stamps that are needed to merge an older delta."""
    stamps = pa.field(STAMPS, stamps_type(columns), nullable=False)
    return pa.schema([ROW_ID_FIELD, *value_fields(columns), stamps])


def state_file_schema(columns: Sequence[ColumnSchema]) -> pa.Schema:
    """State files: the rows of a base file for any reader of Delta tables, with plain names.

    Without Delta's column mapping, which some readers refuse or get wrong; they accept any plain name.
    """
    fields = [pa.field(column.name, arrow_type(column)) for column in columns]
    return pa.schema([ROW_ID_FIELD, *fields])


def deletes_file_schema() -> pa.Schema:
    """Equality deletes: dead rows with the stamp of their greatest DELETE."""
    return pa.schema([ROW_ID_FIELD, pa.field("_deleted", STAMP, nullable=False)])


# Row deltas and base rows.


def encode_deltas(deltas: Sequence[RowDelta], columns: Sequence[ColumnSchema]) -> pa.Table:
    """An Arrow table in the schema of delta files; a value that is not of its column's type is an error."""
    known = {column.name: column for column in columns}
    values: dict[str, list[Any]] = {name: [None] * len(deltas) for name in known}
    for position, delta in enumerate(deltas):
        for entry in delta.columns:
            column = known.get(entry.column)
            if column is None:
                raise DeltaError(
                    f"table {delta.table} has no column {entry.column!r} (row {delta.row_id!r}): "
                    "register a schema that names it",
                    code="SCHEMA_ERROR",
                    table=delta.table,
                    column=entry.column,
                )
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
    readers = {column.name: KINDS[column.kind].read for column in columns}
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
    names = [(column.name, escape_name(column.name), KINDS[column.kind].read) for column in columns]
    for row in rows.to_pylist():
        stamps = row["_stamps"].get("columns", {})
        yield row["_row_id"], {name: read(row[file]) for name, file, read in names if stamps[file] is not None}


def file_value(delta: RowDelta, column: ColumnSchema, value: Any) -> Any:
    """The value in the file."""
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
    return KINDS[column.kind].write(value)


def plain_number(value: float | None) -> float | int | None:
    """A double as JSON shows it: whole numbers without a fraction.

    >>> plain_number(42.0), plain_number(0.5)
    (42, 0.5)
    """
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


def _number(value: float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


# Base rows as lines of JSONL or CSV, many at once; the bytes do not depend on the ranges.


def string_texts(values: pa.Array) -> pa.Array:
    """JSON string literals; null stays null."""
    quoted = pc.binary_join_element_wise('"', values, '"', "")
    special = pc.fill_null(pc.match_substring_regex(values, _NEEDS_ESCAPE), False)
    if not pc.any(special).as_py():
        return quoted
    escaped = pa.array([string_text(text) for text in values.filter(special).to_pylist()], pa.string())
    return pc.replace_with_mask(quoted, special, escaped)


def number_texts(values: pa.Array, spell: Callable[[float], str] = number_text) -> pa.Array:
    """Doubles as JavaScript prints them, or as `spell` does those beyond the usual sizes; null stays null."""
    numbers: npt.NDArray[np.float64] = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    whole = (np.abs(numbers) <= _EXACT) & (numbers == np.trunc(numbers))
    size = np.abs(numbers)
    plain = whole | ((size >= _PLAIN_LOW) & (size <= _PLAIN_HIGH))
    if bool(whole.all()):
        texts = pc.cast(pa.array(numbers.astype(np.int64)), pa.string())
    else:
        texts = pc.cast(pa.array(np.where(whole, 0.5, numbers)), pa.string())
        integers = pc.cast(pa.array(numbers[whole].astype(np.int64)), pa.string())
        texts = pc.replace_with_mask(texts, pa.array(whole), integers)
    if not bool(plain.all()):
        odd = pa.array([spell(number) for number in numbers[~plain].tolist()], pa.string())
        texts = pc.replace_with_mask(texts, pa.array(~plain), odd)
    return pc.if_else(pc.is_valid(values), texts, None) if values.null_count else texts


def decimal_texts(values: pa.Array) -> pa.Array:
    """Decimals without exponents and trailing zeros, where Arrow's own cast writes `0E-18`; null stays null."""
    import polars as pl

    texts = pl.Series(pl.from_arrow(values)).cast(pl.String)
    if values.type.scale:
        texts = texts.str.strip_chars_end("0").str.strip_suffix(".")
    return texts.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())


def _integer_json(values: pa.Array) -> pa.Array:
    texts = pc.cast(values, pa.string())
    is_safe = pc.and_(pc.less_equal(values, SAFE_INTEGER), pc.greater_equal(values, -SAFE_INTEGER))
    return pc.if_else(is_safe, texts, pc.binary_join_element_wise('"', texts, '"', ""))


class Kind(NamedTuple):
    """How the values of one kind of column are stored and shown; a value is never null but for `read`."""

    arrow: pa.DataType  # in the files
    sql: str  # in a SQLite database; a decimal is text, which keeps its digits and sorts as text does
    write: Callable[[Any], Any]  # into a file
    read: Callable[[Any], Any]  # from a file, null too
    to_sql: Callable[[Any], Any]
    csv: Callable[[pa.Array], pa.Array]  # the texts of a column
    json: Callable[[pa.Array], pa.Array]


def _same(value: Any) -> Any:
    return value


def _read_by(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


def _booleans(values: pa.Array) -> pa.Array:
    return pc.if_else(values, "true", "false")


def _integers(values: pa.Array) -> pa.Array:
    return pc.cast(values, pa.string())


def _decimal_json(values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', decimal_texts(values), '"', "")


KINDS = {
    "string": Kind(pa.string(), "TEXT", str, _same, _same, _same, string_texts),
    "number": Kind(pa.float64(), "REAL", _number, plain_number, float, number_texts, number_texts),
    "boolean": Kind(pa.bool_(), "INTEGER", bool, _same, int, _booleans, _booleans),
    "json": Kind(pa.string(), "TEXT", canonical_json, _read_by(json.loads), canonical_json, _same, _same),
    "integer": Kind(pa.int64(), "INTEGER", integer_of, _read_by(integer_wire), int, _integers, _integer_json),
    "decimal": Kind(pa.null(), "TEXT", Decimal, _read_by(decimal_text), str, decimal_texts, _decimal_json),
}


def json_texts(values: pa.Array, column: ColumnSchema) -> pa.Array:
    """The JSON text of every value of a column; null becomes `null`."""
    return pc.fill_null(KINDS[column.kind].json(values), "null")


def record_texts(values: pa.Array, column: ColumnSchema) -> pa.Array:
    """The JSON text of every value as lines of snapshots have it, where Python's `json` spells the numbers."""
    if column.kind == "number":
        return pc.fill_null(number_texts(values, lambda number: json.dumps(plain_number(number))), "null")
    texts = json_texts(values, column)
    odd = pc.match_substring_regex(texts, _ODD_NUMBERS) if column.kind == "json" else None
    if odd is None or not pc.any(odd).as_py():
        return texts
    spelled = [json_line(json.loads(text)).decode()[:-1] for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(spelled, pa.string()))


def json_line(value: Any) -> bytes:
    """A line of JSON, compact."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def end_to_end(texts: pa.Array) -> tuple[bytes, npt.NDArray[np.int32]]:
    """The bytes of computed texts, and where each of them ends."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[1 : len(texts) + 1]
    return b"" if data is None or not len(ends) else data.slice(0, int(ends[-1])).to_pybytes(), ends


def jsonl_bytes(rows: pa.Table, columns: Sequence[ColumnSchema]) -> bytes:
    """One object per row; an absent column is left out, an explicit null is written."""
    if rows.num_rows == 0:
        return b""
    pieces: list[Any] = [f'{{"{ROW_ID}":', string_texts(one_array(rows[ROW_ID]))]
    for column in columns:
        name = escape_name(column.name)
        member = pc.binary_join_element_wise(
            f",{string_text(column.name)}:", json_texts(one_array(rows[name]), column), ""
        )
        pieces.append(pc.if_else(is_set(rows, name), member, ""))
    return end_to_end(pc.binary_join_element_wise(*pieces, "}\n", ""))[0]


def csv_header(columns: Sequence[ColumnSchema]) -> bytes:
    """The header line."""
    import polars as pl  # here and below: most callers write no CSV

    names = [ROW_ID, *(column.name for column in columns)]
    frame = pl.DataFrame({name: [] for name in names}, schema=dict.fromkeys(names, pl.String))
    return frame.write_csv(include_header=True).encode()


def csv_bytes(rows: pa.Table, columns: Sequence[ColumnSchema]) -> bytes:
    """One line per row; null is an empty field, an empty text is `""`."""
    import polars as pl

    texts = {ROW_ID: one_array(rows[ROW_ID])}
    for column in columns:
        texts[column.name] = KINDS[column.kind].csv(one_array(rows[escape_name(column.name)]))
    frame = pl.DataFrame(pa.table(texts))
    return frame.write_csv(include_header=False, quote_style="necessary").encode()


def plain_table(rows: pa.Table, columns: Sequence[ColumnSchema]) -> pa.Table:
    """The rows with their own column names and without stamps."""
    arrays = [rows[ROW_ID], *(rows[escape_name(column.name)] for column in columns)]
    return pa.table(arrays, names=[ROW_ID, *(column.name for column in columns)])


def is_set(rows: pa.Table, name: str) -> pa.Array:
    """Whether a column is set in each row, by its stamp."""
    return pc.is_valid(pc.struct_field(one_array(rows[STAMPS]), ["columns", name]))


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

"""Typed cells as JSON text, the same for every source, and copies of rows that can only be read from the start.

A typed cell is the compact JSON text of its value: `1`, `1.5`, `true`, `"text"`, `null`. Dates and times are ISO 8601
strings, decimals are numbers without trailing zeros, binary data is a hexadecimal string; NaN and the infinities,
which JSON lacks, are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from json.encoder import encode_basestring
from typing import Any, Self
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa

from driftline.core import Location, Workspace, decimal_text, exact_loads, io_errors, is_url, read_object
from driftline.errors import InputError
from driftline.sources._addresses import InputFile, copied_to
from driftline.sources._source import (
    Counted,
    ParsedRange,
    RecordNumbers,
    RowPart,
    Split,
    SplitSide,
    TypedRows,
    polars_column,
)

Row = Mapping[str, object]

_BATCH_ROWS = 20_000
_NULL = "null"
_EXACT_INTEGERS = 1 << 53  # those of a double
_MOST_DIGITS = 38  # of a decimal of 128 bits
PLAIN_VALUES = (  # patterns of JSON texts that are canonical, and a value of their kind
    (r'"[^"\\\x00-\x1f]*"', ""),
    ("true|false", True),
    ("0|-?[1-9][0-9]{0,14}", 0),
    ("-?[1-8][0-9]{15}", 0),
    ("-?[1-9][0-9]{16,17}|-?[1-8][0-9]{18}", 1 << 53),
    (r"0\.0|-?(?:0\.[1-9](?:[0-9]{0,5}[1-9])?|[1-9][0-9]{0,7}\.(?:0|[0-9]{0,6}[1-9]))", 0.5),
)
_TIME_ZEROS = r"\.?0+$"
_SURROGATE = re.compile("[\ud800-\udfff]")  # has no UTF-8, so it stays escaped


def json_text(value: object) -> str:
    """The exact text of a single Python value; raises `TypeError` for one that has none.

    >>> json_text(1), json_text("a"), json_text(float("nan")), json_text(b"\\x01"), json_text(Decimal("1.50"))
    ('1', '"a"', '"NaN"', '"01"', '1.5')
    """
    known = _TEXTS.get(type(value))
    return _other_text(value) if known is None else known(value)


def _string_text(value: str) -> str:
    text = encode_basestring(value)
    return text if text.isascii() else _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def _float_text(value: float) -> str:
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    return float.__repr__(value) if value else "0.0"


def _datetime_text(value: datetime) -> str:
    """As a column of times has it: in UTC where there is a zone, without trailing zeros."""
    in_utc = value if value.tzinfo is None else value.astimezone(UTC)
    text = in_utc.replace(tzinfo=None).isoformat()
    return f'"{_without_zeros(text)}{"" if value.tzinfo is None else "Z"}"'


def _without_zeros(text: str) -> str:
    return text.rstrip("0") if "." in text else text


def _duration_text(value: timedelta) -> str:
    micros = abs(value) // timedelta(microseconds=1)
    seconds = _without_zeros(f"{micros // 10**6}.{micros % 10**6:06d}").rstrip(".")
    return f'"{"-" if value < timedelta() else ""}PT{seconds}S"'


def _interval_text(value: Any) -> str:
    """Months, days and nanoseconds, which have no common length."""
    return f'"P{value.months}M{value.days}DT{decimal_text(Decimal(value.nanoseconds).scaleb(-9))}S"'


def _list_text(values: Iterable[object]) -> str:
    return f"[{','.join(map(json_text, values))}]"


def _object_text(value: Mapping[object, object]) -> str:
    return f"{{{','.join(f'{_string_text(str(name))}:{json_text(cell)}' for name, cell in value.items())}}}"


_TEXTS: dict[type, Callable[[Any], str]] = {
    type(None): lambda value: "null",
    str: _string_text,
    bool: lambda value: "true" if value else "false",
    int: int.__repr__,
    float: _float_text,
    Decimal: decimal_text,
    datetime: _datetime_text,
    date: lambda value: f'"{value.isoformat()}"',
    time: lambda value: f'"{_without_zeros(value.isoformat())}"',
    timedelta: _duration_text,
    bytes: lambda value: f'"{value.hex()}"',
    UUID: lambda value: f'"{value}"',
    list: _list_text,
    tuple: _list_text,
    dict: _object_text,
    pa.MonthDayNano: _interval_text,
}
_SHOWN_AS_TEXT = (str, UUID, date, datetime, time, timedelta, bytes, pa.MonthDayNano)
_SUBCLASSED = (int, float, str, Decimal, datetime, date, time, timedelta, bytes, list, tuple)


def _other_text(value: Any) -> str:
    """Of subclasses, numbers and arrays of NumPy, enumerations, sets and the nulls of pandas."""
    if isinstance(value, Enum):
        return json_text(value.value)
    if isinstance(value, (set, frozenset)):
        return f"[{','.join(sorted(map(json_text, value)))}]"
    if type(value).__name__ in ("NAType", "NaTType"):
        return "null"
    if isinstance(value, (np.generic, np.ndarray)):
        plain = value.tolist()
        is_finer = isinstance(plain, int) and value.dtype.kind in "mM"  # than Python's times
        return json_text(str(value) if is_finer else plain)
    for kind in _SUBCLASSED:
        if isinstance(value, kind):
            return _TEXTS[kind](value)
    if isinstance(value, (bytearray, memoryview)):
        return f'"{value.hex()}"'
    if isinstance(value, Mapping):
        return _object_text(value)
    raise TypeError(f"a {type(value).__name__}")


def cells_by_column(rows: Iterable[Mapping[str, object]], declared: Sequence[str] = ()) -> dict[str, list[str]]:
    """Rows as columns of JSON text, in the order of first appearance; a missing cell is null."""
    found = list(rows)
    names = dict.fromkeys([*declared, *(name for row in found for name in row)])
    return {name: json_texts([row.get(name) for row in found], name) for name in names}


def json_texts(values: Iterable[object], name: str) -> list[str]:
    """The texts of a column of Python values."""
    try:
        return [json_text(value) for value in values]
    except TypeError as error:
        what = f"column {json.dumps(name, ensure_ascii=False)} holds {error}, which has no JSON form"
        words = f"{what}: convert it, or leave the column out"
        raise InputError(words, code="unsupported_input", column=name) from error
    except RecursionError:
        raise InputError(f"column {json.dumps(name)} is nested too deeply", code="unsupported_input") from None


def compact_json(column: pa.ChunkedArray) -> pa.Array:
    """A column of JSON texts as compact ones."""
    values = (None if text is None else exact_loads(text) for text in column.to_pylist())
    return pa.array([json_text(value) for value in values], pa.large_string())


def column_kinds(schema: pa.Schema) -> dict[str, str]:
    """What columns hold: integer, float, single, decimal, boolean, date, datetime or text; others are left out."""
    return {field.name: kind for field in schema if (kind := _kind_of(field.type)) is not None}


def _kind_of(type_: pa.DataType) -> str | None:
    types = pa.types
    if types.is_dictionary(type_):
        return _kind_of(type_.value_type)
    known = {
        "integer": types.is_integer,
        "single": lambda kind: types.is_float32(kind) or types.is_float16(kind),
        "float": types.is_floating,
        "decimal": types.is_decimal,
        "boolean": types.is_boolean,
        "date": types.is_date32,
        "datetime": lambda kind: types.is_timestamp(kind) or types.is_date64(kind),
    }
    return next((kind for kind, fits in known.items() if fits(type_)), None)


class _ValueKinds:
    """What the values of a column are that declares no type, noted one by one."""

    def __init__(self) -> None:
        self._seen: set[Any] = set()

    def note(self, value: Any) -> None:
        """Add a value that is not null."""
        kind = type(value)
        self._seen.add(kind)
        if kind is int and not -_EXACT_INTEGERS < value < _EXACT_INTEGERS:
            self._seen.add("long" if -(1 << 63) <= value < 1 << 63 else "huge")
        elif kind is Decimal:
            _, digits, exponent = value.as_tuple()
            scale = max(0, -exponent) if isinstance(exponent, int) else _MOST_DIGITS + 1
            self._seen.add((max(len(digits) + (0 if isinstance(exponent, str) else exponent), 0), scale))
        elif kind is datetime:
            self._seen.add("local" if value.tzinfo is None else "instant")

    @property
    def kind(self) -> str:
        """One of the kinds of `column_kinds`, `decimal(precision,scale)`, `number`, `instant`, `text` or `mixed`."""
        types = {one for one in self._seen if isinstance(one, type)}
        if types <= {int, float, Decimal}:
            return self._number_kind(types)
        if types == {datetime} and not {"local", "instant"} <= self._seen:
            return "instant" if "instant" in self._seen else "datetime"
        if types <= set(_SHOWN_AS_TEXT):
            return "date" if types == {date} else "text"
        return "boolean" if types == {bool} else "mixed"

    def _number_kind(self, types: set[type]) -> str:
        if types == {int}:
            return "number" if "huge" in self._seen else "integer"
        if Decimal not in types:
            return "number" if {"long", "huge"} & self._seen and int in types else "float"
        parts = [one for one in self._seen if isinstance(one, tuple)]
        scale = max(part[1] for part in parts)
        precision = max(19, *(part[0] for part in parts)) + scale
        return "number" if float in types or precision > _MOST_DIGITS else f"decimal({precision},{scale})"


def value_kind(type_: pa.DataType) -> str | None:
    """Two columns with the same kind have equal cells exactly where their `plain_values` are equal; None: no kind.

    >>> value_kind(pa.int32()) == value_kind(pa.int64()), value_kind(pa.float64()) == value_kind(pa.int64())
    (True, False)
    """
    types = pa.types
    if types.is_dictionary(type_):
        return value_kind(type_.value_type)
    if types.is_timestamp(type_):
        return f"timestamp {type_.unit}{'' if type_.tz is None else ' with zone'}"
    if types.is_signed_integer(type_):
        return "integer"
    if types.is_floating(type_):
        return "float"
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return "text"
    return str(type_) if types.is_boolean(type_) or types.is_date32(type_) else None


def plain_values(cells: pl.Series) -> pl.Series:
    """Values that are equal where their JSON texts are, for columns that have a `value_kind`."""
    kind = cells.dtype
    if kind.is_integer():
        return cells.cast(pl.Int64)
    if kind.is_float():
        return cells.cast(pl.Float64)
    if kind in (pl.Categorical, pl.Enum):
        return cells.cast(pl.String)
    return cells.to_physical() if kind.is_temporal() else cells


def json_columns(table: pa.Table, records: RecordNumbers | None = None) -> pa.Table:
    """An Arrow table, or some of its rows, with every column as JSON text; names stay."""
    texts = json_frame(zip(table.column_names, table.columns, strict=True), records).rechunk()
    return texts.to_arrow(compat_level=pl.CompatLevel.oldest()).rename_columns(table.column_names)


def json_frame(
    named: Iterable[tuple[str, pl.Series | pa.ChunkedArray]], records: RecordNumbers | None = None
) -> pl.DataFrame:
    """The JSON texts of named columns, or of some of their rows, in one step; by their positions."""
    at = None if records is None else polars_column(records)
    columns, texts = [], []
    for number, (name, column) in enumerate(named):
        if isinstance(column, pl.Series) or is_of_polars(column.type):
            cells = column if isinstance(column, pl.Series) else polars_column(column)
            cells = cells if at is None else cells.gather(at)
            ready = _irregular_texts(cells, name)
        else:
            values = column.to_pylist()
            ready = pl.Series(json_texts(values if records is None else [values[at] for at in records], name))
        own = pl.col(str(number))
        columns.append((cells if ready is None else ready).alias(str(number)))
        texts.append((_text(cells.dtype, own) if ready is None else own).fill_null(_NULL).alias(str(number)))
    return pl.DataFrame(columns).select(texts)


def take_rows(table: pa.Table, records: RecordNumbers | pl.Series) -> pa.Table:
    """Some rows of a table; where Arrow takes none of a type, Polars does."""
    at = pl.Series(records)
    index = at.to_arrow()
    columns = []
    for column in table.columns:
        try:
            columns.append(column.take(index))
        except pa.ArrowNotImplementedError:
            taken = pl.Series(pl.from_arrow(column)).gather(at).to_arrow()
            columns.append(pa.chunked_array([taken.cast(column.type)], column.type))
    return pa.table(columns, schema=table.schema)


def is_of_polars(type_: pa.DataType) -> bool:
    """Whether Polars has columns of an Arrow type; it may panic at others."""
    types = pa.types
    if types.is_dictionary(type_):
        return is_of_polars(type_.value_type)
    missing = (types.is_decimal256, types.is_run_end_encoded, types.is_interval, types.is_union)
    if any(is_one(type_) for is_one in (*missing, types.is_list_view, types.is_large_list_view)):
        return False
    if isinstance(type_, pa.BaseExtensionType):
        return is_of_polars(type_.storage_type)
    return all(is_of_polars(type_.field(at).type) for at in range(type_.num_fields))


def json_cells(cells: pl.Series, name: str) -> pl.Series:
    """The JSON texts of a column; `name` is for the error where it has none."""
    return json_frame([(name, cells)]).to_series()


def _text(kind: pl.DataType, x: pl.Expr) -> pl.Expr:
    """The JSON text of each cell of a column, null where that is null."""
    if kind.is_integer() or kind in (pl.Boolean, pl.Null):
        return x.cast(pl.String)
    if kind.is_float():
        return _float_text_of(x.cast(pl.Float64))
    if kind.is_decimal():
        return x.cast(pl.String).str.replace(r"(\..*?)0+$", "$1").str.strip_suffix(".")
    if kind == pl.Binary:
        return _quoted(x.bin.encode("hex"))
    if isinstance(kind, pl.Datetime):
        return _quoted(_datetime_text_of(x, kind))
    return _encoded(x.cast(pl.String) if kind in (pl.Categorical, pl.Enum) else x)


def _irregular_texts(cells: pl.Series, name: str) -> pl.Series | None:
    """The texts of cells whose JSON Polars writes otherwise: it has no binary data inside lists and structs, quotes
    decimals there and takes NaN for null."""
    if cells.dtype == pl.Object or _holds(cells.dtype, (pl.Binary, pl.Decimal)):
        return pl.Series(json_texts(cells.to_list(), name), dtype=pl.String)
    if not _holds(cells.dtype, (pl.Float32, pl.Float64)):
        return None
    texts = cells.to_frame("x").select(_encoded(pl.col("x"))).to_series()
    at = texts.str.contains("null", literal=True).fill_null(value=False).arg_true()  # perhaps a NaN
    return texts.scatter(at, pl.Series(json_texts(cells.gather(at).to_list(), name), dtype=pl.String))


def _float_text_of(x: pl.Expr) -> pl.Expr:
    return (
        pl.when(x.is_nan())
        .then(pl.lit('"NaN"'))
        .when(x == math.inf)
        .then(pl.lit('"Infinity"'))
        .when(x == -math.inf)
        .then(pl.lit('"-Infinity"'))
        .when(x == 0)
        .then(pl.lit("0.0"))  # also -0.0, which is equal to it
        .otherwise(_encoded(x))
    )


def _datetime_text_of(x: pl.Expr, kind: pl.Datetime) -> pl.Expr:
    """ISO 8601 with a T, in UTC where there is a zone, and no trailing zeros, so that units do not matter."""
    in_utc = x.dt.convert_time_zone("UTC") if kind.time_zone else x
    whole = in_utc.dt.strftime("%Y-%m-%dT%H:%M:%S")
    fraction = in_utc.dt.strftime("%.9f").str.replace(_TIME_ZEROS, "")
    return whole + fraction + pl.lit("Z" if kind.time_zone else "")


def _quoted(text: pl.Expr) -> pl.Expr:
    return pl.lit('"') + text + pl.lit('"')


def _encoded(x: pl.Expr) -> pl.Expr:
    """The JSON of Polars: that of an object `{"x":…}` without the parts around the value."""
    text = pl.struct(x.alias("x")).struct.json_encode().str.strip_prefix('{"x":').str.head(-1)
    return pl.when(x.is_not_null()).then(text)


def _holds(kind: Any, inner: tuple[type[pl.DataType], ...]) -> bool:
    """Whether values of these types are inside lists or structs."""
    parts = [getattr(kind, "inner", None), *(field.dtype for field in getattr(kind, "fields", None) or ())]
    return any(part is not None and (part in inner or isinstance(part, inner) or _holds(part, inner)) for part in parts)


def arrow_column(texts: pa.ChunkedArray | Sequence[str], kind: str) -> pa.ChunkedArray:
    """JSON texts as values of a kind that `_ValueKinds` gives; text and what has no single type stay text.

    >>> arrow_column(["1", "null"], "integer").to_pylist(), arrow_column(['[1]', '"a"'], "mixed").to_pylist()
    ([1, None], ['[1]', '"a"'])
    """
    cells = pl.Series("x", pl.from_arrow(texts) if isinstance(texts, pa.ChunkedArray) else texts, dtype=pl.String)
    name, _, digits = kind.partition("(")
    if name:
        cells = cells.to_frame().select(pl.when(pl.col("x") != "null").then(pl.col("x"))).to_series()
    if name not in ("mixed", "number", ""):
        plain, escaped = cells.str.strip_prefix('"').str.strip_suffix('"'), cells.str.contains("\\", literal=True)
        at = escaped.fill_null(value=False).arg_true()
        decoded = [_SURROGATE.sub("\ufffd", json.loads(text)) for text in cells.gather(at)]
        cells = plain.scatter(at, pl.Series(decoded, dtype=pl.String)) if len(at) else plain
    if name == "float":
        cells = cells.str.replace("Infinity", "inf", literal=True)
    array = cells.to_arrow(compat_level=pl.CompatLevel.oldest())
    type_ = pa.decimal128(*map(int, digits[:-1].split(","))) if digits else _ARROW_TYPES.get(name, pa.large_string())
    if name == "instant":
        from pyarrow.compute import assume_timezone  # its import takes 30 ms

        array = cells.str.strip_suffix("Z").to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.timestamp("us"))
        return pa.chunked_array([assume_timezone(array, "UTC")], type_)
    return pa.chunked_array([array.cast(type_)], type_)


_ARROW_TYPES = {
    "integer": pa.int64(),
    "float": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
}


# Rows that can only be read from the start, copied into Arrow files of JSON text that can be read in any order.


@dataclass(frozen=True, slots=True)
class _ArrowFile(Split):
    """Some rows in an Arrow file: a private copy, whose source was checked after reading."""

    path: str
    size: int = field()
    rows: int

    def count(self) -> Counted:
        return Counted(self.rows, self.rows)

    def stored_in(self, place: Location) -> Self:
        """The same rows in a store, for other machines."""
        return replace(self, path=copied_to(self.path, place, os.path.basename(self.path)))

    def stored(self) -> pa.Table:
        with io_errors(self.path):
            content = read_object(self.path)[0] if is_url(self.path) else None
            with pa.OSFile(self.path) if content is None else pa.BufferReader(content) as file:
                return pa.ipc.open_file(file).read_all()


@dataclass(frozen=True, slots=True)
class TypedBatch(_ArrowFile, TypedRows):
    """Rows as they are."""

    def typed_rows(self) -> pa.Table:
        return self.stored()


@dataclass(frozen=True, slots=True)
class SpooledBatch(_ArrowFile):
    """Rows of JSON text; a column that these rows do not have reads as null."""

    header: tuple[str, ...]

    def read(self, part: RowPart | None = None) -> ParsedRange:
        table = self.stored()
        for name in self.header:
            if name not in table.column_names:
                table = table.append_column(name, pa.array([_NULL] * table.num_rows, pa.large_string()))
        return ParsedRange(table.num_rows, table.select(self.header))


def spool_rows(
    rows_of_files: Iterable[tuple[InputFile, Iterable[Row]]], workspace: Workspace, declared: Sequence[str] = ()
) -> SplitSide:
    """Copy rows into batches; the header is every column in the order of first appearance, declared ones first."""
    batches = JsonBatches(workspace, declared)
    for file, rows in rows_of_files:
        reader = iter(rows)
        while batch := list(islice(reader, _BATCH_ROWS)):
            batches.add_rows(pl.arange(len(batch), eager=True), batch)
            batches.end(len(batch))
        file.check_unchanged()
    return batches.side()


class JsonBatches:
    """Objects of JSON, added block by block as columns of texts or as rows, written to batches of canonical text."""

    def __init__(self, workspace: Workspace, declared: Sequence[str] | None = None) -> None:
        self._workspace = workspace
        self._only_noted = declared is not None  # columns without a value have no kind
        self._header: dict[str, None] = dict.fromkeys(declared or ())
        self._kinds: defaultdict[str, _ValueKinds] = defaultdict(_ValueKinds)
        self._written: list[tuple[str, int, int]] = []
        self._parts: list[pl.DataFrame] = []

    def add_texts(self, at: pl.Series, columns: Mapping[str, pl.Series], plain: Mapping[str, object]) -> None:
        """Add objects by the texts of their members, canonical and of one kind (or null) in the columns of `plain`."""
        for name, value in plain.items():
            self._kinds[name].note(value)
        irregular = {name: _canonical(columns[name], self._kinds[name]) for name in columns.keys() - plain.keys()}
        self._add(at, {**columns, **irregular})

    def add_rows(self, at: pl.Series, rows: Sequence[Row]) -> None:
        for row in rows:
            for name, value in row.items():
                if value is not None:
                    self._kinds[name].note(value)
        self._add(at, {name: pl.Series(cells, dtype=pl.String) for name, cells in cells_by_column(rows).items()})

    def _add(self, at: pl.Series, columns: Mapping[str, pl.Series]) -> None:
        if len(at):
            self._header.update(dict.fromkeys(columns))
            named = [cells.alias(f"={name}") for name, cells in columns.items()]
            self._parts.append(pl.DataFrame([at.alias("at"), *named]))

    def end(self, rows: int) -> None:
        parts, self._parts = self._parts, []
        frame = parts[0] if len(parts) == 1 else pl.concat(parts, how="diagonal").sort("at")
        frame = frame.drop("at").fill_null(_NULL)
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        table = table.rename_columns([name[1:] for name in table.column_names])
        self._written.append((*write_table(table, self._workspace)[:2], rows))

    def side(self) -> SplitSide:
        header = tuple(self._header)
        splits = [SpooledBatch(*written, header) for written in self._written]
        kinds = {name: self._kinds[name].kind for name in header if name in self._kinds or not self._only_noted}
        return SplitSide(header, splits, sum(one.rows for one in splits), typed=True, kinds=kinds)


def _canonical(cells: pl.Series, kinds: _ValueKinds) -> pl.Series:
    """The texts of JSON values as `json_text` writes them, with a note of their kinds."""
    left = (cells != _NULL).arg_true()
    first = cells[left[0]] if len(left) else ""
    for pattern, value in sorted(PLAIN_VALUES, key=lambda one: not re.fullmatch(one[0], first)):
        if not len(left):
            return cells
        fits = cells.gather(left).str.contains(f"^(?:{pattern})$")
        if fits.any():
            kinds.note(value)
            left = left.filter(~fits)
    values = [exact_loads(text) for text in cells.gather(left)]
    for value in values:
        kinds.note(value)
    return cells.scatter(left, pl.Series([json_text(value) for value in values], dtype=pl.String))


def spool_tables(tables: Iterable[pa.Table], header: Sequence[str], workspace: Workspace) -> SplitSide:
    splits = [SpooledBatch(*write_table(table, workspace), tuple(header)) for table in tables if table.num_rows]
    return SplitSide(tuple(header), splits, sum(one.rows for one in splits), typed=True)


def write_table(table: pa.Table, workspace: Workspace) -> tuple[str, int, int]:
    """A table in an Arrow file: its path, how many bytes the cells have, and the number of rows."""
    target = workspace.new_file("batch.arrow")
    with io_errors(target), pa.ipc.new_file(str(target), table.schema) as out:
        out.write_table(table)
    return str(target), table.nbytes, table.num_rows

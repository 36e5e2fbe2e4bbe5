"""Base rows as lines of JSONL or CSV, made for whole ranges at once; the bytes do not depend on the ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core._json import number_text, string_text
from driftline.deltas import ColumnSchema
from driftline.lake.columns import ROW_ID, STAMPS, escape_name

_NEEDS_ESCAPE = '["\\\\\\x00-\\x1f]'
# Within these bounds Arrow prints the shortest digits without an exponent, as JavaScript does.
_EXACT = float(1 << 53)
_PLAIN_LOW, _PLAIN_HIGH = 1e-3, 1e9


def json_texts(values: pa.Array, kind: str) -> pa.Array:
    """The JSON text of every value of a column of a declared type; null becomes `null`."""
    return pc.fill_null(_TEXTS[kind](values), "null")


def string_texts(values: pa.Array) -> pa.Array:
    """JSON string literals; null stays null."""
    quoted = pc.binary_join_element_wise('"', values, '"', "")
    special = pc.fill_null(pc.match_substring_regex(values, _NEEDS_ESCAPE), False)
    if not pc.any(special).as_py():
        return quoted
    escaped = pa.array([string_text(text) for text in values.filter(special).to_pylist()], pa.string())
    return pc.replace_with_mask(quoted, special, escaped)


def number_texts(values: pa.Array) -> pa.Array:
    """Doubles as JavaScript prints them; null stays null."""
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
        odd = pa.array([number_text(number) for number in numbers[~plain].tolist()], pa.string())
        texts = pc.replace_with_mask(texts, pa.array(~plain), odd)
    return pc.if_else(pc.is_valid(values), texts, None) if values.null_count else texts


def boolean_texts(values: pa.Array) -> pa.Array:
    """`true` and `false`; null stays null."""
    return pc.if_else(values, "true", "false")


_TEXTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "string": string_texts,
    "number": number_texts,
    "boolean": boolean_texts,
    "json": lambda values: values,
}


def jsonl_bytes(rows: pa.Table, columns: Sequence[ColumnSchema]) -> bytes:
    """One object per row; an absent column is left out, an explicit null is written."""
    if rows.num_rows == 0:
        return b""
    pieces: list[Any] = [f'{{"{ROW_ID}":', string_texts(_one(rows[ROW_ID]))]
    for column in columns:
        name = escape_name(column.name)
        member = pc.binary_join_element_wise(
            f",{string_text(column.name)}:", json_texts(_one(rows[name]), column.type), ""
        )
        pieces.append(pc.if_else(is_set(rows, name), member, ""))
    lines = pc.binary_join_element_wise(*pieces, "}\n", "")
    return _text_bytes(lines)


def csv_header(columns: Sequence[ColumnSchema]) -> bytes:
    """The header line."""
    import polars as pl  # here and below: identities are rendered by many who write no CSV

    names = [ROW_ID, *(column.name for column in columns)]
    frame = pl.DataFrame({name: [] for name in names}, schema=dict.fromkeys(names, pl.String))
    return frame.write_csv(include_header=True).encode()


def csv_bytes(rows: pa.Table, columns: Sequence[ColumnSchema]) -> bytes:
    """One line per row; null is an empty field, an empty text is `""`."""
    import polars as pl

    texts = {ROW_ID: _one(rows[ROW_ID])}
    for column in columns:
        texts[column.name] = _CSV_TEXTS[column.type](_one(rows[escape_name(column.name)]))
    frame = pl.DataFrame(pa.table(texts))
    return frame.write_csv(include_header=False, quote_style="necessary").encode()


def plain_table(rows: pa.Table, columns: Sequence[ColumnSchema]) -> pa.Table:
    """The rows with their own column names and without stamps."""
    arrays = [rows[ROW_ID], *(rows[escape_name(column.name)] for column in columns)]
    return pa.table(arrays, names=[ROW_ID, *(column.name for column in columns)])


def is_set(rows: pa.Table, name: str) -> pa.Array:
    """Whether a column is set in each row, by its stamp."""
    return pc.is_valid(pc.struct_field(_one(rows[STAMPS]), ["columns", name]))


def _text_bytes(lines: pa.Array) -> bytes:
    # The data buffer of a string array is its texts end to end.
    data = lines.buffers()[2]
    return b"" if data is None else data.slice(0, pc.sum(pc.binary_length(lines)).as_py()).to_pybytes()


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


_CSV_TEXTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "string": lambda values: values,
    "number": number_texts,
    "boolean": boolean_texts,
    "json": lambda values: values,
}

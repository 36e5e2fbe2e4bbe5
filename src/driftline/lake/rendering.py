"""Base rows as lines of JSONL or CSV, made for whole ranges at once; the bytes do not depend on the ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from driftline.canonical import string_text
from driftline.deltas import ColumnSchema
from driftline.lake.columns import ROW_ID, STAMPS, escape_name
from driftline.lake.json_text import boolean_texts, json_texts, number_texts, string_texts


def jsonl_bytes(rows: Any, columns: Sequence[ColumnSchema]) -> bytes:
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
    names = [ROW_ID, *(column.name for column in columns)]
    frame = pl.DataFrame({name: [] for name in names}, schema=dict.fromkeys(names, pl.String))
    return frame.write_csv(include_header=True).encode()


def csv_bytes(rows: Any, columns: Sequence[ColumnSchema]) -> bytes:
    """One line per row; null is an empty field, an empty text is `""`."""
    texts = {ROW_ID: _one(rows[ROW_ID])}
    for column in columns:
        texts[column.name] = _CSV_TEXTS[column.type](_one(rows[escape_name(column.name)]))
    frame = pl.DataFrame(pa.table(texts))
    return frame.write_csv(include_header=False, quote_style="necessary").encode()


def plain_table(rows: Any, columns: Sequence[ColumnSchema]) -> Any:
    """The rows with their own column names and without stamps."""
    arrays = [rows[ROW_ID], *(rows[escape_name(column.name)] for column in columns)]
    return pa.table(arrays, names=[ROW_ID, *(column.name for column in columns)])


def is_set(rows: Any, name: str) -> Any:
    """Whether a column is set in each row, by its stamp."""
    return pc.is_valid(pc.struct_field(_one(rows[STAMPS]), ["columns", name]))


def _text_bytes(lines: Any) -> bytes:
    # The data buffer of a string array is its texts end to end.
    data = lines.buffers()[2]
    return b"" if data is None else data.slice(0, pc.sum(pc.binary_length(lines)).as_py()).to_pybytes()


def _one(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


_CSV_TEXTS: dict[str, Callable[[Any], Any]] = {
    "string": lambda values: values,
    "number": number_texts,
    "boolean": boolean_texts,
    "json": lambda values: values,
}

"""The order of typed values: null, booleans, numbers by value, strings by code point, then lists and objects."""

from __future__ import annotations

import json

import polars as pl

from driftline.tables.cells import sortable_text

_SHIFT = 1 << 63
_WIDTH = 20
_FRACTION_DIGITS = 17


def json_order(cells: pl.Series) -> pl.Series:
    """One text for each JSON text that sorts, by code point, as the values do.

    >>> cells = pl.Series(["null", "-2", "9", "10", "10.5", '"a"'])
    >>> json_order(cells).is_sorted()
    True
    """
    cell = pl.col("x")
    first = cell.str.slice(0, 1)
    is_number = first.str.contains_any(list("-0123456789"))
    text = (
        pl.when(cell == "null")
        .then(pl.lit("0"))
        .when(cell.is_in(["false", "true"]))
        .then(pl.lit("1") + cell)
        .when(is_number)
        .then(pl.lit("2") + _number_text(pl.when(is_number).then(cell)) + cell)
        .when(first == '"')
        .then(pl.lit("3") + _string_content(cells))
        .otherwise(pl.lit("4") + cell)
    )
    return cells.alias("x").to_frame().select(text).to_series()


def _number_text(cell: pl.Expr) -> pl.Expr:
    """Whole part shifted to be positive and padded, then the fraction; beyond 64 bits the ends share a place."""
    number = cell.cast(pl.Float64, strict=False)
    whole = cell.cast(pl.Int128, strict=False).fill_null(
        number.floor().clip(-_SHIFT, _SHIFT).cast(pl.Int128, strict=False)
    )
    fraction = (number - number.floor()).fill_null(0.0)
    shifted = (whole.clip(-_SHIFT, _SHIFT) + _SHIFT).cast(pl.String).str.zfill(_WIDTH)
    digits = (fraction * 10**_FRACTION_DIGITS).cast(pl.UInt64, strict=False).fill_null(0).cast(pl.String)
    text: pl.Expr = shifted + digits.str.zfill(_FRACTION_DIGITS + 1)
    return text


def _string_content(cells: pl.Series) -> pl.Series:
    """The characters of JSON strings; only those with escapes need decoding one by one."""
    content = cells.str.strip_prefix('"').str.strip_suffix('"')
    escaped = (cells.str.contains("\\", literal=True) & cells.str.starts_with('"')).arg_true()
    if not len(escaped):
        return content
    decoded = pl.Series([sortable_text(json.loads(text)) for text in cells.gather(escaped)], dtype=pl.String)
    return content.scatter(escaped, decoded)

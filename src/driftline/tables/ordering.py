"""Kernel: the order of events. Rows carry one order value; ranges of order values are ranges of the output.

Typed values sort as null, booleans, numbers by value, strings by code point, then lists and objects (`json_order`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from driftline.tables.cell_columns import form_column
from driftline.tables.cells import CellRule, sortable_text
from driftline.tables.columns import Comparison
from driftline.tables.matching import RowKind
from driftline.tables.row_hashes import column_name

# In a composite order value parts are divided by two NULs, and a NUL inside a part is written as NUL SOH.
# So a part sorts before every longer part that begins with it, and different tuples have different values.
_PART_END = "\x00\x00"
_NUL, _ESCAPED_NUL = "\x00", "\x00\x01"
_TURN_DIGITS = 20
_SHIFT = 1 << 63
_WIDTH = 20
_FRACTION_DIGITS = 17
ROW_NUMBER = "#"  # a column beside the user's, whose names begin with "="


@dataclass(frozen=True)
class RowChunk:
    """Rows of one side that events are made of: their cells, what each is needed for, and their order values."""

    rows: pl.DataFrame
    kinds: pl.Series
    order: pl.Series

    @property
    def height(self) -> int:
        """How many rows there are."""
        return self.rows.height

    def of_kind(self, kind: RowKind) -> RowChunk:
        """The rows of one kind."""
        return self.filter(self.kinds == int(kind))

    def filter(self, mask: pl.Series) -> RowChunk:
        """The rows that a mask names."""
        return RowChunk(self.rows.filter(mask), self.kinds.filter(mask), self.order.filter(mask))

    def sorted(self) -> RowChunk:
        """The rows in output order."""
        index = self.order.arg_sort()
        return RowChunk(self.rows[index], self.kinds.gather(index), self.order.gather(index))

    def slice(self, start: int, end: int) -> RowChunk:
        """Some of the rows."""
        length = end - start
        return RowChunk(
            self.rows.slice(start, length), self.kinds.slice(start, length), self.order.slice(start, length)
        )


def order_values(
    frame: pl.DataFrame, compared: Comparison, side: str, turns: npt.NDArray[np.uint64] | None = None
) -> pl.Series:
    """One text for each row that sorts, by code point, as its key does, or, without a key, as all compared cells do.

    Rows with the same cells follow each other by their turns, if there are any.
    """
    columns = compared.keys or compared.columns
    names = compared.names(columns, side)
    typed = compared.typed(side)
    texts = [
        _order_texts(frame[column_name(name)], column.rule, typed) for name, column in zip(names, columns, strict=True)
    ]
    if len(texts) == 1 and turns is None:
        return texts[0]
    parts = [text.str.replace_all(_NUL, _ESCAPED_NUL, literal=True) for text in texts]
    if turns is not None:
        parts.append(pl.Series(turns, dtype=pl.UInt64).cast(pl.String).str.zfill(_TURN_DIGITS))
    return joined_order(parts, frame.height)


def joined_order(parts: Sequence[pl.Series], height: int) -> pl.Series:
    """The parts of order values as one text, in which a part sorts before every longer one that begins with it.

    >>> joined_order([pl.Series(["x", "x\\x00\\x01"]), pl.Series(["2", "1"])], 2).is_sorted()
    True
    """
    if not parts:
        return pl.Series([""] * height, dtype=pl.String)
    named = pl.DataFrame([part.alias(str(number)) for number, part in enumerate(parts)])
    return named.select(pl.concat_str(pl.all(), separator=_PART_END)).to_series()


def _order_texts(cells: pl.Series, rule: CellRule, typed: bool) -> pl.Series:
    if rule.is_exact:
        return json_order(cells) if typed else cells
    return form_column(cells, rule, typed=typed)


def choose_bounds(samples: pl.Series, ranges: int) -> pl.Series:
    """Order values that cut the sampled values into `ranges` parts of about equal size (fewer if values repeat)."""
    ordered = samples.sort()
    positions = [len(ordered) * number // ranges for number in range(1, ranges)] if len(ordered) else []
    return ordered.gather(positions).unique(maintain_order=True)


def cut_points(order: pl.Series, bounds: pl.Series) -> list[int]:
    """Where sorted order values are cut at the bounds, ends included; a value equal to a bound is behind it.

    >>> cut_points(pl.Series(["a", "b", "d"]), pl.Series(["b", "c"]))
    [0, 1, 2, 3]
    """
    found = order.search_sorted(bounds, side="left").to_list() if len(bounds) else []
    return [0, *found, len(order)]


def join_chunks(chunks: Sequence[RowChunk]) -> RowChunk:
    """Several chunks as one."""
    if len(chunks) == 1:
        return chunks[0]
    return RowChunk(
        pl.concat([chunk.rows for chunk in chunks]),
        pl.concat([chunk.kinds for chunk in chunks]),
        pl.concat([chunk.order for chunk in chunks]),
    )


def kinds_series(kinds: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> pl.Series:
    """Row kinds as a column."""
    return pl.Series(kinds, dtype=pl.UInt8)


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

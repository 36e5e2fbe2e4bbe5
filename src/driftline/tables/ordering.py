"""Kernel: the order of events. Rows carry one order value; ranges of order values are ranges of the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from driftline.tables.json_order import json_order
from driftline.tables.matching import RowKind
from driftline.tables.prints import column_name

# In a composite order value parts are divided by two NULs, and a NUL inside a part is written as NUL SOH.
# So a part sorts before every longer part that begins with it, and different tuples have different values.
_PART_END = "\x00\x00"
_NUL, _ESCAPED_NUL = "\x00", "\x00\x01"


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
        mask = self.kinds == int(kind)
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


def order_values(frame: pl.DataFrame, columns: Sequence[str], *, typed: bool = False) -> pl.Series:
    """One text for each row that sorts, by code point, as the tuple of the given cells does.

    >>> order_values(pl.DataFrame({"=a": ["x", "x\\x00"], "=b": ["2", "1"]}), ["a", "b"]).is_sorted()
    True
    """
    cells = [frame[column_name(name)] for name in columns]
    texts = [json_order(column) for column in cells] if typed else cells
    if len(texts) == 1:
        return texts[0]
    parts = [text.str.replace_all(_NUL, _ESCAPED_NUL, literal=True) for text in texts]
    named = pl.DataFrame([part.alias(str(number)) for number, part in enumerate(parts)])
    return named.select(pl.concat_str(pl.all(), separator=_PART_END)).to_series()


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

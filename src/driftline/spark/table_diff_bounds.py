"""Where the output is cut into ranges: a few rows of either side are looked at before the work begins.

Bounds decide only how evenly the work is spread; a range that turns out long is encoded in several steps.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from driftline.sources._source import SplitSide
from driftline.tables._kernels.hashes import as_frame
from driftline.tables._kernels.output import choose_bounds, order_values
from driftline.tables._kernels.stages import TablePlan

_LOOKED_AT = 24  # splits of a side
_TYPED_LOOKED_AT = 3  # these are read as a whole


def row_bounds(rows: int, ranges: int) -> pl.Series:
    """Bounds for a positional diff: ordinals of rows at equal distances.

    >>> row_bounds(10, 2).to_list()
    [5]
    """
    cuts = sorted({rows * number // ranges for number in range(1, ranges)} - {0})
    return pl.Series(cuts, dtype=pl.UInt64)


def sampled_bounds(a: SplitSide, b: SplitSide, plan: TablePlan, ranges: int) -> pl.Series:
    """Bounds for rows that are ordered by their cells."""
    samples = [
        order_values(as_frame(table), plan.compared, name)
        for name, side in (("A", a), ("B", b))
        for table in _samples(side)
    ]
    if ranges == 1 or not samples:
        return pl.Series([], dtype=pl.String)
    return choose_bounds(pl.concat(samples), ranges)


def _samples(side: SplitSide) -> list[pa.Table]:
    looked_at = _TYPED_LOOKED_AT if side.typed else _LOOKED_AT
    step = max(1, len(side.splits) // looked_at)
    tables = [split.head() for split in side.splits[::step][:looked_at]]
    return [table for table in tables if table is not None and table.num_rows]

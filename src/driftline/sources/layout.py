"""An input of any kind to splits."""

from __future__ import annotations

from concurrent.futures import Executor

from driftline.sources import csv_layout
from driftline.sources.inputs import Input
from driftline.sources.splits import SplitSide
from driftline.sources.workspace import Workspace


def lay_out(
    source: Input, side: str, split_bytes: int, workspace: Workspace, pool: Executor | None = None
) -> SplitSide | None:
    """The splits of a side, or None where it must be made sound first."""
    if source.kind == "csv":
        return csv_layout.lay_out(source, side, split_bytes, pool)
    # Imported here, because they bring Polars with them.
    if source.kind == "parquet":
        from driftline.sources import parquet

        return parquet.lay_out(source, side)
    from driftline.sources import row_spool

    return row_spool.lay_out(source, workspace)


def make_sound(source: Input, side: str, workspace: Workspace, pool: Executor | None = None) -> Input:
    """The same side in a form that can be split; raises what is wrong with it."""
    return csv_layout.make_sound(source, side, workspace, pool) if source.kind == "csv" else source

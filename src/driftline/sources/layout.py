"""An input of any kind to splits."""

from __future__ import annotations

from concurrent.futures import Executor

from driftline.sources import csv_layout
from driftline.sources.inputs import Input
from driftline.sources.splits import SplitSide
from driftline.sources.workspace import Workspace


def lay_out(source: Input, side: str, split_bytes: int, pool: Executor | None = None) -> SplitSide | None:
    """The splits of a side, or None where it must be made sound first."""
    return csv_layout.lay_out(source, side, split_bytes, pool)


def make_sound(source: Input, side: str, workspace: Workspace, pool: Executor | None = None) -> Input:
    """The same side in a form that can be split; raises what is wrong with it."""
    return csv_layout.make_sound(source, side, workspace, pool)

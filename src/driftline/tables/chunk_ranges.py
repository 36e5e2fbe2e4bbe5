"""Stored row chunks to event lines: choose ranges of the output, cut every chunk at their bounds, encode."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from driftline.tables.encoding import Encoded
from driftline.tables.ordering import choose_bounds, cut_points
from driftline.tables.spill import StoredChunk
from driftline.tables.stages import TablePlan, encode_range

_SAMPLES_PER_CHUNK = 256
Cut = tuple[StoredChunk, list[int]]


def range_bounds(chunks: Sequence[StoredChunk], ranges: int) -> pl.Series:
    """Order values that cut the rows of all chunks into about `ranges` equal parts."""
    filled = [chunk for chunk in chunks if chunk.height]
    if ranges == 1 or not filled:
        return pl.Series([], dtype=pl.String)
    return choose_bounds(pl.concat([_sample(chunk) for chunk in filled]), ranges)


def _sample(chunk: StoredChunk) -> pl.Series:
    return chunk.order().gather_every(max(1, chunk.height // _SAMPLES_PER_CHUNK))


def cut_chunks(chunks: Sequence[StoredChunk], bounds: pl.Series) -> list[Cut]:
    """The chunks with their cut points."""
    return [(chunk, cut_points(chunk.order(), bounds)) for chunk in chunks]


def encode_cut(a: list[Cut], b: list[Cut], number: int, plan: TablePlan) -> Encoded:
    """Encode one range: the rows between two neighbouring cut points of every chunk."""
    rows_a = (chunk.rows(points[number], points[number + 1]) for chunk, points in a)
    rows_b = (chunk.rows(points[number], points[number + 1]) for chunk, points in b)
    return encode_range(rows_a, rows_b, plan)

"""Kernel: rows to fingerprints, small fixed-size records that are cheap to move, cut and match.

A print is 40 bytes: 128 bits of hash of the key, 128 bits of hash of the cells outside the key, and the row's place
(split number and row number within the split). The hashes are seeded at random for each run, so nobody can prepare
data whose prints collide; with 128 bits an accidental collision of unequal rows is not going to happen
(docs/decisions/0020).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

PRINT = np.dtype([("key", "<u8"), ("key_2", "<u8"), ("row", "<u8"), ("row_2", "<u8"), ("place", "<u8")])

Prints = npt.NDArray[Any]
Numbers = npt.NDArray[np.uint64]
Place = TypeVar("Place", np.uint64, npt.NDArray[np.uint64])

_ROW_BITS = 32


class Seeds(NamedTuple):
    """Two seeds, one for each half of the hashes; all workers of a run share them."""

    first: int
    second: int


def new_seeds() -> Seeds:
    """Seeds for one run."""
    return Seeds(secrets.randbits(63), secrets.randbits(63))


def make_prints(
    frame: pl.DataFrame,
    *,
    key_columns: Sequence[str],
    other_columns: Sequence[str],
    split: int,
    seeds: Seeds,
) -> Prints:
    """One print for each row of a split, in row order; both column lists in an order that A and B share."""
    prints = np.zeros(frame.height, PRINT)
    prints["key"], prints["key_2"] = _hashes(frame, key_columns, seeds)
    prints["row"], prints["row_2"] = _hashes(frame, other_columns, seeds)
    prints["place"] = places(split, np.arange(frame.height, dtype=np.uint64))
    return prints


def as_frame(table: pa.Table) -> pl.DataFrame:
    """The same columns as a Polars frame, without copying the text; see `column_name` for their names."""
    frame = pl.from_arrow(table.rename_columns([column_name(name) for name in table.column_names]), rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame


def column_name(name: str) -> str:
    """How a user's column is called inside frames: Polars gives a meaning to names such as `*`, `^a$` and ``."""
    return "=" + name


def _hashes(frame: pl.DataFrame, columns: Sequence[str], seeds: Seeds) -> tuple[Any, Any]:
    if not columns:
        return 0, 0
    chosen = frame.select([column_name(name) for name in columns])
    return chosen.hash_rows(seeds.first).to_numpy(), chosen.hash_rows(seeds.second).to_numpy()


def places(split: int, rows: Numbers) -> Numbers:
    """The places of rows of one split."""
    return rows | np.uint64(split << _ROW_BITS)


def split_of(place: Place) -> Place:
    """The split number in a place."""
    return place >> np.uint64(_ROW_BITS)


def row_in_split(place: Place) -> Place:
    """The row number, counted from 0 within the split, in a place."""
    return place & np.uint64((1 << _ROW_BITS) - 1)


def cut_prints(prints: Prints, buckets: int) -> list[Prints]:
    """Cut prints by key hash into `buckets` parts, so that equal keys of both sides meet in one part.

    >>> parts = cut_prints(np.array([(2**63, 0, 0, 0, 1), (5, 0, 0, 0, 2)], PRINT), 2)
    >>> [part["place"].tolist() for part in parts]
    [[2], [1]]
    """
    if buckets == 1:
        return [prints]
    numbers = ((prints["key"] >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.uint16)
    order = np.argsort(numbers, kind="stable")
    borders = np.searchsorted(numbers[order], np.arange(1, buckets))
    return np.split(prints[order], borders)

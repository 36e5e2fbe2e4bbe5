"""Row hashes: small records of a fixed size, which are cheap to move, cut and match.

A row hash is five 64-bit numbers: two hashes of the key, two hashes of the cells outside the key, and the row's
position (split number and row number within the split). The hashes are seeded at random for each run, so no data can be
prepared whose hashes collide; with 128 bits an accidental collision of unequal rows does not happen (decision 20).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

_FIELDS = ("key", "key_2", "row", "row_2", "place")
ROW_HASH = np.dtype([(name, "<u8") for name in _FIELDS])
KEY, KEY_2, ROW, ROW_2, PLACE, EXACT, MEASURES = range(7)

RowHashes = npt.NDArray[np.void]
Numbers = npt.NDArray[np.uint64]
Place = TypeVar("Place", np.uint64, npt.NDArray[np.uint64])

_ROW_BITS = 32
_NUMBER_BYTES = 8


class Seeds(NamedTuple):
    """Two seeds, one for each half of the hashes; all workers of a run share them."""

    first: int
    second: int


def new_seeds() -> Seeds:
    """Seeds for one run."""
    return Seeds(secrets.randbits(63), secrets.randbits(63))


def row_hash_type(measures: int) -> np.dtype[np.void]:
    """The type of hashes with so many measures of tolerant columns, and a hash of their exact values."""
    names = ["exact", *(f"measure_{number}" for number in range(measures))] if measures else []
    return np.dtype([(name, "<u8") for name in (*_FIELDS, *names)])


@dataclass(frozen=True)
class HashedColumns:
    """The input of hashes, in an order that A and B share: normalized values of the key and the rest, and measures."""

    keys: Sequence[pl.Series]
    others: Sequence[pl.Series]
    tolerant: Sequence[pl.Series] = ()  # exact values of columns with a tolerance
    measures: Sequence[Numbers] = ()


def hash_rows(
    columns: HashedColumns,
    records: Numbers,
    *,
    split: int,
    seeds: Seeds,
    buckets: int = 1,
) -> list[RowHashes]:
    """One row hash for each row of a split, cut by key hash into `buckets` parts, so that equal keys are in one part.

    `records` are the rows' numbers in the split; within a part the rows keep their order.
    """
    height = len(records)
    parts = [*_hashes(columns.keys, height, seeds), *_hashes(columns.others, height, seeds), places(split, records)]
    if columns.measures:
        parts += [_hashes(columns.tolerant, height, seeds)[0], *columns.measures]
    order, borders = _bucket_order(parts[KEY], buckets)
    numbers = np.stack(parts, axis=1)
    return np.split(_as_hashes(numbers if order is None else numbers.take(order, axis=0)), borders)


def join_hashes(parts: Sequence[RowHashes], kind: np.dtype[np.void] = ROW_HASH) -> RowHashes:
    """Several arrays of hashes as one; as plain numbers, because NumPy moves those much faster than records."""
    return _as_hashes(np.concatenate([_as_numbers(part) for part in parts])) if parts else np.empty(0, kind)


def hash_columns(hashes: RowHashes) -> Numbers:
    """The numbers column by column: `hash_columns(hashes)[KEY]` and so on."""
    return _as_numbers(hashes).T


def _as_numbers(hashes: RowHashes) -> Numbers:
    return hashes.view(np.uint64).reshape(-1, hashes.dtype.itemsize // _NUMBER_BYTES)


def _as_hashes(numbers: Numbers) -> RowHashes:
    width = numbers.shape[1]
    return numbers.view(row_hash_type(width - MEASURES if width > MEASURES else 0)).reshape(-1)


def _bucket_order(key: Numbers, buckets: int) -> tuple[npt.NDArray[np.intp] | None, list[int]]:
    """The rows bucket by bucket, None where they need no new order, and the starts of buckets."""
    if buckets == 1:
        return None, []
    small = np.uint8 if buckets <= 256 else np.uint16  # NumPy sorts small numbers by radix
    numbers = ((key >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(small)
    order = np.argsort(numbers, kind="stable")
    return order, np.searchsorted(numbers[order], np.arange(1, buckets)).tolist()


def as_frame(table: pa.Table) -> pl.DataFrame:
    """The same columns as a Polars frame, without copying the text; see `column_name` for their names."""
    frame = pl.from_arrow(table.rename_columns([column_name(name) for name in table.column_names]), rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame


def column_name(name: str) -> str:
    """The name of a user's column inside frames: Polars interprets names such as `*`, `^a$` and ``."""
    return "=" + name


def _hashes(columns: Sequence[pl.Series], height: int, seeds: Seeds) -> tuple[Numbers, Numbers]:
    if not columns:
        return np.zeros(height, np.uint64), np.zeros(height, np.uint64)
    chosen = pl.DataFrame([column.alias(str(number)) for number, column in enumerate(columns)])
    return chosen.hash_rows(seeds.first).to_numpy(), chosen.hash_rows(seeds.second).to_numpy()


def places(split: int, rows: Numbers) -> Numbers:
    """The positions of rows of one split."""
    return rows | np.uint64(split << _ROW_BITS)


def split_of(place: Place) -> Place:
    """The split number of a position."""
    return place >> np.uint64(_ROW_BITS)


def row_in_split(place: Place) -> Place:
    """The row number, counted from 0 within the split, of a position."""
    return place & np.uint64((1 << _ROW_BITS) - 1)

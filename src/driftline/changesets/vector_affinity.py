"""Column affinity for whole columns; the values that need thought go through `apply_affinity` one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.changesets.affinity import Affinity, apply_affinity
from driftline.changesets.format import TAG_INTEGER, TAG_REAL, TAG_TEXT
from driftline.changesets.vectors import Indexes, Mask, Vector, compacted, empty_data, from_values

_PLAIN_INTEGER = r"^(?:0|-?[1-9][0-9]{0,17})$"
_TWO_TO_63 = float(1 << 63)


def with_affinity(vector: Vector, affinity: Affinity) -> Vector:
    """The column as SQLite stores it."""
    if affinity is Affinity.BLOB or vector.length == 0:
        return vector
    if affinity is Affinity.TEXT:
        return _numbers_to_text(vector)
    vector = _texts_to_numbers(vector, affinity)
    return _integers_to_reals(vector) if affinity is Affinity.REAL else _whole_reals_to_integers(vector)


def _numbers_to_text(vector: Vector) -> Vector:
    numeric = vector.has_tag(TAG_INTEGER) | vector.has_tag(TAG_REAL)
    if not numeric.any():
        return vector
    if vector.is_all(TAG_INTEGER):
        return Vector(vector.length, TAG_TEXT, None, _as_data(pc.cast(pa.array(vector.numbers), pa.large_string())))
    return _one_by_one(vector, np.flatnonzero(numeric), Affinity.TEXT)


def _texts_to_numbers(vector: Vector, affinity: Affinity) -> Vector:
    texts = vector.has_tag(TAG_TEXT)
    if not texts.any():
        return vector
    plain = texts & _matches(vector, _PLAIN_INTEGER)
    vector = _read_plain_integers(vector, plain)
    rest = np.flatnonzero(texts & ~plain)
    return _one_by_one(vector, rest, affinity) if len(rest) else vector


def _read_plain_integers(vector: Vector, plain: Mask) -> Vector:
    if not plain.any():
        return vector
    rows = np.flatnonzero(plain)
    assert vector.data is not None
    read = np.asarray(vector.data.take(pa.array(rows)).cast(pa.large_string()).cast(pa.int64()))
    numbers = np.zeros(vector.length, dtype=np.int64) if vector.numbers is None else vector.numbers.copy()
    numbers[rows] = read
    tags = vector.tag_array().copy()
    tags[rows] = TAG_INTEGER
    data = None if len(rows) == vector.length else pc.if_else(pa.array(plain), b"", vector.data)
    return compacted(tags, numbers, data)


def _matches(vector: Vector, pattern: str) -> Mask:
    # The pattern is ASCII, so that bytes that are not UTF-8 simply do not match.
    found: Mask = pc.match_substring_regex(vector.data, pattern).to_numpy(zero_copy_only=False)
    return found


def _one_by_one(vector: Vector, rows: Indexes, affinity: Affinity) -> Vector:
    """Replace the values of some rows by what `apply_affinity` makes of them."""
    stored = from_values([apply_affinity(vector.value(row), affinity) for row in rows.tolist()])
    tags = vector.tag_array().copy()
    tags[rows] = stored.tag_array()
    numbers = np.zeros(vector.length, dtype=np.int64) if vector.numbers is None else vector.numbers.copy()
    if stored.numbers is not None:
        numbers[rows] = stored.numbers
    sources = np.arange(vector.length)
    sources[rows] = vector.length + np.arange(len(rows))
    both = [empty_data(v.length) if v.data is None else v.data for v in (vector, stored)]
    return compacted(tags, numbers, pa.concat_arrays(both).take(pa.array(sources)))


def _integers_to_reals(vector: Vector) -> Vector:
    integers = vector.has_tag(TAG_INTEGER)
    if vector.numbers is None:
        return vector
    # Adding 0.0 turns -0.0 into 0.0: SQLite stores it as integer 0.
    reals = np.where(integers, vector.numbers.astype(np.float64), vector.reals() + 0.0)
    tags = np.where(integers, TAG_REAL, vector.tag_array()).astype(np.uint8)
    return compacted(tags, reals.view(np.int64), vector.data)


def _whole_reals_to_integers(vector: Vector) -> Vector:
    if vector.numbers is None or vector.is_all(TAG_INTEGER):
        return vector
    reals = np.where(vector.has_tag(TAG_REAL), vector.reals(), 0.5)
    whole = (np.abs(reals) < _TWO_TO_63) & (np.floor(reals) == reals)
    numbers = np.where(whole, np.where(whole, reals, 0.0).astype(np.int64), vector.numbers)
    tags = np.where(whole, TAG_INTEGER, vector.tag_array()).astype(np.uint8)
    return compacted(tags, numbers, vector.data)


def _as_data(texts: pa.LargeStringArray) -> pa.LargeBinaryArray:
    return texts.view(pa.large_binary())

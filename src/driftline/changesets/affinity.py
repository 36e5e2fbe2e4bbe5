"""Column affinity: what SQLite makes of a value before it stores it (sqlite.org/datatype3.html, section 3).

>>> [affinity_of(name).value for name in ("BIGINT", "varchar(10)", "", "double", "decimal(9, 2)")]
['INTEGER', 'TEXT', 'BLOB', 'REAL', 'NUMERIC']
>>> apply_affinity("12", Affinity.INTEGER), apply_affinity(3, Affinity.REAL), apply_affinity(12, Affinity.TEXT)
(12, 3.0, '12')
"""

from __future__ import annotations

import enum
import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.changesets.format import (
    MAX_INTEGER,
    MIN_INTEGER,
    TAG_INTEGER,
    TAG_REAL,
    TAG_TEXT,
    Field,
    integer_too_large,
)
from driftline.changesets.names import folded
from driftline.changesets.vectors import Indexes, Mask, Vector, compacted, empty_data, from_values

if TYPE_CHECKING:
    import apsw

_BLANKS = " \t\n\v\f\r"
_NUMBER = re.compile(rf"[{_BLANKS}]*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[{_BLANKS}]*")
_MOST_INTEGER_DIGITS = 19
_MOST_EXACT_CHARACTERS = 15
_TWO_TO_63 = float(1 << 63)


class Affinity(enum.Enum):
    """What a column would like its values to be."""

    BLOB = "BLOB"
    TEXT = "TEXT"
    NUMERIC = "NUMERIC"
    INTEGER = "INTEGER"
    REAL = "REAL"


# The first matching word decides (datatype3.html, section 3.1).
_RULES = (
    (("int",), Affinity.INTEGER),
    (("char", "clob", "text"), Affinity.TEXT),
    (("blob",), Affinity.BLOB),
    (("real", "floa", "doub"), Affinity.REAL),
)


def affinity_of(declared_type: str | None, *, strict: bool = False) -> Affinity:
    """The affinity of a declared type; `strict` is for columns of STRICT tables, where ANY means none."""
    name = folded(declared_type or "")
    if not name or (strict and name == "any"):
        return Affinity.BLOB
    for words, affinity in _RULES:
        if any(word in name for word in words):
            return affinity
    return Affinity.NUMERIC


def apply_affinity(value: Field, affinity: Affinity) -> Field:
    """The value as a column of this affinity stores it."""
    if isinstance(value, float) and value != value:
        return None
    if affinity is Affinity.BLOB or not isinstance(value, int | float | str):
        return value
    if affinity is Affinity.TEXT:
        return value if isinstance(value, str) else number_as_text(value)
    number = text_as_number(value) if isinstance(value, str) else value
    if isinstance(number, str):
        return number
    return _as_real(number) if affinity is Affinity.REAL else _as_integer_if_whole(number)


def text_as_number(text: str) -> int | float | str:
    """The number a text looks like, or the text itself; only what stands before a NUL is looked at."""
    visible, nul, _ = text.partition("\0")
    if not _NUMBER.fullmatch(visible):
        return text
    digits = visible.strip(_BLANKS)
    # Python refuses to read integers of thousands of digits; those are reals for SQLite anyway, as are texts with NUL.
    unsigned = digits.lstrip("+-")
    if not nul and unsigned.isdigit() and len(unsigned.lstrip("0")) <= _MOST_INTEGER_DIGITS:
        number = int(unsigned.lstrip("0") or 0) * (-1 if digits.startswith("-") else 1)
        if MIN_INTEGER <= number <= MAX_INTEGER:
            return number
    return text_as_real(digits)


def text_as_real(digits: str) -> float:
    """A number's text as a real; SQLite rounds long ones in its own way, so it is asked itself."""
    if len(digits) <= _MOST_EXACT_CHARACTERS:
        return float(digits)
    (number,) = next(_sqlite().execute("SELECT CAST(? AS REAL)", (digits,)))
    return float(number)


def number_as_text(number: int | float) -> str:
    """A number as SQLite prints it into a TEXT column; it is asked itself, its rounding of reals is its own."""
    if isinstance(number, int):
        return str(int(number))
    (text,) = next(_sqlite().execute("SELECT CAST(? AS TEXT)", (number,)))
    return str(text)


def _as_real(number: int | float) -> float:
    if isinstance(number, int) and not MIN_INTEGER <= number <= MAX_INTEGER:
        raise integer_too_large(number)
    return float(number) + 0.0  # -0.0 is stored as integer 0 and read back as 0.0


def _as_integer_if_whole(number: int | float) -> int | float:
    if isinstance(number, float) and -_TWO_TO_63 < number < _TWO_TO_63 and number.is_integer():
        return int(number)
    return number


@cache
def _sqlite() -> apsw.Connection:
    import apsw

    return apsw.Connection(":memory:")


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

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

from driftline.changesets.format import MAX_INTEGER, MIN_INTEGER, Field, integer_too_large
from driftline.changesets.names import folded

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

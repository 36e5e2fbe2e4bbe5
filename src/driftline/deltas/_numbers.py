"""Exact numbers: values of `integer` and `decimal(S)` columns in deltas, and numbers that a double does not hold.

An integer is a JSON number where every reader of JSON holds it (within 2^53 - 1), else the text of its digits; a
decimal is always text, without an exponent and without trailing zeros.

>>> integer_wire(7), integer_wire(2**53), decimal_wire(Decimal("-1.500"), 18), decimal_wire(Decimal("0E-9"), 18)
(7, '9007199254740992', '-1.5', '0')
>>> survives(2**53 - 1), survives(2**60), survives(0.1), survives(Decimal("0.1234567890123456789"))
(True, False, True, False)
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from driftline.core import Json, canonical_json, decimal_text

MAX_DIGITS = 38
DEFAULT_SCALE = 18
SAFE_INTEGER = (1 << 53) - 1
_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1

_DECIMAL_TYPE = re.compile(r"decimal\((0|[1-9][0-9]?)\)")
_INTEGER_WIRE = re.compile(r"-?[1-9][0-9]{15,18}")
_DECIMAL_WIRE = re.compile(r"(?!-0\Z)-?(?:0|[1-9][0-9]{0,37})(?:\.[0-9]{0,37}[1-9])?")
_NUMBER_CELL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


def decimal_scale(kind: object) -> int | None:
    """The digits behind the point of a decimal type; None for every other type.

    >>> decimal_scale("decimal(4)"), decimal_scale("decimal"), decimal_scale("decimal(39)"), decimal_scale("number")
    (4, 18, None, None)
    """
    if kind == "decimal":
        return DEFAULT_SCALE
    found = _DECIMAL_TYPE.fullmatch(kind) if isinstance(kind, str) else None
    return int(found[1]) if found and int(found[1]) <= MAX_DIGITS else None


def integer_wire(value: int) -> int | str:
    """An integer as deltas carry it."""
    return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else str(value)


def integer_of(wire: Json) -> int:
    """The integer of its wire form; a ValueError for every other spelling."""
    if isinstance(wire, int | float) and not isinstance(wire, bool):
        if abs(wire) <= SAFE_INTEGER and wire == int(wire):  # canonical JSON writes 7.0 as 7
            return int(wire)
    elif isinstance(wire, str) and _INTEGER_WIRE.fullmatch(wire):
        value = int(wire)
        if abs(value) > SAFE_INTEGER and _fits_int64(value):
            return value
    raise ValueError(wire)


def decimal_wire(value: Decimal, scale: int) -> str:
    """A decimal as deltas carry it; a ValueError where the column does not hold it."""
    if not value.is_finite() or abs(value.adjusted()) > MAX_DIGITS:
        if value.is_zero():
            return "0"
        raise ValueError(value)
    text = decimal_text(value)
    decimal_of(text, scale)
    return text


def decimal_of(wire: Json, scale: int) -> Decimal:
    """The decimal of its wire form; a ValueError for every other spelling, and for too many digits."""
    if not isinstance(wire, str) or not _DECIMAL_WIRE.fullmatch(wire):
        raise ValueError(wire)
    whole, _, fraction = wire.lstrip("-").partition(".")
    if len(fraction) > scale or (whole != "0" and len(whole) > MAX_DIGITS - scale):
        raise ValueError(wire)
    return Decimal(wire)


def exact_number(value: Json) -> Decimal | None:
    """The number that a value is, digit by digit (of a text: that it spells); None where it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return Decimal(value.strip()) if _NUMBER_CELL.fullmatch(value.strip()) else None
    if not isinstance(value, int | float | Decimal):
        return None
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return number if number.is_finite() else None


def exact_value(kind: str, wire: Json) -> int | Decimal:
    """The number of its wire form in a column of an exact type; a ValueError for every other spelling."""
    scale = decimal_scale(kind)
    return integer_of(wire) if scale is None else decimal_of(wire, scale)


def exact_wire(kind: str, value: Json) -> int | str:
    """A value of any source as a column of an exact type carries it; a ValueError where it is not one."""
    if kind == "integer" and type(value) is int:
        number: Decimal | int | None = value
    else:
        number = exact_number(value)
    if number is None:
        raise ValueError(value)
    scale = decimal_scale(kind)
    if scale is not None:
        return decimal_wire(Decimal(number), scale)
    if isinstance(number, Decimal) and (number.adjusted() > MAX_DIGITS or number != number.to_integral_value()):
        raise ValueError(value)
    if not _fits_int64(int(number)):
        raise ValueError(value)
    return integer_wire(int(number))


def survives(value: Json, *, shortest: bool = False) -> bool:
    """Whether a double holds a number, or every number inside of JSON data; a `Decimal` is one that has other digits.

    An integer does if canonical JSON writes its digits. A fraction does if the double, printed with as many digits, is
    the number, so that texts of doubles by any program pass; not with `shortest` (decimals of typed sources), where
    the shortest text has to have the same digits.
    """
    if isinstance(value, Decimal):
        double = float(value)
        if shortest or not math.isfinite(double):
            return False
        return Decimal(f"{double:.{max(0, len(value.as_tuple().digits) - 1)}e}") == value
    if isinstance(value, int):
        return abs(value) <= SAFE_INTEGER or canonical_json(value) == str(value)
    if isinstance(value, dict):
        return all(map(survives, value.values()))
    return all(map(survives, value)) if isinstance(value, list) else True


def as_double(value: Json) -> Json:
    """A `Decimal` as the double that holds it, a whole one as an integer; inside of JSON data too."""
    if isinstance(value, Decimal):
        number = float(value)
        return int(number) if number.is_integer() and abs(number) <= SAFE_INTEGER else number
    if isinstance(value, dict):
        return {name: as_double(item) for name, item in value.items()}
    return list(map(as_double, value)) if isinstance(value, list) else value


def number_kind(value: Json) -> str:
    """What a number requires of its column: `whole` (int64 or double), `fraction` (double), `integer` or `decimal`."""
    holds = survives(value)
    if isinstance(value, int):
        return ("whole" if holds else "integer") if _fits_int64(value) else "fraction" if holds else "decimal"
    return "decimal" if not holds else "whole" if abs(value) <= SAFE_INTEGER and value == int(value) else "fraction"


def _fits_int64(value: int) -> bool:
    return _LEAST <= value <= _GREATEST

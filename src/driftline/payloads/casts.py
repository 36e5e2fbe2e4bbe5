"""`x-migration-cast`: one value to int, float, string or boolean before it is compared.

>>> to_int("-7.9"), to_boolean("Yes"), to_string(1.0)
(-7, True, '1')
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from driftline.core._json import number_text
from driftline.payloads.values import Value, WrittenNumber, decimal_of, kind_of

TRUE_WORDS = frozenset({"true", "1", "yes", "on", "y", "t"})
FALSE_WORDS = frozenset({"false", "0", "no", "off", "n", "f", ""})

_NUMERIC = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_MAX_DIGITS = 4000  # a longer integer could not be printed


class CastError(ValueError):
    """The value has no counterpart of the wanted type."""


def to_int(value: Value) -> int:
    """An integer, truncated toward zero; numeric text goes through decimals."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str) and value.isdecimal() and value.isascii() and len(value) <= _MAX_DIGITS:
        return int(value)
    number = numeric_value(value)
    if number.adjusted() > _MAX_DIGITS:
        raise CastError("too large for an integer")
    return int(number)


def to_float(value: Value) -> float:
    """A double; what does not fit into one cannot be cast."""
    try:
        number = float(value) if isinstance(value, int) else float(numeric_value(value))
    except OverflowError:
        raise CastError("too large for a float") from None
    if not math.isfinite(number):
        raise CastError("too large for a float")
    return number


def to_string(value: Value) -> str:
    """The JSON spelling of a scalar; a string stays itself."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, WrittenNumber):
        return value.written
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return number_text(value)
    raise CastError(f"{_article(kind_of(value))} is not a scalar")


def to_boolean(value: Value) -> bool:
    """True and false words in any case, numbers by being non-zero, null is false."""
    if value is None or isinstance(value, bool | int | float):
        return bool(value)
    if isinstance(value, str):
        word = value.lower()
        if word in TRUE_WORDS:
            return True
        if word in FALSE_WORDS:
            return False
    raise CastError("neither true nor false")


CASTS: dict[str, Callable[[Any], Any]] = {
    "int": to_int,
    "float": to_float,
    "string": to_string,
    "boolean": to_boolean,
}


def numeric_value(value: Value) -> Decimal:
    """The decimal of a number or of numeric text; raises `CastError`."""
    if isinstance(value, int):  # booleans too
        return Decimal(int(value))
    if isinstance(value, float) and math.isfinite(value):
        return decimal_of(value)
    if isinstance(value, WrittenNumber):
        return decimal_of(value)
    if isinstance(value, str) and _NUMERIC.fullmatch(value):
        return Decimal(value.strip())
    raise CastError(f"{_article(kind_of(value))} is not numeric")


def _article(kind: str) -> str:
    return kind if kind == "null" else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"

"""JSON values of a comparison: their kinds, exact numbers, leaves, spelling, schema types and casts, points in time.

>>> kind_of(True), kind_of(1), kind_of(1.5), kind_of(None)
('boolean', 'number', 'number', 'null')
>>> spelled("a'b"), spelled(1.0), spelled({"a": [1, None]})
('"a\\'b"', '1.0', '{"a":[1,null]}')
>>> to_int("-7.9"), to_boolean("Yes"), to_string(1.0)
(-7, True, '1')
>>> parse_duration("1h30m") // 10**9
5400
>>> parse_iso("2025-02-02T10:30:00Z").nanoseconds == parse_iso("20250202T113000,000+01").nanoseconds
True
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from enum import Enum
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeAlias

from driftline.core import number_text

OLD: Final = 0
NEW: Final = 1
SIDE_NAMES: Final = ("old", "new")

_KINDS: Final[dict[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
}
CONTAINERS: Final = frozenset({dict, list})
LEAF_TYPES: frozenset[type] = frozenset({str, int, float, bool, type(None)})
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_MESSAGE_LIMIT = 200
_INTEGER_DIGITS = 300
# Wide enough for every number that can be parsed; the default context would round at 28 digits.
_EXACT = Context(prec=10_000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
TRUE_WORDS = frozenset({"true", "1", "yes", "on", "y", "t"})
FALSE_WORDS = frozenset({"false", "0", "no", "off", "n", "f", ""})
_NUMERIC = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_MAX_DIGITS = 4000  # a longer integer could not be printed


class Missing(Enum):
    """The value of a missing member (an enum of one, which type checkers tell apart by identity)."""

    MISSING = 0

    __hash__ = object.__hash__  # tokens contain it, and an enum's own hash is slow

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing.MISSING
# A JSON value; and one that may be missing.
Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Value: TypeAlias = "Json | Missing"
# An object with members of known names, such as a line that a batch writes.
JsonRow: TypeAlias = Mapping[str, Any]


class WrittenNumber(float):
    """A number whose text is more precise than a double; it prints as written."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, text: str) -> WrittenNumber:
        """The number of a JSON number text."""
        number = super().__new__(cls, text)
        number.written = text
        return number

    def __repr__(self) -> str:
        return self.written

    def __reduce__(self) -> tuple[type[WrittenNumber], tuple[str]]:
        return WrittenNumber, (self.written,)


def kind_of(value: Value) -> str:
    """The JSON type of a value: a boolean is never a number."""
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    families: dict[Any, str] = {(float, int, Decimal): "number", dict: "object", (list, tuple): "array", str: "string"}
    return next((name for family, name in families.items() if isinstance(value, family)), type(value).__name__)


def decimal_of(number: Any) -> Decimal:
    """The decimal that was written: `0.1` is one tenth, not the nearest double.

    >>> decimal_of(1.01) - decimal_of(1)
    Decimal('0.01')
    """
    if isinstance(number, WrittenNumber):
        return Decimal(number.written)
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def exact_difference(old: Value, new: Value) -> Decimal:
    """The distance between two numbers as written.

    >>> exact_difference(1.01, 1)
    Decimal('0.01')
    """
    return _EXACT.abs(_EXACT.subtract(decimal_of(old), decimal_of(new)))


def exact_product(number: object, factor: Decimal) -> Any:
    """A number times a decimal, as an integer or a double where that is exact.

    >>> exact_product(12.34, Decimal(100)), exact_product(5, Decimal("0.1"))
    (1234, 0.5)
    """
    product = _EXACT.multiply(decimal_of(number), factor)
    if product.adjusted() < _INTEGER_DIGITS and product == product.to_integral_value(context=_EXACT):
        return int(product)
    as_double = float(product)
    exact = abs(as_double) < float("inf") and decimal_of(as_double) == product
    return as_double if exact else WrittenNumber(str(product))


def same_number(old: Value, new: Value) -> bool:
    """Numeric equality: 1 equals 1.0, integers of any size are exact."""
    if isinstance(old, WrittenNumber | Decimal) or isinstance(new, WrittenNumber | Decimal):
        return decimal_of(old) == decimal_of(new)
    return bool(old == new)


def same_json(left: Value, right: Value) -> bool:
    """Strict JSON equality."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    kind = kind_of(left)
    if kind != kind_of(right):
        return False
    return same_number(left, right) if kind == "number" else bool(left == right)


def is_whole(number: Any) -> bool:
    """Whether a number is an integer in JSON Schema's sense (1.0 is)."""
    if isinstance(number, WrittenNumber | Decimal):
        exact = decimal_of(number)
        return exact == exact.to_integral_value()
    return isinstance(number, int) or number.is_integer()


def plain_decimal(number: Decimal) -> str:
    """A decimal without trailing zeros, and without an exponent where it is short.

    >>> plain_decimal(Decimal("0.050")), plain_decimal(Decimal("1E+2"))
    ('0.05', '100')
    """
    if not number:
        return "0"
    number = _EXACT.normalize(number)
    return f"{number:f}" if -20 < number.adjusted() < 20 else str(number)


def spelled(value: object) -> str:
    """A value as JSON text for a message, cut where it is long."""
    if isinstance(value, WrittenNumber):
        return value.written
    if type(value) is int:
        return int.__repr__(value)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[:_MESSAGE_LIMIT]}…"


def is_deeper_than(value: Value, levels: int) -> bool:
    """Whether containers are nested deeper than some levels; walks level by level.

    >>> is_deeper_than([{}], 1), is_deeper_than([{}], 2)
    (True, False)
    """
    layer: list[Any] = [value]
    while layer := [node for node in layer if isinstance(node, dict | list)]:
        levels -= 1
        if levels < 0:
            return True
        layer = [child for node in layer for child in (node.values() if isinstance(node, dict) else node)]
    return False


def union_leaf_count(old: Value, new: Value = MISSING) -> int:
    """How many distinct paths of leaves (scalars, empty containers) two values have together; walks without recursion.

    >>> union_leaf_count({"a": [1, 2], "b": {}}), union_leaf_count([1], [2, [3, 4]]), union_leaf_count({"a": 1}, [])
    (3, 3, 1)
    """
    if type(old) not in CONTAINERS and type(new) not in CONTAINERS:
        return 1
    count = 0
    waiting: list[tuple[Any, Any]] = [(old, new)]
    while waiting:
        left, right = waiting.pop()
        if left is MISSING:
            left, right = right, left
        if type(left) not in CONTAINERS and type(right) not in CONTAINERS:
            count += 1
        elif right is not MISSING and type(left) is not type(right):
            count += max(union_leaf_count(left), union_leaf_count(right))
        elif not left and not right:
            count += 1
        elif type(left) is dict:
            others = right or {}
            waiting.extend((value, others.get(name, MISSING)) for name, value in left.items())
            waiting.extend((value, MISSING) for name, value in others.items() if name not in left)
        else:
            waiting.extend(zip_longest(left, right or (), fillvalue=MISSING))
    return count


# JSON Schema types.
def admits(types: frozenset[str], value: Value) -> bool:
    """Whether a value is of one of the JSON Schema types.

    >>> admits(frozenset({"integer"}), 1.0), admits(frozenset({"integer"}), True)
    (True, False)
    """
    kind = kind_of(value)
    return kind in types or (kind == "number" and "integer" in types and is_whole(value))


def surely_admitted(types: frozenset[str] | None) -> frozenset[type]:
    """The Python types of scalars that need no further check."""
    if types is None:
        return LEAF_TYPES
    return frozenset(kind for name in types for kind in _PYTHON_TYPES.get(name, ()))


# Casts (`x-migration-cast`).
class CastError(ValueError):
    """The value has no counterpart of the requested type."""


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
        number = float(value if isinstance(value, int) else numeric_value(value))
    except OverflowError:
        number = math.inf
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
    word = value.lower() if isinstance(value, str) else None
    if word not in TRUE_WORDS | FALSE_WORDS:
        raise CastError("neither true nor false")
    return word in TRUE_WORDS


CASTS: dict[str, Callable[[Any], Any]] = {"int": to_int, "float": to_float, "string": to_string, "boolean": to_boolean}


def numeric_value(value: Value) -> Decimal:
    """The decimal of a number or of numeric text; raises `CastError`."""
    if isinstance(value, int):  # booleans too
        return Decimal(int(value))
    if isinstance(value, WrittenNumber) or (isinstance(value, float) and math.isfinite(value)):
        return decimal_of(value)
    if isinstance(value, str) and _NUMERIC.fullmatch(value):
        return Decimal(value.strip())
    raise CastError(f"{_article(kind_of(value))} is not numeric")


def _article(kind: str) -> str:
    return kind if kind == "null" else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


# Points in time to the nanosecond, and durations.
_SECOND = 1_000_000_000
_UNITS = {
    "ms": _SECOND // 1000,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
    "d": 86400 * _SECOND,
    "w": 7 * 86400 * _SECOND,
}
# Counts from 1970, in nanoseconds of one unit.
EPOCH_UNITS = {"epoch": _SECOND, "epoch-ms": _SECOND // 1000}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_DURATION = re.compile(f"(?:{_PART.pattern})+")
_ISO = re.compile(
    r"""([0-9]{4})(?:-([0-9]{2})-([0-9]{2})|([0-9]{2})([0-9]{2}))
    (?:[Tt\ ]([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2})(?:[.,]([0-9]{1,9}))?)?)?
       \ ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?""",
    re.VERBOSE,
)


class Instant(NamedTuple):
    """Nanoseconds since year 1 in UTC, and whether an offset was written."""

    nanoseconds: int
    is_aware: bool


Parser = Callable[[str], Instant | None]


def parse_duration(text: str) -> int | None:
    """Nanoseconds of `5s`, `250ms`, `1h30m`; None where it is not a duration."""
    if _DURATION.fullmatch(text) is None:
        return None
    # Fractions of a nanosecond are beneath any clock.
    return sum(round(float(number) * _UNITS[unit]) for number, unit in _PART.findall(text))


@lru_cache(maxsize=8192)
def parse_iso(text: str) -> Instant | None:
    """An ISO 8601 date or date and time, extended or basic; None where it is not one."""
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, month, day, basic_month, basic_day, hour, minute, second, fraction, offset = found.groups()
    try:
        days = date(int(year), int(month or basic_month), int(day or basic_day)).toordinal()
    except ValueError:
        return None
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    # 24:00 is the end of the day and :60 a leap second; both are the next second of the calendar.
    if hours > 24 or minutes > 59 or seconds > 60 or (hours == 24 and (minutes or seconds)):
        return None
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds - _offset_seconds(offset)
    return Instant(total * _SECOND + int((fraction or "0").ljust(9, "0")), offset is not None)


def _offset_seconds(offset: str | None) -> int:
    if offset is None or offset in "Zz":
        return 0
    digits = offset[1:].replace(":", "").ljust(4, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if offset[0] == "-" else seconds


def parser_for(template: str) -> Parser | None:
    """The parser of a format: `ISO8601` or a `strptime` template; None where it is neither."""
    if template.upper().replace("-", "").replace(" ", "") == "ISO8601":
        return parse_iso
    if "%" not in template:
        return None
    try:
        datetime.strptime("", template)
    except ValueError as error:
        if "bad directive" in str(error) or "stray" in str(error):
            return None
    except (re.error, IndexError, OverflowError):
        return None
    return lru_cache(maxsize=1024)(lambda text: _parse_template(text, template))


def _parse_template(text: str, template: str) -> Instant | None:
    try:
        moment = datetime.strptime(text, template)
    except (ValueError, OverflowError):
        return None
    offset = moment.utcoffset()
    elapsed = moment.replace(tzinfo=None) - datetime.min - (offset or timedelta())
    whole = (elapsed.days + 1) * 86400 + elapsed.seconds
    return Instant(whole * _SECOND + elapsed.microseconds * 1000, offset is not None)


def duration_text(nanoseconds: int) -> str:
    """A span in seconds for a message.

    >>> duration_text(8_500_000_000)
    '8.5s'
    """
    whole, rest = divmod(nanoseconds, _SECOND)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{whole}{fraction}s"

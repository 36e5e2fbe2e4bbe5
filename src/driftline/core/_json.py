"""Canonical JSON, and the hashes of it that are the ids of deltas and index diffs.

The text is what JavaScript's `JSON.stringify` prints for a value whose object keys were sorted recursively by UTF-16
code unit.

>>> canonical_json({"b": 1.0, "a": [True, None, 5e-7]})
'{"a":[true,null,5e-7],"b":1}'
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from decimal import Decimal

Json: TypeAlias = Any  # a text, a number, a boolean, null, a list or an object of these
JsonObject: TypeAlias = dict[str, Any]

_MAX_EXACT_INTEGER = 1 << 53
_LARGEST_ARRAY_INDEX = 4294967294
_ARRAY_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z")
_NEEDS_ESCAPE = re.compile('["\\\\\x00-\x1f\ud800-\udfff]')
_NOT_BMP = re.compile("[\U00010000-\U0010ffff]")
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}

_Sorter = Callable[[Iterable[str]], list[str]]


def canonical_json(value: object, *, integer_keys_first: bool = False) -> str:
    """The canonical JSON text of a JSON-like value.

    `integer_keys_first` puts integer-like object keys first, in numeric order, as JavaScript objects do
    (index diffs); row deltas use plain UTF-16 order.

    >>> canonical_json({"b": 1, "10": 2, "9": 3})
    '{"10":2,"9":3,"b":1}'
    >>> canonical_json({"b": 1, "10": 2, "9": 3}, integer_keys_first=True)
    '{"9":3,"10":2,"b":1}'
    """
    parts: list[str] = []
    _append(value, parts.append, _javascript_order if integer_keys_first else utf16_sorted)
    return "".join(parts)


def sha1_hex(data: str | bytes) -> str:
    """SHA-1 of the UTF-8 bytes, in lower-case hex."""
    return hashlib.sha1(_as_bytes(data), usedforsecurity=False).hexdigest()


def sha256_hex(data: str | bytes) -> str:
    """SHA-256 of the UTF-8 bytes, in lower-case hex."""
    return hashlib.sha256(_as_bytes(data)).hexdigest()


def utf16_sort_key(text: str) -> bytes:
    """Sorts strings by UTF-16 code unit, lone surrogates included."""
    return text.encode("utf-16-be", "surrogatepass")


def utf16_sorted(texts: Iterable[str]) -> list[str]:
    """Strings in UTF-16 code unit order.

    >>> utf16_sorted(["\\ufb33", "\\U0001f602", "a"]) == ["a", "\\U0001f602", "\\ufb33"]
    True
    """
    items = list(texts)
    # Code point order only differs when a character beyond the BMP is around.
    if any(_NOT_BMP.search(text) for text in items if not text.isascii()):
        return sorted(items, key=utf16_sort_key)
    return sorted(items)


def number_text(value: float) -> str:
    """A double as JavaScript prints it (`null` for NaN and the infinities)."""
    if not math.isfinite(value):
        return "null"
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent_text = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent_text or 0)
    if whole == "0":
        point -= len(fraction) - len(digits) + 1
    digits = digits.rstrip("0")
    return sign + _place_point(digits, point)


def string_text(text: str) -> str:
    """A JSON string literal; lone surrogates are escaped, everything else above 0x1f stays raw."""
    if not text.isascii() and _SURROGATE_PAIR.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return f'"{_NEEDS_ESCAPE.sub(_escape, text)}"'


def _as_bytes(data: str | bytes) -> bytes:
    return data.encode("utf-8") if isinstance(data, str) else data


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    return _SHORT_ESCAPES.get(char) or f"\\u{ord(char):04x}"


def _place_point(digits: str, point: int) -> str:
    """ECMAScript Number::toString: `digits` with the decimal point after `point` of them."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    exponent = point - 1
    mantissa = digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{mantissa}e{'+' if exponent > 0 else '-'}{abs(exponent)}"


def _integer_text(value: int) -> str:
    if -_MAX_EXACT_INTEGER <= value <= _MAX_EXACT_INTEGER:
        return int.__repr__(value)
    try:
        return number_text(float(value))
    except OverflowError:
        return "null"


def _append(value: object, add: Callable[[str], None], order: _Sorter) -> None:
    if value is None:
        add("null")
    elif isinstance(value, str):
        add(string_text(value))
    elif isinstance(value, bool):
        add("true" if value else "false")
    elif isinstance(value, int):
        add(_integer_text(value))
    elif isinstance(value, float):
        add(number_text(value))
    elif isinstance(value, Mapping):
        _append_object(value, add, order)
    elif isinstance(value, list | tuple):
        _append_array(value, add, order)
    else:
        raise TypeError(f"{type(value).__name__} is not a JSON value")


def _append_object(value: Mapping[Any, Any], add: Callable[[str], None], order: _Sorter) -> None:
    if not all(isinstance(key, str) for key in value):
        raise TypeError("object keys must be strings")
    opening = "{"
    for key in order(value):
        add(opening)
        add(string_text(key))
        add(":")
        _append(value[key], add, order)
        opening = ","
    add("{}" if opening == "{" else "}")


def _append_array(value: list[Any] | tuple[Any, ...], add: Callable[[str], None], order: _Sorter) -> None:
    opening = "["
    for item in value:
        add(opening)
        _append(item, add, order)
        opening = ","
    add("[]" if opening == "[" else "]")


def _javascript_order(keys: Iterable[str]) -> list[str]:
    indexes: list[str] = []
    names: list[str] = []
    for key in keys:
        (indexes if _ARRAY_INDEX.match(key) and int(key) <= _LARGEST_ARRAY_INDEX else names).append(key)
    return sorted(indexes, key=int) + utf16_sorted(names)


# JSON of which every number keeps its digits.
_MOST_ZEROS = 100  # as many digits as the largest decimals of Arrow have, and some more


def exact_number(text: str) -> float | Decimal:
    """A number of JSON that is no integer: the double, if that is the number, else every digit.

    >>> exact_number("1.50"), exact_number("12345678901234567.89")
    (1.5, Decimal('12345678901234567.89'))
    """
    number = float(text)
    if repr(number) == text:
        return number
    from decimal import Decimal  # small commands do without it

    exact = Decimal(text)
    return number if math.isfinite(number) and Decimal(repr(number)) == exact else exact


def exact_loads(text: str | bytes) -> Json:
    """The value of a JSON text; a number that no double is becomes a `Decimal`."""
    return json.loads(text, parse_float=exact_number)


def exact_dumps(value: Json) -> str:
    """The compact JSON text of a value that `exact_loads` gave."""
    if isinstance(value, list):
        return f"[{','.join(map(exact_dumps, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{exact_dumps(name)}:{exact_dumps(member)}' for name, member in value.items())}}}"
    is_plain = value is None or isinstance(value, (str, int, float))
    return json.dumps(value, ensure_ascii=False) if is_plain else decimal_text(value)


def decimal_text(value: Decimal) -> str:
    """A number without trailing zeros, with an exponent only where it would have many zeros.

    >>> from decimal import Decimal
    >>> decimal_text(Decimal("1.50")), decimal_text(Decimal("1E+2")), decimal_text(Decimal("1E+400"))
    ('1.5', '100', '1e+400')
    """
    if not value.is_finite():
        return '"NaN"' if value.is_nan() else '"Infinity"' if value > 0 else '"-Infinity"'
    from decimal import MAX_EMAX, MIN_EMIN, Context

    digits = max(1, len(value.as_tuple().digits))
    short = value.normalize(Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN))
    if not short:
        return "0"
    return f"{short:f}" if abs(short.adjusted()) <= _MOST_ZEROS else f"{short:e}"

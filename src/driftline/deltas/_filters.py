"""Filters on a column's value, with one meaning in sync rules and in queries of a client's store.

>>> holds("eq", 1, "1.0"), holds("gt", "b", "a"), holds("in", True, ["true"]), holds("lt", None, 1)
(True, True, True, False)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Any, Literal, get_args

from driftline.core import Json, canonical_json, utf16_sort_key
from driftline.deltas._numbers import as_double, exact_value

FilterOp = Literal["eq", "neq", "in", "gt", "lt", "gte", "lte"]
FILTER_OPS: tuple[str, ...] = get_args(FilterOp)

ABSENT = object()  # a column, claim or parameter that is missing: no filter matches it

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_KEY_BYTES = 128


def comparable(found: Json, kind: str | None) -> Json:
    """A row's value as `holds` compares it: the number itself where the column has an exact type."""
    if kind is not None:
        with suppress(ValueError):  # null, absent, or of before the column had this type: compared as what it is
            return Decimal(exact_value(kind, found))
    return found


def holds(op: str, found: Json, operand: Json) -> bool:
    """Whether a row's value passes a filter; a `Decimal` is the value of an exact column."""
    if found is ABSENT or operand is ABSENT:
        return False
    if op in ("eq", "in"):
        return _is_any_of(found, operand)
    if op == "neq":
        return not _is_any_of(found, operand)
    order = _order(found, operand)
    return order is not None and _ORDERED[op](order, 0)


_ORDERED: Mapping[str, Callable[[int, int], bool]] = {"gt": gt, "lt": lt, "gte": ge, "lte": le}
ORDER_OPS = tuple(_ORDERED)


def _is_any_of(found: Json, operand: Json) -> bool:
    return any(_equal(found, each) for each in operand) if isinstance(operand, list) else _equal(found, operand)


def _equal(found: Json, operand: Json) -> bool:
    if found is None:
        return operand is None
    if isinstance(found, bool):
        return operand is found or (isinstance(operand, str) and operand == ("true" if found else "false"))
    if _is_number(found):
        return _compared(found, operand) == 0
    if isinstance(found, str):
        text = canonical_json(as_double(operand)) if _is_number(operand) and _double(operand) is not None else operand
        return isinstance(text, str) and found == text
    return isinstance(operand, dict | list) and canonical_json(found) == canonical_json(as_double(operand))


def _order(found: Json, operand: Json) -> int | None:
    """-1, 0 or 1; None where the two have no order."""
    if _is_number(found):
        return _compared(found, operand)
    if isinstance(found, str) and isinstance(operand, str):
        one, other = utf16_sort_key(found), utf16_sort_key(operand)
        return (one > other) - (one < other)
    return None


def _compared(found: float | Decimal, operand: Json) -> int | None:
    """The order of a number and a filter's value: a number, or text that is a JSON number."""
    is_one = _is_number(operand) or (isinstance(operand, str) and _JSON_NUMBER.fullmatch(operand))
    read: Callable[[Json], Any] = _digits if isinstance(found, Decimal) else _double
    one, other = read(found), read(operand) if is_one else None
    return None if one is None or other is None else (one > other) - (one < other)


def _digits(value: Json) -> Decimal | None:
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
    except ArithmeticError:  # an exponent beyond every number
        return None
    return number if number.is_finite() else None


def _double(value: Json) -> float | None:
    try:
        number = float(value)
    except OverflowError:  # an integer beyond every double
        return None
    return number if math.isfinite(number) else None


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def sort_key(value: Json) -> tuple[int, Json]:
    """The order of values of every kind: absent and null, false, true, numbers, text, the rest by its JSON text."""
    if value is ABSENT or value is None:
        return 0, 0
    if isinstance(value, bool):
        return 1, value
    if _is_number(value):
        return 2, value
    return (3, utf16_sort_key(value)) if isinstance(value, str) else (4, utf16_sort_key(canonical_json(value)))


def index_keys(value: Json) -> list[float | bytes]:
    """Where an index has a value: keys in whose order `holds` compares numbers and texts, though it distinguishes more.

    Equal values have a key in common, so an index finds every row that passes a filter, and perhaps others.
    """
    if _is_number(value):
        return [float(value if isinstance(value, float) else Decimal(value))]
    text = value if isinstance(value, str) else canonical_json(value)
    keys: list[float | bytes] = [utf16_sort_key(text)[:_KEY_BYTES]]
    return [*keys, float(text)] if _JSON_NUMBER.fullmatch(text) else keys


def index_spans(filters: Sequence[tuple[str, Json]]) -> list[tuple[Any, Any]] | None:
    """First and last keys of ranges that have every value which passes filters on a column; None for any value."""
    for op, operand in filters:
        if op in ("eq", "in"):
            return [
                (key, key) for each in (operand if isinstance(operand, list) else [operand]) for key in index_keys(each)
            ]
    spans: dict[type, tuple[Any, Any]] = {float: (-math.inf, math.inf), bytes: (b"", b"\xff" * _KEY_BYTES)}
    ordered = [(op, index_keys(operand)) for op, operand in filters if op in ORDER_OPS]
    for op, keys in ordered:
        for kind, (first, last) in list(spans.items()):
            key = next((key for key in keys if type(key) is kind), None)
            if key is None:
                del spans[kind]
            else:
                spans[kind] = (max(first, key), last) if op in ("gt", "gte") else (first, min(last, key))
    return list(spans.values()) if ordered else None

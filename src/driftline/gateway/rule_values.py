"""How a filter compares a row's value with a wanted one: the row value's type decides (gateway §9.2).

Claims come as whatever an identity provider writes, so a number column takes `"42"` and a boolean one `"true"`.

>>> holds("eq", 42, "42"), holds("gt", 10, "9"), holds("eq", "42", 42), holds("eq", True, 1)
(True, True, True, False)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from driftline.canonical import canonical_json, utf16_sort_key

ABSENT = object()  # a column, claim or parameter that is not there: nothing holds for it

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def holds(op: str, found: Any, wanted: Any) -> bool:
    """Whether a row's value passes a filter."""
    if found is ABSENT or wanted is ABSENT:
        return False
    if op in ("eq", "in"):
        return _is_any_of(found, wanted)
    if op == "neq":
        return not _is_any_of(found, wanted)
    order = _order(found, wanted)
    return order is not None and _ORDERED[op](order)


_ORDERED: Mapping[str, Callable[[int], bool]] = {
    "gt": lambda order: order > 0,
    "lt": lambda order: order < 0,
    "gte": lambda order: order >= 0,
    "lte": lambda order: order <= 0,
}
ORDER_OPS = tuple(_ORDERED)


def _is_any_of(found: Any, wanted: Any) -> bool:
    return any(_equal(found, each) for each in wanted) if isinstance(wanted, list) else _equal(found, wanted)


def _equal(found: Any, wanted: Any) -> bool:
    if found is None:
        return wanted is None
    if isinstance(found, bool):
        return wanted is found or (isinstance(wanted, str) and wanted == ("true" if found else "false"))
    if _is_number(found):
        return _compared(_double(found), _number_of(wanted)) == 0
    if isinstance(found, str):
        text = canonical_json(wanted) if _is_number(wanted) and _double(wanted) is not None else wanted
        return isinstance(text, str) and found == text
    return isinstance(wanted, dict | list) and canonical_json(found) == canonical_json(wanted)


def _order(found: Any, wanted: Any) -> int | None:
    """-1, 0 or 1; None where the two have no order."""
    if _is_number(found):
        return _compared(_double(found), _number_of(wanted))
    if isinstance(found, str) and isinstance(wanted, str):
        one, other = utf16_sort_key(found), utf16_sort_key(wanted)
        return (one > other) - (one < other)
    return None


def _compared(one: float | None, other: float | None) -> int | None:
    return None if one is None or other is None else (one > other) - (one < other)


def _number_of(wanted: Any) -> float | None:
    """A wanted value as a number: one already, or text that is wholly a JSON number."""
    if _is_number(wanted):
        return _double(wanted)
    return _double(wanted) if isinstance(wanted, str) and _JSON_NUMBER.fullmatch(wanted) else None


def _double(value: Any) -> float | None:
    try:
        number = float(value)
    except OverflowError:  # an integer beyond every double
        return None
    return number if math.isfinite(number) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

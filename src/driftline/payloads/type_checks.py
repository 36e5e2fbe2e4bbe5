"""Whether a value has a type that the schema names.

>>> admits(frozenset({"integer"}), 1.0), admits(frozenset({"integer"}), True)
(True, False)
"""

from __future__ import annotations

from typing import Any

from driftline.payloads.values import is_whole, kind_of

LEAF_TYPES: frozenset[type] = frozenset({str, int, float, bool, type(None)})
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def admits(types: frozenset[str], value: Any) -> bool:
    """Whether a value is of one of the JSON Schema types."""
    kind = kind_of(value)
    return kind in types or (kind == "number" and "integer" in types and is_whole(value))


def surely_admitted(types: frozenset[str] | None) -> frozenset[type]:
    """The Python types of scalars that need no closer look."""
    if types is None:
        return LEAF_TYPES
    return frozenset(kind for name in types for kind in _PYTHON_TYPES.get(name, ()))


def expectation(types: frozenset[str]) -> str:
    """What the schema wants, for a message.

    >>> expectation(frozenset({"string", "null"}))
    'type must be null or string'
    """
    return f"type must be {' or '.join(sorted(types))}"

"""Places inside an item, as `array-key` and `order-by` name them: a name, a dotted path or a JSON Pointer.

>>> parse_key("/a~1b/c"), parse_key("address.city")
(('a/b', 'c'), ('address', 'city'))
"""

from __future__ import annotations

from typing import Any, NamedTuple

from driftline.payloads.schema_text import unescape_pointer

KeyPath = tuple[str, ...]


class SortField(NamedTuple):
    """One field of `x-migration-order-by`."""

    path: KeyPath
    is_descending: bool


def parse_key(text: str) -> KeyPath:
    """The member names on the way to a key value."""
    if text.startswith("/"):
        return tuple(unescape_pointer(token) for token in text[1:].split("/"))
    return tuple(text.split("."))


def parse_keys(value: Any) -> tuple[KeyPath, ...] | None:
    """The key paths of `x-migration-array-key`; None where it is neither a name nor a list of names."""
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name for name in names):
        return None
    return tuple(parse_key(name) for name in names)


def parse_order(value: Any) -> tuple[SortField, ...] | None:
    """The fields of `x-migration-order-by`; None where it is not a list of names."""
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name.removeprefix("-") for name in names):
        return None
    return tuple(SortField(parse_key(name.removeprefix("-")), name.startswith("-")) for name in names)

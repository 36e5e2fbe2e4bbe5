"""How loosely typed members of artifact rows are read: as JavaScript would."""

from __future__ import annotations

import math
from typing import Any

from driftline.canonical import canonical_json

Number = int | float


def text_or_empty(value: Any) -> str:
    """A value put into a key: falsy becomes '', anything else its text.

    >>> text_or_empty(None), text_or_empty(7.0), text_or_empty("f")
    ('', '7', 'f')
    """
    if isinstance(value, str):
        return value
    return canonical_json(value) if value else ""


def text_or_none(value: Any) -> str | None:
    """A text that is there, or None."""
    return text_or_empty(value) or None


def number_or_none(value: Any) -> Number | None:
    """A number, whole where it can be, so that `1.0` and `1` are the same; None for anything else."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else value


def member(record: Any, name: str) -> Any:
    """A member of a record that may not be one."""
    return record.get(name) if isinstance(record, dict) else None

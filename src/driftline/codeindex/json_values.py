"""JSON values of artifacts: read as loosely as JavaScript would, written compactly."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from driftline.core._json import canonical_json

Number = int | float


def text_or_empty(value: object) -> str:
    """A value put into a key: falsy becomes '', anything else its text.

    >>> text_or_empty(None), text_or_empty(7.0), text_or_empty("f")
    ('', '7', 'f')
    """
    if isinstance(value, str):
        return value
    return canonical_json(value) if value else ""


def text_or_none(value: object) -> str | None:
    """A text that is there, or None."""
    return text_or_empty(value) or None


def number_or_none(value: object) -> Number | None:
    """A number, whole where it can be, so that `1.0` and `1` are the same; None for anything else."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else value


def row_id(value: object) -> str | None:
    """A row number as text, by which rows are joined on every engine; None for what cannot be one.

    >>> row_id(1) == row_id(1.0), row_id("1") == row_id(1), row_id(None)
    (True, False, None)
    """
    if isinstance(value, str):
        return canonical_json(value)
    if isinstance(value, bool):
        return row_id(int(value))
    number = number_or_none(value)
    return None if number is None else str(number) if isinstance(number, int) else canonical_json(number)


def member(record: object, name: str) -> Any:
    """A member of a record that may not be one."""
    return record.get(name) if isinstance(record, dict) else None


def compact_json(value: object) -> bytes:
    """JSON without white space, members in their own order; lone surrogates are escaped.

    >>> compact_json({"b": 1, "a": "\\ud83d"})
    b'{"b":1,"a":"\\\\ud83d"}'
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A lone surrogate, which JSON can only hold escaped.
        return json.dumps(value, separators=(",", ":")).encode()


def event_line(event: dict[str, Any]) -> bytes:
    """An event as a line of `events.jsonl`."""
    return compact_json(event) + b"\n"

"""Writing JSON: compact, members in their own order, lone surrogates escaped."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def compact_json(value: Any) -> bytes:
    """JSON without white space.

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

"""Cells of text files become values of their declared types, the same way for the lake and for SQLite.

>>> typed_row({"id": "7", "price": "1.50", "sold": "true"}, {"price": "number", "sold": "boolean"})
{'id': '7', 'price': 1.5, 'sold': True}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from driftline.core._json import Json, JsonObject
from driftline.deltas.schema import ColumnType
from driftline.errors import DeltaError

Row = JsonObject
Types = Mapping[str, ColumnType]

_DATA = frozenset({"added", "removed", "changed"})
_TRUE, _FALSE = frozenset({"true", "1", "yes", "t"}), frozenset({"false", "0", "no", "f"})


def typed_row(row: Mapping[str, Any], types: Types, nulls: Collection[str] = ()) -> Row:
    """The row with its declared columns converted; an empty cell of such a column is null, and `nulls` always are."""
    return {name: None if name in nulls else _typed(name, value, types.get(name)) for name, value in row.items()}


def typed_event(event: Mapping[str, Any], types: Types, nulls: Collection[str] = ()) -> JsonObject:
    """A data event of a table diff whose rows hold typed values."""
    if not types and not nulls:
        return dict(event)
    typed = dict(event)
    for part in ("row", "before", "after"):
        if part in event:
            typed[part] = typed_row(event[part], types, nulls)
    return typed


def typed_events(events: Iterable[Mapping[str, Any]], types: Types) -> Iterator[JsonObject]:
    """The data events of a table diff with typed rows; schema and stats are left out."""
    return (
        typed_event(event, types)
        for event in events
        if event["type"] not in ("schema", "stats", "column_stats", "unchanged")
    )


def _typed(name: str, value: Json, kind: ColumnType | None) -> Json:
    if kind is None or kind == "string" or not isinstance(value, str):
        return value
    if value == "":
        return None
    try:
        return _READERS[kind](value)
    except ValueError as error:
        raise DeltaError(
            f"column {name!r} holds {value[:40]!r}, which is not a {kind}: correct the data or declare another type",
            code="wrong_type",
            column=name,
        ) from error


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or "_" in text:
        raise ValueError(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(text)


_READERS: dict[str, Callable[[str], Any]] = {"number": _number, "boolean": _boolean, "json": json.loads}

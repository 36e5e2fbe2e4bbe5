"""Deltas extracted from two versions of a row, and from the events of a table diff.

>>> event = {"type": "removed", "key": {"id": "1"}, "row": {"id": "1", "name": "Alice"}}
>>> [delta] = from_events([event], table="people", client_id="nightly", start=1000)
>>> delta.op, delta.row_id, delta.hlc
('DELETE', '1', 1000)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from driftline.core import Json, canonical_json, exact_dumps
from driftline.deltas._deltas import Clock, ColumnDelta, Op, RowDelta, as_json
from driftline.deltas._numbers import as_double, survives
from driftline.deltas._schema import TableSchema
from driftline.errors import DeltaError

Row = Mapping[str, Any]
Event = Mapping[str, Any]

_MISSING = object()
_EXACT = 1 << 53
_VERSIONS: dict[str, Callable[[Event], tuple[Row | None, Row | None]]] = {
    "added": lambda event: (None, event["row"]),
    "removed": lambda event: (event["row"], None),
    "changed": lambda event: (event["before"], event["after"]),
    "unchanged": lambda event: (None, None),
}
_WITHOUT_ROWS = frozenset({"schema", "stats"})


def extract(
    before: Row | None,
    after: Row | None,
    *,
    table: str,
    row_id: str,
    client_id: str,
    hlc: int,
    schema: TableSchema | None = None,
) -> RowDelta | None:
    """The delta that leads from one version of a row to the other; None where nothing changed.

    A schema only selects columns; types are not checked here.

    >>> delta = extract({"a": 1, "b": 2}, {"a": 1, "b": 3}, table="t", row_id="r", client_id="c", hlc=1)
    >>> delta.op, delta.columns
    ('UPDATE', (ColumnDelta(column='b', value=3),))
    """
    change = _changed_columns(before, after, schema)
    if change is None:
        return None
    op, columns = change
    return RowDelta.make(op=op, table=table, row_id=row_id, client_id=client_id, columns=columns, hlc=int(hlc))


def _changed_columns(
    before: Row | None, after: Row | None, schema: TableSchema | None = None
) -> tuple[Op, list[ColumnDelta]] | None:
    """The operation and the columns of the delta between two versions of a row."""
    if after is None:
        return None if before is None else ("DELETE", [])
    if before is None:
        declared = after if schema is None else {name: after[name] for name in after if name in schema.by_name}
        return "INSERT", [ColumnDelta(name, as_json(value)) for name, value in declared.items()]
    changed = [ColumnDelta(name, as_json(value)) for name, value in _differing(before, after, schema)]
    return ("UPDATE", changed) if changed else None


def _differing(before: Row, after: Row, schema: TableSchema | None) -> list[tuple[str, Json]]:
    """Columns of `before` in order, then the ones only in `after`; a column missing from `after` is unchanged."""
    found = []
    for name, old in before.items():
        new = after.get(name, _MISSING)
        if new is old or new is _MISSING:
            continue
        if not _same_value(old, new):
            found.append((name, new))
    found += [(name, value) for name, value in after.items() if name not in before]
    if schema is not None:
        found = [(name, value) for name, value in found if name in schema.by_name]
    return found


def _same_value(old: Json, new: Json) -> bool:
    """Equality of column values: `Object.is` at the top (+0 is not -0), structure below it."""
    kind = type(old)
    if kind is type(new) and kind in (str, bool):
        return bool(old == new)
    if _is_number(old) and _is_number(new):
        return _same_number(old, new) and (old != 0 or math.copysign(1, old) == math.copysign(1, new))
    return _same_json(old, new)


def _same_json(old: Json, new: Json) -> bool:
    """Deep equality of JSON data: order counts in arrays, not in objects; NaN equals NaN, +0 equals -0."""
    if _is_number(old):
        return _is_number(new) and _same_number(old, new)
    if isinstance(old, Mapping):
        if not isinstance(new, Mapping) or len(old) != len(new):
            return False
        return all(name in new and _same_json(value, new[name]) for name, value in old.items())
    if isinstance(old, list | tuple):
        return isinstance(new, list | tuple) and len(old) == len(new) and all(map(_same_json, old, new))
    return type(old) is type(new) and bool(old == new)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same_number(old: float, new: float) -> bool:
    # Numbers are doubles: integers beyond 2^53 are the same when their doubles are.
    if old == new:
        return True
    if old != old:
        return new != new
    return (abs(old) > _EXACT or abs(new) > _EXACT) and _as_double(old) == _as_double(new)


def _as_double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


# Events of a table diff.
def from_events(
    events: Iterable[Event],
    *,
    table: str,
    client_id: str,
    start: int | Clock | Iterator[int],
    schema: TableSchema | None = None,
) -> Iterator[RowDelta]:
    """The deltas of a table diff, in the order of its events.

    `start` is the first timestamp, the next ones count up from it, so that a rerun makes the same deltas; a `Clock`
    gives live ones, an iterator its own.
    """
    # Adding one carries a full counter into the wall clock, as the clock itself does.
    timestamps = (
        count(start) if isinstance(start, int) else iter(start.now, None) if isinstance(start, Clock) else start
    )
    for event in events:
        kind = event.get("type")
        if kind in _WITHOUT_ROWS:
            continue
        if kind not in _VERSIONS:
            raise DeltaError(f"a table diff has no event of type {kind!r}")
        before, after = _VERSIONS[kind](event)
        if before is not None or after is not None:
            row_id, hlc = row_id_of(event), next(timestamps)
            delta = extract(before, after, table=table, row_id=row_id, client_id=client_id, hlc=hlc, schema=schema)
            if delta is not None:
                yield delta


def row_id_of(event: Event) -> str:
    """The row id of a data event: its key, or its row number in a positional diff."""
    if "key" in event:
        return row_id_of_key(list(event["key"].values()))
    if "row_index" in event:
        return str(event["row_index"])
    raise DeltaError(
        "an event without key and row_index cannot become a delta: diff with --key, or without --ignore-row-order"
    )


def row_id_of_key(values: list[Any]) -> str:
    """The row id of key values: the text itself for one column, their canonical JSON array for several.

    An integer that a double would change stands as the text of its digits, so that two of them are two rows.

    >>> row_id_of_key(["7"]), row_id_of_key([7]), row_id_of_key(["a", "b"])
    ('7', '7', '["a","b"]')
    >>> row_id_of_key([2**53 + 1]), row_id_of_key([2**53 + 1, "a"])
    ('9007199254740993', '["9007199254740993","a"]')
    """
    kept = [as_double(value) if survives(value) else exact_dumps(value) for value in values]
    if len(kept) == 1:
        return kept[0] if isinstance(kept[0], str) else canonical_json(kept[0])
    return canonical_json(kept)

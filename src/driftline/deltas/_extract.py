"""Two versions of a row become a delta, or nothing where they say the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from driftline.core._json import Json
from driftline.deltas.column_delta import ColumnDelta
from driftline.deltas.row_delta import Op, RowDelta
from driftline.deltas.schema import TableSchema

Row = Mapping[str, Any]

_MISSING = object()
_EXACT = 1 << 53
_PLAIN = frozenset({str, int, bool, type(None)})


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

    A schema only says which columns are looked at; types are not checked here.

    >>> delta = extract({"a": 1, "b": 2}, {"a": 1, "b": 3}, table="t", row_id="r", client_id="c", hlc=1)
    >>> delta.op, delta.columns
    ('UPDATE', (ColumnDelta(column='b', value=3),))
    """
    change = changed_columns(before, after, schema)
    if change is None:
        return None
    op, columns = change
    return RowDelta.make(op=op, table=table, row_id=row_id, client_id=client_id, columns=columns, hlc=int(hlc))


def changed_columns(
    before: Row | None, after: Row | None, schema: TableSchema | None = None
) -> tuple[Op, list[ColumnDelta]] | None:
    """The operation and the columns of the delta between two versions of a row."""
    if after is None:
        return None if before is None else ("DELETE", [])
    if before is None:
        return "INSERT", [ColumnDelta(name, as_json(value)) for name, value in _kept(after, schema)]
    changed = [ColumnDelta(name, as_json(value)) for name, value in _differing(before, after, schema)]
    return ("UPDATE", changed) if changed else None


def _kept(row: Row, schema: TableSchema | None) -> list[tuple[str, Json]]:
    if schema is None:
        return list(row.items())
    return [(name, value) for name, value in row.items() if name in schema.by_name]


def _differing(before: Row, after: Row, schema: TableSchema | None) -> list[tuple[str, Json]]:
    """Columns of `before` in order, then the ones only in `after`; a column missing from `after` says nothing."""
    found = []
    for name, old in before.items():
        new = after.get(name, _MISSING)
        if new is old or new is _MISSING:
            continue
        if not same_value(old, new):
            found.append((name, new))
    found += [(name, value) for name, value in after.items() if name not in before]
    if schema is not None:
        found = [(name, value) for name, value in found if name in schema.by_name]
    return found


def same_value(old: Json, new: Json) -> bool:
    """Equality of column values: `Object.is` at the top (+0 is not -0), structure below it."""
    kind = type(old)
    if kind is type(new) and kind in (str, bool):
        return bool(old == new)
    if _is_number(old) and _is_number(new):
        return _same_number(old, new) and (old != 0 or math.copysign(1, old) == math.copysign(1, new))
    return same_structure(old, new)


def same_structure(old: Json, new: Json) -> bool:
    """Deep equality of JSON data: order counts in arrays, not in objects; NaN equals NaN, +0 equals -0."""
    if _is_number(old):
        return _is_number(new) and _same_number(old, new)
    if isinstance(old, Mapping):
        return isinstance(new, Mapping) and _same_members(old, new)
    if isinstance(old, list | tuple):
        return isinstance(new, list | tuple) and len(old) == len(new) and all(map(same_structure, old, new))
    return type(old) is type(new) and bool(old == new)


def _same_members(old: Row, new: Row) -> bool:
    return len(old) == len(new) and all(name in new and same_structure(value, new[name]) for name, value in old.items())


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


def as_json(value: Json) -> Json:
    """The value with NaN and the infinities turned into null, as a delta carries it."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value

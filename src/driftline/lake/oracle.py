"""Replay in plain Python: the oracle that every fold is held against.

Literally the rule: each row's deltas in the order (hlc, client id by UTF-16, delta id, DELETE last); DELETE clears
the row, INSERT and UPDATE make it live and set their columns.
"""

from __future__ import annotations

from collections.abc import Iterable

from driftline.core._json import JsonObject, utf16_sort_key
from driftline.deltas import RowDelta


def replay(deltas: Iterable[RowDelta], *, as_of: int | None = None) -> dict[str, JsonObject]:
    """The live rows of one table by row id, each with the columns that are set.

    >>> from driftline.deltas import extract
    >>> made = extract(None, {"a": 1}, table="t", row_id="r", client_id="c", hlc=1)
    >>> gone = extract({"a": 1}, None, table="t", row_id="r", client_id="c", hlc=2)
    >>> replay([gone, made]), replay([gone, made], as_of=1)
    ({}, {'r': {'a': 1}})
    """
    rows: dict[str, JsonObject] = {}
    for delta in sorted(deltas, key=replay_order):
        if as_of is not None and delta.hlc > as_of:
            continue
        if delta.op == "DELETE":
            rows.pop(delta.row_id, None)
        else:
            row = rows.setdefault(delta.row_id, {})
            row.update((entry.column, entry.value) for entry in delta.columns)
    return rows


def replay_order(delta: RowDelta) -> tuple[int, bytes, str, bool]:
    """Where a delta stands in the order of replay."""
    return delta.hlc, utf16_sort_key(delta.client_id), delta.delta_id, delta.op == "DELETE"

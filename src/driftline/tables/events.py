"""The shapes of events as plain dicts, and their JSON text (specification: "Event Shapes")."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from driftline.tables.rules import cells_differ
from driftline.tables.stats import Stats

Row = Mapping[str, Any]
Event = dict[str, Any]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def schema_event(header_a: Sequence[str], header_b: Sequence[str]) -> Event:
    """The first event of the stream."""
    return {"type": "schema", "columns_a": list(header_a), "columns_b": list(header_b)}


def row_event(kind: str, place: Event, row: Row) -> Event:
    """An `added`, `removed` or `unchanged` row; `place` is its key, its row index or nothing."""
    return {"type": kind, **place, "row": dict(row)}


def changed_event(place: Event, before: Row, after: Row, columns: Sequence[str]) -> Event:
    """A row with other cells than before; `columns` is the comparison order."""
    changed = [name for name in columns if cells_differ(before[name], after[name])]
    return {
        "type": "changed",
        **place,
        "changed": changed,
        "before": dict(before),
        "after": dict(after),
        "delta": {name: {"from": before[name], "to": after[name]} for name in changed},
    }


def event_line(event: Event) -> bytes:
    """An event as a line of JSONL.

    >>> event_line(Stats().to_event())[:16]
    b'{"type":"stats",'
    """
    return (_encode(event) + "\n").encode()


def stats_line(stats: Stats) -> bytes:
    """The last line of the stream."""
    return event_line(stats.to_event())

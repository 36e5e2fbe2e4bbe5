"""The shapes of events as plain dicts, and their JSON text (tables §1)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from driftline.tables.columns import Column, Comparison
from driftline.tables.stats import Stats

JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None"
Row = Mapping[str, JsonValue]
Event = dict[str, Any]  # while it is made


class SchemaEvent(TypedDict):
    """The first event: the columns of both sides."""

    type: Literal["schema"]
    columns_a: list[str]
    columns_b: list[str]
    columns_added: NotRequired[list[str]]
    columns_removed: NotRequired[list[str]]
    renamed: NotRequired[dict[str, str]]


class RowEvent(TypedDict):
    """A row that one side has, or that did not change; known by its key or its number in the file."""

    type: Literal["added", "removed", "unchanged"]
    key: NotRequired[dict[str, JsonValue]]
    row_index: NotRequired[int]
    row: dict[str, JsonValue]


# Written as a call, because `from` is no name in Python.
CellChange = TypedDict("CellChange", {"from": JsonValue, "to": JsonValue})


class ChangedEvent(TypedDict):
    """A row in both of its versions."""

    type: Literal["changed"]
    key: NotRequired[dict[str, JsonValue]]
    row_index: NotRequired[int]
    changed: list[str]
    before: dict[str, JsonValue]
    after: dict[str, JsonValue]
    delta: dict[str, CellChange]


class ColumnCount(TypedDict):
    """How often one column was compared, and differed."""

    name: str
    compared: int
    changed: int


class ColumnStatsEvent(TypedDict):
    """The counts of every column, where they were asked for."""

    type: Literal["column_stats"]
    columns: list[ColumnCount]


class StatsEvent(TypedDict):
    """The last event: the counts."""

    type: Literal["stats"]
    rows_total_compared: int
    rows_added: int
    rows_removed: int
    rows_changed: int
    rows_unchanged: int
    rows_skipped_a: NotRequired[int]
    rows_skipped_b: NotRequired[int]
    duplicates_dropped_a: NotRequired[int]
    duplicates_dropped_b: NotRequired[int]


TableEvent = SchemaEvent | RowEvent | ChangedEvent | ColumnStatsEvent | StatsEvent

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def schema_event(compared: Comparison) -> Event:
    """The first event of the stream."""
    event: Event = {"type": "schema", "columns_a": list(compared.header_a), "columns_b": list(compared.header_b)}
    if compared.added is not None and compared.removed is not None:
        event |= {"columns_added": list(compared.added), "columns_removed": list(compared.removed)}
    if compared.renamed is not None:
        event["renamed"] = dict(compared.renamed)
    return event


def row_event(kind: str, place: Event, row: Row) -> Event:
    """An `added`, `removed` or `unchanged` row; `place` is its key, its row index or nothing."""
    return {"type": kind, **place, "row": dict(row)}


def changed_event(place: Event, before: Row, after: Row, changed: Sequence[Column]) -> Event:
    """A row with other cells than before; `changed` is in comparison order."""
    return {
        "type": "changed",
        **place,
        "changed": [column.a for column in changed],
        "before": dict(before),
        "after": dict(after),
        "delta": {column.a: {"from": before[column.a], "to": after[column.b]} for column in changed},
    }


def column_stats_event(compared: Comparison, stats: Stats, changes: Mapping[str, int]) -> Event:
    """How often each compared column changed; `changes` by A's names."""
    columns = [
        {"name": column.a, "compared": stats.compared, "changed": changes.get(column.a, 0)}
        for column in compared.columns
    ]
    return {"type": "column_stats", "columns": columns}


def changes_by_column(compared: Comparison, changes: Mapping[str, int]) -> dict[str, int]:
    """How often each compared column changed, also where it never did; by A's names, which rules use too."""
    return {column.a: changes.get(column.a, 0) for column in compared.columns}


def count_changes(events: Sequence[Event]) -> Counter[str]:
    """How often each column changed in some events."""
    return Counter(name for event in events if event["type"] == "changed" for name in event["changed"])


def event_line(event: Event) -> bytes:
    """An event as a line of JSONL.

    >>> event_line(Stats().to_event())[:16]
    b'{"type":"stats",'
    """
    return (_encode(event) + "\n").encode()


def stats_line(stats: Stats) -> bytes:
    """The last line of the stream."""
    return event_line(stats.to_event())

"""The net change of a window in the form a user asked for: events, deltas, or a SQLite changeset."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

from driftline.canonical import canonical_json
from driftline.changesets import Changeset, Table
from driftline.deltas import TableSchema
from driftline.lake.changing import ChangeCounts, changes
from driftline.lake.columns import ROW_ID
from driftline.lake.layout import Lake
from driftline.lake.registry import required
from driftline.lake.sqlite_output import SQL_TYPES

CHANGESET = "changeset"

Row = Mapping[str, Any]

_SQL_VALUES: dict[str, Callable[[Any], Any]] = {
    "string": lambda value: value,
    "number": float,
    "boolean": int,
    "json": canonical_json,
}


def write_changes(
    lake: Lake, table: str, out: BinaryIO, *, since: int, until: int, kind: str = "events", **options: Any
) -> ChangeCounts:
    """Write the changes of (since, until] as events, deltas or a changeset."""
    if kind != CHANGESET:
        return changes(lake, table, out, since=since, until=until, kind=kind, **options)
    with tempfile.TemporaryFile() as events:
        counts = changes(lake, table, events, since=since, until=until, kind="events", **options)
        events.seek(0)
        changeset_of_events(required(lake, table), map(json.loads, events)).write_to(out)
    return counts


def changeset_of_events(schema: TableSchema, events: Iterable[Row]) -> Changeset:
    """Data events of a window as a changeset: the row id is the key unless the schema names key columns."""
    table = sqlite_table(schema)
    changeset = Changeset()
    for event in events:
        if event["type"] == "added":
            changeset.insert(table, _sql_row(schema, event["row"]))
        elif event["type"] == "removed":
            changeset.delete(table, _sql_row(schema, event["row"]))
        elif event["type"] == "changed":
            changeset.update(table, _sql_row(schema, event["before"]), _sql_row(schema, event["after"]))
    return changeset


def sqlite_table(schema: TableSchema) -> Table:
    """The SQLite table of a schema, as `materialize --format sqlite` makes it."""
    columns = [(column.name, SQL_TYPES[column.type]) for column in schema.columns]
    if schema.key:
        return Table(schema.table, columns, schema.key)
    return Table(schema.table, [(ROW_ID, "TEXT"), *columns], [ROW_ID])


def _sql_row(schema: TableSchema, row: Row) -> dict[str, Any]:
    values: dict[str, Any] = {} if schema.key else {ROW_ID: row[ROW_ID]}
    for column in schema.columns:
        value = row[column.name]
        values[column.name] = None if value is None else _SQL_VALUES[column.type](value)
    return values

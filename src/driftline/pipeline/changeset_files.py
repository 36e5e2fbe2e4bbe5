"""Events of a table diff as a SQLite changeset or patchset file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

from driftline.changesets import Changeset, Patchset, Table
from driftline.pipeline.declaration import TableFlow
from driftline.pipeline.typed_rows import Row

SQL_TYPES = {"string": "TEXT", "number": "REAL", "boolean": "INTEGER", "json": "TEXT"}


def write_changeset(
    out: BinaryIO, kind: str, flow: TableFlow, header: Sequence[str], events: Iterable[dict[str, Any]]
) -> int:
    """Write the changes of one pair of snapshots; how many there are."""
    columns = [(name, SQL_TYPES[flow.columns.get(name, "string")]) for name in header]
    table = Table(flow.name, columns=columns, primary_key=list(flow.key))
    changes = Changeset() if kind == "changeset" else Patchset()
    count = 0
    for event in events:
        _add(changes, table, event, header)
        count += 1
    out.write(bytes(changes))
    return count


def _add(changes: Any, table: Table, event: dict[str, Any], header: Sequence[str]) -> None:
    if event["type"] == "added":
        changes.insert(table, _values(event["row"], header))
    elif event["type"] == "removed":
        changes.delete(table, _values(event["row"], header))
    elif event["type"] == "changed":
        changes.update(table, _values(event["before"], header), _values(event["after"], header))


def _values(row: Row, header: Sequence[str]) -> list[Any]:
    return [_sqlite_value(row.get(name)) for name in header]


def _sqlite_value(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict | list):
        from driftline.canonical import canonical_json

        return canonical_json(value)
    return value

"""Events of a table diff as a SQLite changeset or patchset file, with the types that the lake uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Literal

from driftline.changesets import Table
from driftline.changesets.from_events import from_events
from driftline.pipeline.declaration import TableFlow

SQL_TYPES = {"string": "TEXT", "number": "REAL", "boolean": "INTEGER", "json": "TEXT"}

Event = dict[str, Any]


class _Counted:
    """Events on their way, counted."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = events
        self.number = 0

    def __iter__(self) -> Iterator[Event]:
        for event in self._events:
            self.number += 1
            yield event


def write_changeset(
    out: BinaryIO,
    kind: Literal["changeset", "patchset"],
    flow: TableFlow,
    header: Sequence[str],
    events: Iterable[Event],
) -> int:
    """Write the changes of one pair of snapshots; how many there are."""
    columns = [(name, SQL_TYPES[flow.columns.get(name, "string")]) for name in header]
    table = Table(flow.name, columns=columns, primary_key=list(flow.key))
    counted = _Counted(events)
    schema = {"type": "schema", "columns_a": list(header), "columns_b": list(header)}
    changes = from_events((each for part in ([schema], counted) for each in part), table, format=kind)
    changes.write_to(out)
    return counted.number

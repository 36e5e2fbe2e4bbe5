"""What waits to be folded, and when that is enough to compact a table; and the list of a lake's tables."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from driftline.core._json import JsonObject
from driftline.lake.delta_tables import files_of, load
from driftline.lake.layout import Lake
from driftline.lake.planning import new_files, usable_snapshot
from driftline.lake.registry import schema_of
from driftline.lake.snapshots import pins_of
from driftline.lake.waiting import count_set_aside, count_waiting


@dataclass(frozen=True, slots=True)
class Backlog:
    """Deltas that no snapshot folds: how many, how many bytes, and since when the oldest of them lie there."""

    deltas: int
    size: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """A table is compacted when one of these is reached."""

    deltas: int = 50_000
    size: int = 64 << 20
    seconds: float = 300.0

    def is_due(self, backlog: Backlog) -> bool:
        """Whether so much waits that it should be folded."""
        if backlog.since_ms is None:
            return False
        age = time.time() - backlog.since_ms / 1000
        return backlog.deltas >= self.deltas or backlog.size >= self.size or age >= self.seconds


@dataclass(frozen=True, slots=True)
class TableStatus:
    """What an operator wants to know of a table."""

    table: str
    columns: tuple[str, ...] | None  # None: no schema is registered
    rows: int | None  # in `state`; None: it was never compacted
    unfolded: int
    waiting: int
    set_aside: int
    state_age_seconds: int | None  # since when the state may lack something; 0 where it is up to date

    def to_dict(self) -> JsonObject:
        """The status as plain data."""
        return {
            "table": self.table,
            "columns": None if self.columns is None else list(self.columns),
            "rows": self.rows,
            "unfolded": self.unfolded,
            "waiting": self.waiting,
            "setAside": self.set_aside,
            "stateAgeSeconds": self.state_age_seconds,
        }


def backlog_of(lake: Lake, table: str) -> Backlog:
    """What waits to be folded in a table."""
    base_table = load(lake, table, "base")
    deltas_table = load(lake, table, "deltas")
    schema = schema_of(deltas_table)
    if deltas_table is None or schema is None:
        return Backlog(0, 0, None)
    snapshot = usable_snapshot(lake, table, None, schema.columns, deltas_table, base_table)
    found = new_files(lake, table, deltas_table, pins_of(base_table), snapshot)
    files = files_of(deltas_table) if found is None else found
    return Backlog(
        sum(file.rows for file in files),
        sum(file.size for file in files),
        min((file.committed_ms for file in files), default=None),
    )


def compact_due(lake: Lake, policy: CompactionPolicy, **way: Any) -> list[str]:
    """Compact the tables where enough waits; their names."""
    from driftline.lake.compacting import compact

    due = [table for table in lake.tables() if policy.is_due(backlog_of(lake, table))]
    for table in due:
        compact(lake, table, **way)
    return due


def status_of(lake: Lake, table: str) -> TableStatus:
    """A table's schema, rows and what is not in its state."""
    schema = schema_of(load(lake, table, "deltas"))
    state = load(lake, table, "state")
    backlog = backlog_of(lake, table)
    age = None if state is None else 0
    if state is not None and backlog.since_ms is not None:
        age = max(0, round(time.time() - backlog.since_ms / 1000))
    return TableStatus(
        table,
        None if schema is None else schema.names,
        None if state is None else sum(file.rows for file in files_of(state)),
        backlog.deltas,
        count_waiting(lake, table),
        count_set_aside(lake, table),
        age,
    )

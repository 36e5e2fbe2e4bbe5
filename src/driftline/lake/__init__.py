"""Stores deltas: Delta tables, flush, snapshots, replay.

Names are loaded when they are first used: a gateway looks after its lake without the libraries that fold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftline.core._extras import load

if TYPE_CHECKING:
    from driftline.lake._fold.compact import CompactionResult, compact, merge_small_files
    from driftline.lake._fold.fold import replay
    from driftline.lake._fold.maintain import (
        Backlog,
        CompactionPolicy,
        TableStatus,
        backlog_of,
        compact_due,
        set_horizon,
        status_of,
        vacuum,
    )
    from driftline.lake._read.changes import ChangeCounts, changes
    from driftline.lake._read.history import HistoryEntry, LogEntry, Verification, lake_log, row_history, verify
    from driftline.lake._read.state import materialize
    from driftline.lake._store.flush import FlushResult, flush, flush_envelopes
    from driftline.lake._store.lake import Lake
    from driftline.lake._store.schemas import register, registered


# The formats that a table's state is written in, for whoever offers them without writing any.


STATE_FORMATS = ("jsonl", "csv", "parquet", "sqlite")


_LAZY: dict[str, str] = {
    "Backlog": "_fold.maintain",
    "ChangeCounts": "_read.changes",
    "CompactionPolicy": "_fold.maintain",
    "CompactionResult": "_fold.compact",
    "FlushResult": "_store.flush",
    "HistoryEntry": "_read.history",
    "Lake": "_store.lake",
    "LogEntry": "_read.history",
    "TableStatus": "_fold.maintain",
    "Verification": "_read.history",
    "backlog_of": "_fold.maintain",
    "changes": "_read.changes",
    "compact": "_fold.compact",
    "compact_due": "_fold.maintain",
    "flush": "_store.flush",
    "flush_envelopes": "_store.flush",
    "lake_log": "_read.history",
    "materialize": "_read.state",
    "merge_small_files": "_fold.compact",
    "register": "_store.schemas",
    "registered": "_store.schemas",
    "replay": "_fold.fold",
    "row_history": "_read.history",
    "set_horizon": "_fold.maintain",
    "status_of": "_fold.maintain",
    "vacuum": "_fold.maintain",
    "verify": "_read.history",
}

__all__ = [
    "Backlog",
    "ChangeCounts",
    "CompactionPolicy",
    "CompactionResult",
    "FlushResult",
    "HistoryEntry",
    "Lake",
    "LogEntry",
    "TableStatus",
    "Verification",
    "backlog_of",
    "changes",
    "compact",
    "compact_due",
    "flush",
    "flush_envelopes",
    "lake_log",
    "materialize",
    "merge_small_files",
    "register",
    "registered",
    "replay",
    "row_history",
    "set_horizon",
    "status_of",
    "vacuum",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(load(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})

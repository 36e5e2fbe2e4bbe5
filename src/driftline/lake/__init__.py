"""Stores deltas: Delta tables, flush, snapshots, replay.

Names are loaded when they are first used: a gateway looks after its lake without the libraries that fold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftline.core._extras import load

if TYPE_CHECKING:
    from driftline.lake.backlog import Backlog, CompactionPolicy, TableStatus, backlog_of, compact_due, status_of
    from driftline.lake.changing import ChangeCounts, changes
    from driftline.lake.compacting import CompactionResult, compact, merge_small_files
    from driftline.lake.flushing import FlushResult, flush, flush_envelopes
    from driftline.lake.history import HistoryEntry, LogEntry, lake_log, row_history
    from driftline.lake.horizons import set_horizon
    from driftline.lake.layout import Lake
    from driftline.lake.materializing import materialize
    from driftline.lake.oracle import replay
    from driftline.lake.registry import register, registered
    from driftline.lake.vacuuming import vacuum
    from driftline.lake.verifying import Verification, verify

_LAZY: dict[str, str] = {
    "Backlog": "backlog",
    "ChangeCounts": "changing",
    "CompactionPolicy": "backlog",
    "CompactionResult": "compacting",
    "FlushResult": "flushing",
    "HistoryEntry": "history",
    "Lake": "layout",
    "LogEntry": "history",
    "TableStatus": "backlog",
    "Verification": "verifying",
    "backlog_of": "backlog",
    "changes": "changing",
    "compact": "compacting",
    "compact_due": "backlog",
    "flush": "flushing",
    "flush_envelopes": "flushing",
    "lake_log": "history",
    "materialize": "materializing",
    "merge_small_files": "compacting",
    "register": "registry",
    "registered": "registry",
    "replay": "oracle",
    "row_history": "history",
    "set_horizon": "horizons",
    "status_of": "backlog",
    "vacuum": "vacuuming",
    "verify": "verifying",
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

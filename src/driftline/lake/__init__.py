"""Stores deltas: Delta tables, flush, snapshots, replay."""

from driftline.lake.backlog import Backlog, CompactionPolicy, TableStatus, backlog_of, compact_due, status_of
from driftline.lake.changing import ChangeCounts, changes
from driftline.lake.compacting import CompactionResult, compact, merge_small_files
from driftline.lake.flushing import FlushResult, flush, flush_envelopes
from driftline.lake.history import HistoryEntry, LogEntry, lake_log, row_history
from driftline.lake.horizons import set_horizon
from driftline.lake.layout import Lake
from driftline.lake.materializing import materialize
from driftline.lake.registry import register, registered
from driftline.lake.replay import replay
from driftline.lake.vacuuming import vacuum
from driftline.lake.verifying import Verification, verify

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

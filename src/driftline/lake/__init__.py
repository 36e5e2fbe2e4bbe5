"""Stores deltas: Delta tables, flush, snapshots, replay."""

from driftline.lake.compacting import CompactionResult, compact
from driftline.lake.flushing import FlushResult, flush, flush_envelopes, flushed_sequence
from driftline.lake.layout import Lake
from driftline.lake.registry import register, registered
from driftline.lake.replay import replay

__all__ = [
    "CompactionResult",
    "FlushResult",
    "Lake",
    "compact",
    "flush",
    "flush_envelopes",
    "flushed_sequence",
    "register",
    "registered",
    "replay",
]

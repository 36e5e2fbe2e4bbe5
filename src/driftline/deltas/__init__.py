"""Row deltas: the clock, the records, their ids, extraction from row versions and the one rule of merging."""

from driftline.deltas._deltas import Clock, ColumnDelta, RowDelta, delta_id
from driftline.deltas._extract import extract, from_events
from driftline.deltas._merge import RowState, merge
from driftline.deltas._schema import ColumnSchema, TableSchema

__all__ = [
    "Clock",
    "ColumnDelta",
    "ColumnSchema",
    "RowDelta",
    "RowState",
    "TableSchema",
    "delta_id",
    "extract",
    "from_events",
    "merge",
]

"""Row deltas: the clock, the records, their ids, extraction from row versions and the one rule of merging."""

from driftline.deltas.clock import Clock
from driftline.deltas.column_delta import ColumnDelta
from driftline.deltas.extraction import extract
from driftline.deltas.from_events import from_events
from driftline.deltas.identity import delta_id
from driftline.deltas.merging import RowState, merge
from driftline.deltas.row_delta import RowDelta
from driftline.deltas.schema import ColumnSchema, TableSchema

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

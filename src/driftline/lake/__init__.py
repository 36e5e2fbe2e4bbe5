"""The lake: row deltas in Delta tables, flushed exactly once, compacted to snapshots, read at any timestamp.

Names are loaded when they are first used: a gateway without a flush yet does not load the libraries of the lake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.lake._flush_target import FlushTarget as FlushTarget
    from driftline.lake._fold.compact import (
        Backlog as Backlog,
        CompactionPolicy as CompactionPolicy,
        CompactionResult as CompactionResult,
        Engine as Engine,
        TableStatus as TableStatus,
        backlog_of as backlog_of,
        compact as compact,
        compact_due as compact_due,
        cut_logs as cut_logs,
        merge_small_files as merge_small_files,
        set_horizon as set_horizon,
        status_of as status_of,
        vacuum as vacuum,
    )
    from driftline.lake._fold.fold import replay as replay
    from driftline.lake._fold.local import run_locally as run_locally
    from driftline.lake._load.ingest import Scheduler as Scheduler, flush_file as flush_file
    from driftline.lake._load.load import (
        LoadJob as LoadJob,
        Schedulers as Schedulers,
        WantedSnapshot as WantedSnapshot,
        check_unclaimed as check_unclaimed,
        extract_snapshots as extract_snapshots,
        load_changes as load_changes,
        load_snapshot as load_snapshot,
        plan_loads as plan_loads,
        positions_digest as positions_digest,
        reload as reload,
        resolve_columns as resolve_columns,
    )
    from driftline.lake._read import STATE_FORMATS as STATE_FORMATS
    from driftline.lake._read.history import (
        ChangeCounts as ChangeCounts,
        HistoryEntry as HistoryEntry,
        LogEntry as LogEntry,
        Verification as Verification,
        changes as changes,
        lake_log as lake_log,
        row_history as row_history,
        verify as verify,
        write_changes as write_changes,
    )
    from driftline.lake._read.state import (
        columns_in as columns_in,
        materialize as materialize,
        row_lines as row_lines,
        state_rows as state_rows,
        watched_values as watched_values,
    )
    from driftline.lake._store.flush import (
        FlushResult as FlushResult,
        LogRange as LogRange,
        count_waiting as count_waiting,
        flush as flush,
        flush_envelopes as flush_envelopes,
    )
    from driftline.lake._store.lake import (
        LAST_TIMESTAMP as LAST_TIMESTAMP,
        Lake as Lake,
        parse_timestamp as parse_timestamp,
        timestamp_text as timestamp_text,
    )
    from driftline.lake._store.rows import json_line as json_line
    from driftline.lake._store.schemas import (
        LoadHistory as LoadHistory,
        ReadFile as ReadFile,
        ReadOffsets as ReadOffsets,
        Window as Window,
        load_history as load_history,
        newest_snapshot as newest_snapshot,
        register as register,
        registered as registered,
        required as required,
    )
    from driftline.lake._store.tables import load as load
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)

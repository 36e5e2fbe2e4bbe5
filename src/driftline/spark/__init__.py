"""The Spark engine: the kernels of the other packages as Spark tasks, and functions over DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.spark._catalog import open_input as open_input, tables_beside as tables_beside
    from driftline.spark._changesets import (
        diff_to_changeset as diff_to_changeset,
        events_to_changeset as events_to_changeset,
        write_changeset as write_changeset,
    )
    from driftline.spark._frames.diff import DataFrameDiff as DataFrameDiff, diff as diff
    from driftline.spark._frames.functions import (
        changed_cells as changed_cells,
        compare_payloads as compare_payloads,
        fold as fold,
        index_diffs as index_diffs,
        merge_rows as merge_rows,
        row_deltas as row_deltas,
        side_by_side as side_by_side,
        state_as_of as state_as_of,
    )
    from driftline.spark._index import index_scheduler as index_scheduler, run_jobs as run_jobs
    from driftline.spark._lake import (
        ingest_on_spark as ingest_on_spark,
        lake_engine as lake_engine,
        load_schedulers as load_schedulers,
        run_in_tasks as run_in_tasks,
    )
    from driftline.spark._runtime.jvm import find_java as find_java
    from driftline.spark._runtime.masters import chosen_master as chosen_master
    from driftline.spark._runtime.session import (
        check_session as check_session,
        checked_settings as checked_settings,
        open_session as open_session,
        run_table_diff as run_table_diff,
    )
    from driftline.spark._table_diff import diff_to_table_on_spark as diff_to_table_on_spark
    from driftline.spark._tasks import payload_scheduler as payload_scheduler
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)

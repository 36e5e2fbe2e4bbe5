"""Everything that imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.spark._changesets import (
        diff_to_changeset as diff_to_changeset,
        events_to_changeset as events_to_changeset,
        write_changeset as write_changeset,
    )
    from driftline.spark._frames.diff import DataFrameDiff as DataFrameDiff, diff as diff
    from driftline.spark._frames.functions import (
        compare_payloads as compare_payloads,
        fold as fold,
        index_diffs as index_diffs,
        merge_rows as merge_rows,
        row_deltas as row_deltas,
        state_as_of as state_as_of,
    )
    from driftline.spark._index import mode_scheduler as mode_scheduler, run_jobs as run_jobs
    from driftline.spark._lake import (
        fold_engine as fold_engine,
        in_tasks as in_tasks,
        ingest_on_spark as ingest_on_spark,
        load_schedulers as load_schedulers,
    )
    from driftline.spark._payloads import spark_scheduler as spark_scheduler
    from driftline.spark._runtime.java import find_java as find_java
    from driftline.spark._runtime.masters import chosen_master as chosen_master
    from driftline.spark._runtime.session import (
        open_session as open_session,
        run_small_job as run_small_job,
        run_table_diff as run_table_diff,
    )
    from driftline.spark._table_diff import diff_to_table_on_spark as diff_to_table_on_spark
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)

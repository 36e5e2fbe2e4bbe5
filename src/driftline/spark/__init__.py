"""Everything that imports pyspark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftline.spark.dataframe_diff import DataFrameDiff as DataFrameDiff
    from driftline.spark.dataframe_diff import diff as diff
    from driftline.spark.dataframes import compare_payloads as compare_payloads
    from driftline.spark.dataframes import index_diffs as index_diffs
    from driftline.spark.dataframes import merge_rows as merge_rows
    from driftline.spark.dataframes import row_deltas as row_deltas
    from driftline.spark.frame_changesets import write_changeset as write_changeset
    from driftline.spark.frame_folds import fold as fold
    from driftline.spark.frame_folds import state_as_of as state_as_of

# Loaded when they are first used, so that this package can be imported without Spark.
_LAZY = {
    "DataFrameDiff": "driftline.spark.dataframe_diff",
    "compare_payloads": "driftline.spark.dataframes",
    "diff": "driftline.spark.dataframe_diff",
    "fold": "driftline.spark.frame_folds",
    "index_diffs": "driftline.spark.dataframes",
    "merge_rows": "driftline.spark.dataframes",
    "row_deltas": "driftline.spark.dataframes",
    "state_as_of": "driftline.spark.frame_folds",
    "write_changeset": "driftline.spark.frame_changesets",
}

__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'driftline.spark' has no attribute {name!r}")

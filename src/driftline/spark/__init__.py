"""Everything that imports pyspark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftline.spark._changesets import write_changeset as write_changeset
    from driftline.spark._frames.diff import DataFrameDiff as DataFrameDiff
    from driftline.spark._frames.diff import diff as diff
    from driftline.spark._frames.functions import compare_payloads as compare_payloads
    from driftline.spark._frames.functions import fold as fold
    from driftline.spark._frames.functions import index_diffs as index_diffs
    from driftline.spark._frames.functions import merge_rows as merge_rows
    from driftline.spark._frames.functions import row_deltas as row_deltas
    from driftline.spark._frames.functions import state_as_of as state_as_of

# Loaded when they are first used, so that this package can be imported without Spark.
_LAZY = {
    "DataFrameDiff": "driftline.spark._frames.diff",
    "compare_payloads": "driftline.spark._frames.functions",
    "diff": "driftline.spark._frames.diff",
    "fold": "driftline.spark._frames.functions",
    "index_diffs": "driftline.spark._frames.functions",
    "merge_rows": "driftline.spark._frames.functions",
    "row_deltas": "driftline.spark._frames.functions",
    "state_as_of": "driftline.spark._frames.functions",
    "write_changeset": "driftline.spark._changesets",
}

__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'driftline.spark' has no attribute {name!r}")

"""driftline finds what changed between two versions of data, and ships it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import keep_old_modules, lazy_exports
from driftline.version import __version__ as __version__

if TYPE_CHECKING:
    from driftline import (
        changesets as changesets,
        client as client,
        codeindex as codeindex,
        deltas as deltas,
        gateway as gateway,
        lake as lake,
        payloads as payloads,
        pipeline as pipeline,
        spark as spark,
        tables as tables,
    )
    from driftline._diff import diff as diff
    from driftline.core import Diff as Diff
    from driftline.errors import (
        DriftlineError as DriftlineError,
        InputError as InputError,
        OptionError as OptionError,
        TableError as TableError,
    )
    from driftline.lake import Lake as Lake
    from driftline.payloads import assert_equivalent as assert_equivalent, compare as compare
    from driftline.tables import (
        TableDiff as TableDiff,
        TablesDifferError as TablesDifferError,
        assert_equal as assert_equal,
        merge as merge,
        patch as patch,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
    __all__ += ["__version__"]

# Module paths that the guides of version 0.2 name: they work for one version, and warn.
# Old module -> the package and its names; a package without names is only passed.
_OLD_MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "driftline.changesets.changeset": ("driftline.changesets", ("Changeset",)),
    "driftline.codeindex.contracts": ("driftline.codeindex", ("schema",)),
    "driftline.gateway.auth": ("driftline.gateway", ("sign",)),
    "driftline.gateway.client": ("driftline.client", ("FeedReader", "GatewayClient", "Pulled", "SnapshotPage")),
    "driftline.lake.layout": ("driftline.lake", ("Lake",)),
    "driftline.lake.state": ("driftline.lake", ("state_rows",)),
    "driftline.spark.dataframe_diff": ("driftline.spark", ("DataFrameDiff", "diff")),
    "driftline.spark.dataframes": ("driftline.spark", ("compare_payloads", "index_diffs", "merge_rows", "row_deltas")),
    "driftline.spark.lake_folds": ("driftline.spark", ("fold_engine",)),
    "driftline.spark.runtime": ("driftline.spark", ()),
    "driftline.spark.runtime.session": ("driftline.spark", ("open_session",)),
    "driftline.tables.api": ("driftline.tables", ("assert_equal", "diff")),
    "driftline.tables.result": ("driftline.tables", ("TableDiff",)),
}
_RENAMED = {"fold_engine": "lake_engine"}
_OLD_MODULES_END = "0.4"  # the version without them
keep_old_modules(_OLD_MODULES, _RENAMED, _OLD_MODULES_END)

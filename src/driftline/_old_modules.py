"""Module paths that the guides of version 0.2 name: they work for one version, and warn."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

# Old module -> the package and its names; a package without names is only passed.
OLD_MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "driftline.changesets.changeset": ("driftline.changesets", ("Changeset",)),
    "driftline.codeindex.contracts": ("driftline.codeindex", ("schema",)),
    "driftline.gateway.auth": ("driftline.gateway", ("sign",)),
    "driftline.gateway.client": ("driftline.client", ("FeedReader", "GatewayClient", "Pulled", "SnapshotPage")),
    "driftline.lake.layout": ("driftline.lake", ("Lake",)),
    "driftline.lake.state": ("driftline.lake", ("state_rows",)),
    "driftline.spark.dataframe_diff": ("driftline.spark", ("DataFrameDiff", "diff")),
    "driftline.spark.dataframes": (
        "driftline.spark",
        ("compare_payloads", "index_diffs", "merge_rows", "row_deltas"),
    ),
    "driftline.spark.lake_folds": ("driftline.spark", ("fold_engine",)),
    "driftline.spark.runtime": ("driftline.spark", ()),
    "driftline.spark.runtime.session": ("driftline.spark", ("open_session",)),
    "driftline.tables.api": ("driftline.tables", ("assert_equal", "diff")),
    "driftline.tables.result": ("driftline.tables", ("TableDiff",)),
}
RENAMED = {"fold_engine": "lake_engine"}
OLD_MODULES_END = "0.4"  # the version without them


class _OldModules:
    """Finds and loads the modules of `OLD_MODULES`; it is the last finder, so other imports do not reach it."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module of an old name, if it is one."""
        if name not in OLD_MODULES:
            return None
        from importlib.machinery import ModuleSpec

        loader: Any = cls
        return ModuleSpec(name, loader, is_package=any(old.startswith(f"{name}.") for old in OLD_MODULES))

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """A plain module."""

    @staticmethod
    def exec_module(module: Any) -> None:
        """Warn, once a process, and take the names from the package that has them now."""
        old = module.__name__
        package, names = OLD_MODULES[old]

        def get(name: str) -> Any:
            if name not in names:
                raise AttributeError(f"module {old!r} has no attribute {name!r}")
            return getattr(import_module(package), RENAMED.get(name, name))

        module.__getattr__, module.__all__ = get, list(names)
        if names:
            instead = f"from {package} import {', '.join(RENAMED.get(name, name) for name in names)}"
            message = f"{old} is removed in driftline {OLD_MODULES_END}; use: {instead}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)


sys.meta_path.append(_OldModules)

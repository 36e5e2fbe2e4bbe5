"""driftline finds what changed between two versions of data, and ships it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driftline.core._extras import offer
from driftline.version import __version__

if TYPE_CHECKING:
    from driftline import (
        changesets as changesets,
    )
    from driftline import (
        codeindex as codeindex,
    )
    from driftline import (
        deltas as deltas,
    )
    from driftline import (
        gateway as gateway,
    )
    from driftline import (
        lake as lake,
    )
    from driftline import (
        payloads as payloads,
    )
    from driftline import (
        pipeline as pipeline,
    )
    from driftline import (
        spark as spark,
    )
    from driftline import (
        tables as tables,
    )
    from driftline.errors import DriftlineError as DriftlineError
    from driftline.errors import InputError as InputError
    from driftline.errors import OptionError as OptionError
    from driftline.errors import TableError as TableError
    from driftline.lake import Lake as Lake
    from driftline.payloads import assert_equivalent as assert_equivalent
    from driftline.payloads import compare as compare
    from driftline.tables._api import TableDiff as TableDiff
    from driftline.tables._api import TablesDifferError as TablesDifferError
    from driftline.tables._api import assert_equal as assert_equal
    from driftline.tables._api import diff as diff

# Names that are loaded when they are first used, so that `import driftline` stays quick.
_LAZY: dict[str, str] = {
    "assert_equivalent": "driftline.payloads",
    "compare": "driftline.payloads",
    "diff": "driftline.tables._api",
    "assert_equal": "driftline.tables._api",
    "TableDiff": "driftline.tables._api",
    "TablesDifferError": "driftline.tables._api",
    "Lake": "driftline.lake",
    **dict.fromkeys(("DriftlineError", "InputError", "OptionError", "TableError"), "driftline.errors"),
}
_ROOMS = ("changesets", "codeindex", "deltas", "gateway", "lake", "payloads", "pipeline", "spark", "tables")

# What rooms take from those above them.
offer("table engine", "spark", "driftline.spark._runtime.session:run")
offer("event format", "changeset", "driftline.changesets._make.rows:write_changeset")
offer("event format", "patchset", "driftline.changesets._make.rows:write_patchset")

__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _ROOMS:
        from driftline.core._extras import load

        return load(f"driftline.{name}")
    raise AttributeError(f"module 'driftline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_ROOMS})

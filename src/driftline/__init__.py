"""driftline finds what changed between two versions of data, and ships it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports
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

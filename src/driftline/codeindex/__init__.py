"""What changed between two versions of a code base: files, definitions and relations, ordered and bounded.

`build` indexes a git revision, `diff` compares two, and `api` says what happened to the public surface.
"""

from driftline.codeindex._build.build import Built
from driftline.codeindex._diff.api import ApiReport, api, build
from driftline.codeindex._diff.diff import DiffRequest, IndexDiff, diff, prepare
from driftline.codeindex._options import DiffOptions, diff_id
from driftline.codeindex._read.resolve import IndexRef, parse_ref
from driftline.codeindex._registry.keep import Keeping, KeptDiff, compute, prune
from driftline.codeindex._registry.registry import Registry

__all__ = [
    "ApiReport",
    "Built",
    "DiffOptions",
    "DiffRequest",
    "IndexDiff",
    "IndexRef",
    "Keeping",
    "KeptDiff",
    "Registry",
    "api",
    "build",
    "compute",
    "diff",
    "diff_id",
    "parse_ref",
    "prepare",
    "prune",
]

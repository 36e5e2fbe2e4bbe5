"""What changed between two versions of a code base: files, definitions and relations, ordered and bounded.

`build` indexes a git revision, `diff` compares two, and `api` says what happened to the public surface.
"""

from driftline.codeindex.api_report import ApiReport
from driftline.codeindex.building import Built
from driftline.codeindex.diffing import DiffRequest, IndexDiff, diff, prepare
from driftline.codeindex.front import api, build
from driftline.codeindex.identity import diff_id
from driftline.codeindex.keeping import Keeping, KeptDiff, compute
from driftline.codeindex.options import DiffOptions
from driftline.codeindex.pruning import prune
from driftline.codeindex.refs import IndexRef, parse_ref
from driftline.codeindex.registry import Registry

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

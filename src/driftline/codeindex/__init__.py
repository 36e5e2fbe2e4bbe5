"""What changed between two builds of a code index: files, chunks and relations, ordered and bounded."""

from driftline.codeindex.diffing import DiffRequest, IndexDiff, diff, prepare
from driftline.codeindex.identity import diff_id
from driftline.codeindex.keeping import Keeping, KeptDiff, compute
from driftline.codeindex.options import DiffOptions
from driftline.codeindex.pruning import prune
from driftline.codeindex.refs import IndexRef, parse_ref
from driftline.codeindex.registry import Registry

__all__ = [
    "DiffOptions",
    "DiffRequest",
    "IndexDiff",
    "IndexRef",
    "Keeping",
    "KeptDiff",
    "Registry",
    "compute",
    "diff",
    "diff_id",
    "parse_ref",
    "prepare",
    "prune",
]

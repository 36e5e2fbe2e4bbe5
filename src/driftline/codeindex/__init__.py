"""What changed between two builds of a code index: files, chunks and relations, ordered and bounded."""

from driftline.codeindex.compute import IndexDiff, diff
from driftline.codeindex.identity import diff_id
from driftline.codeindex.refs import IndexRef, parse_ref

__all__ = ["IndexDiff", "IndexRef", "diff", "diff_id", "parse_ref"]

"""Equal manifests: nothing needs to be read (specification 5.2)."""

from __future__ import annotations

from typing import Any

from driftline.canonical import canonical_json
from driftline.codeindex.artifacts import CHUNK_META, FILE_META, FILE_RELATIONS, Pieces

# Members of a piece that say what is in it; others come and go from run to run.
_PIECE_MEMBERS = ("type", "name", "format", "path", "bytes", "checksum", "count")
_READ_BY_DIFF = (FILE_META, CHUNK_META, FILE_RELATIONS)


def same_artifacts(before: Pieces | None, after: Pieces | None) -> bool:
    """Whether both manifests vouch, by checksums, for the same artifacts; the files are not looked at."""
    if before is None or after is None:
        return False
    if (before.surface_version, before.compatibility_key) != (after.surface_version, after.compatibility_key):
        return False
    old = vouched_pieces(before)
    return old is not None and old == vouched_pieces(after)


def vouched_pieces(pieces: Pieces) -> list[str] | None:
    """The pieces that a diff reads, as sorted texts; None unless each has a checksum and none is missing."""
    read = [piece for piece in pieces.pieces if _belongs(piece, _READ_BY_DIFF)]
    if not all(any(_belongs(piece, (name,)) for piece in read) for name in (FILE_META, CHUNK_META)):
        return None
    if not all(isinstance(piece.get("checksum"), str) and piece["checksum"] for piece in read):
        return None
    return sorted(canonical_json({name: piece.get(name) for name in _PIECE_MEMBERS}) for piece in read)


def _belongs(piece: dict[str, Any], prefixes: tuple[str, ...]) -> bool:
    path = piece.get("path")
    names = (piece.get("name"), path.rpartition("/")[2] if isinstance(path, str) else None)
    return any(isinstance(name, str) and name.startswith(prefixes) for name in names)

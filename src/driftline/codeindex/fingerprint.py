"""Whether artifacts are the same: those of two sides, and those behind a stored diff and today's (index diffs §3.3)."""

from __future__ import annotations

from typing import Any

import xxhash

from driftline.codeindex.artifacts import (
    CHUNK_META,
    CHUNK_META_COLD,
    FILE_META,
    FILE_RELATIONS,
    Part,
    Pieces,
    artifact_files,
    find_artifact,
    read_pieces,
)
from driftline.codeindex.resolve import IndexDir, ResolvedRef
from driftline.codeindex.storage import explain
from driftline.core._json import canonical_json, sha1_hex
from driftline.errors import IndexRefError

# Members of a piece that say what is in it; others come and go from run to run.
_PIECE_MEMBERS = ("type", "name", "format", "path", "bytes", "checksum", "count")
_READ_BY_DIFF = (FILE_META, CHUNK_META, CHUNK_META_COLD, FILE_RELATIONS)
_REQUIRED = (FILE_META, CHUNK_META)

# Files up to this size are hashed even where the manifest has their checksums: a patched file is noticed.
_ALWAYS_HASHED_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20


def same_artifacts(before: IndexDir, after: IndexDir, old: Pieces | None, new: Pieces | None) -> bool:
    """Whether both manifests vouch, by checksums, for the same rows; their files are not read.

    Only files with rows count: meta files hold times, and nobody reads the sidecars.
    """
    if old is None or new is None:
        return False
    if (old.surface_version, old.compatibility_key) != (new.surface_version, new.compatibility_key):
        return False
    vouched = vouched_pieces(before, old)
    return vouched is not None and vouched == vouched_pieces(after, new)


def vouched_pieces(index: IndexDir, pieces: Pieces) -> list[str] | None:
    """The pieces that a diff reads, as sorted texts; None unless each has a checksum and none is missing."""
    try:
        found = {name: artifact_files(index, name, pieces) for name in _READ_BY_DIFF if pieces.of(name)}
    except IndexRefError:
        return None  # a meta file is damaged, which reading the artifact will say
    if any(found.get(name) is None for name in _REQUIRED):
        return None
    read = [pieces.piece_at(file.path) for files in found.values() for file in files or ()]
    if not all(isinstance(piece.get("checksum"), str) and piece["checksum"] for piece in read):
        return None
    return sorted(canonical_json({name: piece.get(name) for name in _PIECE_MEMBERS}) for piece in read)


def fingerprints(resolved: ResolvedRef) -> dict[str, str]:
    """A fingerprint for each mode of one side; it holds neither paths nor times."""
    return {mode: index_fingerprint(index) for mode, index in resolved.indexes.items()}


def index_fingerprint(index: IndexDir) -> str:
    """The checksums of the manifest where it vouches for the artifacts, else the files' own content."""
    pieces = read_pieces(index)
    vouched = vouched_pieces(index, pieces) if pieces is not None else None
    artifacts = [find_artifact(index, name, pieces) for name in _READ_BY_DIFF]
    parts = [part for artifact in artifacts if artifact is not None for part in artifact.parts]
    content = {"pieces": vouched, "parts": [_part_mark(part, vouched is not None) for part in parts]}
    return sha1_hex(canonical_json(content))


def _part_mark(part: Part, vouched: bool) -> list[Any]:
    return [f"/{part.listed}", part.size, None if vouched and part.size > _ALWAYS_HASHED_BYTES else _content_hash(part)]


def _content_hash(part: Part) -> str:
    digest = xxhash.xxh3_128()
    try:
        with open(part.path, "rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise explain(error, part.place) from None
    return digest.hexdigest()

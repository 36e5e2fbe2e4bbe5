"""Whether the artifacts behind a stored diff are still the ones it was computed from."""

from __future__ import annotations

from typing import Any

import xxhash

from driftline.canonical import canonical_json, sha1_hex
from driftline.codeindex.artifacts import (
    CHUNK_META,
    CHUNK_META_COLD,
    FILE_META,
    FILE_RELATIONS,
    Part,
    find_artifact,
    read_pieces,
)
from driftline.codeindex.fast_path import vouched_pieces
from driftline.codeindex.json_reading import explain
from driftline.codeindex.resolve import IndexDir, ResolvedRef

# Files up to this size are hashed even where the manifest has their checksums: a patched file is noticed.
_ALWAYS_HASHED_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20


def fingerprints(resolved: ResolvedRef) -> dict[str, str]:
    """A fingerprint for each mode of one side; it holds neither paths nor times."""
    return {mode: index_fingerprint(index) for mode, index in resolved.indexes.items()}


def index_fingerprint(index: IndexDir) -> str:
    """The checksums of the manifest where it vouches for the artifacts, else the files' own content."""
    pieces = read_pieces(index)
    vouched = vouched_pieces(pieces) if pieces is not None else None
    artifacts = [
        find_artifact(index, name, pieces) for name in (FILE_META, CHUNK_META, CHUNK_META_COLD, FILE_RELATIONS)
    ]
    parts = [part for artifact in artifacts if artifact is not None for part in artifact.parts]
    content = {"pieces": vouched, "parts": [_part_mark(index, part, vouched is not None) for part in parts]}
    return sha1_hex(canonical_json(content))


def _part_mark(index: IndexDir, part: Part, vouched: bool) -> list[Any]:
    try:
        size = part.path.stat().st_size
        digest = None if vouched and size > _ALWAYS_HASHED_BYTES else _content_hash(part)
    except OSError as error:
        raise explain(error, part.place) from None
    return [part.place.removeprefix(index.label), size, digest]


def _content_hash(part: Part) -> str:
    digest = xxhash.xxh3_128()
    with open(part.path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()

"""Rows of a build as its files hold them, made from what was extracted and the path of the file (index diffs §6.6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from backports import zstd

from driftline.codeindex.git_objects import TreeEntry
from driftline.codeindex.publicity import path_is_public
from driftline.core._json import sha1_hex

_LEVEL = 3


class FileRow(msgspec.Struct, omit_defaults=True, gc=False):
    """A row of `file_meta`; members are named as in the artifact."""

    id: int
    file: str
    ext: str
    size: int | None
    hash: str
    hashAlgo: str  # noqa: N815
    language: str | None
    skipped: str | None = None
    parseError: bool = False  # noqa: N815


class Imports(msgspec.Struct, gc=False):
    """What a file imports."""

    imports: list[str]


class ImportsRow(msgspec.Struct, gc=False):
    """A row of `file_relations`; what it imports stays as it is written until somebody asks."""

    file: str
    relations: msgspec.Raw


class Calls(msgspec.Struct, gc=False):
    """Pairs of the calling and the called name."""

    calls: list[tuple[str, str]]


class ChunkMeta(msgspec.Struct, gc=False):
    """What semantic-v2 compares of a definition."""

    signature: str
    params: list[str] | None
    sigHash: str  # noqa: N815
    bodyHash: str  # noqa: N815
    docHash: str  # noqa: N815
    sketch: str
    shingles: int
    tokens: int
    ownTokens: int  # noqa: N815
    sigTokens: int  # noqa: N815
    parent: str
    exported: bool
    ordinal: int
    chunkId: str = ""  # noqa: N815
    public: bool = False


class ChunkRow(msgspec.Struct, gc=False):
    """A row of `chunk_meta`; extraction knows no path and leaves file, ids and publicity to `placed`."""

    file: str
    chunkId: str  # noqa: N815
    start: int
    end: int
    startLine: int  # noqa: N815
    endLine: int  # noqa: N815
    kind: str
    name: str
    codeRelations: Calls  # noqa: N815
    metaV2: ChunkMeta  # noqa: N815


_encoder = msgspec.json.Encoder()
_chunk_rows = msgspec.json.Decoder(ChunkRow).decode_lines


@dataclass(slots=True)
class FileRows:
    """Everything an index holds about one file: imports as JSON, the lines of its chunks as one compressed frame."""

    path: str
    object_id: str
    size: int | None
    language: str | None
    skipped: str | None = None
    parse_error: bool = False
    imports: bytes = b""
    frame: bytes = b""
    chunks: int = 0

    @classmethod
    def without_chunks(cls, entry: TreeEntry, language: str | None, skipped: str | None) -> FileRows:
        """What is known before a file is looked into."""
        return cls(entry.path, entry.object_id, entry.size, language, skipped)

    def put_imports(self, names: list[str]) -> None:
        """Take the imports in."""
        self.imports = _encoder.encode(Imports(names)) if names else b""

    def put(self, rows: list[ChunkRow]) -> None:
        """Take the chunks in."""
        visible = path_is_public(self.language, self.path)
        placed(rows, self.path, visible)
        self.frame, self.chunks = (compressed(rows), len(rows)) if rows else (b"", 0)

    def file_meta(self, number: int) -> FileRow:
        """The row of `file_meta`."""
        name = self.path.rpartition("/")[2]
        dot = name.rfind(".")
        return FileRow(
            number,
            self.path,
            name[dot:] if dot > 0 else "",
            self.size,
            self.object_id,
            "git-sha1" if len(self.object_id) == 40 else "git-sha256",
            self.language,
            self.skipped,
            self.parse_error,
        )


def placed(rows: Iterable[ChunkRow], path: str, visible: bool) -> None:
    """Say of chunks in which file they are."""
    for row in rows:
        row.file = path
        row.chunkId = row.metaV2.chunkId = chunk_id_of(path, row.name, row.metaV2.ordinal)
        row.metaV2.public = row.metaV2.exported and visible


def chunk_id_of(path: str, name: str, ordinal: int) -> str:
    """The id of a chunk: where it is and what it is called, whatever is in it."""
    return f"chunk_{sha1_hex(f'{path}|{name}|{ordinal}'.encode('utf-8', 'surrogatepass'))}"


def compressed(rows: Iterable[msgspec.Struct]) -> bytes:
    """Rows as lines, in one frame."""
    return zstd.compress(_encoder.encode_lines(rows), _LEVEL)


def chunk_rows(frame: bytes) -> list[ChunkRow]:
    """The chunks in a frame."""
    return _chunk_rows(zstd.decompress(frame)) if frame else []

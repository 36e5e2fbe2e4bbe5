"""The files of a build: their rows, how they are read for the next build or a diff, and written (index diffs §6.6)."""

from __future__ import annotations

import os
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import xxhash
from backports import zstd

from driftline.codeindex._api import FileFacts
from driftline.codeindex._build.languages import path_is_public
from driftline.codeindex._read.artifacts import inside
from driftline.codeindex._read.resolve import IndexDir
from driftline.codeindex._git import TreeEntry
from driftline.codeindex._storage import exists, read_bytes, read_object
from driftline.core import JsonObject, sha1_hex
from driftline.errors import IndexRefError

META_FILE = "chunk_meta.meta.json"
FACTS_FILE = "file_surface.jsonl.zst"
RELATIONS_FILE = "file_relations.jsonl.zst"
SKETCH_VALUES = 64  # the most hashes that a sketch contains

_SURFACE_VERSION = "1.0.0"
_LEVEL = 3


# Rows, made from what was extracted and the path of the file.


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
    """A row of `file_relations`; its imports stay encoded until they are needed."""

    file: str
    relations: msgspec.Raw


class FactsRow(msgspec.Struct, gc=False):
    """A row of `file_surface`: what the API is read from."""

    file: str
    facts: msgspec.Raw


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
    """A row of `chunk_meta`; extraction has no path and leaves file, ids and visibility to `placed`."""

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
_compressor = zstd.ZstdCompressor(_LEVEL)
_chunk_rows = msgspec.json.Decoder(ChunkRow).decode_lines


@dataclass(slots=True)
class FileRows:
    """The rows of one file in an index: imports as JSON, the lines of its chunks as one compressed frame."""

    path: str
    object_id: str
    size: int | None
    language: str | None
    skipped: str | None = None
    parse_error: bool = False
    imports: bytes = b""
    facts: bytes = b""
    frame: bytes = b""
    chunks: int = 0

    @classmethod
    def without_chunks(cls, entry: TreeEntry, language: str | None, skipped: str | None) -> FileRows:
        """What is known before a file is read."""
        return cls(entry.path, entry.object_id, entry.size, language, skipped)

    def put(self, rows: list[ChunkRow], imports: list[str] | None = None, facts: FileFacts | None = None) -> None:
        """Set the chunks, with their file and what follows from it, and what else was read."""
        visible = path_is_public(self.language, self.path)
        for row in rows:
            row.file = self.path
            # Where it is and what it is called, whatever is in it.
            key = f"{self.path}|{row.name}|{row.metaV2.ordinal}".encode("utf-8", "surrogatepass")
            row.chunkId = row.metaV2.chunkId = f"chunk_{sha1_hex(key)}"
            row.metaV2.public = row.metaV2.exported and visible
        self.frame, self.chunks = (compressed(rows), len(rows)) if rows else (b"", 0)
        self.imports = _encoder.encode(Imports(imports)) if imports else self.imports
        self.facts = _encoder.encode(facts) if facts is not None else self.facts

    def file_meta(self, number: int) -> FileRow:
        name = self.path.rpartition("/")[2]
        dot = name.rfind(".")
        ext, kind = name[dot:] if dot > 0 else "", "git-sha1" if len(self.object_id) == 40 else "git-sha256"
        state = (self.language, self.skipped, self.parse_error)
        return FileRow(number, self.path, ext, self.size, self.object_id, kind, *state)


def compressed(rows: Iterable[msgspec.Struct]) -> bytes:
    """Rows as lines, in one frame."""
    return _compressor.compress(_encoder.encode_lines(rows), _compressor.FLUSH_FRAME)


# Builds read again.


class Frame(msgspec.Struct, array_like=True, gc=False):
    """The chunks of one file in a shard: bytes as stored, and rows."""

    size: int
    rows: int


class Shard(msgspec.Struct, gc=False):
    """A group of neighbouring files; a frame for each of them, so that one file is read or copied alone."""

    path: str
    records: int
    key: str
    bytes: int
    checksum: str
    first: str
    last: str
    frames: list[Frame]


class ShardList(msgspec.Struct):
    """The meta file of `chunk_meta`."""

    format: str
    compression: str
    totalRecords: int  # noqa: N815 - named as in the artifact
    parts: list[Shard]


Lines = TypeVar("Lines", bound=msgspec.Struct)

_shard_list = msgspec.json.Decoder(ShardList).decode
_file_rows = msgspec.json.Decoder(FileRow)
_imports_rows = msgspec.json.Decoder(ImportsRow)
_imports = msgspec.json.Decoder(Imports).decode
_facts_rows = msgspec.json.Decoder(FactsRow)
_facts = msgspec.json.Decoder(FileFacts).decode


def checksum_of(data: bytes) -> str:
    return f"xxh64:{xxhash.xxh64_hexdigest(data)}"


class BuiltIndex:
    """One mode of a build, read as far as it is needed."""

    def __init__(self, index: IndexDir, shards: list[Shard]) -> None:
        self.index = index
        self.shards = shards
        self._data: dict[str, bytes] = {}
        self._frames: dict[str, dict[str, tuple[int, int, int]]] = {}

    @cached_property
    def files(self) -> list[FileRow]:
        return self._lines("file_meta.jsonl.zst", _file_rows)

    @cached_property
    def imports(self) -> dict[str, msgspec.Raw]:
        return {row.file: row.relations for row in self._lines(RELATIONS_FILE, _imports_rows)}

    def imports_of(self, path: str) -> list[str]:
        with self._reading(RELATIONS_FILE):
            return _imports(self.imports[path]).imports if path in self.imports else []

    @property
    def has_facts(self) -> bool:
        return exists(inside(self.index, FACTS_FILE), self.index.place(FACTS_FILE))

    @cached_property
    def facts(self) -> dict[str, msgspec.Raw]:
        return {row.file: row.facts for row in self._lines(FACTS_FILE, _facts_rows)}

    def facts_of(self, path: str) -> FileFacts | None:
        """The facts of a file; None where it has none."""
        with self._reading(FACTS_FILE):
            return _facts(self.facts[path]) if path in self.facts else None

    @cached_property
    def by_key(self) -> dict[str, Shard]:
        return {shard.key: shard for shard in self.shards}

    def files_of(self, shard: Shard) -> list[FileRow]:
        start = bisect_left(self.files, shard.first, key=attrgetter("file"))
        return self.files[start : bisect_right(self.files, shard.last, key=attrgetter("file"))]

    def frame(self, path: str) -> tuple[bytes, int]:
        """The compressed lines of a file, and how many they are; nothing for a file that is not here."""
        number = bisect_right(self.shards, path, key=attrgetter("first")) - 1
        shard = self.shards[number] if number >= 0 else None
        if shard is None or path > shard.last:
            return b"", 0
        if shard.path not in self._frames:
            self._frames[shard.path] = self._frames_of(shard)
        start, size, rows = self._frames[shard.path].get(path, (0, 0, 0))
        return self._shard_data(shard)[start : start + size], rows

    def _frames_of(self, shard: Shard) -> dict[str, tuple[int, int, int]]:
        """Where the frames of a shard's files begin, with their bytes and rows."""
        files = self.files_of(shard)
        if len(files) != len(shard.frames):
            raise self._damaged(META_FILE)
        starts = accumulate((frame.size for frame in shard.frames), initial=0)
        placed = zip(files, starts, shard.frames, strict=False)
        return {file.file: (start, frame.size, frame.rows) for file, start, frame in placed}

    def chunks(self, path: str) -> list[ChunkRow]:
        frame = self.frame(path)[0]
        with self._reading(f"the chunks of {path}"):
            return _chunk_rows(zstd.decompress(frame)) if frame else []

    def shard_path(self, shard: Shard) -> Path:
        """The location of a shard, complete as far as its size shows; its bytes are not read."""
        path = inside(self.index, shard.path)
        if not exists(path, self.index.place(shard.path)) or path.stat().st_size != shard.bytes:
            raise self._damaged(shard.path)
        return path

    def _shard_data(self, shard: Shard) -> bytes:
        # Frames go into the next build unread, so damage has to be found here.
        if shard.path not in self._data:
            data = read_bytes(inside(self.index, shard.path), self.index.place(shard.path))
            if checksum_of(data) != shard.checksum:
                raise self._damaged(shard.path)
            self._data[shard.path] = data
        return self._data[shard.path]

    def _lines(self, name: str, decoder: msgspec.json.Decoder[Lines]) -> list[Lines]:
        with self._reading(name):
            return decoder.decode_lines(zstd.decompress(read_bytes(inside(self.index, name), self.index.place(name))))

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except (zstd.ZstdError, msgspec.DecodeError):
            raise self._damaged(name) from None

    def _damaged(self, name: str) -> IndexRefError:
        return IndexRefError(f"{self.index.place(name)} is damaged: build the index again (index build --force)")


def built_index(index: IndexDir) -> BuiltIndex | None:
    """An index that this version of driftline built; None for those of other tools and earlier versions."""
    path = inside(index, META_FILE)
    if not exists(path, index.place(META_FILE)):
        return None
    try:
        return BuiltIndex(index, _shard_list(read_bytes(path, index.place(META_FILE))).parts)
    except msgspec.DecodeError:
        return None


@dataclass
class PastBuild:
    """An earlier build, whose rows are taken over."""

    modes: dict[str, BuiltIndex]

    @cached_property
    def blob_paths(self) -> dict[tuple[str, str], FileRow]:
        """Where the rows of a blob in a language are."""
        rows = [row for index in self.modes.values() for row in index.files]
        read = [row for row in rows if row.skipped in (None, "binary", "generated")]
        return {(row.hash, row.language): row for row in read if row.language}


def newest_build(builds: Path, configuration: str, modes: tuple[str, ...]) -> PastBuild | None:
    """The newest build of the same configuration; one that is damaged is passed over."""
    candidates = [path for path in builds.glob(f"git-*-{configuration[:8]}") if path.is_dir()]
    for path in sorted(candidates, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        folders = {mode: IndexDir(path / f"index-{mode}", f"builds/{path.name}: index-{mode}") for mode in modes}
        try:
            state = read_object(path / "build_state.json", "build_state.json")
            found = {mode: built_index(folder) for mode, folder in folders.items()}
        except IndexRefError:
            continue
        known = {mode: index for mode, index in found.items() if index is not None}
        if state.get("configHash") == configuration and len(known) == len(modes):
            return PastBuild(known)
    return None


# Files as they are written, in groups that do not change from build to build.


def _piece(name: str, path: str, size: int, checksum: str, rows: int | None = None) -> JsonObject:
    """A file of the index in its manifest."""
    kind = "jsonl" if ".jsonl" in path else "json"
    members = {"type": "chunks", "name": name, "format": kind, "path": path, "bytes": size, "checksum": checksum}
    return members if rows is None else {**members, "count": rows}


class IndexWriter:
    """Writes `index-<mode>`: one shard of chunks for each group of files, and the lists of files and imports."""

    def __init__(self, root: Path, mode: str, build_id: str, configuration: str) -> None:
        self.folder = root / f"index-{mode}"
        (self.folder / "chunk_meta.parts").mkdir(parents=True)
        (self.folder / "pieces").mkdir()
        self.mode, self.build_id, self.configuration = mode, build_id, configuration
        self.files: list[FileRow] = []
        self.imports: list[ImportsRow] = []
        self.facts: list[FactsRow] = []
        self.shards: list[Shard] = []

    @property
    def chunks(self) -> int:
        return sum(shard.records for shard in self.shards)

    def add(self, key: str, rows: Sequence[FileRows]) -> None:
        for row in rows:
            self._add_file(row.file_meta(len(self.files)), row.imports, row.facts)
        data = b"".join(row.frame for row in rows) or compressed(())
        path, records = self._next_shard(), sum(row.chunks for row in rows)
        (self.folder / path).write_bytes(data)
        frames = [Frame(len(row.frame), row.chunks) for row in rows]
        self.shards.append(Shard(path, records, key, len(data), checksum_of(data), rows[0].path, rows[-1].path, frames))

    def take_over(self, past: BuiltIndex, shard: Shard) -> None:
        """Add a group that an earlier build has as it is."""
        source, path = past.shard_path(shard), self._next_shard()
        try:
            os.link(source, self.folder / path)
        except OSError:
            shutil.copyfile(source, self.folder / path)
        self.shards.append(msgspec.structs.replace(shard, path=path))
        for row in past.files_of(shard):
            row.id = len(self.files)
            self._add_file(row, past.imports.get(row.file, b""), past.facts.get(row.file, b""))

    def _add_file(self, row: FileRow, imports: bytes | msgspec.Raw, facts: bytes | msgspec.Raw) -> None:
        self.files.append(row)
        if imports:
            self.imports.append(ImportsRow(row.file, msgspec.Raw(imports)))
        if facts:
            self.facts.append(FactsRow(row.file, msgspec.Raw(facts)))

    def _next_shard(self) -> str:
        return f"chunk_meta.parts/chunk_meta.part-{len(self.shards):05d}.jsonl.zst"

    def close(self) -> None:
        """Write the lists, and the manifest with a checksum for every piece."""
        shards = ShardList("jsonl-sharded", "zstd", self.chunks, self.shards)
        pieces = [
            self._file("file_meta", "file_meta.jsonl.zst", compressed(self.files), len(self.files)),
            self._file("file_relations", RELATIONS_FILE, compressed(self.imports), len(self.imports)),
            self._file("file_surface", FACTS_FILE, compressed(self.facts), len(self.facts)),
            self._file("chunk_meta", META_FILE, msgspec.json.encode(shards)),
            *(_piece("chunk_meta", part.path, part.bytes, part.checksum, part.records) for part in self.shards),
        ]
        manifest: JsonObject = {"version": 2, "artifactSurfaceVersion": _SURFACE_VERSION}
        manifest |= {"compatibilityKey": self.configuration, "mode": self.mode, "stage": "build"}
        manifest |= {"buildId": self.build_id, "pieces": sorted(pieces, key=itemgetter("path"))}
        (self.folder / "pieces/manifest.json").write_bytes(msgspec.json.encode(manifest) + b"\n")

    def _file(self, name: str, path: str, data: bytes, count: int | None = None) -> JsonObject:
        (self.folder / path).write_bytes(data)
        return _piece(name, path, len(data), checksum_of(data), count)

"""The files of a build read again: to take rows over into the next build, and to compare two (index diffs §6.6)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

import msgspec
import xxhash
from backports import zstd

from driftline.codeindex.artifacts import inside
from driftline.codeindex.index_rows import ChunkRow, FileRow, Imports, ImportsRow, chunk_rows
from driftline.codeindex.resolve import IndexDir
from driftline.codeindex.storage import exists, read_bytes, read_object
from driftline.errors import IndexRefError

META_FILE = "chunk_meta.meta.json"


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


def checksum_of(data: bytes) -> str:
    """The checksum that manifest and meta file hold."""
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
        """All files, in the order of their paths."""
        return self._lines("file_meta.jsonl.zst", _file_rows)

    @cached_property
    def imports(self) -> dict[str, msgspec.Raw]:
        """Imports by file, as they are written."""
        return {row.file: row.relations for row in self._lines("file_relations.jsonl.zst", _imports_rows)}

    def imports_of(self, path: str) -> list[str]:
        """The imports of a file."""
        found = self.imports.get(path)
        try:
            return [] if found is None else _imports(found).imports
        except msgspec.DecodeError:
            raise self._damaged("file_relations.jsonl.zst") from None

    @cached_property
    def by_key(self) -> dict[str, Shard]:
        """Shards by what their rows depend on."""
        return {shard.key: shard for shard in self.shards}

    def files_of(self, shard: Shard) -> list[FileRow]:
        """The files of a shard."""
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
        return {
            file.file: (start, frame.size, frame.rows)
            for file, start, frame in zip(files, starts, shard.frames, strict=False)
        }

    def chunks(self, path: str) -> list[ChunkRow]:
        """The chunks of a file."""
        try:
            return chunk_rows(self.frame(path)[0])
        except (zstd.ZstdError, msgspec.DecodeError):
            raise self._damaged(f"the chunks of {path}") from None

    def shard_path(self, shard: Shard) -> Path:
        """Where a shard is, whole as far as its size tells; its bytes are not looked at."""
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
        try:
            return decoder.decode_lines(zstd.decompress(read_bytes(inside(self.index, name), self.index.place(name))))
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


class PastBuild:
    """An earlier build, whose rows are taken over."""

    def __init__(self, modes: dict[str, BuiltIndex]) -> None:
        self.modes = modes

    @cached_property
    def blob_paths(self) -> dict[tuple[str, str], FileRow]:
        """Where the rows of a blob in a language are."""
        rows = [row for index in self.modes.values() for row in index.files]
        return {
            (row.hash, row.language): row
            for row in rows
            if row.language and row.skipped in (None, "binary", "generated")
        }


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

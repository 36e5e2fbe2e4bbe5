"""The files of a build as they are written: in groups that do not change from build to build (index diffs §6.6)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from driftline.codeindex.built_index import META_FILE, BuiltIndex, Frame, Shard, ShardList, checksum_of
from driftline.codeindex.index_rows import FileRow, FileRows, ImportsRow, compressed

_SURFACE_VERSION = "1.0.0"


class _Piece(NamedTuple):
    """A file of the index in its manifest."""

    name: str
    path: str
    size: int
    checksum: str
    rows: int | None = None

    def to_dict(self) -> dict[str, object]:
        kind = "jsonl" if ".jsonl" in self.path else "json"
        members: dict[str, object] = {"type": "chunks", "name": self.name, "format": kind, "path": self.path}
        members |= {"bytes": self.size, "checksum": self.checksum}
        return members if self.rows is None else {**members, "count": self.rows}


class IndexWriter:
    """Writes `index-<mode>`: one shard of chunks for each group of files, and the lists of files and imports."""

    def __init__(self, root: Path, mode: str, build_id: str, configuration: str) -> None:
        self.folder = root / f"index-{mode}"
        (self.folder / "chunk_meta.parts").mkdir(parents=True)
        (self.folder / "pieces").mkdir()
        self.mode = mode
        self.build_id = build_id
        self.configuration = configuration
        self.files: list[FileRow] = []
        self.imports: list[ImportsRow] = []
        self.shards: list[Shard] = []

    @property
    def chunks(self) -> int:
        """How many chunks were written."""
        return sum(shard.records for shard in self.shards)

    @property
    def parse_errors(self) -> int:
        """How many files the parser had to guess at."""
        return sum(row.parseError for row in self.files)

    @property
    def skipped(self) -> list[str]:
        """Why files were not read, one reason each."""
        return [row.skipped for row in self.files if row.skipped]

    def add(self, key: str, rows: Sequence[FileRows]) -> None:
        """Add a group of files."""
        for row in rows:
            self._add_file(row.file_meta(len(self.files)), row.imports)
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
            self._add_file(row, past.imports.get(row.file, b""))

    def _add_file(self, row: FileRow, imports: bytes | msgspec.Raw) -> None:
        self.files.append(row)
        if imports:
            self.imports.append(ImportsRow(row.file, msgspec.Raw(imports)))

    def _next_shard(self) -> str:
        return f"chunk_meta.parts/chunk_meta.part-{len(self.shards):05d}.jsonl.zst"

    def close(self) -> None:
        """Write the lists, and the manifest with a checksum for every piece."""
        shards = ShardList("jsonl-sharded", "zstd", self.chunks, self.shards)
        pieces = [
            self._file("file_meta", "file_meta.jsonl.zst", compressed(self.files), len(self.files)),
            self._file("file_relations", "file_relations.jsonl.zst", compressed(self.imports), len(self.imports)),
            self._file("chunk_meta", META_FILE, msgspec.json.encode(shards)),
            *(_Piece("chunk_meta", part.path, part.bytes, part.checksum, part.records) for part in self.shards),
        ]
        manifest = {
            "version": 2,
            "artifactSurfaceVersion": _SURFACE_VERSION,
            "compatibilityKey": self.configuration,
            "mode": self.mode,
            "stage": "build",
            "buildId": self.build_id,
            "pieces": [piece.to_dict() for piece in sorted(pieces, key=lambda piece: piece.path)],
        }
        (self.folder / "pieces/manifest.json").write_bytes(msgspec.json.encode(manifest) + b"\n")

    def _file(self, name: str, path: str, data: bytes, count: int | None = None) -> _Piece:
        (self.folder / path).write_bytes(data)
        return _Piece(name, path, len(data), checksum_of(data), count)

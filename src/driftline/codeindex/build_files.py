"""The files of a build: written in groups that do not change from build to build, and read again to take rows over."""

from __future__ import annotations

import os
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import xxhash
from backports import zstd

from driftline.codeindex.index_rows import FileRows
from driftline.codeindex.rows import line_head
from driftline.codeindex.storage import parse_json, read_bytes, read_object
from driftline.errors import IndexRefError

_LEVEL = 3
_SURFACE_VERSION = "1.0.0"


class IndexWriter:
    """Writes `index-<mode>`: one shard of chunks for each group of files, and the lists of files and imports."""

    def __init__(self, root: Path, mode: str, build_id: str, configuration: str) -> None:
        self.folder = root / f"index-{mode}"
        (self.folder / "chunk_meta.parts").mkdir(parents=True)
        (self.folder / "pieces").mkdir()
        self.mode = mode
        self.build_id = build_id
        self.configuration = configuration
        self.files: list[dict[str, Any]] = []
        self.imports: list[dict[str, Any]] = []
        self.parts: list[dict[str, Any]] = []
        self.pieces: list[dict[str, Any]] = []

    @property
    def chunks(self) -> int:
        """How many chunks were written."""
        return sum(part["records"] for part in self.parts)

    @property
    def parse_errors(self) -> int:
        """How many files the parser had to guess at."""
        return sum(bool(row.get("parseError")) for row in self.files)

    @property
    def skipped(self) -> list[str]:
        """Why files were not read, one reason each."""
        return [row["skipped"] for row in self.files if "skipped" in row]

    def add(self, key: str, rows: Sequence[FileRows] | None, past: PastBuild | None) -> None:
        """Add a group: its rows, or None to take the group over from the past build."""
        if rows is None:
            assert past is not None
            self._link(past, past.group(self.mode, key))
            return
        for row in rows:
            self.files.append(row.file_meta(len(self.files)))
            if row.imports:
                self.imports.append({"file": row.path, "relations": {"imports": row.imports}})
        data = b"".join(row.lines for row in rows)
        part = {"path": self._next_part(), "records": sum(row.chunks for row in rows), "key": key}
        self._part(part, zstd.compress(data, _LEVEL), rows[0].path, rows[-1].path)

    def _next_part(self) -> str:
        return f"chunk_meta.parts/chunk_meta.part-{len(self.parts):05d}.jsonl.zst"

    def _part(self, part: dict[str, Any], data: bytes, first: str, last: str) -> None:
        (self.folder / part["path"]).write_bytes(data)
        checksum = f"xxh64:{xxhash.xxh64_hexdigest(data)}"
        self.parts.append({**part, "bytes": len(data), "checksum": checksum, "first": first, "last": last})

    def _link(self, past: PastBuild, group: dict[str, Any]) -> None:
        part = {**group, "path": self._next_part()}
        source, target = past.folder(self.mode) / group["path"], self.folder / part["path"]
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
        self.parts.append(part)
        for row in past.files_between(self.mode, group["first"], group["last"]):
            self.files.append({**row, "id": len(self.files)})
            if row["file"] in past.imports(self.mode):
                self.imports.append(
                    {"file": row["file"], "relations": {"imports": past.imports(self.mode)[row["file"]]}}
                )

    def close(self) -> None:
        """Write the lists, and the manifest with a checksum for every piece."""
        self._artifact("file_meta", self.files)
        self._artifact("file_relations", self.imports)
        for part in self.parts:
            self._piece("chunk_meta", part["path"], part["bytes"], part["checksum"], part["records"])
        meta = {"format": "jsonl-sharded", "compression": "zstd", "totalRecords": self.chunks, "parts": self.parts}
        self._file("chunk_meta", "chunk_meta.meta.json", msgspec.json.encode(meta), None)
        manifest = {
            "version": 2,
            "artifactSurfaceVersion": _SURFACE_VERSION,
            "compatibilityKey": self.configuration,
            "mode": self.mode,
            "stage": "build",
            "buildId": self.build_id,
            "pieces": sorted(self.pieces, key=lambda piece: str(piece["path"])),
        }
        (self.folder / "pieces/manifest.json").write_bytes(msgspec.json.encode(manifest) + b"\n")

    def _artifact(self, name: str, rows: list[dict[str, Any]]) -> None:
        data = zstd.compress(b"".join(msgspec.json.encode(row) + b"\n" for row in rows), _LEVEL)
        self._file(name, f"{name}.jsonl.zst", data, len(rows))

    def _file(self, name: str, path: str, data: bytes, count: int | None) -> None:
        (self.folder / path).write_bytes(data)
        self._piece(name, path, len(data), f"xxh64:{xxhash.xxh64_hexdigest(data)}", count)

    def _piece(self, name: str, path: str, size: int, checksum: str, count: int | None) -> None:
        kind = "jsonl" if ".jsonl" in path else "json"
        piece = {"type": "chunks", "name": name, "format": kind, "path": path, "bytes": size, "checksum": checksum}
        self.pieces.append(piece | ({"count": count} if count is not None else {}))


class PastBuild:
    """An earlier build, whose rows are taken over; read as far as it is needed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files: dict[str, list[dict[str, Any]]] = {}
        self._imports: dict[str, dict[str, list[str]]] = {}
        self._groups: dict[str, dict[str, dict[str, Any]]] = {}
        self._lines: dict[tuple[str, str], dict[str, bytes]] = {}

    def folder(self, mode: str) -> Path:
        """The index of a mode."""
        return self.root / f"index-{mode}"

    def has(self, mode: str, key: str) -> bool:
        """Whether a group is there as it is."""
        return key in self._groups_of(mode)

    def group(self, mode: str, key: str) -> dict[str, Any]:
        """What the meta file says about a group."""
        return self._groups_of(mode)[key]

    def files_between(self, mode: str, first: str, last: str) -> list[dict[str, Any]]:
        """The file rows of a group."""
        rows = self._file_rows(mode)
        start = bisect_left(rows, first, key=itemgetter("file"))
        return rows[start : bisect_right(rows, last, key=itemgetter("file"))]

    def imports(self, mode: str) -> dict[str, list[str]]:
        """Imports by file."""
        if mode not in self._imports:
            rows = _read_lines(self.folder(mode) / "file_relations.jsonl.zst")
            self._imports[mode] = {row["file"]: row["relations"]["imports"] for row in rows}
        return self._imports[mode]

    def blob_paths(self) -> dict[tuple[str, str], str]:
        """Where the rows of a blob in a language are."""
        rows = [row for mode in ("code", "prose") for row in self._file_rows(mode)]
        readable = [row for row in rows if row["language"] and row.get("skipped") in (None, "binary", "generated")]
        return {(row["hash"], row["language"]): row["file"] for row in readable}

    def rows(self, mode: str, path: str) -> tuple[dict[str, Any], list[str], bytes]:
        """Everything about one file: its row, its imports, and the lines of its chunks."""
        (meta,) = self.files_between(mode, path, path)
        group = self._group_around(mode, path)
        lines = self._lines_of(mode, group).get(path, b"") if group is not None else b""
        return meta, self.imports(mode).get(path, []), lines

    def _group_around(self, mode: str, path: str) -> dict[str, Any] | None:
        groups = self._ordered_groups(mode)
        place = bisect_right(groups, path, key=itemgetter("first")) - 1
        return groups[place] if place >= 0 and path <= groups[place]["last"] else None

    def _lines_of(self, mode: str, group: dict[str, Any]) -> dict[str, bytes]:
        """The lines of a group by file, without parsing them: they begin with the file, and one file's are together."""
        if (mode, group["path"]) not in self._lines:
            data = _decompressed(self.folder(mode) / group["path"])
            by_file: dict[str, bytes] = {}
            place = 0
            for row in self.files_between(mode, group["first"], group["last"]):
                start, head = place, line_head(row["file"])
                while data.startswith(head, place):
                    place = data.index(b"\n", place) + 1
                if place > start:
                    by_file[row["file"]] = data[start:place]
            if place != len(data):
                raise _damaged(group["path"])
            self._lines[mode, group["path"]] = by_file
        return self._lines[mode, group["path"]]

    def _file_rows(self, mode: str) -> list[dict[str, Any]]:
        if mode not in self._files:
            self._files[mode] = _read_lines(self.folder(mode) / "file_meta.jsonl.zst")
        return self._files[mode]

    def _groups_of(self, mode: str) -> dict[str, dict[str, Any]]:
        if mode not in self._groups:
            meta = read_object(self.folder(mode) / "chunk_meta.meta.json", "chunk_meta.meta.json")
            self._groups[mode] = {part["key"]: part for part in meta["parts"]}
        return self._groups[mode]

    def _ordered_groups(self, mode: str) -> list[dict[str, Any]]:
        return list(self._groups_of(mode).values())  # written in the order of their paths


def newest_build(builds: Path, configuration: str) -> PastBuild | None:
    """The newest build of the same configuration; one that is damaged is passed over."""
    candidates = [path for path in builds.glob(f"git-*-{configuration[:8]}") if path.is_dir()]
    for path in sorted(candidates, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        try:
            state = read_object(path / "build_state.json", "build_state.json")
        except IndexRefError:
            continue
        if state.get("configHash") == configuration:
            return PastBuild(path)
    return None


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [parse_json(line, path.name) for line in _decompressed(path).splitlines()]


def _decompressed(path: Path) -> bytes:
    try:
        return zstd.decompress(read_bytes(path, path.name))
    except zstd.ZstdError:
        raise _damaged(path.name) from None


def _damaged(place: str) -> IndexRefError:
    return IndexRefError(f"{place} of an earlier build is damaged: build with --force")

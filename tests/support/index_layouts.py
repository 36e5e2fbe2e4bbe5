"""Writes indexes in every storage form, for tests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xxhash
from backports import zstd

Rows = list[dict[str, Any]]

COLD_MEMBERS = ("segment", "codeRelations", "metaV2", "docmeta")


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _lines(rows: Rows) -> bytes:
    return b"".join(_dump(row) + b"\n" for row in rows)


def _plain(data: bytes) -> bytes:
    return data


def write_json(folder: Path, name: str, rows: Rows) -> None:
    (folder / f"{name}.json").write_bytes(_dump(rows))


def write_pretty_json(folder: Path, name: str, rows: Rows) -> None:
    (folder / f"{name}.json").write_text(json.dumps(rows, indent=2))


def _jsonl(suffix: str, pack: Callable[[bytes], bytes]) -> Callable[[Path, str, Rows], None]:
    def write(folder: Path, name: str, rows: Rows) -> None:
        (folder / f"{name}.jsonl{suffix}").write_bytes(pack(_lines(rows)))

    return write


def _sharded(suffix: str, pack: Callable[[bytes], bytes], listing: str) -> Callable[[Path, str, Rows], None]:
    def write(folder: Path, name: str, rows: Rows) -> None:
        parts = folder / f"{name}.parts"
        parts.mkdir()
        names = []
        for number in range(3):
            path = f"{name}.parts/{name}.part-{number:05d}.jsonl{suffix}"
            (folder / path).write_bytes(pack(_lines(rows[number::3])))
            names.append(path)
        if listing == "strings":
            meta: dict[str, Any] = {"fields": {"format": "jsonl-sharded", "parts": names[::-1]}}
        elif listing == "objects":
            meta = {"format": "jsonl-sharded", "parts": [{"path": path, "records": 1} for path in names]}
        else:
            meta = {"format": "jsonl-sharded"}
        (folder / f"{name}.meta.json").write_bytes(_dump(meta))

    return write


def columnar(rows: Rows, tabled: tuple[str, ...] = ()) -> dict[str, Any]:
    columns = list(dict.fromkeys(member for row in rows for member in row))
    arrays = {column: [row.get(column) for row in rows] for column in columns}
    tables: dict[str, list[Any]] = {}
    for column in tabled:
        values = [value for value in dict.fromkeys(arrays.get(column, [])) if value is not None]
        tables[column] = values
        arrays[column] = [None if value is None else values.index(value) for value in arrays.get(column, [])]
    content: dict[str, Any] = {"format": "columnar", "columns": columns, "length": len(rows), "arrays": arrays}
    return content | ({"tables": tables} if tabled else {})


def write_columnar(folder: Path, name: str, rows: Rows) -> None:
    (folder / f"{name}.columnar.json").write_bytes(_dump(columnar(rows)))


def write_tabled_columnar(folder: Path, name: str, rows: Rows) -> None:
    (folder / f"{name}.columnar.json").write_bytes(_dump(columnar(rows, ("file", "ext", "kind"))))


def write_hot_and_cold(folder: Path, name: str, rows: Rows) -> None:
    if name != "chunk_meta" or any("id" not in row for row in rows):
        write_json(folder, name, rows)
        return
    hot = [{member: value for member, value in row.items() if member not in COLD_MEMBERS} for row in rows]
    cold = [{"id": row["id"], **{m: v for m, v in row.items() if m in COLD_MEMBERS}} for row in rows]
    _jsonl("", _plain)(folder, name, hot)
    _sharded(".zst", zstd.compress, "strings")(folder, f"{name}_cold", cold[::-1])


LAYOUTS: dict[str, Callable[[Path, str, Rows], None]] = {
    "json": write_json,
    "pretty-json": write_pretty_json,
    "jsonl": _jsonl("", _plain),
    "jsonl-gz": _jsonl(".gz", gzip.compress),
    "jsonl-zst": _jsonl(".zst", zstd.compress),
    "sharded": _sharded("", _plain, "strings"),
    "sharded-gz": _sharded(".gz", gzip.compress, "objects"),
    "sharded-zst": _sharded(".zst", zstd.compress, "strings"),
    "sharded-by-name": _sharded("", _plain, "nothing"),
    "columnar": write_columnar,
    "columnar-tables": write_tabled_columnar,
    "hot-cold": write_hot_and_cold,
}


def write_index(root: Path, sides: dict[str, dict[str, Any]], layout: str = "json", *, manifest: Any = None) -> Path:
    """Write `index-<mode>` folders below `root`; `sides` is mode -> {file_meta, chunk_meta, file_relations?}."""
    for mode, content in sides.items():
        folder = root / f"index-{mode}"
        folder.mkdir(parents=True)
        for name in ("file_meta", "chunk_meta", "file_relations"):
            if name in content:
                LAYOUTS[layout](folder, name, content[name])
        wanted = content.get("pieces_manifest", manifest)
        if wanted == "auto":
            wanted = manifest_of(folder)
        if wanted is not None:
            (folder / "pieces").mkdir()
            (folder / "pieces" / "manifest.json").write_bytes(_dump(wanted))
    return root


def manifest_of(folder: Path, **members: Any) -> dict[str, Any]:
    """A manifest with the real checksums of all files in a folder."""
    pieces = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "pieces" not in path.parts:
            data = path.read_bytes()
            pieces.append(
                {
                    "type": "chunks",
                    "name": path.name.partition(".")[0],
                    "format": "json" if path.name.endswith(".json") else "jsonl",
                    "path": path.relative_to(folder).as_posix(),
                    "bytes": len(data),
                    "checksum": f"xxh64:{xxhash.xxh64_hexdigest(data)}",
                }
            )
    return {"version": 2, "artifactSurfaceVersion": "0.0.1", "compatibilityKey": "k", "pieces": pieces, **members}


def file_row(number: int, file: str, content_hash: str | None, size: int = 10) -> dict[str, Any]:
    return {"id": number, "file": file, "ext": ".js", "size": size, "hash": content_hash, "hashAlgo": "sha1"}


def chunk_row(number: int, file: str, name: str, start: int = 0, **members: Any) -> dict[str, Any]:
    """A chunk row as real indexes hold it; keyword arguments replace members (`metaV2` ones too)."""
    meta_members = ("chunkId", "signature", "modifiers", "params")
    row = {
        "id": number,
        "fileId": members.pop("fileId", 0),
        "file": file,
        "start": start,
        "end": start + 10,
        "startLine": start // 10 + 1,
        "endLine": start // 10 + 1,
        "kind": members.pop("kind", "function"),
        "name": name,
        "metaV2": {member: members.pop(member) for member in meta_members if member in members},
    }
    return row | members

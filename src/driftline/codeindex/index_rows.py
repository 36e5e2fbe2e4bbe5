"""Rows of an index as its artifacts hold them, made from what was extracted and the path of the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from driftline.canonical import sha1_hex
from driftline.codeindex.git_objects import TreeEntry
from driftline.codeindex.publicity import path_is_public
from driftline.codeindex.storage import parse_json

_META = (
    "signature", "params", "sigHash", "bodyHash", "docHash", "sketch", "shingles", "tokens", "ownTokens", "sigTokens",
    "parent", "exported", "ordinal",
)  # fmt: skip
_PLACE = ("start", "end", "startLine", "endLine", "kind", "name")


@dataclass(slots=True)
class FileRows:
    """Everything an index holds about one file."""

    path: str
    object_id: str
    size: int | None
    language: str | None
    skipped: str | None = None
    parse_error: bool = False
    imports: list[str] = field(default_factory=list)
    lines: bytes = b""
    chunks: int = 0

    @classmethod
    def without_chunks(cls, entry: TreeEntry, language: str | None, skipped: str | None) -> FileRows:
        """What is known before a file is looked into."""
        return cls(entry.path, entry.object_id, entry.size, language, skipped)

    def file_meta(self, number: int) -> dict[str, Any]:
        """The row of `file_meta`."""
        name = self.path.rpartition("/")[2]
        dot = name.rfind(".")
        row: dict[str, Any] = {
            "id": number,
            "file": self.path,
            "ext": name[dot:] if dot > 0 else "",
            "size": self.size,
            "hash": self.object_id,
            "hashAlgo": "git-sha1" if len(self.object_id) == 40 else "git-sha256",
            "language": self.language,
        }
        if self.skipped:
            row["skipped"] = self.skipped
        if self.parse_error:
            row["parseError"] = True
        return row


def chunk_lines(path: str, language: str, rows: Iterable[dict[str, Any]]) -> bytes:
    """Lines of `chunk_meta` for extracted rows."""
    visible = path_is_public(language, path)
    return b"".join(_line(path, visible, row) for row in rows)


def _line(path: str, visible: bool, row: dict[str, Any]) -> bytes:
    chunk_id = chunk_id_of(path, row["name"], row["ordinal"])
    meta = {name: row[name] for name in _META} | {"chunkId": chunk_id, "public": row["exported"] and visible}
    calls = [[row["name"], callee] for callee in row["calls"]]
    place = {name: row[name] for name in _PLACE}
    content = {"file": path, "chunkId": chunk_id, **place, "codeRelations": {"calls": calls}, "metaV2": meta}
    return msgspec.json.encode(content) + b"\n"


def chunk_id_of(path: str, name: str, ordinal: int) -> str:
    """The id of a chunk: where it is and what it is called, whatever is in it."""
    return f"chunk_{sha1_hex(f'{path}|{name}|{ordinal}'.encode('utf-8', 'surrogatepass'))}"


def moved_lines(rows: tuple[dict[str, Any], list[str], bytes], facts: FileRows) -> FileRows:
    """Rows of the same blob taken over from an earlier build, for another path if need be."""
    meta, imports, lines = rows
    facts.skipped, facts.parse_error = meta.get("skipped"), bool(meta.get("parseError"))
    facts.imports, facts.chunks, facts.lines = imports, lines.count(b"\n"), lines
    if meta["file"] != facts.path:
        visible = path_is_public(facts.language, facts.path)
        facts.lines = b"".join(_moved(line, facts.path, visible) for line in lines.splitlines())
    return facts


def _moved(line: bytes, path: str, visible: bool) -> bytes:
    chunk = parse_json(line, "a chunk row of an earlier build")
    meta = chunk["metaV2"]
    chunk_id = chunk_id_of(path, chunk["name"], meta["ordinal"])
    fresh = {**meta, "chunkId": chunk_id, "public": meta["exported"] and visible}
    return msgspec.json.encode({**chunk, "file": path, "chunkId": chunk_id, "metaV2": fresh}) + b"\n"

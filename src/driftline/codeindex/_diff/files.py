"""Files that were added, removed, modified or renamed (index diffs §5.1), and the events of a diff as plain records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from driftline.codeindex._diff.chunks import Chunk, ChunkPair, EdgeChange
from driftline.codeindex._storage import Number, number_or_none, row_id, text_or_none
from driftline.core import JsonObject, canonical_json, utf16_sort_key, utf16_sorted

ChangeKind = Literal["added", "removed", "modified", "renamed"]
IndexEvent = JsonObject

LIMIT_KIND = "limits.chunkDiffSkipped"
MAX_CHANGED_FILES = "max-changed-files"
MAX_CHUNKS_PER_FILE = "max-chunks-per-file"

_VERDICT_RANK = {"added": 0, "removed": 1, "modified": 2, "moved": 3}


class FileEntry(msgspec.Struct, frozen=True):
    """One row of `file_meta` without its row number, which means nothing outside of its build."""

    file: str
    hash: str | None = None
    size: Number | None = None
    ext: str | None = None
    # Why its definitions are not known, or not surely: the reason it was not read, or `unparsed`.
    state: str | None = None

    @classmethod
    def from_dict(cls, record: JsonObject) -> FileEntry:
        """The entry in a row of `file_meta` or in an event."""
        content_hash, ext, state = (text_or_none(record.get(name)) for name in ("hash", "ext", "state"))
        return cls(record["file"], content_hash, number_or_none(record.get("size")), ext, state)

    def to_dict(self) -> JsonObject:
        """The entry as events carry it."""
        entry: JsonObject = {"file": self.file, "hash": self.hash, "size": self.size, "ext": self.ext}
        return entry if self.state is None else {**entry, "state": self.state}


@dataclass(slots=True)
class FileTable:
    """The files of one side, and the row numbers by which its chunks may name them."""

    entries: dict[str, FileEntry] = field(default_factory=dict)
    path_by_id: dict[str, str] = field(default_factory=dict)
    skipped_rows: int = 0


class FileChange(msgspec.Struct, frozen=True):
    """What happened to one file; `path` is its place in the order of events."""

    kind: ChangeKind
    before: FileEntry | None
    after: FileEntry | None

    @property
    def path(self) -> str:
        """The new path, or the old one where there is no new one."""
        entry = self.after or self.before
        assert entry is not None
        return entry.file


def file_table(rows: Iterable[JsonObject]) -> FileTable:
    """The files of one side; rows without a file are counted."""
    table = FileTable()
    ids: JsonObject = {}
    for row in rows:
        file, number = row.get("file"), row.get("id")
        if not isinstance(file, str) or not file:
            table.skipped_rows += 1
            continue
        key = row_id(number)
        if key is not None:
            table.path_by_id[key] = min(file, table.path_by_id.get(key, file), key=utf16_sort_key)
        content_hash, ext = text_or_none(row.get("hash")), text_or_none(row.get("ext"))
        entry = FileEntry(file, content_hash, number_or_none(row.get("size")), ext)
        known = table.entries.get(file)
        # The same file twice: the highest row number wins, whatever the order of the rows.
        if known is None or _rank(number, entry) > _rank(ids[file], known):
            table.entries[file] = entry
            ids[file] = number
    return table


def _rank(row_number: object, entry: FileEntry) -> tuple[Number, str]:
    number = number_or_none(row_number)
    return (-1 if number is None else number, canonical_json(entry.to_dict()))


def changed_files(before: FileTable, after: FileTable, *, detect_renames: bool) -> list[FileChange]:
    """All changes, in the order of their paths."""
    removed = {path: entry for path, entry in before.entries.items() if path not in after.entries}
    added = {path: entry for path, entry in after.entries.items() if path not in before.entries}
    both = ((old, after.entries[path]) for path, old in before.entries.items() if path in after.entries)
    changes = [FileChange("modified", old, new) for old, new in both if _is_modified(old, new)]
    if detect_renames:
        changes += take_renames(removed, added)
    changes += [FileChange("removed", entry, None) for entry in removed.values()]
    changes += [FileChange("added", None, entry) for entry in added.values()]
    by_path = {change.path: change for change in changes}
    return [by_path[path] for path in utf16_sorted(by_path)]


def _is_modified(before: FileEntry, after: FileEntry) -> bool:
    """By hash; by size only where neither side has a hash."""
    if before.hash is None and after.hash is None:
        return before.size != after.size
    return before.hash != after.hash


def take_renames(removed: dict[str, FileEntry], added: dict[str, FileEntry]) -> list[FileChange]:
    """Pair removed and added files of the same hash in path order, and take them out of both."""
    old_paths, new_paths = _paths_by_hash(removed), _paths_by_hash(added)
    pairs = [
        pair
        for content_hash in old_paths.keys() & new_paths.keys()
        for pair in zip(old_paths[content_hash], new_paths[content_hash], strict=False)
    ]
    return [FileChange("renamed", removed.pop(old), added.pop(new)) for old, new in pairs]


def _paths_by_hash(entries: dict[str, FileEntry]) -> dict[str, list[str]]:
    by_hash: dict[str, list[str]] = defaultdict(list)
    for path, entry in entries.items():
        if entry.hash is not None:
            by_hash[entry.hash].append(path)
    return {content_hash: utf16_sorted(paths) for content_hash, paths in by_hash.items()}


# Events; their order is part of their meaning (index diffs §5.4).


def file_event(mode: str, change: FileChange) -> IndexEvent:
    """`file.added`, `file.removed`, `file.modified` or `file.renamed`."""
    event: IndexEvent = {"kind": f"file.{change.kind}", "mode": mode, "file": change.path}
    if change.kind == "renamed" and change.before is not None:
        event |= {"beforeFile": change.before.file, "afterFile": change.path}
    return event | _sides(change.before, change.after)


def chunk_event(mode: str, file: str, pair: ChunkPair) -> IndexEvent:
    """`chunk.added`, `chunk.removed`, `chunk.modified` or `chunk.moved`; `file` is the new path after a rename."""
    chunk = pair.placed
    event: IndexEvent = {"kind": f"chunk.{pair.verdict}", "mode": mode, "file": file}
    event |= {"chunkId": chunk.chunk_id, "logicalKey": chunk.logical_key}
    if pair.verdict == "modified" and pair.before is not None:
        event |= {"logicalKeyBefore": pair.before.logical_key, "logicalKeyAfter": chunk.logical_key}
    return event | {"name": chunk.name, "chunkKind": chunk.kind} | _sides(pair.before, pair.after)


def relation_event(mode: str, file: str, change: EdgeChange) -> IndexEvent:
    """`relation.added` or `relation.removed`."""
    event = {"kind": "relation.added" if change.added else "relation.removed", "mode": mode, "file": file}
    edge = {"type": change.edge.type, "fromKey": change.from_key, "to": change.edge.to, "edgeKey": change.edge_key}
    return event | edge


def mode_limit_event(mode: str, modified_files: int, limit: int) -> IndexEvent:
    """Too many modified files: no chunk of this mode was compared."""
    counts = {"modifiedFiles": modified_files, "maxChangedFiles": limit}
    return {"kind": LIMIT_KIND, "mode": mode, "reason": MAX_CHANGED_FILES, **counts}


def file_limit_event(mode: str, file: str, before: int, after: int, limit: int) -> IndexEvent:
    """Too many chunks: those of this file were not compared."""
    counts = {"chunksBefore": before, "chunksAfter": after, "maxChunksPerFile": limit}
    return {"kind": LIMIT_KIND, "mode": mode, "file": file, "reason": MAX_CHUNKS_PER_FILE, **counts}


def chunk_order(pair: ChunkPair) -> tuple[object, ...]:
    """By (logicalKey, startLine, start), then added, removed, modified, moved; the rest only breaks ties."""
    chunk = pair.placed
    span = chunk.span
    return (
        utf16_sort_key(chunk.logical_key),
        span.start_line or 0,
        span.start or 0,
        _VERDICT_RANK.get(pair.verdict or "", 4),
        utf16_sort_key(chunk.chunk_id or ""),
        span.end or 0,
        span.end_line or 0,
        repr(chunk.semantics),
        pair.before.logical_key if pair.before else "",
        repr(pair.before.span) if pair.before else "",
    )


def _sides(before: FileEntry | Chunk | None, after: FileEntry | Chunk | None) -> IndexEvent:
    sides = {"before": before, "after": after}
    return {side: record.to_dict() for side, record in sides.items() if record is not None}

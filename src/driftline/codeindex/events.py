"""Events as plain records, ready to be written; their order is part of their meaning (index diffs §5.4)."""

from __future__ import annotations

from driftline.codeindex.chunks import Chunk, ChunkPair
from driftline.codeindex.files_changed import FileChange, FileEntry
from driftline.codeindex.relations import EdgeChange
from driftline.core._json import JsonObject, utf16_sort_key

Event = JsonObject

LIMIT_KIND = "limits.chunkDiffSkipped"
MAX_CHANGED_FILES = "max-changed-files"
MAX_CHUNKS_PER_FILE = "max-chunks-per-file"

_VERDICT_RANK = {"added": 0, "removed": 1, "modified": 2, "moved": 3}


def file_event(mode: str, change: FileChange) -> Event:
    """`file.added`, `file.removed`, `file.modified` or `file.renamed`."""
    event: Event = {"kind": f"file.{change.kind}", "mode": mode, "file": change.path}
    if change.kind == "renamed" and change.before is not None:
        event |= {"beforeFile": change.before.file, "afterFile": change.path}
    return event | _sides(change.before, change.after)


def chunk_event(mode: str, file: str, pair: ChunkPair) -> Event:
    """`chunk.added`, `chunk.removed`, `chunk.modified` or `chunk.moved`; `file` is the new path after a rename."""
    chunk = pair.placed
    event: Event = {
        "kind": f"chunk.{pair.verdict}",
        "mode": mode,
        "file": file,
        "chunkId": chunk.chunk_id,
        "logicalKey": chunk.logical_key,
    }
    if pair.verdict == "modified" and pair.before is not None:
        event |= {"logicalKeyBefore": pair.before.logical_key, "logicalKeyAfter": chunk.logical_key}
    return event | {"name": chunk.name, "chunkKind": chunk.kind} | _sides(pair.before, pair.after)


def relation_event(mode: str, file: str, change: EdgeChange) -> Event:
    """`relation.added` or `relation.removed`."""
    return {
        "kind": "relation.added" if change.added else "relation.removed",
        "mode": mode,
        "file": file,
        "type": change.edge.type,
        "fromKey": change.from_key,
        "to": change.edge.to,
        "edgeKey": change.edge_key,
    }


def mode_limit_event(mode: str, modified_files: int, limit: int) -> Event:
    """Too many modified files: no chunk of this mode was compared."""
    return {
        "kind": LIMIT_KIND,
        "mode": mode,
        "reason": MAX_CHANGED_FILES,
        "modifiedFiles": modified_files,
        "maxChangedFiles": limit,
    }


def file_limit_event(mode: str, file: str, before: int, after: int, limit: int) -> Event:
    """Too many chunks: those of this file were not compared."""
    return {
        "kind": LIMIT_KIND,
        "mode": mode,
        "file": file,
        "reason": MAX_CHUNKS_PER_FILE,
        "chunksBefore": before,
        "chunksAfter": after,
        "maxChunksPerFile": limit,
    }


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


def _sides(before: FileEntry | Chunk | None, after: FileEntry | Chunk | None) -> Event:
    sides = {"before": before, "after": after}
    return {side: record.to_dict() for side, record in sides.items() if record is not None}

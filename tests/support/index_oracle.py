"""An index diff written straight from the documents, slow and in the plainest Python, to judge the real one."""

from __future__ import annotations

import json
from typing import Any


def u16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def logical_key(chunk: dict[str, Any]) -> str:
    segment = (chunk.get("segment") or {}).get("segmentId") or ""
    return "|".join([segment, chunk.get("kind") or "", chunk.get("name") or "", signature(chunk)])


def signature(chunk: dict[str, Any]) -> str:
    return (chunk.get("metaV2") or {}).get("signature") or (chunk.get("docmeta") or {}).get("signature") or ""


def chunk_id(chunk: dict[str, Any]) -> str | None:
    value = (chunk.get("metaV2") or {}).get("chunkId") or chunk.get("chunkId")
    return value if isinstance(value, str) else None


def semantics(chunk: dict[str, Any]) -> str:
    meta = chunk.get("metaV2") or {}
    return json.dumps(
        [chunk.get("kind") or "", chunk.get("name") or "", signature(chunk), meta.get("modifiers"), meta.get("params")],
        sort_keys=True,
    )


def span(chunk: dict[str, Any]) -> dict[str, Any]:
    return {edge: chunk.get(edge) for edge in ("start", "end", "startLine", "endLine")}


def edges(chunk: dict[str, Any]) -> set[tuple[str, str]]:
    relations = chunk.get("codeRelations") or {}
    found = {("imports", name) for name in relations.get("imports") or []}
    found |= {("calls", call[1]) for call in relations.get("calls") or []}
    return found | {("usageLinks", link["to"]["targetName"]) for link in relations.get("usageLinks") or []}


def imports_of(side: dict[str, Any], file: str) -> set[str]:
    rows = [row for row in side.get("file_relations", []) if row["file"] == file]
    return {name for row in rows for name in row["relations"].get("imports") or []}


def chunks_of(side: dict[str, Any], file: str) -> list[dict[str, Any]]:
    paths = {row["id"]: row["file"] for row in side["file_meta"]}
    rows = [row for row in side["chunk_meta"] if (row.get("file") or paths.get(row.get("fileId"))) == file]
    return sorted(rows, key=lambda row: (row["start"], row["startLine"], u16(logical_key(row)), chunk_id(row) or ""))


def pair_up(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    pairs = []
    for before in list(old):
        for after in list(new):
            if chunk_id(before) is not None and chunk_id(before) == chunk_id(after):
                pairs.append((before, after))
                old = [row for row in old if row is not before]
                new = [row for row in new if row is not after]
                break
    for key in {logical_key(row) for row in old}:
        left = [row for row in old if logical_key(row) == key]
        right = [row for row in new if logical_key(row) == key]
        if len(left) == len(right) == 1:
            pairs.append((left[0], right[0]))
            old = [row for row in old if row is not left[0]]
            new = [row for row in new if row is not right[0]]
    return pairs + [(row, None) for row in old] + [(None, row) for row in new]


def chunk_events(path: str, pairs: list[tuple[Any, Any]]) -> list[dict[str, Any]]:
    found = []
    for before, after in pairs:
        if before and after:
            if semantics(before) != semantics(after):
                kind = "modified"
            elif span(before) != span(after):
                kind = "moved"
            else:
                continue
        else:
            kind = "removed" if before else "added"
        placed = after or before
        event: dict[str, Any] = {"kind": f"chunk.{kind}", "mode": "code", "file": path}
        event |= {"chunkId": chunk_id(placed), "logicalKey": logical_key(placed)}
        event |= {"name": placed["name"], "chunkKind": placed["kind"]}
        if before:
            event["before"] = {"range": span(before), "signature": signature(before)}
        if after:
            event["after"] = {"range": span(after), "signature": signature(after)}
        if kind == "modified":
            event |= {"logicalKeyBefore": logical_key(before), "logicalKeyAfter": logical_key(after)}
        rank = ["added", "removed", "modified", "moved"].index(kind)
        order = (u16(logical_key(placed)), placed["startLine"], placed["start"], rank, chunk_id(placed) or "")
        found.append((order, event))
    return [event for _, event in sorted(found, key=lambda item: item[0])]


def relation_events(path: str, pairs: list[tuple[Any, Any]], sides: list[set[str]]) -> list[dict[str, Any]]:
    found = []
    for before, after in pairs:
        if before and after:
            key = logical_key(after)
            found += [("relation.added", key, edge) for edge in edges(after) - edges(before)]
            found += [("relation.removed", key, edge) for edge in edges(before) - edges(after)]
    carried = [{to for pair in pairs if pair[i] for kind, to in edges(pair[i]) if kind == "imports"} for i in (0, 1)]
    key = f"file:{path}"
    found += [("relation.added", key, ("imports", to)) for to in sides[1] - sides[0] - carried[1]]
    found += [("relation.removed", key, ("imports", to)) for to in sides[0] - sides[1] - carried[0]]
    found.sort(key=lambda item: (u16(item[1]), u16(item[2][1]), u16(item[2][0]), item[0]))
    return [
        {
            "kind": kind,
            "mode": "code",
            "file": path,
            "type": edge[0],
            "fromKey": key,
            "to": edge[1],
            "edgeKey": f"{edge[0]}|{key}|{edge[1]}|",
        }
        for kind, key, edge in found
    ]


def oracle_events(before: dict[str, Any], after: dict[str, Any], options: dict[str, Any]) -> list[dict[str, Any]]:
    """All events of mode `code`, in order."""
    old = {row["file"]: row for row in before["file_meta"]}
    new = {row["file"]: row for row in after["file_meta"]}
    removed, added = sorted(set(old) - set(new), key=u16), sorted(set(new) - set(old), key=u16)
    renamed = {}
    for path in added:
        match = [gone for gone in removed if old[gone]["hash"] and old[gone]["hash"] == new[path]["hash"]]
        if match and options["detect_renames"]:
            renamed[path] = match[0]
            removed.remove(match[0])
    modified = [path for path in old if path in new and _differs(old[path], new[path])]
    groups: dict[str, list[dict[str, Any]]] = {}
    for path in removed:
        groups[path] = [{"kind": "file.removed", "file": path, "before": _entry(old[path])}]
    for path in added:
        groups[path] = [{"kind": "file.added", "file": path, "after": _entry(new[path])}]
    for path in modified:
        sides = {"before": _entry(old[path]), "after": _entry(new[path])}
        groups[path] = [{"kind": "file.modified", "file": path, **sides}]
    for path, gone in renamed.items():
        sides = {"before": _entry(old[gone]), "after": _entry(new[path])}
        groups[path] = [{"kind": "file.renamed", "file": path, "beforeFile": gone, "afterFile": path, **sides}]
    head = []
    if len(modified) > options["max_changed_files"]:
        head = [{"kind": "limits.chunkDiffSkipped", "reason": "max-changed-files"}]
    else:
        for path in [*modified, *renamed]:
            groups[path] += _inside(before, after, renamed.get(path, path), path, options)
    ordered = head + [event for path in sorted(groups, key=u16) for event in groups[path]]
    return [{"mode": "code", **event} for event in ordered]


def _inside(before: Any, after: Any, gone: str, path: str, options: dict[str, Any]) -> list[dict[str, Any]]:
    old, new = chunks_of(before, gone), chunks_of(after, path)
    if max(len(old), len(new)) > options["max_chunks_per_file"]:
        return [{"kind": "limits.chunkDiffSkipped", "file": path, "reason": "max-chunks-per-file"}]
    pairs = pair_up(old, new)
    found = chunk_events(path, pairs)
    if options["include_relations"]:
        found += relation_events(path, pairs, [imports_of(before, gone), imports_of(after, path)])
    return found


def _differs(before: dict[str, Any], after: dict[str, Any]) -> bool:
    if before["hash"] is None and after["hash"] is None:
        return bool(before["size"] != after["size"])
    return bool(before["hash"] != after["hash"])


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    return {member: row[member] for member in ("file", "hash", "size", "ext")}

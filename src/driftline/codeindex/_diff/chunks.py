"""Changed files, the chunks inside of them and their relations, and the events that tell of them (index diffs §5)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import msgspec

from driftline.codeindex._read.artifacts import Artifact, Probe, Row, selected_rows
from driftline.codeindex._read.resolve import DiffOptions
from driftline.codeindex._storage import Number, compact_json, member, number_or_none, parse_json, row_id, text_or_empty
from driftline.core import JsonObject, SpillStore, Tracker, canonical_json, utf16_sort_key, utf16_sorted

Verdict = Literal["added", "removed", "modified", "moved"]
Record = tuple[str, str, Any]  # what it is, its file or row number, and what was read
# By bucket: a renamed folder can bring every chunk of a large repository into the diff.
RecordStore = SpillStore[int, Record]

Item = TypeVar("Item")
ChangeKind = Literal["added", "removed", "modified", "renamed"]
IndexEvent = JsonObject

LIMIT_KIND = "limits.chunkDiffSkipped"
MAX_CHANGED_FILES = "max-changed-files"
MAX_CHUNKS_PER_FILE = "max-chunks-per-file"

_VERDICT_RANK = {"added": 0, "removed": 1, "modified": 2, "moved": 3}
EDGE_TYPES = ("imports", "calls", "usageLinks")

_RECORD_BYTES = 2000
_NEEDED_MEMBERS = (
    "id", "chunkId", "start", "end", "startLine", "endLine", "kind", "name", "segment", "docmeta", "codeRelations",
    "metaV2",
)  # fmt: skip


# Files that were added, removed, modified or renamed (index diffs §5.1).


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
        content_hash, ext, state = (text_or_empty(record.get(name)) or None for name in ("hash", "ext", "state"))
        return cls(record["file"], content_hash, number_or_none(record.get("size")), ext, state)

    def to_dict(self) -> JsonObject:
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
        content_hash, ext = (text_or_empty(row.get(name)) or None for name in ("hash", "ext"))
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
    removed = {path: entry for path, entry in before.entries.items() if path not in after.entries}
    added = {path: entry for path, entry in after.entries.items() if path not in before.entries}
    both = ((old, after.entries[path]) for path, old in before.entries.items() if path in after.entries)
    # By hash; by size only where neither side has one.
    changes = [
        FileChange("modified", old, new)
        for old, new in both
        if old.hash != new.hash or (old.hash is None and old.size != new.size)
    ]
    if detect_renames:
        changes += take_renames(removed, added)
    changes += [FileChange("removed", entry, None) for entry in removed.values()]
    changes += [FileChange("added", None, entry) for entry in added.values()]
    by_path = {change.path: change for change in changes}
    return [by_path[path] for path in utf16_sorted(by_path)]


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
    by_hash = grouped(entries, lambda path: entries[path].hash)
    return {content_hash: utf16_sorted(paths) for content_hash, paths in by_hash.items() if content_hash is not None}


def grouped(items: Iterable[Item], key: Callable[[Item], Any]) -> dict[Any, list[Item]]:
    """Items by a key, in their order."""
    groups: dict[Any, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


# Chunks, matched and compared.


class Span(msgspec.Struct, frozen=True):
    """Where a chunk is in its file."""

    start: Number | None
    end: Number | None
    start_line: Number | None
    end_line: Number | None

    def to_dict(self) -> JsonObject:
        return {"start": self.start, "end": self.end, "startLine": self.start_line, "endLine": self.end_line}


class Chunk(msgspec.Struct, frozen=True):
    """The members of a `chunk_meta` row that a diff compares."""

    chunk_id: str | None
    logical_key: str
    kind: str
    name: str
    signature: str
    semantics: tuple[object, ...]
    span: Span
    relations: object

    def to_dict(self) -> JsonObject:
        return {"range": self.span.to_dict(), "signature": self.signature}


class ChunkPair(msgspec.Struct, frozen=True):
    """A chunk on both sides, or on the one side where it is."""

    before: Chunk | None
    after: Chunk | None

    @property
    def verdict(self) -> Verdict | None:
        """What happened to the chunk; None where nothing did."""
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        if self.before.semantics != self.after.semantics:
            return "modified"
        return "moved" if self.before.span != self.after.span else None

    @property
    def placed(self) -> Chunk:
        """The side whose coordinates order the event: the before side only for removed chunks."""
        chunk = self.after or self.before
        assert chunk is not None
        return chunk


def chunk_from_row(row: JsonObject) -> Chunk:
    meta = row.get("metaV2")
    kind, name = text_or_empty(row.get("kind")), text_or_empty(row.get("name"))
    segment_id = text_or_empty(member(row.get("segment"), "segmentId"))
    signature = text_or_empty(member(meta, "signature") or member(row.get("docmeta"), "signature"))
    details = (_comparable(member(meta, "modifiers")), _comparable(member(meta, "params")))
    # A number is a row number, which identifies nothing.
    ids = (member(meta, "chunkId"), row.get("chunkId"))
    return Chunk(
        chunk_id=next((value for value in ids if isinstance(value, str) and value), None),
        logical_key=f"{segment_id}|{kind}|{name}|{signature}",
        kind=kind,
        name=name,
        signature=signature,
        semantics=(kind, name, signature, *details),
        span=Span(*(number_or_none(row.get(edge)) for edge in ("start", "end", "startLine", "endLine"))),
        relations=row.get("codeRelations"),
    )


def match_chunks(before: Iterable[Chunk], after: Iterable[Chunk]) -> list[ChunkPair]:
    """Pair chunks by chunk id, then by a logical key that is unique among the rest; nothing is guessed."""
    old, new = _in_order(before), _in_order(after)
    pairs: list[ChunkPair] = []
    for key, only_unique in (("chunk_id", False), ("logical_key", True)):
        candidates, others = grouped(old, attrgetter(key)), grouped(new, attrgetter(key))
        for name, left in candidates.items():
            right = others.get(name, [])
            if name is not None and (not only_unique or len(left) == len(right) == 1):
                pairs += map(ChunkPair, left, right)
        # By object, not by value: two rows may be equal in every member.
        taken = {id(chunk) for pair in pairs for chunk in (pair.before, pair.after)}
        old, new = ([chunk for chunk in side if id(chunk) not in taken] for side in (old, new))
    return [*pairs, *(ChunkPair(chunk, None) for chunk in old), *(ChunkPair(None, chunk) for chunk in new)]


def _comparable(value: object) -> Any:
    """A value that is equal where its JSON is; most often there is none, or a list of names."""
    if value is None or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return None if value is None else tuple(value)
    return canonical_json(value)


def _in_order(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Chunks in an order that does not depend on the order of their rows."""
    ordered = sorted(chunks, key=_place)
    if len(set(map(_place, ordered))) < len(ordered):
        # Only duplicates are ordered by all of their members, for that is slow.
        ordered.sort(key=lambda chunk: (_place(chunk), repr(chunk.semantics), canonical_json(chunk.relations)))
    return ordered


def _place(chunk: Chunk) -> tuple[object, ...]:
    span, key, name = chunk.span, utf16_sort_key(chunk.logical_key), chunk.chunk_id or ""
    return (span.start or 0, span.start_line or 0, key, name, span.end or 0, span.end_line or 0)


# Relations of chunks and files that were added or removed (index diffs §5.3).


class Edge(msgspec.Struct, frozen=True):
    """A relation as it is known across builds; what it resolved to is left out, for it changes with every edit."""

    type: str
    to: str
    extra: str = ""


class EdgeChange(msgspec.Struct, frozen=True):
    """An edge that was added or removed, with the key of the after side."""

    added: bool
    from_key: str
    edge: Edge

    @property
    def order(self) -> tuple[object, ...]:
        """By (fromKey, to, type); then by extra, added before removed."""
        texts = (self.from_key, self.edge.to, self.edge.type, self.edge.extra)
        return (*map(utf16_sort_key, texts), not self.added)


def changed_edges(pairs: Iterable[ChunkPair]) -> Iterator[EdgeChange]:
    """Edge changes of the matched chunks; a changed signature alone changes no edge."""
    for pair in pairs:
        if pair.before is None or pair.after is None:
            continue
        if pair.before.relations != pair.after.relations:
            old, new = (frozenset(_edges(side.relations, EDGE_TYPES)) for side in (pair.before, pair.after))
            yield from _difference(old, new, pair.after.logical_key)


def changed_file_imports(
    path: str, before: Iterable[str], after: Iterable[str], old: Iterable[Chunk], new: Iterable[Chunk]
) -> Iterator[EdgeChange]:
    """Changed imports of a whole file, except those that a chunk of that side carries itself."""
    left, right = (frozenset(Edge("imports", name) for name in names) for names in (before, after))
    changes = list(_difference(left, right, f"file:{path}"))
    carried = {True: _carried(new), False: _carried(old)} if changes else {}
    return (change for change in changes if change.edge not in carried[change.added])


def file_imports(row: JsonObject) -> list[str]:
    return [edge.to for edge in _edges(row.get("relations"), ("imports",))]


def _edges(relations: object, types: Iterable[str]) -> Iterator[Edge]:
    for edge_type in types:
        links = member(relations, edge_type)
        for link in links if isinstance(links, list) else []:
            target = _target(link)
            if target:
                yield Edge(edge_type, target, text_or_empty(member(link, "extra")))


def _target(link: object) -> str:
    """What a link points to: a text, the callee of a pair, or the target's name in an object."""
    if isinstance(link, str):
        return link
    if isinstance(link, list):
        return text_or_empty(link[1]) if len(link) > 1 else ""
    to = member(link, "to")
    named = member(to, "targetName") if isinstance(to, dict) else to
    return text_or_empty(named or member(link, "callee") or member(link, "targetName"))


def _carried(chunks: Iterable[Chunk]) -> frozenset[Edge]:
    return frozenset(Edge("imports", edge.to) for chunk in chunks for edge in _edges(chunk.relations, ("imports",)))


def _difference(before: frozenset[Edge], after: frozenset[Edge], from_key: str) -> Iterator[EdgeChange]:
    yield from (EdgeChange(True, from_key, edge) for edge in after - before)
    yield from (EdgeChange(False, from_key, edge) for edge in before - after)


# Chunk rows of the files that changed, found without parsing the others (index diffs §5.2).


@dataclass(slots=True)
class Scan:
    """How many rows of one side were scanned and parsed; skipped rows had no file."""

    scanned_rows: int = 0
    parsed_rows: int = 0
    skipped_rows: int = 0


class FileSelector:
    """Selects the rows of some files; a row names its file, or its row number in `file_meta`."""

    def __init__(self, needed: Collection[str], path_by_id: Mapping[str, str], limit: int | None = None) -> None:
        self.needed, self.path_by_id, self.limit = needed, path_by_id, limit
        self.counts: Counter[str] = Counter()
        self.scanned = self.skipped = 0

    def choose(self, probe: Probe) -> str | None:
        self.scanned += 1
        file = probe.file
        if not isinstance(file, str) or not file:
            file = self.path_by_id.get(row_id(probe.fileId) or "")
            if file is None:
                self.skipped += 1
                return None
        if file not in self.needed:
            return None
        self.counts[file] += 1
        return file if self.limit is None or self.counts[file] <= self.limit else None


def by_id(needed: Collection[str] | None) -> Callable[[Probe], str | None]:
    """Selects the rows with some row numbers, or all of them, to join them to rows that were read before."""

    def choose(probe: Probe) -> str | None:
        key = row_id(probe.id)
        return key if needed is None or key in needed else None

    return choose


class RecordCodec:
    """Records as lines of JSON."""

    def size(self, piece: Record) -> int:
        """About what a row of a real index takes as Python objects."""
        return _RECORD_BYTES

    def write(self, pieces: Sequence[Record], out: BinaryIO) -> None:
        out.writelines(compact_json(piece) + b"\n" for piece in pieces)

    def read(self, path: Path) -> list[Record]:
        with open(path, "rb") as lines:
            return [tuple(parse_json(line, "a spilled row")) for line in lines]


@dataclass(slots=True)
class SideRows:
    """One side's rows of the selected files, put into buckets; of a file above the limit only the count is exact."""

    bucket_of: Mapping[str, int]
    store: RecordStore
    scan: Scan
    tracker: Tracker
    counts: Counter[str] = field(default_factory=Counter)

    def read_chunks(self, hot: Artifact, cold: Artifact | None, path_by_id: dict[str, str], limit: int | None) -> None:
        """Read the chunk rows; cold rows follow the hot ones into their buckets."""
        selector = FileSelector(self.bucket_of, path_by_id, limit)
        buckets_of_id: dict[str, set[int]] = defaultdict(set)
        for file, row in selected_rows(hot, selector.choose, self.tracker):
            bucket = self.bucket_of[file]
            self.store.add(bucket, ("chunk", file, row))
            self.scan.parsed_rows += 1
            if cold is not None and (key := row_id(row.get("id"))) is not None:
                buckets_of_id[key].add(bucket)
        self.counts = selector.counts
        self.scan.scanned_rows += selector.scanned
        self.scan.skipped_rows += selector.skipped
        if cold is not None:
            for key, row in selected_rows(cold, by_id(buckets_of_id), self.tracker):
                for bucket in buckets_of_id[key]:
                    self.store.add(bucket, ("cold", key, row))

    def read_imports(self, artifact: Artifact) -> None:
        selector = FileSelector(self.bucket_of, {})
        for file, row in selected_rows(artifact, selector.choose, self.tracker):
            self.store.add(self.bucket_of[file], ("imports", file, file_imports(row)))
        self.scan.skipped_rows += selector.skipped

    def take(self, bucket: int) -> tuple[dict[str, list[Row]], dict[str, list[str]]]:
        """The joined rows and the imports of a bucket, by file."""
        rows: dict[str, list[Row]] = defaultdict(list)
        imports: dict[str, list[str]] = defaultdict(list)
        cold: dict[str, Row] = {}
        for tag, key, value in self.store.take(bucket):
            if tag == "chunk":
                rows[key].append(value)
            elif tag == "imports":
                imports[key] += value
            elif key not in cold or needed_members(value) > needed_members(cold[key]):
                cold[key] = value  # of an id that is there twice, the choice must not depend on the order of the rows
        for row in (row for found in rows.values() for row in found) if cold else ():
            fill_members(row, cold.get(row_id(row.get("id")) or "", {}))
        return rows, imports


def needed_members(row: Row) -> bytes:
    """What a diff reads of a chunk row, as JSON."""
    return compact_json({name: row[name] for name in _NEEDED_MEMBERS if row.get(name) is not None})


def fill_members(row: Row, extra: Row) -> None:
    row.update({name: value for name, value in extra.items() if row.get(name) is None})


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
    event = {"kind": "relation.added" if change.added else "relation.removed", "mode": mode, "file": file}
    edge, start = change.edge, change.from_key
    key = f"{edge.type}|{start}|{edge.to}|{edge.extra}"
    return event | {"type": edge.type, "fromKey": start, "to": edge.to, "edgeKey": key}


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
    chunk, span = pair.placed, pair.placed.span
    rank = _VERDICT_RANK.get(pair.verdict or "", 4)
    first = (utf16_sort_key(chunk.logical_key), span.start_line or 0, span.start or 0, rank)
    rest = (utf16_sort_key(chunk.chunk_id or ""), span.end or 0, span.end_line or 0, repr(chunk.semantics))
    return (*first, *rest, *((pair.before.logical_key, repr(pair.before.span)) if pair.before else ("", "")))


def _sides(before: FileEntry | Chunk | None, after: FileEntry | Chunk | None) -> IndexEvent:
    sides = {"before": before, "after": after}
    return {side: record.to_dict() for side, record in sides.items() if record is not None}


# One changed file: every scheduler, local or on a cluster, calls `diff_file` with the file's rows of both sides.


@dataclass(frozen=True, slots=True)
class FileSide:
    """What one side holds of a file: its chunk rows, how many there are, and the imports of the file."""

    rows: Sequence[Row] = ()
    count: int = 0
    imports: Iterable[str] = ()


def diff_file(mode: str, path: str, before: FileSide, after: FileSide, options: DiffOptions) -> list[IndexEvent]:
    """The chunk, relation and limit events of one modified or renamed file, in order."""
    limit = options.max_chunks_per_file
    if before.count > limit or after.count > limit:
        # Half of a file would mislead: its chunks and relations are skipped as a whole.
        return [file_limit_event(mode, path, before.count, after.count, limit)]
    old = [chunk_from_row(row) for row in before.rows]
    new = [chunk_from_row(row) for row in after.rows]
    pairs = match_chunks(old, new)
    changed = sorted((pair for pair in pairs if pair.verdict is not None), key=chunk_order)
    events = [chunk_event(mode, path, pair) for pair in changed]
    if options.include_relations:
        edges = [*changed_edges(pairs), *changed_file_imports(path, before.imports, after.imports, old, new)]
        events += [relation_event(mode, path, edge) for edge in sorted(edges, key=lambda edge: edge.order)]
    return events

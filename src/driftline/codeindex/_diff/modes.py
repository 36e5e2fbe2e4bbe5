"""The diff of one mode: files first, then the chunks of the files that changed, in one process or as tasks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from driftline.codeindex._diff import chunks
from driftline.codeindex._diff.chunks import FileChange, FileSide, FileTable, IndexEvent, Scan, SideRows
from driftline.codeindex._diff.symbols import SymbolDiff
from driftline.codeindex._read import artifacts
from driftline.codeindex._read.resolve import V2, DiffOptions, IndexDir
from driftline.codeindex._storage import compact_json, parse_json, row_id
from driftline.core import JsonObject, Tracker, Workspace, compression_of, utf16_sort_key
from driftline.errors import IndexRefError

# Files of a bucket are neighbours in the order of events: one bucket of either side is in memory at a time.
FILES_PER_BUCKET = 500
SPILL_BYTES = 256 << 20  # of rows of both sides in memory before they are spilled to disk
SPLIT_BYTES = 64 << 20

BEFORE, AFTER = 0, 1
_RowKey = tuple[bytes | None, str | None]  # the key of a path for a row that names its file, else its file id


class IndexSide(NamedTuple):
    """One side of one mode: its artifacts, found but not read."""

    file_meta: artifacts.Artifact
    chunk_meta: artifacts.Artifact
    chunk_meta_cold: artifacts.Artifact | None
    file_relations: artifacts.Artifact | None


_Side = tuple[IndexSide, FileTable]


@dataclass(slots=True)
class ModeDiff:
    """The result for one mode; events are made on the way, from the changes and what happened `inside` of files."""

    mode: str
    changes: list[FileChange] = field(default_factory=list)
    limit_event: IndexEvent | None = None
    inside: dict[str, list[IndexEvent]] = field(default_factory=dict)
    before_scan: Scan = field(default_factory=Scan)
    after_scan: Scan = field(default_factory=Scan)
    fast_path: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    ready_events: list[IndexEvent] | None = None
    renames_skipped: bool | None = None

    def events(self) -> Iterator[IndexEvent]:
        """The mode's limit event, then file after file: the file event and what happened inside."""
        if self.limit_event is not None and self.renames_skipped is None:
            yield self.limit_event
        if self.ready_events is not None:
            yield from self.ready_events
            return
        for change in self.changes:
            yield chunks.file_event(self.mode, change)
            yield from self.inside.get(change.path, ())

    def summary(self) -> JsonObject:
        count = self.counts
        reason = chunks.MAX_CHANGED_FILES if self.limit_event else chunks.MAX_CHUNKS_PER_FILE
        limited = count["limits.chunkDiffSkipped"] > 0
        is_v1 = self.renames_skipped is None  # semantic-v2 has renamed chunks too
        skipped = {} if is_v1 else {"renameSearchSkipped": self.renames_skipped}
        chunk_kinds = ("added", "removed", "modified", *(() if is_v1 else ("renamed",)), "moved")
        limits = {"chunkDiffSkipped": limited, "reason": reason if limited else None} | skipped
        return mode_counts(count, chunk_kinds, limits)


def mode_counts(count: Counter[str], chunk_kinds: Iterable[str], limits: JsonObject) -> JsonObject:
    """The counts of a mode, from how often it has each kind of event."""
    return {
        "files": {kind: count[f"file.{kind}"] for kind in ("added", "removed", "modified", "renamed")},
        "chunks": {kind: count[f"chunk.{kind}"] for kind in chunk_kinds},
        "relations": {"edgesAdded": count["relation.added"], "edgesRemoved": count["relation.removed"]},
        "limits": limits,
    }


def different_sides(before: IndexDir, after: IndexDir) -> tuple[IndexSide, IndexSide] | None:
    """Both sides opened; None where their manifests vouch for the same artifacts."""
    old, new = artifacts.read_pieces(before), artifacts.read_pieces(after)
    if artifacts.same_artifacts(before, after, old, new):
        return None
    return _open_side(before, old), _open_side(after, new)


def _open_side(index: IndexDir, pieces: artifacts.Pieces | None) -> IndexSide:
    needed = [artifacts.require_artifact(index, name, pieces) for name in (artifacts.FILE_META, artifacts.CHUNK_META)]
    others = [
        artifacts.find_artifact(index, name, pieces) for name in (artifacts.CHUNK_META_COLD, artifacts.FILE_RELATIONS)
    ]
    return IndexSide(needed[0], needed[1], others[0], others[1])


def diff_mode(mode: str, before: IndexDir, after: IndexDir, options: DiffOptions, tracker: Tracker) -> ModeDiff:
    """Compare one mode of two indexes."""
    if options.kind == V2:
        comparison = SymbolDiff(mode, before, after, options)
        comparison.run(tracker)
        events = comparison.events()
        result = ModeDiff(mode, comparison.changes, ready_events=events, renames_skipped=comparison.renames_skipped)
        result.counts.update(event["kind"] for event in events)
        result.limit_event = next((event for event in events if event.get("reason") == chunks.MAX_CHANGED_FILES), None)
        return result
    sides = different_sides(before, after)
    if sides is None:
        return ModeDiff(mode, fast_path=True)
    old_files, new_files = (chunks.file_table(artifacts.all_rows(side.file_meta)) for side in sides)
    result = ModeDiff(mode, chunks.changed_files(old_files, new_files, detect_renames=options.detect_renames))
    result.before_scan.skipped_rows, result.after_scan.skipped_rows = old_files.skipped_rows, new_files.skipped_rows
    result.counts.update(f"file.{change.kind}" for change in result.changes)
    note_file_counts(result, options)
    if result.limit_event is None:
        _diff_chunks(result, (sides[0], old_files), (sides[1], new_files), options, tracker)
    return result


def note_file_counts(result: ModeDiff, options: DiffOptions) -> None:
    """Decide by the number of modified files whether chunks are compared at all."""
    modified = result.counts["file.modified"]
    if modified > options.max_changed_files:
        result.limit_event = chunks.mode_limit_event(result.mode, modified, options.max_changed_files)
        result.counts["limits.chunkDiffSkipped"] += 1


def _diff_chunks(result: ModeDiff, before: _Side, after: _Side, options: DiffOptions, tracker: Tracker) -> None:
    pairs = [(change.before.file, change.path) for change in result.changes if change.before and change.after]
    if not pairs:
        return
    total = sum(side.chunk_meta.size for side, _ in (before, after))
    with Workspace() as workspace:
        old_store, new_store = (chunks.RecordStore(workspace, SPILL_BYTES // 2, chunks.RecordCodec()) for _ in "AB")
        with tracker.phase("scan chunks", total=total):
            old_buckets = {old: number // FILES_PER_BUCKET for number, (old, _) in enumerate(pairs)}
            new_buckets = {new: number // FILES_PER_BUCKET for number, (_, new) in enumerate(pairs)}
            old = _read_side(*before, SideRows(old_buckets, old_store, result.before_scan, tracker), options)
            new = _read_side(*after, SideRows(new_buckets, new_store, result.after_scan, tracker), options)
        with tracker.phase("compare files", total=len(pairs), unit="items"):
            _diff_pairs(result, pairs, old, new, options, tracker)


def _read_side(side: IndexSide, files: FileTable, rows: SideRows, options: DiffOptions) -> SideRows:
    rows.read_chunks(side.chunk_meta, side.chunk_meta_cold, files.path_by_id, options.max_chunks_per_file)
    if options.include_relations and side.file_relations is not None:
        rows.read_imports(side.file_relations)
    return rows


def _diff_pairs(
    result: ModeDiff, pairs: list[tuple[str, str]], old: SideRows, new: SideRows, options: DiffOptions, tracker: Tracker
) -> None:
    """Compare file after file in the order of events; what cannot be among the first `max_events` is only counted."""
    kept = 0
    for start in range(0, len(pairs), FILES_PER_BUCKET):
        (old_rows, old_imports), (new_rows, new_imports) = (side.take(start // FILES_PER_BUCKET) for side in (old, new))
        for old_path, path in pairs[start : start + FILES_PER_BUCKET]:
            before = FileSide(old_rows.pop(old_path, []), old.counts[old_path], old_imports.get(old_path, []))
            after = FileSide(new_rows.pop(path, []), new.counts[path], new_imports.get(path, []))
            events = chunks.diff_file(result.mode, path, before, after, options)
            result.counts.update(event["kind"] for event in events)
            if events and kept < options.max_events:
                result.inside[path] = events
                kept += len(events)
            tracker.advance()


# Tasks of a cluster, as plain functions over plain records; paths are UTF-16 keys, whose byte order is that of events.


class Split(msgspec.Struct, frozen=True):
    """A piece of an artifact that one task reads: a range of lines, or a whole file."""

    side: int
    path: str
    place: str
    form: artifacts.Form
    size: int
    start: int = 0
    end: int | None = None

    @property
    def part(self) -> artifacts.Part:
        """The file; a worker must see the same one as the planner."""
        try:
            size = os.stat(self.path).st_size
        except OSError:
            size = -1
        if size != self.size:
            raise IndexRefError(f"{self.place} is not the same on a worker: every worker must see the index")
        return artifacts.Part(Path(self.path), self.place, self.form)


def plan_splits(side: int, artifact: artifacts.Artifact | None, split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """Cut an artifact into splits."""
    found: list[Split] = []
    for part in artifact.parts if artifact is not None else ():
        size = part.path.stat().st_size
        whole = Split(side, str(part.path), part.place, part.form, size)
        if part.form != "lines" or size <= split_bytes or compression_of(part.path) != "plain":
            found.append(whole)
            continue
        cuts = [*range(0, size, split_bytes), size]
        found += [msgspec.structs.replace(whole, start=start, end=end) for start, end in pairwise(cuts)]
    return found


class Record(NamedTuple):
    """A row on its way through a cluster; without a `key` it only counts, or is found by `file_id`."""

    side: int
    key: bytes | None = None
    file_id: str | None = None
    row_id: str | None = None
    count: int = 1  # type: ignore[assignment]
    payload: bytes | None = None


def path_of(key: bytes) -> str:
    """The path behind a key."""
    return key.decode("utf-16-be", "surrogatepass")


def scan_files(split: Split) -> Iterator[Record]:
    """The rows of `file_meta`; rows without a file are counted."""
    skipped = 0
    for _, row in artifacts.rows_between(split.part, split.start, split.end, artifacts.every_row):
        file = row.get("file")
        if not isinstance(file, str) or not file:
            skipped += 1
            continue
        members = {name: row.get(name) for name in ("id", "file", "hash", "size", "ext")}
        yield Record(split.side, utf16_sort_key(file), row_id(row.get("id")), payload=compact_json(members))
    if skipped:
        yield Record(split.side, count=skipped)


def classify_file(rows: Iterable[tuple[int, bytes]]) -> tuple[FileChange | None, dict[int, set[str]]]:
    """What happened to one path, from its rows of both sides, and the row numbers it has on each."""
    parsed: dict[int, list[artifacts.Row]] = {BEFORE: [], AFTER: []}
    for side, payload in rows:
        parsed[side].append(parse_payload(payload))
    hashes = [[row["hash"] for row in found] for found in parsed.values()]
    if len(hashes[BEFORE]) == 1 and hashes[BEFORE][0] and hashes[BEFORE] == hashes[AFTER]:
        return None, {}  # as for most files
    before, after = chunks.file_table(parsed[BEFORE]), chunks.file_table(parsed[AFTER])
    changes = chunks.changed_files(before, after, detect_renames=False)
    ids = {side: {text for row in found if (text := row_id(row["id"]))} for side, found in parsed.items()}
    return (changes[0] if changes else None), ids


def pair_renames(changes: Iterable[FileChange]) -> list[FileChange]:
    """Removed and added files of one hash, paired in path order; the rest stays as it is."""
    listed = list(changes)
    removed = {change.path: change.before for change in listed if change.before is not None}
    added = {change.path: change.after for change in listed if change.after is not None}
    renamed = chunks.take_renames(removed, added)
    rest = [FileChange("removed", entry, None) for entry in removed.values()]
    return renamed + rest + [FileChange("added", None, entry) for entry in added.values()]


class SelectedRows(NamedTuple):
    """The files of one side whose rows are selected, by path and by row number; None selects all."""

    paths: Collection[str] | None = None
    ids: Collection[str] | None = None


class _ChunkChooser:
    """Gives selected rows a key; of a file above the limit only a count is left in this split."""

    def __init__(self, requested: SelectedRows, limit: int) -> None:
        self.requested, self.limit = requested, limit
        self.taken: Counter[_RowKey] = Counter()
        self.counted: Counter[_RowKey] = Counter()

    def choose(self, probe: artifacts.Probe) -> _RowKey | None:
        file = probe.file
        if isinstance(file, str) and file:
            if self.requested.paths is not None and file not in self.requested.paths:
                return None
            key: _RowKey = (utf16_sort_key(file), None)
            is_requested = True
        else:
            key = (None, row_id(probe.fileId))
            is_requested = key[1] is not None and (self.requested.ids is None or key[1] in self.requested.ids)
        self.taken[key] += is_requested
        if is_requested and self.taken[key] <= self.limit:
            return key
        self.counted[key] += 1
        return None


def scan_chunks(split: Split, requested: SelectedRows, limit: int) -> Iterator[Record]:
    """The selected rows of `chunk_meta`, and counts of rows that were not worth sending."""
    chooser = _ChunkChooser(requested, limit)
    for (key, file_id), row in artifacts.rows_between(split.part, split.start, split.end, chooser.choose):
        yield Record(split.side, key, file_id, row_id(row.get("id")), payload=chunks.needed_members(row))
    for (key, file_id), count in chooser.counted.items():
        yield Record(split.side, key, file_id, count=count)


def scan_cold(split: Split, requested: Collection[str] | None) -> Iterator[Record]:
    """The selected rows of `chunk_meta_cold`."""
    for key, row in artifacts.rows_between(split.part, split.start, split.end, chunks.by_id(requested)):
        yield Record(split.side, row_id=key, payload=chunks.needed_members(row))


def scan_imports(split: Split, requested: SelectedRows) -> Iterator[Record]:
    """The imports in selected rows of `file_relations`."""
    chooser = _ChunkChooser(SelectedRows(requested.paths, ids=()), limit=1 << 62)
    for (key, _), row in artifacts.rows_between(split.part, split.start, split.end, chooser.choose):
        yield Record(split.side, key, payload=compact_json(chunks.file_imports(row)))
    skipped = sum(count for (key, _), count in chooser.counted.items() if key is None)
    if skipped:
        yield Record(split.side, count=skipped)


@dataclass(slots=True)
class PathRecords:
    """All records of one changed path."""

    change: FileChange
    rows: tuple[list[artifacts.Row], list[artifacts.Row]] = field(default_factory=lambda: ([], []))
    counts: Counter[int] = field(default_factory=Counter)
    imports: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    def add_chunk(self, side: int, count: int, payload: bytes | None, cold: bytes | None) -> None:
        """Add a chunk row, with its cold members, or a bare count."""
        self.counts[side] += count
        if payload is not None:
            row = parse_payload(payload)
            chunks.fill_members(row, parse_payload(cold) if cold is not None else {})
            self.rows[side].append(row)

    def events(self, mode: str, options: DiffOptions) -> Iterator[IndexEvent]:
        """The file event and what happened inside of the file."""
        yield chunks.file_event(mode, self.change)
        sides = [FileSide(self.rows[side], self.counts[side], self.imports[side]) for side in (BEFORE, AFTER)]
        yield from chunks.diff_file(mode, self.change.path, sides[0], sides[1], options)


def change_payload(change: FileChange) -> bytes:
    """A file change as bytes."""
    sides = {"before": change.before, "after": change.after}
    return compact_json({name: entry.to_dict() if entry else None for name, entry in sides.items()})


def change_from_payload(kind: chunks.ChangeKind, payload: bytes) -> FileChange:
    """The file change in these bytes."""
    sides = parse_payload(payload)
    before, after = (chunks.FileEntry.from_dict(sides[name]) if sides[name] else None for name in ("before", "after"))
    return FileChange(kind, before, after)


def parse_payload(payload: bytes) -> Any:
    """What `compact_json` wrote."""
    return parse_json(payload, "a record")

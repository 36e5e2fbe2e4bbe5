"""The diff of one mode: files first, then the chunks of the files that changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from driftline.codeindex.artifacts import (
    CHUNK_META,
    CHUNK_META_COLD,
    FILE_META,
    FILE_RELATIONS,
    Artifact,
    Pieces,
    find_artifact,
    read_pieces,
    require_artifact,
)
from driftline.codeindex.chunk_rows import RecordCodec, RecordStore, Scan, SideRows
from driftline.codeindex.events import MAX_CHANGED_FILES, MAX_CHUNKS_PER_FILE, Event, file_event, mode_limit_event
from driftline.codeindex.file_kernel import FileOutcome, FileSide, diff_file
from driftline.codeindex.files_changed import FileChange, FileTable, changed_files, file_table
from driftline.codeindex.fingerprint import same_artifacts
from driftline.codeindex.options import V2, DiffOptions
from driftline.codeindex.resolve import IndexDir
from driftline.codeindex.rows import all_rows
from driftline.codeindex.symbol_diff import SymbolDiff
from driftline.core._json import JsonObject
from driftline.core._progress import Tracker
from driftline.core._workspace import Workspace

# Files of a bucket are neighbours in the order of events: one bucket of either side is in memory at a time.
FILES_PER_BUCKET = 500
SPILL_BYTES = 256 << 20  # of rows of both sides, held before they move to disk


@dataclass(frozen=True, slots=True)
class IndexSide:
    """One side of one mode: its artifacts, found but not read."""

    index: IndexDir
    file_meta: Artifact
    chunk_meta: Artifact
    chunk_meta_cold: Artifact | None
    file_relations: Artifact | None


@dataclass(slots=True)
class ModeDiff:
    """The result for one mode; events are made on the way, from the changes and the outcomes of their files."""

    mode: str
    changes: list[FileChange] = field(default_factory=list)
    limit_event: Event | None = None
    outcomes: Mapping[str, FileOutcome] = field(default_factory=dict)
    before_scan: Scan = field(default_factory=Scan)
    after_scan: Scan = field(default_factory=Scan)
    fast_path: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    ready_events: list[Event] | None = None
    renames_skipped: bool | None = None

    def events(self) -> Iterator[Event]:
        """The mode's limit event, then file after file: the file event and what happened inside."""
        if self.limit_event is not None and self.renames_skipped is None:
            yield self.limit_event
        if self.ready_events is not None:
            yield from self.ready_events
            return
        for change in self.changes:
            yield file_event(self.mode, change)
            outcome = self.outcomes.get(change.path)
            if outcome is not None:
                yield from outcome.events

    def summary(self) -> JsonObject:
        """The mode's member of `modesSummary`."""
        count = self.counts
        reason = MAX_CHANGED_FILES if self.limit_event else MAX_CHUNKS_PER_FILE
        limited = count["limits.chunkDiffSkipped"] > 0
        skipped = {} if self.renames_skipped is None else {"renameSearchSkipped": self.renames_skipped}
        return {
            "files": {kind: count[f"file.{kind}"] for kind in ("added", "removed", "modified", "renamed")},
            "chunks": {kind: count[f"chunk.{kind}"] for kind in self._chunk_kinds},
            "relations": {"edgesAdded": count["relation.added"], "edgesRemoved": count["relation.removed"]},
            "limits": {"chunkDiffSkipped": limited, "reason": reason if limited else None} | skipped,
        }

    @property
    def _chunk_kinds(self) -> tuple[str, ...]:
        """semantic-v2 knows renamed chunks too."""
        known = ("added", "removed", "modified")
        return (*known, "moved") if self.renames_skipped is None else (*known, "renamed", "moved")


def open_side(index: IndexDir, pieces: Pieces | None) -> IndexSide:
    """Find the artifacts of an index; what a diff needs must be there."""
    return IndexSide(
        index,
        require_artifact(index, FILE_META, pieces),
        require_artifact(index, CHUNK_META, pieces),
        find_artifact(index, CHUNK_META_COLD, pieces),
        find_artifact(index, FILE_RELATIONS, pieces),
    )


def diff_mode(mode: str, before: IndexDir, after: IndexDir, options: DiffOptions, tracker: Tracker) -> ModeDiff:
    """Compare one mode of two indexes."""
    if options.kind == V2:
        return diff_symbols(mode, before, after, options, tracker)
    old_pieces, new_pieces = read_pieces(before), read_pieces(after)
    if same_artifacts(before, after, old_pieces, new_pieces):
        return ModeDiff(mode, fast_path=True)
    old, new = open_side(before, old_pieces), open_side(after, new_pieces)
    old_files, new_files = file_table(all_rows(old.file_meta)), file_table(all_rows(new.file_meta))
    result = diff_files(mode, old_files, new_files, options)
    if result.limit_event is None:
        _diff_chunks(result, (old, old_files), (new, new_files), options, tracker)
    return result


def diff_symbols(mode: str, before: IndexDir, after: IndexDir, options: DiffOptions, tracker: Tracker) -> ModeDiff:
    """semantic-v2: compare definitions."""
    comparison = SymbolDiff(mode, before, after, options)
    comparison.run(tracker)
    events = comparison.events()
    result = ModeDiff(mode, comparison.changes, ready_events=events, renames_skipped=comparison.renames_skipped)
    result.counts.update(event["kind"] for event in events)
    result.limit_event = next((event for event in events if event.get("reason") == MAX_CHANGED_FILES), None)
    return result


def note_file_counts(result: ModeDiff, options: DiffOptions) -> None:
    """Decide by the number of modified files whether chunks are compared at all."""
    modified = result.counts["file.modified"]
    if modified > options.max_changed_files:
        result.limit_event = mode_limit_event(result.mode, modified, options.max_changed_files)
        result.counts["limits.chunkDiffSkipped"] += 1


def diff_files(mode: str, before: FileTable, after: FileTable, options: DiffOptions) -> ModeDiff:
    """The file level of a mode, with the decision whether chunks are compared at all."""
    result = ModeDiff(mode, changed_files(before, after, detect_renames=options.detect_renames))
    result.before_scan.skipped_rows, result.after_scan.skipped_rows = before.skipped_rows, after.skipped_rows
    result.counts.update(f"file.{change.kind}" for change in result.changes)
    note_file_counts(result, options)
    return result


def _diff_chunks(
    result: ModeDiff,
    before: tuple[IndexSide, FileTable],
    after: tuple[IndexSide, FileTable],
    options: DiffOptions,
    tracker: Tracker,
) -> None:
    pairs = [(change.before.file, change.path) for change in result.changes if change.before and change.after]
    if not pairs:
        return
    total = sum(side.chunk_meta.size for side, _ in (before, after))
    with Workspace() as workspace:
        old_store, new_store = (RecordStore(workspace, SPILL_BYTES // 2, RecordCodec()) for _ in "AB")
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
    result: ModeDiff,
    pairs: list[tuple[str, str]],
    old: SideRows,
    new: SideRows,
    options: DiffOptions,
    tracker: Tracker,
) -> None:
    """Compare file after file in the order of events; what cannot be among the first `max_events` is only counted."""
    outcomes: dict[str, FileOutcome] = {}
    kept = 0
    for start in range(0, len(pairs), FILES_PER_BUCKET):
        (old_rows, old_imports), (new_rows, new_imports) = (side.take(start // FILES_PER_BUCKET) for side in (old, new))
        for old_path, path in pairs[start : start + FILES_PER_BUCKET]:
            before = FileSide(old_rows.pop(old_path, []), old.counts[old_path], old_imports.get(old_path, []))
            after = FileSide(new_rows.pop(path, []), new.counts[path], new_imports.get(path, []))
            outcome = diff_file(result.mode, path, before, after, options)
            result.counts.update(outcome.counts)
            if outcome.events and kept < options.max_events:
                outcomes[path] = outcome
                kept += len(outcome.events)
            tracker.advance()
    result.outcomes = outcomes

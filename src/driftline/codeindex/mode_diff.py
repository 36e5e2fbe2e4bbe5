"""The diff of one mode: files first, then the chunks of the files that changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
from driftline.codeindex.chunk_rows import FileSelector, RowsByFile, collect_rows
from driftline.codeindex.events import MAX_CHANGED_FILES, MAX_CHUNKS_PER_FILE, Event, file_event, mode_limit_event
from driftline.codeindex.fast_path import same_artifacts
from driftline.codeindex.file_kernel import FileOutcome, FileSide, diff_file
from driftline.codeindex.files_changed import FileChange, FileTable, changed_files, file_table
from driftline.codeindex.options import DiffOptions
from driftline.codeindex.relations import file_imports
from driftline.codeindex.resolve import IndexDir
from driftline.codeindex.rows import all_rows, selected_rows
from driftline.progress import Tracker


@dataclass(frozen=True, slots=True)
class IndexSide:
    """One side of one mode: its artifacts, found but not read."""

    index: IndexDir
    file_meta: Artifact
    chunk_meta: Artifact
    chunk_meta_cold: Artifact | None
    file_relations: Artifact | None


@dataclass(slots=True)
class Scan:
    """What was looked at on one side; `skipped` rows had no file."""

    scanned_rows: int = 0
    parsed_rows: int = 0
    skipped_rows: int = 0


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

    def events(self) -> Iterator[Event]:
        """The mode's limit event, then file after file: the file event and what happened inside."""
        if self.limit_event is not None:
            yield self.limit_event
        if self.ready_events is not None:
            yield from self.ready_events
            return
        for change in self.changes:
            yield file_event(self.mode, change)
            outcome = self.outcomes.get(change.path)
            if outcome is not None:
                yield from outcome.events

    def summary(self) -> dict[str, Any]:
        """The mode's member of `modesSummary`."""
        count = self.counts
        reason = MAX_CHANGED_FILES if self.limit_event else MAX_CHUNKS_PER_FILE
        limited = count["limits.chunkDiffSkipped"] > 0
        return {
            "files": {kind: count[f"file.{kind}"] for kind in ("added", "removed", "modified", "renamed")},
            "chunks": {kind: count[f"chunk.{kind}"] for kind in ("added", "removed", "modified", "moved")},
            "relations": {"edgesAdded": count["relation.added"], "edgesRemoved": count["relation.removed"]},
            "limits": {"chunkDiffSkipped": limited, "reason": reason if limited else None},
        }


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
    old_pieces, new_pieces = read_pieces(before), read_pieces(after)
    if same_artifacts(old_pieces, new_pieces):
        return ModeDiff(mode, fast_path=True)
    old, new = open_side(before, old_pieces), open_side(after, new_pieces)
    old_files, new_files = file_table(all_rows(old.file_meta)), file_table(all_rows(new.file_meta))
    result = diff_files(mode, old_files, new_files, options)
    if result.limit_event is None:
        _diff_chunks(result, (old, old_files), (new, new_files), options, tracker)
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
    with tracker.phase("scan chunks", total=before[0].chunk_meta.size + after[0].chunk_meta.size):
        old = _side_rows(*before, {path for path, _ in pairs}, result.before_scan, options, tracker)
        new = _side_rows(*after, {path for _, path in pairs}, result.after_scan, options, tracker)
    outcomes: dict[str, FileOutcome] = {}
    for old_path, path in pairs:
        outcome = diff_file(result.mode, path, old(old_path), new(path), options)
        if outcome.events:
            outcomes[path] = outcome
            result.counts.update(outcome.counts)
    result.outcomes = outcomes


def _side_rows(
    side: IndexSide, files: FileTable, wanted: set[str], scan: Scan, options: DiffOptions, tracker: Tracker
) -> Callable[[str], FileSide]:
    """Read one side's rows of the wanted files; the kernel's input for a path."""
    rows = collect_rows(
        side.chunk_meta, side.chunk_meta_cold, wanted, files.path_by_id, options.max_chunks_per_file, tracker
    )
    imports = _imports_by_file(side, wanted, scan, tracker) if options.include_relations else {}
    _note(scan, rows)
    return lambda path: FileSide(rows.rows.pop(path, []), rows.counts[path], imports.get(path, []))


def _imports_by_file(side: IndexSide, wanted: set[str], scan: Scan, tracker: Tracker) -> dict[str, list[str]]:
    imports: dict[str, list[str]] = defaultdict(list)
    if side.file_relations is not None:
        selector = FileSelector(wanted, {})
        for file, row in selected_rows(side.file_relations, selector, tracker):
            imports[file] += file_imports(row)
        scan.skipped_rows += selector.skipped
    return imports


def _note(scan: Scan, rows: RowsByFile) -> None:
    scan.scanned_rows += rows.scanned_rows
    scan.parsed_rows += rows.parsed_rows
    scan.skipped_rows += rows.skipped_rows

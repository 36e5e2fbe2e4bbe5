"""semantic-v2: definitions added, removed, renamed and moved, and what changed in the others (index diffs §7)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from driftline.codeindex.artifacts import CHUNK_META, FILE_META, FILE_RELATIONS, Artifact, read_pieces, require_artifact
from driftline.codeindex.built_index import built_index
from driftline.codeindex.chunk_rows import FileSelector
from driftline.codeindex.events import Event, file_event, file_limit_event, mode_limit_event, relation_event
from driftline.codeindex.files_changed import FileChange, FileEntry, FileTable, changed_files, file_table
from driftline.codeindex.fingerprint import same_artifacts
from driftline.codeindex.options import DiffOptions
from driftline.codeindex.relations import changed_file_imports, file_imports
from driftline.codeindex.resolve import IndexDir
from driftline.codeindex.rows import all_rows, selected_rows
from driftline.codeindex.symbol_matching import COMMON, MAX_LEFT, MIN_TOKENS, Matching, Move, find_moves, match_in_file
from driftline.codeindex.symbols import Symbol, changes, symbol_from_chunk, symbol_from_row
from driftline.core._json import utf16_sort_key
from driftline.core._progress import Tracker

RENAME_LIMIT_KIND = "limits.renameSearchSkipped"
_MAX_CALLS = 20

Symbols = dict[str, list[Symbol]]


class SymbolDiff:
    """The comparison of one mode; events are collected by file and told in order."""

    def __init__(self, mode: str, before: IndexDir, after: IndexDir, options: DiffOptions) -> None:
        self.mode = mode
        self.sides = (before, after)
        self.options = options
        self.pieces = (read_pieces(before), read_pieces(after))
        self.built = (built_index(before), built_index(after))
        self.files: tuple[FileTable, FileTable] = (FileTable(), FileTable())
        self.symbols: tuple[Symbols, Symbols] = ({}, {})
        self.changes: list[FileChange] = []
        self.limit_events: list[Event] = []
        self.renames_skipped = False
        self.by_file: dict[str, list[tuple[Any, Event]]] = defaultdict(list)

    def run(self, tracker: Tracker) -> None:
        """Files, then the definitions of changed files."""
        if self._is_same():
            return
        self.files = (self._file_table(0), self._file_table(1))
        self.changes = changed_files(*self.files, detect_renames=self.options.detect_renames)
        modified = sum(change.kind == "modified" for change in self.changes)
        if modified > self.options.max_changed_files:
            self.limit_events.append(mode_limit_event(self.mode, modified, self.options.max_changed_files))
            return
        with tracker.phase("compare definitions", unit="items"):
            self._read_symbols(tracker)
            if self.options.detect_renames:
                self.changes = _with_content_renames(self.changes, *self.symbols)
            self._compare()

    def events(self) -> list[Event]:
        """All events: limits of the mode, then file after file."""
        told = list(self.limit_events)
        file_events = {change.path: file_event(self.mode, change) for change in self.changes}
        for path in sorted({*file_events, *self.by_file}, key=utf16_sort_key):
            if path in file_events:
                told.append(file_events[path])
            told += [event for _, event in sorted(self.by_file.get(path, ()), key=lambda item: item[0])]
        return told

    def _is_same(self) -> bool:
        old, new = self.built
        if old is None or new is None:
            return same_artifacts(*self.sides, *self.pieces)
        # The keys of shards are made of everything that their rows depend on, but for the configuration.
        keys = [pieces.compatibility_key if pieces else None for pieces in self.pieces]
        return keys[0] == keys[1] and [shard.key for shard in old.shards] == [shard.key for shard in new.shards]

    def _artifact(self, side: int, name: str) -> Artifact:
        return require_artifact(self.sides[side], name, self.pieces[side])

    def _file_table(self, side: int) -> FileTable:
        built = self.built[side]
        if built is None:
            return file_table(all_rows(self._artifact(side, FILE_META)))
        return FileTable({row.file: FileEntry(row.file, row.hash, row.size, row.ext or None) for row in built.files})

    def _read_symbols(self, tracker: Tracker) -> None:
        old = [change.before.file for change in self.changes if change.before and not _same_content(change)]
        new = [change.after.file for change in self.changes if change.after and not _same_content(change)]
        self.symbols = (self._symbols(0, old, tracker), self._symbols(1, new, tracker))

    def _symbols(self, side: int, wanted: Collection[str], tracker: Tracker) -> Symbols:
        """The definitions of some files; only their own frames are read where driftline built the index."""
        built = self.built[side]
        if built is not None:
            return {path: list(map(symbol_from_chunk, built.chunks(path))) for path in wanted}
        found: Symbols = {path: [] for path in wanted}
        for row in all_rows(self._artifact(side, CHUNK_META), tracker):
            if row.get("file") in found:
                found[row["file"]].append(symbol_from_row(row, row["file"]))
        return found

    def _compare(self) -> None:
        matching = Matching()
        for change in self.changes:
            if _same_content(change):
                continue
            old = self.symbols[0].get(change.before.file, []) if change.before else []
            new = self.symbols[1].get(change.after.file, []) if change.after else []
            limit = self.options.max_chunks_per_file
            if max(len(old), len(new)) > limit:
                event = file_limit_event(self.mode, change.path, len(old), len(new), limit)
                self.by_file[change.path].append(((3,), event))
                continue
            match_in_file(old, new, matching)
        renamed = {
            change.path: change.before.file for change in self.changes if change.kind == "renamed" and change.before
        }
        if self.options.detect_renames:
            left = (len(matching.removed), len(matching.added))
            find_moves(matching, renamed)
            if matching.search_skipped:
                self._tell_skipped_search(*left)
        self._tell_symbols(matching, {old: new for new, old in renamed.items()})
        if self.options.include_relations:
            self._tell_imports()

    def _tell_skipped_search(self, removed: int, added: int) -> None:
        self.renames_skipped = True
        counts = {"chunksBefore": removed, "chunksAfter": added, "maxChunks": MAX_LEFT}
        self.limit_events.append({"kind": RENAME_LIMIT_KIND, "mode": self.mode, **counts})

    def _tell_symbols(self, matching: Matching, new_paths: dict[str, str]) -> None:
        relations = self.options.include_relations
        for before, after in matching.pairs:
            found = changes(before, after, with_relations=relations)
            if found:
                self._tell("modified", before, after, found, after.file)
        for move in matching.moves:
            found = changes(move.before, move.after, with_relations=relations)
            if not move.quiet:
                self._tell(_verdict(move), move.before, move.after, found, move.after.file, move.score)
            elif found:
                self._tell("modified", move.before, move.after, found, move.after.file)
        for symbol in matching.removed:
            self._tell("removed", symbol, None, [], new_paths.get(symbol.file, symbol.file))
        for symbol in matching.added:
            self._tell("added", None, symbol, [], symbol.file)

    def _tell(
        self,
        kind: str,
        before: Symbol | None,
        after: Symbol | None,
        found: list[str],
        file: str,
        score: float | None = None,
    ) -> None:
        shown = after or before
        assert shown is not None
        event: Event = {
            "kind": f"chunk.{kind}",
            "mode": self.mode,
            "file": file,
            "name": shown.name,
            "chunkKind": shown.kind,
            "public": shown.public,
            "changes": found,
        }
        event |= {name: side.side() for name, side in (("before", before), ("after", after)) if side is not None}
        if score is not None:
            event["similarity"] = round(score, 2)
        if before is not None and after is not None and "relations" in found:
            event["calls"] = _call_changes(before, after)
        order = (1, utf16_sort_key(shown.name), shown.ordinal, _RANK[kind], before.key if before else ())
        self.by_file[file].append((order, event))

    def _tell_imports(self) -> None:
        pairs = [(change.before.file, change.path) for change in self.changes if change.before and change.after]
        changed = [
            (old, new) for old, new in pairs if self.files[0].entries[old].hash != self.files[1].entries[new].hash
        ]
        imports = [self._imports(side, [pair[side] for pair in changed]) for side in (0, 1)]
        for old, new in changed:
            edges = changed_file_imports(new, imports[0].get(old, []), imports[1].get(new, []), (), ())
            for edge in edges:
                self.by_file[new].append(((2, edge.order), relation_event(self.mode, new, edge)))

    def _imports(self, side: int, wanted: Sequence[str]) -> dict[str, list[str]]:
        built = self.built[side]
        if built is not None:
            return {path: built.imports_of(path) for path in wanted}
        selector = FileSelector(frozenset(wanted), {})
        rows = selected_rows(self._artifact(side, FILE_RELATIONS), selector) if wanted else ()
        return {path: file_imports(row) for path, row in rows}


_RANK = {"added": 0, "removed": 1, "modified": 2, "renamed": 3, "moved": 4}


def _verdict(move: Move) -> str:
    return "renamed" if move.before.leaf != move.after.leaf else "moved"


def _same_content(change: FileChange) -> bool:
    """A file that only has another path: nothing inside of it changed."""
    return change.before is not None and change.after is not None and change.before.hash == change.after.hash


def _call_changes(before: Symbol, after: Symbol) -> dict[str, list[str]]:
    old, new = set(before.calls), set(after.calls)
    return {"added": sorted(new - old)[:_MAX_CALLS], "removed": sorted(old - new)[:_MAX_CALLS]}


def _with_content_renames(found: Iterable[FileChange], old: Symbols, new: Symbols) -> list[FileChange]:
    """Removed and added files that share half of the larger one's tokens in equal bodies are renamed files."""
    listed = list(found)
    removed = {change.path: change for change in listed if change.kind == "removed"}
    added = {change.path: change for change in listed if change.kind == "added"}
    taken: set[str] = set()
    renamed: list[FileChange] = []
    for _, new_path, old_path in sorted(_file_candidates(removed, added, old, new)):
        if new_path in added and old_path in removed:
            renamed.append(FileChange("renamed", removed.pop(old_path).before, added.pop(new_path).after))
            taken |= {new_path, old_path}
    rest = [change for change in listed if change.kind not in ("added", "removed") or change.path not in taken]
    return sorted([*rest, *renamed], key=lambda change: utf16_sort_key(change.path))


def _file_candidates(
    removed: Collection[str], added: Collection[str], old: Symbols, new: Symbols
) -> Iterator[tuple[float, str, str]]:
    places: dict[str, set[str]] = defaultdict(set)
    totals = {path: sum(symbol.own_tokens for symbol in old.get(path, ())) for path in removed}
    for path in removed:
        for symbol in old.get(path, ()):
            if symbol.tokens >= MIN_TOKENS:
                places[symbol.body_hash].add(path)
    for path in added:
        shared: Counter[str] = Counter()
        for symbol in new.get(path, ()):
            if symbol.tokens >= MIN_TOKENS:
                for other in sorted(places.get(symbol.body_hash, ()))[:COMMON]:
                    shared[other] += symbol.own_tokens
        total = sum(symbol.own_tokens for symbol in new.get(path, ()))
        for other, tokens in shared.items():
            larger = max(total, totals[other], 1)
            if 2 * tokens >= larger:
                yield -tokens / larger, path, other

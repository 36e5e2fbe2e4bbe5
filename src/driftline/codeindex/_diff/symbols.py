"""semantic-v2: definitions added, removed, renamed, moved or modified between two indexes (index diffs §7)."""

from __future__ import annotations

import binascii
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from driftline.codeindex._build.index_files import SKETCH_VALUES, ChunkRow, built_index
from driftline.codeindex._diff import chunks
from driftline.codeindex._diff.chunks import FileChange, FileEntry, FileTable, IndexEvent
from driftline.codeindex._read import artifacts
from driftline.codeindex._read.resolve import DiffOptions, IndexDir
from driftline.codeindex._storage import member
from driftline.core import Tracker, utf16_sort_key
from driftline.errors import IndexRefError

Pair = tuple["Symbol", "Symbol"]
Symbols = dict[str, list["Symbol"]]

RENAME_LIMIT_KIND = "limits.renameSearchSkipped"
MIN_TOKENS = 12
SIMILAR = 0.6
SIMILAR_WITH_NAME = 0.4
COMMON = 50
BEST = 20
MAX_LEFT = 50_000

_VALUE_BYTES = 4
_MAX_CALLS = 20
_RANK = {"added": 0, "removed": 1, "modified": 2, "renamed": 3, "moved": 4}


# Definitions, read from the rows of an index that driftline built.


class Symbol:
    """One definition on one side: a row of an index, with the names that are used most often."""

    def __init__(self, row: ChunkRow) -> None:
        self.row, self.meta = row, row.metaV2
        self.file, self.name, self.kind = row.file, row.name, row.kind
        self.parent, self.body_hash = self.meta.parent, self.meta.bodyHash
        # What identifies a definition on one side, and orders it.
        self.key = row.file, row.name, self.meta.ordinal
        # The last name, inside of the container.
        self.leaf = self.name[len(self.parent) + 1 :] if self.parent else self.name

    @property
    def calls(self) -> list[str]:
        return [callee for _, callee in self.row.codeRelations.calls]

    @cached_property
    def sketch(self) -> tuple[int, ...]:
        """The smallest hashes of its shingles, sorted."""
        try:
            raw = binascii.a2b_base64(self.meta.sketch)
            return struct.unpack(f"<{len(raw) // _VALUE_BYTES}I", raw)
        except (struct.error, ValueError):
            raise _damaged() from None

    def side(self) -> dict[str, object]:
        place = {name: getattr(self.row, name) for name in ("start", "end", "startLine", "endLine")}
        return {"file": self.file, "name": self.name, "signature": self.meta.signature, "range": place}


def _damaged() -> IndexRefError:
    return IndexRefError("a chunk row is damaged: build the index again (index build --force)")


def symbol_from_row(row: artifacts.Row, file: str) -> Symbol:
    """A definition from its row; rows of other tools lack what is compared."""
    if not isinstance(member(row.get("metaV2"), "bodyHash"), str):
        raise IndexRefError(
            "semantic-v2 compares indexes that driftline built from git; this one has no body hashes "
            "(--kind semantic-v1 compares it)"
        )
    try:
        return Symbol(msgspec.convert({**row, "file": file}, ChunkRow))
    except msgspec.ValidationError:
        raise _damaged() from None


def similarity(left: Symbol, right: Symbol) -> float:
    """The Jaccard index of the shingles of two definitions, estimated where they have many."""
    one, other = set(left.sketch), set(right.sketch)
    if not one or not other:
        return 0.0
    shared = one & other
    if left.meta.shingles <= SKETCH_VALUES and right.meta.shingles <= SKETCH_VALUES:
        return len(shared) / (len(one) + len(other) - len(shared))
    union = sorted(one | other)[:SKETCH_VALUES]
    return len(shared.intersection(union)) / len(union)


def changes(before: Symbol, after: Symbol, *, with_relations: bool = True) -> list[str]:
    """What differs between the two sides of a definition, in this order."""
    differs = {
        "signature": (before.meta.sigHash, before.kind) != (after.meta.sigHash, after.kind),
        "body": before.body_hash != after.body_hash,
        "doc": before.meta.docHash != after.meta.docHash,
        "relations": with_relations and before.calls != after.calls,
    }
    return [what for what, is_other in differs.items() if is_other]


# Matching: by name in a file, then by content (index diffs §7.2).


class _Move(NamedTuple):
    """A definition found under another name or in another file; a quiet one only moved with its container."""

    before: Symbol
    after: Symbol
    score: float
    quiet: bool = False


@dataclass(slots=True)
class _Matching:
    """Everything that was matched, and the rest."""

    pairs: list[Pair] = field(default_factory=list)
    moves: list[_Move] = field(default_factory=list)
    removed: list[Symbol] = field(default_factory=list)
    added: list[Symbol] = field(default_factory=list)


def _match_in_file(before: Iterable[Symbol], after: Iterable[Symbol], matching: _Matching) -> None:
    """Pair definitions of one file by their qualified names."""
    sides = (sorted(side, key=lambda symbol: symbol.meta.ordinal) for side in (before, after))
    old, new = (chunks.grouped(side, lambda symbol: symbol.name) for side in sides)
    for name, candidates in old.items():
        pairs, removed, added = _pair_same_name(candidates, new.pop(name, []))
        matching.pairs += pairs
        matching.removed += removed
        matching.added += added
    for candidates in new.values():
        matching.added += candidates


# Several definitions of one name (overloads): the most similar first, each in order.
_SIMILARITY_KEYS: tuple[Callable[[Symbol], Hashable], ...] = (
    lambda symbol: (symbol.kind, symbol.meta.sigHash, symbol.body_hash),
    lambda symbol: (symbol.kind, symbol.meta.sigHash),
    lambda symbol: (symbol.kind, symbol.body_hash),
    lambda symbol: symbol.kind,
    lambda symbol: None,
)


def _pair_same_name(before: list[Symbol], after: list[Symbol]) -> tuple[list[Pair], list[Symbol], list[Symbol]]:
    if len(before) == len(after) == 1:
        return [(before[0], after[0])], [], []
    pairs: list[Pair] = []
    for key_of in _SIMILARITY_KEYS:
        if not before or not after:
            break
        waiting = chunks.grouped(after, key_of)
        rest = []
        for symbol in before:
            candidates = waiting[key_of(symbol)]
            if candidates:
                pairs.append((symbol, candidates.pop(0)))
            else:
                rest.append(symbol)
        taken = {id(right) for _, right in pairs}
        before, after = rest, [symbol for symbol in after if id(symbol) not in taken]
    return pairs, before, after


class _Search:
    def __init__(self, removed: Sequence[Symbol], added: Sequence[Symbol], renamed_files: Mapping[str, str]) -> None:
        self.removed = sorted(removed, key=lambda symbol: symbol.key)
        self.added = sorted(added, key=lambda symbol: symbol.key)
        self.renamed_files = renamed_files
        self.moves: list[_Move] = []
        self.taken: set[int] = set()
        self.moved_to: dict[tuple[str, str], tuple[str, str]] = {}

    def run(self, kinds: Sequence[str]) -> None:
        old = [symbol for symbol in self.removed if symbol.kind in kinds and id(symbol) not in self.taken]
        new = [symbol for symbol in self.added if symbol.kind in kinds and id(symbol) not in self.taken]
        candidates = [*_exact(old, new), *_similar(old, new)]
        for _, _, _, score, left, right in sorted(map(self._ranked, candidates), key=lambda item: item[:3]):
            if id(left) not in self.taken and id(right) not in self.taken:
                self._take(_Move(left, right, score))

    def _ranked(self, candidate: tuple[float, Symbol, Symbol]) -> tuple[float, object, object, float, Symbol, Symbol]:
        score, left, right = candidate
        same_file = left.file == self.renamed_files.get(right.file, right.file)
        extra = 0.1 * (left.leaf == right.leaf) + 0.05 * same_file + 0.05 * (left.parent == right.parent)
        return -(score + extra), left.key, right.key, score, left, right

    def _take(self, move: _Move) -> None:
        self.moves.append(move)
        self.taken |= {id(move.before), id(move.after)}
        self.moved_to[move.before.file, move.before.name] = (move.after.file, move.after.name)

    def take_members_along(self) -> None:
        """Members of a moved container, by their names inside of it."""
        waiting = chunks.grouped(self.added, lambda symbol: (symbol.file, symbol.parent, symbol.leaf))
        for symbol in self.removed:
            target = self.moved_to.get((symbol.file, symbol.parent)) if symbol.parent else None
            if target is None or id(symbol) in self.taken:
                continue
            found = next((item for item in waiting[(*target, symbol.leaf)] if id(item) not in self.taken), None)
            if found is not None:
                self._take(_Move(symbol, found, 1.0, quiet=True))


def _exact(old: Sequence[Symbol], new: Sequence[Symbol]) -> Iterable[tuple[float, Symbol, Symbol]]:
    """The same signature and body; small ones only where the name is the same too, the smallest if there is one."""
    groups = chunks.grouped(new, lambda symbol: (symbol.kind, symbol.meta.sigHash, symbol.body_hash))
    names = [Counter((symbol.kind, symbol.name) for symbol in side) for side in (old, new)]
    for left in old:
        only = all(side[left.kind, left.name] == 1 for side in names) and left.kind != "entry"
        own, signature = left.meta.ownTokens, left.meta.sigTokens
        for right in groups.get((left.kind, left.meta.sigHash, left.body_hash), ())[:COMMON]:
            named = left.leaf == right.leaf and own + signature >= MIN_TOKENS
            if own >= MIN_TOKENS or named or (only and left.name == right.name):
                yield 1.0, left, right


def _similar(old: Sequence[Symbol], new: Sequence[Symbol]) -> Iterable[tuple[float, Symbol, Symbol]]:
    """Shared values of the sketches; values that many share are ignored."""
    places: dict[int, list[int]] = defaultdict(list)
    for number, symbol in enumerate(new):
        if symbol.meta.tokens >= MIN_TOKENS:
            for value in symbol.sketch:
                places[value].append(number)
    for left in old:
        if left.meta.tokens < MIN_TOKENS:
            continue
        hits: Counter[int] = Counter()
        for value in left.sketch:
            found = places.get(value, ())
            if len(found) <= COMMON:
                hits.update(found)
        for number, _ in sorted(hits.items(), key=lambda item: (-item[1], item[0]))[:BEST]:
            right = new[number]
            score = similarity(left, right) if left.kind == right.kind else 0.0
            if score >= (SIMILAR_WITH_NAME if left.leaf == right.leaf else SIMILAR):
                yield score, left, right


# The comparison of one mode.


class SymbolDiff:
    """The comparison of one mode; events are collected by file."""

    def __init__(self, mode: str, before: IndexDir, after: IndexDir, options: DiffOptions) -> None:
        self.mode, self.sides, self.options = mode, (before, after), options
        self.pieces = (artifacts.read_pieces(before), artifacts.read_pieces(after))
        self.built = (built_index(before), built_index(after))
        self.files: tuple[FileTable, FileTable] = (FileTable(), FileTable())
        self.symbols: tuple[Symbols, Symbols] = ({}, {})
        self.changes: list[FileChange] = []
        self.limit_events: list[IndexEvent] = []
        self.renames_skipped = False
        self.by_file: dict[str, list[tuple[Any, IndexEvent]]] = defaultdict(list)

    def run(self, tracker: Tracker) -> None:
        if self._is_same():
            return
        self.files = (self._file_table(0), self._file_table(1))
        self.changes = chunks.changed_files(*self.files, detect_renames=self.options.detect_renames)
        modified = sum(change.kind == "modified" for change in self.changes)
        if modified > self.options.max_changed_files:
            self.limit_events.append(chunks.mode_limit_event(self.mode, modified, self.options.max_changed_files))
            return
        with tracker.phase("compare definitions", unit="items"):
            read = [change for change in self.changes if not _same_content(change)]
            old = self._symbols(0, [change.before.file for change in read if change.before], tracker)
            self.symbols = (old, self._symbols(1, [change.after.file for change in read if change.after], tracker))
            if self.options.detect_renames:
                self.changes = _with_content_renames(self.changes, *self.symbols)
            self._compare()

    def events(self) -> list[IndexEvent]:
        ordered = list(self.limit_events)
        file_events = {change.path: chunks.file_event(self.mode, change) for change in self.changes}
        for path in sorted({*file_events, *self.by_file}, key=utf16_sort_key):
            if path in file_events:
                ordered.append(file_events[path])
            ordered += [event for _, event in sorted(self.by_file.get(path, ()), key=lambda item: item[0])]
        return ordered

    def _is_same(self) -> bool:
        old, new = self.built
        if old is None or new is None:
            return artifacts.same_artifacts(*self.sides, *self.pieces)
        # The keys of shards are made of everything that their rows depend on, but for the configuration.
        keys = [pieces.compatibility_key if pieces else None for pieces in self.pieces]
        return keys[0] == keys[1] and [shard.key for shard in old.shards] == [shard.key for shard in new.shards]

    def _artifact(self, side: int, name: str) -> artifacts.Artifact:
        return artifacts.require_artifact(self.sides[side], name, self.pieces[side])

    def _file_table(self, side: int) -> FileTable:
        built = self.built[side]
        if built is None:
            return chunks.file_table(artifacts.all_rows(self._artifact(side, artifacts.FILE_META)))
        states = {row.file: row.skipped or ("unparsed" if row.parseError else None) for row in built.files}
        rows = (FileEntry(row.file, row.hash, row.size, row.ext or None, states[row.file]) for row in built.files)
        return FileTable({row.file: row for row in rows})

    def _symbols(self, side: int, needed: Collection[str], tracker: Tracker) -> Symbols:
        """The definitions of some files; only their own frames are read where driftline built the index."""
        built = self.built[side]
        if built is not None:
            return {path: list(map(Symbol, built.chunks(path))) for path in needed}
        found: Symbols = {path: [] for path in needed}
        for row in artifacts.all_rows(self._artifact(side, artifacts.CHUNK_META), tracker):
            if row.get("file") in found:
                found[row["file"]].append(symbol_from_row(row, row["file"]))
        return found

    def _compare(self) -> None:
        matching = _Matching()
        for change in self.changes:
            if _same_content(change):
                continue
            old = self.symbols[0].get(change.before.file, []) if change.before else []
            new = self.symbols[1].get(change.after.file, []) if change.after else []
            limit = self.options.max_chunks_per_file
            if max(len(old), len(new)) > limit:
                event = chunks.file_limit_event(self.mode, change.path, len(old), len(new), limit)
                self.by_file[change.path].append(((3,), event))
                continue
            _match_in_file(old, new, matching)
        moved = [change for change in self.changes if change.kind == "renamed"]
        renamed = {change.path: change.before.file for change in moved if change.before}
        if self.options.detect_renames:
            self._find_moves(matching, renamed)
        self._add_symbols(matching, {old: new for new, old in renamed.items()})
        if self.options.include_relations:
            self._add_imports()

    def _find_moves(self, matching: _Matching, renamed_files: Mapping[str, str]) -> None:
        """Search the rest of one side in the rest of the other: classes, their members by name, then all others."""
        removed, added = len(matching.removed), len(matching.added)
        if max(removed, added) > MAX_LEFT:
            self.renames_skipped = True
            counts = {"chunksBefore": removed, "chunksAfter": added, "maxChunks": MAX_LEFT}
            self.limit_events.append({"kind": RENAME_LIMIT_KIND, "mode": self.mode, **counts})
            return
        search = _Search(matching.removed, matching.added, renamed_files)
        search.run(("class",))
        search.take_members_along()
        search.run(("function", "value", "entry"))
        matching.moves = search.moves
        matching.removed = [symbol for symbol in matching.removed if id(symbol) not in search.taken]
        matching.added = [symbol for symbol in matching.added if id(symbol) not in search.taken]

    def _add_symbols(self, matching: _Matching, new_paths: dict[str, str]) -> None:
        relations = self.options.include_relations
        for before, after in matching.pairs:
            found = changes(before, after, with_relations=relations)
            if found:
                self._add_event("modified", before, after, found, after.file)
        for move in matching.moves:
            found = changes(move.before, move.after, with_relations=relations)
            if not move.quiet:
                verdict = "renamed" if move.before.leaf != move.after.leaf else "moved"
                self._add_event(verdict, move.before, move.after, found, move.after.file, move.score)
            elif found:
                self._add_event("modified", move.before, move.after, found, move.after.file)
        for symbol in matching.removed:
            self._add_event("removed", symbol, None, [], new_paths.get(symbol.file, symbol.file))
        for symbol in matching.added:
            self._add_event("added", None, symbol, [], symbol.file)

    def _add_event(
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
        event: IndexEvent = {"kind": f"chunk.{kind}", "mode": self.mode, "file": file, "name": shown.name}
        event |= {"chunkKind": shown.kind, "public": shown.meta.public, "changes": found}
        event |= {name: side.side() for name, side in (("before", before), ("after", after)) if side is not None}
        if score is not None:
            event["similarity"] = round(score, 2)
        if before is not None and after is not None and "relations" in found:
            old, new = set(before.calls), set(after.calls)
            event["calls"] = {"added": sorted(new - old)[:_MAX_CALLS], "removed": sorted(old - new)[:_MAX_CALLS]}
        order = (1, utf16_sort_key(shown.name), shown.meta.ordinal, _RANK[kind], before.key if before else ())
        self.by_file[file].append((order, event))

    def _add_imports(self) -> None:
        pairs = [(change.before.file, change.path) for change in self.changes if change.before and change.after]
        old_files, new_files = (table.entries for table in self.files)
        changed = [(old, new) for old, new in pairs if old_files[old].hash != new_files[new].hash]
        imports = [self._imports(side, [pair[side] for pair in changed]) for side in (0, 1)]
        for old, new in changed:
            for edge in chunks.changed_file_imports(new, imports[0].get(old, []), imports[1].get(new, []), (), ()):
                self.by_file[new].append(((2, edge.order), chunks.relation_event(self.mode, new, edge)))

    def _imports(self, side: int, needed: Sequence[str]) -> dict[str, list[str]]:
        built = self.built[side]
        if built is not None:
            return {path: built.imports_of(path) for path in needed}
        choose = chunks.FileSelector(frozenset(needed), {}).choose
        rows = artifacts.selected_rows(self._artifact(side, artifacts.FILE_RELATIONS), choose) if needed else ()
        return {path: chunks.file_imports(row) for path, row in rows}


def _same_content(change: FileChange) -> bool:
    """A file that only has another path: nothing inside of it changed."""
    return change.before is not None and change.after is not None and change.before.hash == change.after.hash


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
    totals = {path: sum(symbol.meta.ownTokens for symbol in old.get(path, ())) for path in removed}
    for path in removed:
        for symbol in old.get(path, ()):
            if symbol.meta.tokens >= MIN_TOKENS:
                places[symbol.body_hash].add(path)
    for path in added:
        shared: Counter[str] = Counter()
        for symbol in new.get(path, ()):
            if symbol.meta.tokens >= MIN_TOKENS:
                for other in sorted(places.get(symbol.body_hash, ()))[:COMMON]:
                    shared[other] += symbol.meta.ownTokens
        total = sum(symbol.meta.ownTokens for symbol in new.get(path, ()))
        for other, tokens in shared.items():
            larger = max(total, totals[other], 1)
            if 2 * tokens >= larger:
                yield -tokens / larger, path, other

"""Kernels for a cluster: what tasks do to pieces of an index, as plain functions over plain records.

Paths travel as UTF-16 keys, whose byte order is the order of events.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from driftline.codeindex.artifacts import Artifact, Form, Part
from driftline.codeindex.chunk_rows import IdSelector, fill_members, needed_members
from driftline.codeindex.events import Event, file_event
from driftline.codeindex.file_kernel import FileSide, diff_file
from driftline.codeindex.files_changed import ChangeKind, FileChange, FileEntry, changed_files, file_table, take_renames
from driftline.codeindex.json_values import compact_json, row_id
from driftline.codeindex.options import DiffOptions
from driftline.codeindex.relations import file_imports
from driftline.codeindex.rows import EveryRow, Probe, Row, rows_between
from driftline.codeindex.storage import parse_json
from driftline.core._files import compression_of
from driftline.core._json import utf16_sort_key
from driftline.errors import IndexRefError

SPLIT_BYTES = 64 << 20

BEFORE, AFTER = 0, 1


class Split(msgspec.Struct, frozen=True):
    """A piece of an artifact that one task reads: a range of lines, or a whole file."""

    side: int
    path: str
    place: str
    form: Form
    size: int
    start: int = 0
    end: int | None = None

    @property
    def part(self) -> Part:
        """The file; a worker must see the same one as whoever planned the work."""
        try:
            size = os.stat(self.path).st_size
        except OSError:
            size = -1
        if size != self.size:
            raise IndexRefError(f"{self.place} is not the same on a worker: every worker must see the index")
        return Part(Path(self.path), self.place, self.form)


def plan_splits(side: int, artifact: Artifact | None, split_bytes: int = SPLIT_BYTES) -> list[Split]:
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


@dataclass(frozen=True, slots=True)
class Record:
    """A row on its way through a cluster; without a `key` it only counts, or is found by `file_id`."""

    side: int
    key: bytes | None = None
    file_id: str | None = None
    row_id: str | None = None
    count: int = 1
    payload: bytes | None = None


def path_key(path: str) -> bytes:
    """A path as a key."""
    return utf16_sort_key(path)


def path_of(key: bytes) -> str:
    """The path behind a key."""
    return key.decode("utf-16-be", "surrogatepass")


def scan_files(split: Split) -> Iterator[Record]:
    """The rows of `file_meta`; rows without a file are counted."""
    skipped = 0
    for _, row in rows_between(split.part, split.start, split.end, EveryRow()):
        file = row.get("file")
        if not isinstance(file, str) or not file:
            skipped += 1
            continue
        members = {name: row.get(name) for name in ("id", "file", "hash", "size", "ext")}
        yield Record(split.side, path_key(file), row_id(row.get("id")), payload=compact_json(members))
    if skipped:
        yield Record(split.side, count=skipped)


def classify_file(rows: Iterable[tuple[int, bytes]]) -> tuple[FileChange | None, dict[int, set[str]]]:
    """What happened to one path, from its rows of both sides, and the row numbers it has on each."""
    parsed: dict[int, list[Row]] = {BEFORE: [], AFTER: []}
    for side, payload in rows:
        parsed[side].append(parse_payload(payload))
    if _surely_the_same(parsed[BEFORE], parsed[AFTER]):
        return None, {}
    before, after = file_table(parsed[BEFORE]), file_table(parsed[AFTER])
    changes = changed_files(before, after, detect_renames=False)
    ids = {side: {text for row in found if (text := row_id(row["id"]))} for side, found in parsed.items()}
    return (changes[0] if changes else None), ids


def _surely_the_same(before: list[Row], after: list[Row]) -> bool:
    """One row a side with the same hash, as most files have: no need to look closer."""
    return len(before) == len(after) == 1 and bool(before[0]["hash"]) and before[0]["hash"] == after[0]["hash"]


def pair_renames(changes: Iterable[FileChange]) -> list[FileChange]:
    """Removed and added files of one hash, paired in path order; the rest stays as it is."""
    removed: dict[str, FileEntry] = {}
    added: dict[str, FileEntry] = {}
    for change in changes:
        if change.before is not None:
            removed[change.path] = change.before
        elif change.after is not None:
            added[change.path] = change.after
    renamed = take_renames(removed, added)
    rest = [FileChange("removed", entry, None) for entry in removed.values()]
    return renamed + rest + [FileChange("added", None, entry) for entry in added.values()]


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """The files of one side whose rows are wanted, by path and by row number; None wants everything."""

    paths: Collection[str] | None = None
    ids: Collection[str] | None = None


class _ChunkChooser:
    """Gives wanted rows a key; of a file above the limit only a count is left in this split."""

    def __init__(self, wanted: SelectedRows, limit: int) -> None:
        self.wanted = wanted
        self.limit = limit
        self.taken: Counter[tuple[bytes | None, str | None]] = Counter()
        self.counted: Counter[tuple[bytes | None, str | None]] = Counter()

    def choose(self, probe: Probe) -> tuple[bytes | None, str | None] | None:
        """(path key, None) for a row that names its file, else (None, file id)."""
        file = probe.file
        if isinstance(file, str) and file:
            if self.wanted.paths is not None and file not in self.wanted.paths:
                return None
            return self._take((path_key(file), None))
        key = (None, row_id(probe.fileId))
        if key[1] is not None and (self.wanted.ids is None or key[1] in self.wanted.ids):
            return self._take(key)
        self.counted[key] += 1
        return None

    def _take(self, key: tuple[bytes | None, str | None]) -> tuple[bytes | None, str | None] | None:
        self.taken[key] += 1
        if self.taken[key] <= self.limit:
            return key
        self.counted[key] += 1
        return None


def scan_chunks(split: Split, wanted: SelectedRows, limit: int) -> Iterator[Record]:
    """The wanted rows of `chunk_meta`, and counts of rows that were not worth sending."""
    chooser = _ChunkChooser(wanted, limit)
    for (key, file_id), row in rows_between(split.part, split.start, split.end, chooser):
        yield Record(split.side, key, file_id, row_id(row.get("id")), payload=needed_members(row))
    for (key, file_id), count in chooser.counted.items():
        yield Record(split.side, key, file_id, count=count)


def scan_cold(split: Split, wanted: Collection[str] | None) -> Iterator[Record]:
    """The wanted rows of `chunk_meta_cold`."""
    for key, row in rows_between(split.part, split.start, split.end, IdSelector(wanted)):
        yield Record(split.side, row_id=key, payload=needed_members(row))


def scan_imports(split: Split, wanted: SelectedRows) -> Iterator[Record]:
    """The imports in wanted rows of `file_relations`."""
    chooser = _ChunkChooser(SelectedRows(wanted.paths, ids=()), limit=1 << 62)
    for (key, _), row in rows_between(split.part, split.start, split.end, chooser):
        yield Record(split.side, key, payload=compact_json(file_imports(row)))
    skipped = sum(count for (key, _), count in chooser.counted.items() if key is None)
    if skipped:
        yield Record(split.side, count=skipped)


@dataclass(slots=True)
class PathRecords:
    """Everything about one changed path that met in one place."""

    change: FileChange
    rows: dict[int, list[Row]]
    counts: Counter[int]
    imports: dict[int, list[str]]

    @classmethod
    def of(cls, change: FileChange) -> PathRecords:
        """Nothing yet but the change itself."""
        return cls(change, {BEFORE: [], AFTER: []}, Counter(), {BEFORE: [], AFTER: []})

    def add_chunk(self, side: int, count: int, payload: bytes | None, cold: bytes | None) -> None:
        """Take a chunk row, with its cold members, or a bare count."""
        self.counts[side] += count
        if payload is not None:
            row = parse_payload(payload)
            fill_members(row, parse_payload(cold) if cold is not None else {})
            self.rows[side].append(row)

    def events(self, mode: str, options: DiffOptions) -> Iterator[Event]:
        """The file event and what happened inside of the file."""
        yield file_event(mode, self.change)
        sides = [FileSide(self.rows[side], self.counts[side], self.imports[side]) for side in (BEFORE, AFTER)]
        yield from diff_file(mode, self.change.path, sides[0], sides[1], options).events


def change_payload(change: FileChange) -> bytes:
    """A file change as bytes."""
    sides = {"before": change.before, "after": change.after}
    return compact_json({name: entry.to_dict() if entry else None for name, entry in sides.items()})


def change_from_payload(kind: ChangeKind, payload: bytes) -> FileChange:
    """The file change in these bytes."""
    sides = parse_payload(payload)
    before, after = (FileEntry.from_dict(sides[name]) if sides[name] else None for name in ("before", "after"))
    return FileChange(kind, before, after)


def parse_payload(payload: bytes) -> Any:
    """What `compact_json` wrote."""
    return parse_json(payload, "a record")

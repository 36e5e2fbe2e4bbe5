"""The chunk rows of the files that changed, found without parsing the others (index diffs §5.2)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from driftline.codeindex.artifacts import Artifact
from driftline.codeindex.json_values import compact_json, row_id
from driftline.codeindex.relations import file_imports
from driftline.codeindex.rows import Probe, Row, selected_rows
from driftline.codeindex.storage import parse_json
from driftline.core._progress import Tracker
from driftline.core._workspace import SpillStore

_RECORD_BYTES = 2000
_NEEDED_MEMBERS = (
    "id", "chunkId", "start", "end", "startLine", "endLine", "kind", "name", "segment", "docmeta", "codeRelations",
    "metaV2",
)  # fmt: skip


@dataclass(slots=True)
class Scan:
    """What was looked at on one side; skipped rows had no file."""

    scanned_rows: int = 0
    parsed_rows: int = 0
    skipped_rows: int = 0


class FileSelector:
    """Wants the rows of some files; a row names its file, or its row number in `file_meta`."""

    def __init__(self, wanted: Collection[str], path_by_id: Mapping[str, str], limit: int | None = None) -> None:
        self.wanted = wanted
        self.path_by_id = path_by_id
        self.limit = limit
        self.counts: Counter[str] = Counter()
        self.scanned = 0
        self.skipped = 0

    def choose(self, probe: Probe) -> str | None:
        """The file of a wanted row."""
        self.scanned += 1
        file = probe.file
        if not isinstance(file, str) or not file:
            file = self.path_by_id.get(row_id(probe.fileId) or "")
            if file is None:
                self.skipped += 1
                return None
        return file if file in self.wanted and self._within_limit(file) else None

    def _within_limit(self, file: str) -> bool:
        self.counts[file] += 1
        return self.limit is None or self.counts[file] <= self.limit


class IdSelector:
    """Wants the rows with some row numbers, or all of them, to join them to rows that are already there."""

    def __init__(self, wanted: Collection[str] | None) -> None:
        self.wanted = wanted

    def choose(self, probe: Probe) -> str | None:
        """The row number of a wanted row."""
        key = row_id(probe.id)
        return key if self.wanted is None or key in self.wanted else None


Record = tuple[str, str, Any]  # what it is, its file or row number, and what was read


class RecordCodec:
    """Records as lines of JSON."""

    def size(self, piece: Record) -> int:
        """About what a row of a real index takes as Python objects."""
        return _RECORD_BYTES

    def write(self, pieces: Sequence[Record], out: BinaryIO) -> None:
        """A line each."""
        out.writelines(compact_json(piece) + b"\n" for piece in pieces)

    def read(self, path: Path) -> list[Record]:
        """All of them."""
        with open(path, "rb") as lines:
            return [tuple(parse_json(line, "a spilled row")) for line in lines]


# By bucket: a renamed folder can bring every chunk of a large repository into the diff.
RecordStore = SpillStore[int, Record]


@dataclass(slots=True)
class SideRows:
    """One side's rows of the wanted files, put into buckets; of a file above the limit only the count is exact."""

    bucket_of: Mapping[str, int]
    store: RecordStore
    scan: Scan
    tracker: Tracker
    counts: Counter[str] = field(default_factory=Counter)

    def read_chunks(self, hot: Artifact, cold: Artifact | None, path_by_id: dict[str, str], limit: int | None) -> None:
        """Read the chunk rows; cold rows follow the hot ones into their buckets."""
        selector = FileSelector(self.bucket_of, path_by_id, limit)
        buckets_of_id: dict[str, set[int]] = defaultdict(set)
        for file, row in selected_rows(hot, selector, self.tracker):
            bucket = self.bucket_of[file]
            self.store.add(bucket, ("chunk", file, row))
            self.scan.parsed_rows += 1
            if cold is not None and (key := row_id(row.get("id"))) is not None:
                buckets_of_id[key].add(bucket)
        self.counts = selector.counts
        self.scan.scanned_rows += selector.scanned
        self.scan.skipped_rows += selector.skipped
        if cold is not None:
            for key, row in selected_rows(cold, IdSelector(buckets_of_id), self.tracker):
                for bucket in buckets_of_id[key]:
                    self.store.add(bucket, ("cold", key, row))

    def read_imports(self, artifact: Artifact) -> None:
        """Read the imports of the wanted files."""
        selector = FileSelector(self.bucket_of, {})
        for file, row in selected_rows(artifact, selector, self.tracker):
            self.store.add(self.bucket_of[file], ("imports", file, file_imports(row)))
        self.scan.skipped_rows += selector.skipped

    def take(self, bucket: int) -> tuple[dict[str, list[Row]], dict[str, list[str]]]:
        """The joined rows and the imports of a bucket, by file."""
        rows: dict[str, list[Row]] = defaultdict(list)
        imports: dict[str, list[str]] = defaultdict(list)
        cold: list[tuple[Any, Row]] = []
        for tag, key, value in self.store.take(bucket):
            if tag == "chunk":
                rows[key].append(value)
            elif tag == "imports":
                imports[key] += value
            else:
                cold.append((key, value))
        join_cold((row for found in rows.values() for row in found), cold)
        return rows, imports


def join_cold(rows: Iterable[Row], cold: Iterable[tuple[str, Row]]) -> None:
    """Fill members that are missing in hot rows from the cold rows of the same `id`."""
    best: dict[str, Row] = {}
    for key, extra in cold:
        # An id that is there twice: the choice must not hang on the order of the rows.
        if key not in best or needed_members(extra) > needed_members(best[key]):
            best[key] = extra
    for row in rows if best else ():
        fill_members(row, best.get(row_id(row.get("id")) or "", {}))


def needed_members(row: Row) -> bytes:
    """What a diff reads of a chunk row, as JSON."""
    return compact_json({name: row[name] for name in _NEEDED_MEMBERS if row.get(name) is not None})


def fill_members(row: Row, extra: Row) -> None:
    """Take over members that the row does not have."""
    row.update({name: value for name, value in extra.items() if row.get(name) is None})

"""The chunk rows of the files that changed, found without parsing the others (specification 5.4.1)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from driftline.codeindex.artifacts import Artifact
from driftline.codeindex.json_text import compact_json
from driftline.codeindex.rows import Probe, Row, selected_rows
from driftline.progress import Tracker

_ID_TYPES = (int, float, str)
_NEEDED_MEMBERS = (
    "id", "chunkId", "start", "end", "startLine", "endLine", "kind", "name", "segment", "docmeta", "codeRelations",
    "metaV2",
)  # fmt: skip


@dataclass(slots=True)
class RowsByFile:
    """Rows of the wanted files; of a file above the limit only the count is exact."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    scanned_rows: int = 0
    parsed_rows: int = 0
    skipped_rows: int = 0


class FileSelector:
    """Wants the rows of some files; a row names its file, or its row number in `file_meta`."""

    def __init__(self, wanted: Collection[str], path_by_id: dict[Any, str], limit: int | None = None) -> None:
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
            file = self._file_by_id(probe.fileId)
            if file is None:
                self.skipped += 1
                return None
        return file if file in self.wanted and self._within_limit(file) else None

    def _file_by_id(self, file_id: Any) -> str | None:
        return self.path_by_id.get(file_id) if isinstance(file_id, _ID_TYPES) else None

    def _within_limit(self, file: str) -> bool:
        self.counts[file] += 1
        return self.limit is None or self.counts[file] <= self.limit


class IdSelector:
    """Wants the rows with some row numbers, to join them to rows that are already there."""

    def __init__(self, wanted: dict[Any, list[Row]]) -> None:
        self.wanted = wanted

    def choose(self, probe: Probe) -> Any:
        """The row number of a wanted row."""
        return probe.id if isinstance(probe.id, _ID_TYPES) and probe.id in self.wanted else None


def collect_rows(
    hot: Artifact,
    cold: Artifact | None,
    wanted: Collection[str],
    path_by_id: dict[Any, str],
    limit: int | None,
    tracker: Tracker,
) -> RowsByFile:
    """The wanted rows of one side, with their cold members joined."""
    selector = FileSelector(wanted, path_by_id, limit)
    result = RowsByFile()
    for file, row in selected_rows(hot, selector, tracker):
        result.rows[file].append(row)
        result.parsed_rows += 1
    if cold is not None:
        join_cold((row for rows in result.rows.values() for row in rows), cold, tracker)
    result.counts = selector.counts
    result.scanned_rows, result.skipped_rows = selector.scanned, selector.skipped
    return result


def join_cold(rows: Iterable[Row], cold: Artifact, tracker: Tracker) -> None:
    """Fill members that are missing in hot rows from the cold rows of the same `id`."""
    by_id: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        if isinstance(row.get("id"), _ID_TYPES):
            by_id[row["id"]].append(row)
    found: dict[Any, Row] = {}
    for row_id, extra in selected_rows(cold, IdSelector(by_id), tracker):
        # An id that is there twice: the choice must not hang on the order of the rows.
        if row_id not in found or needed_members(extra) > needed_members(found[row_id]):
            found[row_id] = extra
    for row_id, extra in found.items():
        for row in by_id[row_id]:
            fill_members(row, extra)


def needed_members(row: Row) -> bytes:
    """What a diff reads of a chunk row, as JSON."""
    return compact_json({name: row[name] for name in _NEEDED_MEMBERS if row.get(name) is not None})


def fill_members(row: Row, extra: Row) -> None:
    """Take over members that the row does not have."""
    row.update({name: value for name, value in extra.items() if row.get(name) is None})

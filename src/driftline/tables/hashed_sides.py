"""What a scheduler knows of a side after its splits were hashed: row numbers, problems, duplicate keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from driftline.sources._cells import value_kind
from driftline.sources._source import KnownRecords, Split, SplitSide
from driftline.tables.columns import Comparison, Sides
from driftline.tables.matching import Duplicate
from driftline.tables.problems import Problem, Side, duplicate_key_problem
from driftline.tables.row_hashes import RowHashes, row_in_split, split_of
from driftline.tables.stages import HashedSplit, TablePlan
from driftline.tables.stats import Stats

_MOST_ENDS = 4_000_000  # rows of a side whose ends are kept, 4 bytes each


@dataclass
class HashedSide:
    """The hashes of one side are kept elsewhere; here is what else is known of its splits."""

    side: Side
    layout: SplitSide
    problems: list[Problem] = field(default_factory=list)
    sound: bool = True
    total_rows: int = 0
    first_records: list[int] = field(default_factory=list)  # of each split, and of what would follow the last
    skipped: int = 0
    has_texts: bool = True
    _ends: list[npt.NDArray[np.int32] | None] = field(default_factory=list)  # behind each record, split by split

    def __post_init__(self) -> None:
        self.first_records.append(self.layout.first_record)
        self.skipped = self.layout.skipped

    def note(self, hashed: HashedSplit) -> None:
        """Take the facts of the next split into account."""
        first_record = self.first_records[-1]
        self.sound = self.sound and hashed.sound
        self.has_texts = self.has_texts and hashed.has_texts
        self.problems += hashed.problems(self.side, first_record, len(self.layout.header))
        self.first_records.append(first_record + hashed.records)
        self.total_rows += hashed.rows
        self.skipped += hashed.records - hashed.rows
        self._ends.append(hashed.ends if self.total_rows <= _MOST_ENDS else None)

    def known(self, split: int) -> KnownRecords:
        """What is known of the records of a split."""
        return KnownRecords(self.first_records[split + 1] - self.first_records[split], self._ends[split])

    def row_at(self, place: int) -> int:
        """The record number in the file of a row's place."""
        number = np.uint64(place)
        return self.first_records[int(split_of(number))] + int(row_in_split(number))

    def duplicates(self, found: Sequence[Duplicate | None], plan: TablePlan) -> list[Problem]:
        """The first of the duplicate keys that buckets found, with the key's cells read again from its split."""
        first = min((one for one in found if one is not None), key=lambda one: one.repeated, default=None)
        if first is None:
            return []
        split = int(split_of(np.uint64(first.repeated)))
        record = row_in_split(np.array([first.repeated], np.uint64)).astype(np.int64)
        row = self.layout.splits[split].pick(record).to_pylist()[0]
        cells = {name: json.loads(cell) if self.layout.typed else cell for name, cell in row.items()}
        compared = plan.compared
        own = compared.names(compared.keys, self.side)
        key = {column.a: cells[name] for column, name in zip(compared.keys, own, strict=True)}
        return [duplicate_key_problem(self.side, self.row_at(first.repeated), self.row_at(first.first), key)]


def row_blocks(hashes: RowHashes, first_row: int, block_rows: int) -> Iterator[tuple[int, RowHashes]]:
    """Cut a split's hashes at multiples of `block_rows`, so that both files are cut at the same rows.

    The key of such a row hash is its row's ordinal, by which rows meet.
    """
    hashes = hashes.copy()
    hashes["key"] = np.arange(first_row, first_row + len(hashes), dtype=np.uint64)
    start = 0
    while start < len(hashes):
        block = (first_row + start) // block_rows
        end = min(len(hashes), (block + 1) * block_rows - first_row)
        yield block, hashes[start:end]
        start = end


def check_unchanged(splits: Sequence[Split]) -> None:
    """Raise if a file is not what it was when the work began."""
    for file in {file for split in splits for file in split.files}:
        file.check_unchanged()


def sides_of(a: SplitSide, b: SplitSide) -> Sides:
    """What is known of both sides beside their headers."""
    return Sides(a.typed, b.typed, a.kinds if a.typed else b.kinds)


def columns_by_value(compared: Comparison, a: SplitSide, b: SplitSide) -> frozenset[str]:
    """The columns, by A's names, whose values say as much as their JSON text, without making it."""
    if a.schema is None or b.schema is None:
        return frozenset()
    kinds_a = {field.name: value_kind(field.type) for field in a.schema}
    kinds_b = {field.name: value_kind(field.type) for field in b.schema}
    return frozenset(
        column.a
        for column in compared.columns
        if column.rule.is_exact and kinds_a[column.a] is not None and kinds_a[column.a] == kinds_b[column.b]
    )


def total_stats(parts: Iterable[Stats], plan: TablePlan, a: HashedSide, b: HashedSide) -> Stats:
    """The counts of all buckets, and those of the whole."""
    options = plan.options
    whole = Stats(
        skipped_a=a.skipped,
        skipped_b=b.skipped,
        columns_differ=plan.compared.differs,
        shows_skipped=options.counts_skipped,
        shows_dropped=options.counts_dropped,
    )
    return sum(parts, whole)

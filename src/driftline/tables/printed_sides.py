"""What a scheduler knows of a side after its splits were printed: row numbers, problems, duplicate keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from driftline.sources.port import Split, SplitSide
from driftline.tables.matching import Duplicate
from driftline.tables.prints import Prints, row_in_split, split_of
from driftline.tables.problems import Problem, Side, duplicate_key_problem
from driftline.tables.rules import key_parts
from driftline.tables.stages import FIRST_DATA_ROW, PrintedSplit, TablePlan


@dataclass
class PrintedSide:
    """The prints of one side are kept elsewhere; here is what else is known of its splits."""

    side: Side
    layout: SplitSide
    rows: list[int] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    sound: bool = True
    total_rows: int = 0

    @property
    def rows_before(self) -> list[int]:
        """For each split the number of data rows in earlier splits."""
        return [0, *accumulate(self.rows)]

    def note(self, printed: PrintedSplit) -> None:
        """Take the facts of the next split into account."""
        self.sound = self.sound and printed.sound
        self.problems += printed.problems(self.side, self.total_rows, len(self.layout.header))
        self.rows.append(printed.rows)
        self.total_rows += printed.rows

    def row_at(self, place: int) -> int:
        """The record number in the file of a row's place."""
        number = np.uint64(place)
        return self.rows_before[int(split_of(number))] + int(row_in_split(number)) + FIRST_DATA_ROW

    def duplicates(self, found: Sequence[Duplicate | None], plan: TablePlan) -> list[Problem]:
        """The first of the duplicate keys that buckets found, with the key's cells read again from its split."""
        first = min((one for one in found if one is not None), key=lambda one: one.repeated, default=None)
        if first is None:
            return []
        split = int(split_of(np.uint64(first.repeated)))
        record = row_in_split(np.array([first.repeated], np.uint64)).astype(np.int64)
        row = self.layout.splits[split].pick(record).to_pylist()[0]
        parts = key_parts(row, plan.options)
        key = dict(zip(plan.options.key_columns, map(json.loads, parts) if plan.typed else parts, strict=True))
        return [duplicate_key_problem(self.side, self.row_at(first.repeated), self.row_at(first.first), key)]


def row_blocks(prints: Prints, first_row: int, block_rows: int) -> Iterator[tuple[int, Prints]]:
    """Cut a split's prints at multiples of `block_rows`, so that both files are cut at the same rows."""
    start = 0
    while start < len(prints):
        block = (first_row + start) // block_rows
        end = min(len(prints), (block + 1) * block_rows - first_row)
        yield block, prints[start:end]
        start = end


def check_unchanged(splits: Sequence[Split]) -> None:
    """Raise if a file is not what it was when the work began."""
    for file in {file for split in splits for file in split.files}:
        file.check_unchanged()

"""What a file of changes holds, read a block at a time: its operations, or its sections and their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import IO, TYPE_CHECKING

from driftline.changesets.format import DELETE, INSERT, UPDATE
from driftline.changesets.operations import Operation
from driftline.changesets.reading import Counts, Window, count_carefully, count_quickly, operations_in, walk
from driftline.changesets.streams import reopenable
from driftline.changesets.table import Table

if TYPE_CHECKING:
    from driftline.changesets.streams import Changes


def iterate(data: Changes, tables: Iterable[Table] = ()) -> Iterator[Operation]:
    """The operations of a file in their order, read a block at a time; `tables` give names to columns.

    >>> [operation.kind for operation in iterate(bytes.fromhex("5401017400 120005 090005"))]
    ['insert', 'delete']
    """
    with reopenable(data) as open_changes, open_changes() as stream:
        yield from operations_of(stream, tables)


def operations_of(stream: IO[bytes], tables: Iterable[Table] = ()) -> Iterator[Operation]:
    """The operations of an open file from where it stands."""
    for _, operations in operations_in(Window(b"", stream.read, tables)):
        yield from operations


@dataclass(slots=True)
class Section:
    """The records of one table: how many of each kind, and how many of them are indirect."""

    table: Table
    kinds: Counter[int] = field(default_factory=Counter)
    indirect: int = 0

    def statistics(self) -> dict[str, int]:
        """The counts by name."""
        kinds = self.kinds
        return {
            "insert": kinds[INSERT],
            "update": kinds[UPDATE],
            "delete": kinds[DELETE],
            "indirect": self.indirect,
        }


@dataclass(slots=True)
class Summary:
    """What a file holds, without its rows: its format and its sections, in file order."""

    marker: int | None = None
    sections: list[Section] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(section.kinds.total() for section in self.sections)

    def run_lengths(self) -> Iterator[int]:
        """How many records follow each other under one table's name."""
        for _, sections in groupby(self.sections, key=lambda section: section.table.name):
            yield sum(section.kinds.total() for section in sections)

    def add(self, table: Table, counts: Counts) -> None:
        """Count records of a table; sections of one table that follow each other are one."""
        if not self.sections or self.sections[-1].table is not table:
            self.sections.append(Section(table))
        self.sections[-1].kinds += counts.kinds
        self.sections[-1].indirect += counts.indirect


def summary(stream: IO[bytes], tables: Iterable[Table] = ()) -> Summary:
    """Read a file to its end and count; damage is an error with its offset."""
    found = Summary()
    for header, counts in walk(Window(b"", stream.read, tables), count_quickly, count_carefully):
        found.marker = header.marker
        if counts.kinds:
            found.add(header.table, counts)
    return found

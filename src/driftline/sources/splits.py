"""A side of a diff as splits: independent, picklable pieces that can be read anywhere and more than once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from driftline.sources.csv_parse import ParsedRange, parse_range, pick_records
from driftline.sources.csv_splits import ByteRange


class Split(Protocol):
    """A run of rows. The rows of a side are the rows of its splits, in order."""

    @property
    def size(self) -> int:
        """About how many bytes reading it costs, for progress and balance."""

    def read(self) -> ParsedRange:
        """All rows as Arrow columns, or what is wrong with them."""

    def pick(self, records: Any) -> Any:
        """Some rows (a NumPy array of numbers from 0, ascending) as an Arrow table."""


@dataclass(frozen=True, slots=True)
class CsvSplit:
    """A byte range of a CSV file between two record boundaries."""

    range: ByteRange
    header: tuple[str, ...]
    delimiter: str

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.range.end - self.range.start

    def read(self) -> ParsedRange:
        """All rows as string columns."""
        return parse_range(self.range.read(), self.header, self.delimiter)

    def pick(self, records: Any) -> Any:
        """Some rows as string columns."""
        return pick_records(self.range.read(), records, self.header, self.delimiter)


@dataclass(frozen=True, slots=True)
class SplitSide:
    """A header, the splits below it, and about how many rows they hold."""

    header: tuple[str, ...]
    splits: Sequence[Split]
    expected_rows: int

    @property
    def size(self) -> int:
        """Bytes of all splits."""
        return sum(split.size for split in self.splits)

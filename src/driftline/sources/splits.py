"""A side of a diff as splits: independent, picklable pieces that can be read anywhere and more than once."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from driftline.sources.csv_parse import ParsedRange, parse_range, pick_records, take_records
from driftline.sources.csv_splits import ByteRange
from driftline.sources.inputs import InputFile


class Split(Protocol):
    """A run of rows. The rows of a side are the rows of its splits, in order."""

    @property
    def size(self) -> int:
        """About how many bytes reading it costs, for progress and balance."""

    @property
    def files(self) -> tuple[InputFile, ...]:
        """What must not change while the work runs."""

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

    @property
    def files(self) -> tuple[InputFile, ...]:
        """Its file."""
        return (self.range.file,)

    def read(self) -> ParsedRange:
        """All rows as string columns."""
        return parse_range(self.range.read(), self.header, self.delimiter)

    def pick(self, records: Any) -> Any:
        """Some rows as string columns."""
        return pick_records(self.range.read(), records, self.header, self.delimiter)


class KeptSplit:
    """A split that is being read already and stays in memory, so that picking rows needs no second reading."""

    def __init__(self, split: Split, pool: Executor) -> None:
        self.split = split
        self._reading = pool.submit(split.read)

    @property
    def size(self) -> int:
        """As the split."""
        return self.split.size

    @property
    def files(self) -> tuple[InputFile, ...]:
        """As the split."""
        return self.split.files

    def read(self) -> ParsedRange:
        """The result of the reading that was begun."""
        return self._reading.result()

    def pick(self, records: Any) -> Any:
        """Some rows of what is in memory."""
        table = self.read().table
        assert table is not None, "only sound splits are picked from"
        return take_records(table, records)


@dataclass(frozen=True, slots=True)
class SplitSide:
    """A header, the splits below it, and about how many rows they hold."""

    header: tuple[str, ...]
    splits: Sequence[Split]
    expected_rows: int
    typed: bool = False  # cells are JSON text, see `json_cells`

    @property
    def size(self) -> int:
        """Bytes of all splits."""
        return sum(split.size for split in self.splits)

    def read_ahead(self, pool: Executor, limit_bytes: int) -> tuple[SplitSide, int]:
        """The same side with its first splits kept in memory, up to a limit, and what is left of the limit."""
        splits: list[Split] = []
        for split in self.splits:
            limit_bytes -= split.size
            splits.append(KeptSplit(split, pool) if limit_bytes > 0 else split)
        return replace(self, splits=splits), max(limit_bytes, 0)

"""Base classes of typed sources: cells are the JSON text of values, and splits are read in place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from driftline.core import Workspace
from driftline.sources._addresses import InputFile
from driftline.sources._source import (
    Counted,
    FileFingerprint,
    ParsedRange,
    RecordIndex,
    RecordNumbers,
    SplitSide,
    TypedCells,
    fingerprint_of_files,
    reads_input,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pyarrow as pa

_HEAD_ROWS = 6144


@reads_input
class TypedSource(TypedCells, ABC):
    """A source whose columns have declared types."""

    __slots__ = ()

    @abstractmethod
    def types(self) -> pa.Schema:
        """As the source declares them."""

    @abstractmethod
    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Executor | None = None) -> SplitSide:
        """The splits."""

    def header(self, side: str) -> tuple[str, ...]:
        """As the source declares them."""
        return tuple(self.types().names)

    def sample(self, side: str, rows: int) -> dict[str, list[str]]:
        """The first rows of the first split that has any."""
        with Workspace() as workspace:
            for split in self.lay_out(side, 0, workspace).splits:
                table = split.head()
                if table is not None and table.num_rows:
                    return {name: table.column(at).to_pylist()[:rows] for at, name in enumerate(table.column_names)}
        return {name: [] for name in self.header(side)}


@reads_input
class TypedRows(ABC):
    """A split that is read as one Arrow table."""

    __slots__ = ()

    @abstractmethod
    def typed_rows(self) -> pa.Table:
        """All rows as they are stored."""

    def read(self) -> ParsedRange:
        """All rows."""
        from driftline.sources._cells import json_columns

        table = json_columns(self.typed_rows())
        return ParsedRange(table.num_rows, table)

    def pick(self, records: RecordNumbers, known: RecordIndex | None = None) -> pa.Table:
        """Some rows."""
        from driftline.sources._cells import json_columns

        return json_columns(self.typed_rows(), records)

    def count(self) -> Counted:
        """The numbers of records and of rows: they are the same."""
        rows = self.typed_rows().num_rows
        return Counted(rows, rows)

    def head(self) -> pa.Table | None:
        """The first rows; the complete split is read for them."""
        from driftline.sources._cells import json_columns

        return json_columns(self.typed_rows().slice(0, _HEAD_ROWS))


@reads_input
@dataclass(frozen=True, slots=True)
class ColumnarFiles(TypedSource):
    """Files with the same columns in the same order, each with blocks of rows (Parquet, Arrow)."""

    files: tuple[InputFile, ...]
    format: str
    typed: bool = True
    seekable: bool = True
    ordered: bool = True

    @abstractmethod
    def first_rows(self, rows: int) -> pa.Table:
        """Of the first file."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def fingerprint(self, of_file: FileFingerprint) -> str:
        """The bytes of its files."""
        return fingerprint_of_files(self.files, of_file)

    def sample(self, side: str, rows: int) -> dict[str, list[str]]:
        """The first rows of the first file."""
        from driftline.sources._cells import json_columns

        table = json_columns(self.first_rows(rows))
        return {name: table.column(at).to_pylist() for at, name in enumerate(table.column_names)}

    def with_absolute_paths(self) -> Self:
        """The same source for processes in other folders."""
        return replace(self, files=tuple(file.with_absolute_path() for file in self.files))


@reads_input
@dataclass(frozen=True, slots=True)
class ColumnarSplit(TypedRows):
    """One block of rows of a file."""

    file: InputFile
    number: int
    size: int

    @property
    def files(self) -> tuple[InputFile, ...]:
        """Its file."""
        return (self.file,)

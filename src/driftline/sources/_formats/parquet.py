"""Parquet files that together are one table: a split gives each the table's columns (sources §5).

A file may call a column otherwise, lack it, or hold a narrower type; partition values come from outside the file, and
deleted rows are masked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from driftline.core._workspace import Workspace
from driftline.sources.formats.columnar import TypedRows, TypedSource
from driftline.sources.formats.parquet import opened
from driftline.sources.input_file import InputFile
from driftline.sources.port import FileFingerprint, SplitSide, fingerprint_of_files

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file: the values of its partition, and which of its first rows are kept (one bit each, None: all)."""

    file: InputFile
    values: tuple[tuple[str, object], ...]
    keep: bytes | None = None
    masked: int = 0


@dataclass(frozen=True, slots=True)
class DataFileSource(TypedSource):
    """Files that together are one table, whatever their own columns are called."""

    data: tuple[DataFile, ...]
    schema: pa.Schema
    physical: dict[str, str]
    format: str
    ordered: bool
    identity: str = ""  # what names the content; "": the bytes of the files do
    typed: bool = True
    seekable: bool = True

    @property
    def files(self) -> tuple[InputFile, ...]:
        """The data files."""
        return tuple(one.file for one in self.data)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(one.file.size for one in self.data)

    def types(self) -> pa.Schema:
        """As the table declares them."""
        return self.schema

    def fingerprint(self, of_file: FileFingerprint) -> str:
        """What names the content for good, else the bytes of the files."""
        return self.identity or fingerprint_of_files(self.files, of_file)

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Executor | None = None) -> SplitSide:
        """The row groups of all files."""
        from driftline.sources.json_cells import column_kinds

        splits: list[DataFileSplit] = []
        for one in self.data:
            with opened(one.file) as file:
                about = file.metadata
            groups = [about.row_group(number) for number in range(about.num_row_groups)]
            first = 0
            for number, group in enumerate(groups):
                splits.append(DataFileSplit(self.schema, self.physical, one, number, first, group.total_byte_size))
                first += group.num_rows
        rows = sum(split.size for split in splits) // 64
        return SplitSide(tuple(self.schema.names), splits, rows, typed=True, kinds=column_kinds(self.schema))

    def with_absolute_paths(self) -> DataFileSource:
        """The same source for processes in other folders."""
        return replace(self, data=tuple(replace(one, file=one.file.with_absolute_path()) for one in self.data))


@dataclass(frozen=True, slots=True)
class DataFileSplit(TypedRows):
    """One row group of a data file, as the table's schema sees it."""

    schema: pa.Schema
    physical: dict[str, str]
    data: DataFile
    number: int
    first_row: int
    size: int

    @property
    def files(self) -> tuple[InputFile, ...]:
        """Its file."""
        return (self.data.file,)

    def typed_rows(self) -> pa.Table:
        """All rows that are not deleted."""
        import pyarrow as pa

        with opened(self.data.file) as file:
            stored = file.read_row_group(self.number, use_threads=False)
        columns = [self._column(stored, field) for field in self.schema]
        table = pa.Table.from_arrays(columns, schema=self.schema)
        return table if self.data.keep is None else table.filter(self._kept(stored.num_rows))

    def _column(self, stored: pa.Table, field: pa.Field) -> pa.ChunkedArray:
        import pyarrow as pa

        values = dict(self.data.values)
        if field.name in values:  # never the text of a path
            one = pa.array([values[field.name]]).cast(field.type)
            return pa.chunked_array([pa.repeat(one[0], stored.num_rows)], field.type)
        name = self.physical[field.name]
        if name not in stored.column_names:
            return pa.chunked_array([pa.nulls(stored.num_rows, field.type)], field.type)
        return stored.column(name).cast(field.type)

    def _kept(self, rows: int) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        bits = np.unpackbits(np.frombuffer(self.data.keep or b"", np.uint8), count=self.data.masked).astype(bool)
        own = bits[self.first_row : self.first_row + rows]
        return pa.array(np.concatenate([own, np.ones(rows - len(own), bool)]))

"""Parquet files, alone or as the data files of one table: typed cells, every row group is a split."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from driftline.core import Workspace, io_errors
from driftline.sources import _source
from driftline.sources._addresses import Address, InputFile
from driftline.sources._source import ColumnarFiles, ColumnarSplit, Counted, Opening, Pool, Source, SplitSide, TypedRows

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

# Types whose values Polars reads as Arrow does.
_BY_POLARS = re.compile(r"u?int(?:8|16|32|64)|float|double|bool|(?:large_)?string|date32\[day\]")


def open_input(address: Address, opening: Opening) -> ParquetSource:
    return ParquetSource(opening.files, "parquet")


@dataclass(frozen=True, slots=True)
class ParquetSource(ColumnarFiles):
    """Files of row groups."""

    def types(self) -> pa.Schema:
        with opened(self.files[0]) as file:
            return file.schema_arrow

    def first_rows(self, rows: int) -> pa.Table:
        import pyarrow as pa

        with opened(self.files[0]) as file:
            batch = next(file.iter_batches(batch_size=rows, use_threads=False), None)
            return pa.Table.from_batches([batch] if batch else [], file.schema_arrow)

    def blocks(self, file: InputFile) -> tuple[pa.Schema, int, list[RowGroup]]:
        with opened(file) as found:
            schema, about = found.schema_arrow, found.metadata
        groups = [about.row_group(number) for number in range(about.num_row_groups)]
        ends = list(accumulate(one.num_rows for one in groups))
        by_polars = type(file) is InputFile and all(_BY_POLARS.fullmatch(str(type_)) for type_ in schema.types)
        splits = [
            RowGroup(file, number, one.total_byte_size, one.num_rows, end - one.num_rows if by_polars else None)
            for number, (one, end) in enumerate(zip(groups, ends, strict=True))
        ]
        return schema, about.num_rows, splits


@dataclass(frozen=True, slots=True)
class RowGroup(ColumnarSplit):
    """One row group."""

    rows: int
    first: int | None = None  # the number of its first row in a file that Polars may read

    def count(self) -> Counted:
        return Counted(self.rows, self.rows)

    def typed_rows(self) -> pa.Table:
        with opened(self.file) as file:
            return file.read_row_group(self.number, use_threads=False)

    def frame(self) -> pl.DataFrame:
        """The same values; Polars decodes text at twice the speed of Arrow."""
        import polars as pl

        if self.first is not None:
            path = os.path.abspath(self.file.path)
            try:
                stored = pl.scan_parquet(path, glob=False, hive_partitioning=False, use_statistics=False, cache=False)
                return stored.slice(self.first, self.rows).collect()
            except (pl.exceptions.PolarsError, OSError):
                pass  # Arrow reads it, or says what is wrong with it
        return TypedRows.frame(self)


@contextmanager
def opened(file: InputFile) -> Iterator[pq.ParquetFile]:
    """A file; an exception of pyarrow becomes one clear line."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    words = f"{file.name} is not a readable Parquet file"
    with (
        _source.explained(pa.ArrowException, words, code="invalid_parquet", path=file.name),
        io_errors(file.name),
        pq.ParquetFile(file.for_arrow()) as found,
    ):
        yield found


# Data files of one table (Delta, Hive): a split has the table's columns (sources §5).
# In a file a column may have another name or a narrower type, or be missing; partition values come from outside the
# file, and deleted rows are masked.


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file: the values of its partition, and which of its first rows are not deleted (a bit each; None: all)."""

    file: InputFile
    values: tuple[tuple[str, object], ...]
    keep: bytes | None = None
    masked: int = 0


@dataclass(frozen=True, slots=True)
class DataFileSource(Source):
    """The data files of one table."""

    data: tuple[DataFile, ...]
    schema: pa.Schema
    physical: dict[str, str]
    format: str
    ordered: bool = True
    identity: str = ""  # of the content; "": the bytes of the files identify it

    @property
    def files(self) -> tuple[InputFile, ...]:
        return tuple(one.file for one in self.data)

    def types(self) -> pa.Schema:
        return self.schema

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Pool = None) -> SplitSide:
        """The row groups of all files."""
        splits: list[DataFileSplit] = []
        for one in self.data:
            with opened(one.file) as file:
                about = file.metadata
            groups = [about.row_group(number) for number in range(about.num_row_groups)]
            first = 0
            for number, group in enumerate(groups):
                splits.append(DataFileSplit(self.schema, self.physical, one, number, first, group.total_byte_size))
                first += group.num_rows
        return _source.typed_side(self.schema, splits, sum(split.size for split in splits) // 64)

    def with_absolute_paths(self) -> DataFileSource:
        return replace(self, data=tuple(replace(one, file=one.file.with_absolute_path()) for one in self.data))


@dataclass(frozen=True, slots=True)
class DataFileSplit(TypedRows):
    """One row group of a data file, with the table's schema."""

    schema: pa.Schema
    physical: dict[str, str]
    data: DataFile
    number: int
    first_row: int
    size: int = field()

    @property
    def files(self) -> tuple[InputFile, ...]:
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

"""Parquet files: every row group is a split."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from driftline.errors import InputError
from driftline.files import naming_the_file
from driftline.sources.csv_parse import ParsedRange, take_records
from driftline.sources.csv_side import part_mismatch
from driftline.sources.inputs import Input, InputFile
from driftline.sources.json_cells import json_columns
from driftline.sources.splits import SplitSide


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of a Parquet file; its cells are read as JSON text."""

    file: InputFile
    number: int
    size: int

    @property
    def files(self) -> tuple[InputFile, ...]:
        """Its file."""
        return (self.file,)

    def read(self) -> ParsedRange:
        """All rows."""
        table = json_columns(self._read())
        return ParsedRange(table.num_rows, table)

    def pick(self, records: Any) -> Any:
        """Some rows."""
        return json_columns(take_records(self._read(), records))

    def _read(self) -> pa.Table:
        with explaining(self.file), pq.ParquetFile(self.file.path) as file:
            return file.read_row_group(self.number, use_threads=False)


def lay_out(source: Input, side: str) -> SplitSide:
    """The row groups of all files; part files must have the same columns in the same order."""
    header: tuple[str, ...] | None = None
    splits: list[RowGroup] = []
    rows = 0
    for file in source.files:
        with explaining(file), pq.ParquetFile(file.path) as opened:
            names = tuple(opened.schema_arrow.names)
            about = opened.metadata
            sizes = [about.row_group(number).total_byte_size for number in range(about.num_row_groups)]
            rows += about.num_rows
        if header is not None and names != header:
            raise part_mismatch(side, file.name)
        header = names
        splits += [RowGroup(file, number, size) for number, size in enumerate(sizes)]
    return SplitSide(header or (), splits, rows, typed=True)


@contextmanager
def explaining(file: InputFile) -> Iterator[None]:
    """Turn pyarrow's complaints into one clear line."""
    try:
        with naming_the_file(file.name):
            yield
    except pa.ArrowException as error:
        first_line = str(error).splitlines()[0]
        raise InputError(
            f"{file.name} is not a readable Parquet file: {first_line}", code="invalid_parquet", path=file.name
        ) from error

"""Parquet files: typed cells, every row group is a split."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from driftline.errors import InputError
from driftline.files import explain_io_errors
from driftline.sources.addresses import Address
from driftline.sources.input_file import InputFile, known_suffix
from driftline.sources.port import (
    Counted,
    FileFingerprint,
    Opening,
    ParsedRange,
    SplitSide,
    fingerprint_of_files,
    part_mismatch,
)
from driftline.sources.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_MAGIC = b"PAR1"
_HEAD_ROWS = 6144


class ParquetFormat:
    """Knows its files by their first bytes, whatever they are called."""

    name = "parquet"
    suffixes = (".parquet", ".pq")

    def recognises(self, address: Address, start: bytes | None) -> bool:
        """By the magic word; a file that only bears the name is opened, so that it is called damaged."""
        return start is not None and (start.startswith(_MAGIC) or known_suffix(address.path) in self.suffixes)

    def open(self, address: Address, opening: Opening) -> ParquetSource:
        """Its files."""
        return ParquetSource(opening.files)


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """Files with the same columns in the same order."""

    files: tuple[InputFile, ...]
    format: str = "parquet"
    typed: bool = True
    seekable: bool = True
    ordered: bool = True

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def header(self, side: str) -> tuple[str, ...]:
        """From the footer of the first file."""
        return tuple(self.types().names)

    def types(self) -> pa.Schema:
        """From the footer of the first file."""
        with opened(self.files[0]) as file:
            return file.schema_arrow

    def fingerprint(self, of_file: FileFingerprint) -> str:
        """The bytes of its files."""
        return fingerprint_of_files(self.files, of_file)

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Executor | None = None) -> SplitSide:
        """The row groups of all files."""
        from driftline.sources.json_cells import column_kinds

        header: tuple[str, ...] | None = None
        splits: list[RowGroup] = []
        rows = 0
        for file in self.files:
            with opened(file) as found:
                schema, about = found.schema_arrow, found.metadata
                names = tuple(schema.names)
                groups = [about.row_group(number) for number in range(about.num_row_groups)]
            if header is not None and names != header:
                raise part_mismatch(side, file.name)
            header = names
            rows += about.num_rows
            splits += [RowGroup(file, number, one.total_byte_size, one.num_rows) for number, one in enumerate(groups)]
        return SplitSide(header or (), splits, rows, typed=True, kinds=column_kinds(schema))

    def normalized(self, side: str, workspace: Workspace, pool: Executor | None = None) -> ParquetSource:
        """As it is."""
        return self

    def records(self, side: str, *, checked: bool = True) -> None:
        """There is no text to read."""

    def sample(self, side: str, rows: int) -> dict[str, list[str]]:
        """The first rows of the first file."""
        from driftline.sources.json_cells import json_columns

        with opened(self.files[0]) as file:
            batch = next(file.iter_batches(batch_size=rows, use_threads=False), None)
            table = json_columns(
                file.schema_arrow.empty_table().from_batches([batch] if batch else [], file.schema_arrow)
            )
        return {name: table.column(at).to_pylist() for at, name in enumerate(table.column_names)}

    def text_table(self, side: str) -> None:
        """Cells are typed."""

    def with_absolute_paths(self) -> ParquetSource:
        """The same source for processes in other folders."""
        return replace(self, files=tuple(file.with_absolute_path() for file in self.files))


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of a Parquet file; its cells are read as JSON text."""

    file: InputFile
    number: int
    size: int
    rows: int

    @property
    def files(self) -> tuple[InputFile, ...]:
        """Its file."""
        return (self.file,)

    def read(self) -> ParsedRange:
        """All rows."""
        from driftline.sources.json_cells import json_columns

        table = json_columns(self._read())
        return ParsedRange(table.num_rows, table)

    def pick(self, records: Any) -> Any:
        """Some rows."""
        from driftline.sources.csv_parse import take_records
        from driftline.sources.json_cells import json_columns

        return json_columns(take_records(self._read(), records))

    def count(self) -> Counted:
        """From the footer."""
        return Counted(self.rows, self.rows)

    def head(self) -> Any:
        """The first rows; the whole group is read for them."""
        from driftline.sources.json_cells import json_columns

        return json_columns(self._read().slice(0, _HEAD_ROWS))

    def _read(self) -> pa.Table:
        with opened(self.file) as file:
            return file.read_row_group(self.number, use_threads=False)


@contextmanager
def opened(file: InputFile) -> Iterator[pq.ParquetFile]:
    """A file, with pyarrow's complaints turned into one clear line."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with explain_io_errors(file.name), pq.ParquetFile(file.for_arrow()) as found:
            yield found
    except pa.ArrowException as error:
        first_line = str(error).splitlines()[0]
        raise InputError(
            f"{file.name} is not a readable Parquet file: {first_line}", code="invalid_parquet", path=file.name
        ) from error

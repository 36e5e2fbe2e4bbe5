"""Parquet files: typed cells, every row group is a split."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftline.core._files import explain_io_errors
from driftline.core._workspace import Workspace
from driftline.errors import InputError
from driftline.sources.addresses import Address
from driftline.sources.formats.columnar import ColumnarFiles, ColumnarSplit
from driftline.sources.input_file import InputFile, known_suffix
from driftline.sources.port import Counted, Opening, SplitSide, part_mismatch

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pyarrow as pa
    import pyarrow.parquet as pq

_MAGIC = b"PAR1"


class ParquetFormat:
    """Knows its files by their first bytes, whatever they are called."""

    name = "parquet"
    suffixes = (".parquet", ".pq")

    def recognises(self, address: Address, start: bytes | None) -> bool:
        """By the magic word; a file that only bears the name is opened, so that it is called damaged."""
        return start is not None and (start.startswith(_MAGIC) or known_suffix(address.path) in self.suffixes)

    def open(self, address: Address, opening: Opening) -> ParquetSource:
        """Its files."""
        return ParquetSource(opening.files, self.name)


@dataclass(frozen=True, slots=True)
class ParquetSource(ColumnarFiles):
    """Files of row groups."""

    def types(self) -> pa.Schema:
        """From the footer of the first file."""
        with opened(self.files[0]) as file:
            return file.schema_arrow

    def first_rows(self, rows: int) -> pa.Table:
        """Of the first batch."""
        import pyarrow as pa

        with opened(self.files[0]) as file:
            batch = next(file.iter_batches(batch_size=rows, use_threads=False), None)
            return pa.Table.from_batches([batch] if batch else [], file.schema_arrow)

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Executor | None = None) -> SplitSide:
        """The row groups of all files."""
        from driftline.sources.json_cells import column_kinds

        header: tuple[str, ...] | None = None
        splits: list[RowGroup] = []
        rows = 0
        schemas: list[pa.Schema] = []
        for file in self.files:
            with opened(file) as found:
                schema, about = found.schema_arrow, found.metadata
                names = tuple(schema.names)
                groups = [about.row_group(number) for number in range(about.num_row_groups)]
            if header is not None and names != header:
                raise part_mismatch(side, file.name)
            header = names
            schemas.append(schema)
            rows += about.num_rows
            splits += [RowGroup(file, number, one.total_byte_size, one.num_rows) for number, one in enumerate(groups)]
        shared = schema if all(schema.equals(other) for other in schemas) else None
        return SplitSide(header or (), splits, rows, typed=True, kinds=column_kinds(schema), schema=shared)


@dataclass(frozen=True, slots=True)
class RowGroup(ColumnarSplit):
    """One row group."""

    rows: int

    def count(self) -> Counted:
        """From the footer."""
        return Counted(self.rows, self.rows)

    def typed_rows(self) -> pa.Table:
        """All of it."""
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

"""Arrow files (Feather version 2) and streams, and ORC: typed cells, every record batch is a split."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from driftline.core import Workspace, io_errors
from driftline.errors import InputError
from driftline.sources._addresses import Address, InputFile
from driftline.sources._formats.columnar import ColumnarFiles, ColumnarSplit
from driftline.sources._source import Opening, SplitSide, part_mismatch, reads_input

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pyarrow as pa

_ORC_MAGIC = b"ORC"
_STREAM_START = b"\xff\xff\xff\xff"


def open_input(address: Address, opening: Opening) -> ArrowSource:
    """Its files; streams and ORC files, which are read from the start, as copies."""
    return ArrowSource(tuple(_copied(file, opening.workspace) for file in opening.files), "arrow")


def _copied(file: InputFile, workspace: Workspace) -> InputFile:
    import pyarrow as pa

    with io_errors(file.name), file.open() as stream:
        start = stream.read(4)
    is_orc = start.startswith(_ORC_MAGIC)
    if not is_orc and start != _STREAM_START:
        return file
    target = workspace.new_file("copy.arrow")
    try:
        with io_errors(file.name), file.open() as stream:
            reader = _orc_batches(stream) if is_orc else pa.ipc.open_stream(stream)
            with pa.ipc.new_file(str(target), reader.schema) as out:
                for batch in reader:
                    out.write_batch(batch)
    except pa.ArrowException as error:
        words = str(error).splitlines()[0]
        raise InputError(f"{file.name} cannot be read: {words}", code="invalid_arrow", path=file.name) from error
    return InputFile.of(target, file.name)


def _orc_batches(stream: BinaryIO) -> pa.RecordBatchReader:
    import pyarrow as pa
    from pyarrow import orc

    found = orc.ORCFile(stream)
    return pa.RecordBatchReader.from_batches(found.schema, (found.read_stripe(at) for at in range(found.nstripes)))


@reads_input
@dataclass(frozen=True, slots=True)
class ArrowSource(ColumnarFiles):
    """Files of record batches."""

    def types(self) -> pa.Schema:
        """From the schema of the first file."""
        with opened(self.files[0]) as file:
            return file.schema

    def first_rows(self, rows: int) -> pa.Table:
        """Of the first batch."""
        import pyarrow as pa

        with opened(self.files[0]) as file:
            batches = [file.get_batch(0).slice(0, rows)] if file.num_record_batches else []
            return pa.Table.from_batches(batches, file.schema)

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Executor | None = None) -> SplitSide:
        """The record batches of all files; how many rows each has is known when it is read."""
        from driftline.sources._cells import column_kinds

        schema = self.types()
        splits: list[RecordBatch] = []
        rows, alike = 0, True
        for file in self.files:
            with opened(file) as found:
                if found.schema.names != schema.names:
                    raise part_mismatch(side, file.name)
                alike = alike and found.schema.equals(schema)
                rows += found.count_rows()
                batches = found.num_record_batches
            splits += [RecordBatch(file, number, file.size // batches) for number in range(batches)]
        return SplitSide(
            tuple(schema.names), splits, rows, typed=True, kinds=column_kinds(schema), schema=schema if alike else None
        )


@reads_input
@dataclass(frozen=True, slots=True)
class RecordBatch(ColumnarSplit):
    """One record batch."""

    def typed_rows(self) -> pa.Table:
        """All of it."""
        import pyarrow as pa

        with opened(self.file) as file:
            return pa.Table.from_batches([file.get_batch(self.number)], file.schema)


@contextmanager
def opened(file: InputFile) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """A file; an exception of pyarrow becomes one clear line."""
    import pyarrow as pa

    try:
        given = file.for_arrow()
        with (
            io_errors(file.name),
            pa.OSFile(given) if isinstance(given, str) else given as stream,
            pa.ipc.open_file(stream) as found,
        ):
            yield found
    except pa.ArrowException as error:
        first_line = str(error).splitlines()[0]
        raise InputError(
            f"{file.name} is not a readable Arrow file: {first_line}", code="invalid_arrow", path=file.name
        ) from error

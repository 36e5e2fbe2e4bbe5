"""Arrow files (Feather version 2) and streams, and ORC: typed cells, every record batch is a split."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from driftline.core import Workspace, io_errors
from driftline.sources._addresses import Address, InputFile
from driftline.sources._source import ColumnarFiles, ColumnarSplit, Opening, explained

if TYPE_CHECKING:
    import pyarrow as pa

_ORC_MAGIC = b"ORC"
_STREAM_START = b"\xff\xff\xff\xff"


def open_input(address: Address, opening: Opening) -> ArrowSource:
    """Its files; streams and ORC files, which are read from the start, as copies."""
    kinds = [_kind(file) for file in opening.files]
    copied = (_copied(*one, opening.workspace) for one in zip(opening.files, kinds, strict=True))
    return ArrowSource(tuple(copied), kinds[0])


def _kind(file: InputFile) -> str:
    with io_errors(file.name), file.open() as stream:
        start = stream.read(len(_STREAM_START))
    is_stream = start == _STREAM_START or (start[:2] > b"\0\0" == start[2:])  # streams once began with a length
    return "orc" if start.startswith(_ORC_MAGIC) else "arrow stream" if is_stream else "arrow"


def _copied(file: InputFile, kind: str, workspace: Workspace) -> InputFile:
    import pyarrow as pa

    if kind == "arrow":
        return file
    target = workspace.new_file("copy.arrow")
    with (
        explained(pa.ArrowException, f"{file.name} cannot be read", code="invalid_arrow", path=file.name),
        io_errors(file.name),
        file.open() as stream,
    ):
        reader = _orc_batches(stream) if kind == "orc" else pa.ipc.open_stream(stream)
        with pa.ipc.new_file(str(target), reader.schema) as out:
            for batch in reader:
                out.write_batch(batch)
    return InputFile.of(target, file.name)


def _orc_batches(stream: BinaryIO) -> pa.RecordBatchReader:
    import pyarrow as pa
    from pyarrow import orc

    found = orc.ORCFile(stream)
    return pa.RecordBatchReader.from_batches(found.schema, (found.read_stripe(at) for at in range(found.nstripes)))


@dataclass(frozen=True, slots=True)
class ArrowSource(ColumnarFiles):
    """Files of record batches."""

    def types(self) -> pa.Schema:
        with opened(self.files[0]) as file:
            return file.schema

    def first_rows(self, rows: int) -> pa.Table:
        import pyarrow as pa

        with opened(self.files[0]) as file:
            batches = [file.get_batch(0).slice(0, rows)] if file.num_record_batches else []
            return pa.Table.from_batches(batches, file.schema)

    def blocks(self, file: InputFile) -> tuple[pa.Schema, int, list[RecordBatch]]:
        with opened(file) as found:
            batches = found.num_record_batches
            splits = [RecordBatch(file, number, file.size // batches) for number in range(batches)]
            return found.schema, found.count_rows(), splits


@dataclass(frozen=True, slots=True)
class RecordBatch(ColumnarSplit):
    """One record batch."""

    def typed_rows(self) -> pa.Table:
        import pyarrow as pa

        with opened(self.file) as file:
            return pa.Table.from_batches([file.get_batch(self.number)], file.schema)


@contextmanager
def opened(file: InputFile) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """A file; an exception of pyarrow becomes one clear line."""
    import pyarrow as pa

    with explained(
        pa.ArrowException, f"{file.name} is not a readable Arrow file", code="invalid_arrow", path=file.name
    ):
        given = file.for_arrow()
        with (
            io_errors(file.name),
            pa.OSFile(given) if isinstance(given, str) else given as stream,
            pa.ipc.open_file(stream) as found,
        ):
            yield found

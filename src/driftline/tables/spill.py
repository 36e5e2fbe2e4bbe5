"""How row hashes and sorted rows are kept in memory up to a limit and on disk beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa

from driftline.core._files import explain_io_errors
from driftline.core._workspace import SpillStore, Workspace
from driftline.tables.ordering import RowChunk
from driftline.tables.row_hashes import ROW_HASH, RowHashes

_BATCH_ROWS = 4096


class HashCodec:
    """Row hashes as they lie in memory."""

    def __init__(self, kind: np.dtype[np.void] = ROW_HASH) -> None:
        self._kind = kind

    def size(self, piece: RowHashes) -> int:
        """Their bytes."""
        return piece.nbytes

    def write(self, pieces: Sequence[RowHashes], out: BinaryIO) -> None:
        """One after the other."""
        for piece in pieces:
            piece.tofile(out)

    def read(self, path: Path) -> list[RowHashes]:
        """All as one."""
        return [np.fromfile(path, self._kind)]


HashStore = SpillStore[tuple[str, int], RowHashes]  # by side and bucket


class HeldChunk:
    """A sorted row chunk in memory."""

    def __init__(self, chunk: RowChunk) -> None:
        self._chunk = chunk
        self.height = chunk.height

    def order(self) -> pl.Series:
        """The order values of all rows."""
        return self._chunk.order

    def rows(self, start: int, end: int) -> RowChunk:
        """Some of the rows."""
        return self._chunk.slice(start, end)


class SpilledChunk:
    """A sorted row chunk in an Arrow file, read back batch by batch."""

    def __init__(self, chunk: RowChunk, file: Path) -> None:
        self._file = file
        self.height = chunk.height
        frame = pl.DataFrame([chunk.kinds.alias("kinds"), chunk.order.alias("order"), *chunk.rows.get_columns()])
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        with explain_io_errors(file), pa.ipc.new_file(str(file), table.schema) as out:
            out.write_table(table, max_chunksize=_BATCH_ROWS)

    def order(self) -> pl.Series:
        """The order values of all rows, alone."""
        with explain_io_errors(self._file), pa.memory_map(str(self._file)) as mapped:
            options = pa.ipc.IpcReadOptions(included_fields=[1])
            table = pa.ipc.open_file(mapped, options=options).read_all()
            return pl.Series(pl.from_arrow(table.column("order")))

    def rows(self, start: int, end: int) -> RowChunk:
        """Some of the rows."""
        first, last = start // _BATCH_ROWS, -(-end // _BATCH_ROWS)
        with explain_io_errors(self._file), pa.memory_map(str(self._file)) as mapped:
            file = pa.ipc.open_file(mapped)
            table = pa.Table.from_batches([file.get_batch(number) for number in range(first, last)], file.schema)
        frame = pl.DataFrame(pl.from_arrow(table)).slice(start - first * _BATCH_ROWS, end - start)
        return RowChunk(frame.drop("kinds", "order"), frame["kinds"], frame["order"])


StoredChunk = HeldChunk | SpilledChunk


class ChunkStore:
    """Sorted row chunks of one side, in memory up to a limit and in files beyond it."""

    def __init__(self, workspace: Workspace, limit_bytes: int) -> None:
        self._workspace = workspace
        self._limit = limit_bytes
        self._held = 0
        self.bytes = 0
        self.chunks: list[StoredChunk] = []

    def add(self, chunk: RowChunk) -> None:
        """Keep a chunk."""
        size = int(chunk.rows.estimated_size())
        self.bytes += size
        if self._held + size > self._limit:
            self.chunks.append(SpilledChunk(chunk, self._workspace.new_file("rows.arrow")))
        else:
            self._held += size
            self.chunks.append(HeldChunk(chunk))

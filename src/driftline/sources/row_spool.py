"""Rows that can only be read from the start, copied into Arrow files of JSON text that can be read in any order."""

from __future__ import annotations

import os
import secrets
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.core._files import atomic_write, explain_io_errors
from driftline.core._objects import Place, is_url, read
from driftline.core._workspace import Workspace
from driftline.sources.csv_parse import take_records
from driftline.sources.input_file import InputFile
from driftline.sources.json_cells import cells_by_column
from driftline.sources.port import Counted, KnownRecords, ParsedRange, RecordNumbers, SplitSide

_BATCH_ROWS = 20_000
_NULL = "null"
_KINDS = {bool: "boolean", int: "number", float: "number"}

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """Some rows in an Arrow file; a column that these rows do not have reads as null."""

    path: str
    size: int
    rows: int
    header: tuple[str, ...]

    @property
    def files(self) -> tuple[InputFile, ...]:
        """Nothing: the batch is a private copy, and its source was checked after reading."""
        return ()

    def read(self) -> ParsedRange:
        """All rows."""
        table = self._read()
        return ParsedRange(table.num_rows, table)

    def pick(self, records: RecordNumbers, known: KnownRecords | None = None) -> pa.Table:
        """Some rows."""
        return take_records(self._read(), np.asarray(records))

    def count(self) -> Counted:
        """Known from the copying."""
        return Counted(self.rows, self.rows)

    def head(self) -> pa.Table | None:
        """All rows: batches are small."""
        return self._read()

    def stored_in(self, place: Place) -> SpooledBatch:
        """The batch in a store, for other machines."""
        target = place / f"{secrets.token_hex(8)}-{os.path.basename(self.path)}"
        with open(self.path, "rb") as stream, atomic_write(target) as out:
            shutil.copyfileobj(stream, out, 4 << 20)
        return replace(self, path=str(target))

    def _read(self) -> pa.Table:
        with explain_io_errors(self.path), self._opened() as file:
            table = pa.ipc.open_file(file).read_all()
        missing = pa.array([_NULL] * table.num_rows, pa.large_string())
        columns = [table.column(name) if name in table.column_names else missing for name in self.header]
        return pa.Table.from_arrays(columns, list(self.header))

    def _opened(self) -> Any:
        return pa.BufferReader(read(self.path)[0]) if is_url(self.path) else pa.OSFile(self.path)


def spool_rows(
    rows_of_files: Iterable[tuple[InputFile, Iterable[Row]]], workspace: Workspace, declared: Sequence[str] = ()
) -> SplitSide:
    """Copy rows into batches; the header is every column in the order of first appearance, declared ones first."""
    header: dict[str, None] = dict.fromkeys(declared)
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    written: list[tuple[str, int, int]] = []
    for file, rows in rows_of_files:
        reader = iter(rows)
        while batch := list(islice(reader, _BATCH_ROWS)):
            for row in batch:
                header.update(dict.fromkeys(row))
                for name, value in row.items():
                    if value is not None:
                        kinds[name].add(_KINDS.get(type(value), "text"))
            written.append((*_write(batch, workspace), len(batch)))
        file.check_unchanged()
    splits = [SpooledBatch(path, size, rows, tuple(header)) for path, size, rows in written]
    known = {name: found.pop() for name, found in kinds.items() if len(found) == 1}
    return SplitSide(tuple(header), splits, sum(one.rows for one in splits), typed=True, kinds=known)


def spool_tables(tables: Iterable[pa.Table], header: Sequence[str], workspace: Workspace) -> SplitSide:
    """Copy tables of JSON text into batches."""
    splits = [
        SpooledBatch(_write_table(table, workspace), table.nbytes, table.num_rows, tuple(header))
        for table in tables
        if table.num_rows
    ]
    return SplitSide(tuple(header), splits, sum(one.rows for one in splits), typed=True)


def _write(batch: list[Row], workspace: Workspace) -> tuple[str, int]:
    texts = cells_by_column(batch)
    arrays = [pa.array(column, pa.large_string()) for column in texts.values()]
    table = pa.Table.from_arrays(arrays, list(texts))
    return _write_table(table, workspace), table.nbytes


def _write_table(table: pa.Table, workspace: Workspace) -> str:
    target = workspace.new_file("batch.arrow")
    with explain_io_errors(target), pa.ipc.new_file(str(target), table.schema) as out:
        out.write_table(table)
    return str(target)

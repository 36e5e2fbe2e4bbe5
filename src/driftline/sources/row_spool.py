"""JSON Lines and SQLite tables: read once, row by row, into Arrow files of JSON text that can be read in any order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.files import naming_the_file
from driftline.sources.csv_parse import ParsedRange, take_records
from driftline.sources.inputs import Input, InputFile
from driftline.sources.json_cells import json_text
from driftline.sources.json_rows import json_rows
from driftline.sources.splits import SplitSide
from driftline.sources.sqlite_rows import table_rows
from driftline.sources.workspace import Workspace

_BATCH_ROWS = 20_000
_NULL = "null"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """Some rows in an Arrow file; a column that these rows do not have reads as null."""

    path: str
    size: int
    header: tuple[str, ...]
    source: InputFile

    @property
    def files(self) -> tuple[InputFile, ...]:
        """Nothing: the batch is a private copy, and its source was checked after reading."""
        return ()

    def read(self) -> ParsedRange:
        """All rows."""
        table = self._read()
        return ParsedRange(table.num_rows, table)

    def pick(self, records: Any) -> Any:
        """Some rows."""
        return take_records(self._read(), np.asarray(records))

    def _read(self) -> pa.Table:
        with naming_the_file(self.path), pa.OSFile(self.path) as file:
            table = pa.ipc.open_file(file).read_all()
        missing = pa.array([_NULL] * table.num_rows, pa.large_string())
        columns = [table.column(name) if name in table.column_names else missing for name in self.header]
        return pa.Table.from_arrays(columns, list(self.header))


def lay_out(source: Input, workspace: Workspace) -> SplitSide:
    """Copy the rows into batches; the header is every column in the order of first appearance."""
    header: dict[str, None] = dict.fromkeys(_declared_columns(source))
    written: list[tuple[str, int, InputFile]] = []
    rows = 0
    for file in source.files:
        reader = iter(_rows(source, file))
        while batch := list(islice(reader, _BATCH_ROWS)):
            rows += len(batch)
            for row in batch:
                header.update(dict.fromkeys(row))
            written.append((*_write(batch, workspace), file))
        file.check_unchanged()
    splits = [SpooledBatch(path, size, tuple(header), file) for path, size, file in written]
    return SplitSide(tuple(header), splits, rows, typed=True)


def _write(batch: list[Row], workspace: Workspace) -> tuple[str, int]:
    names = dict.fromkeys(name for row in batch for name in row)
    texts = {name: [json_text(row.get(name)) for row in batch] for name in names}
    arrays = [pa.array(column, pa.large_string()) for column in texts.values()]
    table = pa.Table.from_arrays(arrays, list(names))
    target = workspace.new_file("batch.arrow")
    with naming_the_file(target), pa.ipc.new_file(str(target), table.schema) as out:
        out.write_table(table)
    return str(target), table.nbytes


def _declared_columns(source: Input) -> list[str]:
    """Columns that are there even if no row is."""
    if source.kind != "sqlite":
        return []
    return table_rows(source.files[0], source.table or "")[0]


def _rows(source: Input, file: InputFile) -> Iterator[Row]:
    if source.kind == "sqlite":
        return table_rows(file, source.table or "")[1]
    return json_rows(file)

"""Tables, views and queries of DuckDB files (`shop.duckdb::orders`, `shop.duckdb::SELECT …`), opened read-only.

Rows come in the order in which DuckDB stores or returns them, and are copied into Arrow files before they are compared.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from driftline.core import Location, Workspace, atomic_write
from driftline.errors import InputError
from driftline.sources._addresses import Address, InputFile, StoredFile
from driftline.sources._formats.arrow import RecordBatch
from driftline.sources._formats.columnar import TypedSource
from driftline.sources._source import FileFingerprint, Opening, SplitSide, fingerprint_of_files, reads_input

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pyarrow as pa

_BATCH_ROWS = 65_536
_TABLES = "SELECT table_name FROM information_schema.tables ORDER BY table_schema, table_name"


def open_input(address: Address, opening: Opening) -> DuckDbSource:
    """The table or query; the only table needs no name."""
    file = opening.files[0]
    with _connected(file) as connection:
        tables = [name for (name,) in connection.execute(_TABLES).fetchall()]
    table = address.table or (tables[0] if len(tables) == 1 else None)
    known = ", ".join(sorted(tables)) or "none"
    if table is None:
        raise InputError(
            f"{file.name} is a DuckDB database: name the table too, as {file.name}::TABLE (it has: {known})",
            code="missing_table_name",
            path=file.name,
        )
    if address.query is None and table not in tables and table.partition(".")[2] not in tables:
        raise InputError(
            f"{file.name} has no table {table} (it has: {known})", code="no_such_table", path=file.name, table=table
        )
    parts = (part.replace('"', '""') for part in table.split("."))
    return DuckDbSource((file,), f"({address.query})" if address.query else ".".join(f'"{part}"' for part in parts))


@reads_input
@dataclass(frozen=True, slots=True)
class DuckDbSource(TypedSource):
    """One table or query of one file."""

    files: tuple[InputFile, ...]
    relation: str  # after FROM
    format: str = "duckdb"
    typed: bool = True
    seekable: bool = False
    ordered: bool = True

    @property
    def size(self) -> int:
        """Bytes of the database."""
        return self.files[0].size

    def types(self) -> pa.Schema:
        """As DuckDB gives them to Arrow."""
        with self._selected("LIMIT 0") as reader:
            return reader.schema

    def fingerprint(self, of_file: FileFingerprint) -> str:
        """The bytes of the database, and which table or query."""
        return f"{fingerprint_of_files(self.files, of_file)}::{self.relation}"

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Executor | None = None) -> SplitSide:
        """The record batches of a copy."""
        import pyarrow as pa

        from driftline.sources._cells import column_kinds

        splits: list[CopiedBatch] = []
        rows = 0
        with self._selected() as reader:
            for batch in reader:
                target = str(workspace.new_file("batch.arrow"))
                with pa.OSFile(target, "wb") as out, pa.ipc.new_file(out, reader.schema) as writer:
                    writer.write_batch(batch)
                splits.append(CopiedBatch(InputFile.of(target, self.files[0].name), 0, batch.nbytes))
                rows += batch.num_rows
            kinds = column_kinds(reader.schema)
        self.files[0].check_unchanged()
        return SplitSide(tuple(reader.schema.names), splits, rows, typed=True, kinds=kinds)

    def with_absolute_paths(self) -> DuckDbSource:
        """The same source for processes in other folders."""
        return replace(self, files=tuple(file.with_absolute_path() for file in self.files))

    @contextmanager
    def _selected(self, limit: str = "") -> Iterator[pa.RecordBatchReader]:
        with _connected(self.files[0]) as connection:
            found = connection.execute(f"SELECT * FROM {self.relation} AS source {limit}")  # noqa: S608 - quoted
            yield found.to_arrow_reader(_BATCH_ROWS)


@reads_input
@dataclass(frozen=True, slots=True)
class CopiedBatch(RecordBatch):
    """Some rows in an Arrow file of their own."""

    def stored_in(self, place: Location) -> CopiedBatch:
        """A copy in a store, for other machines."""
        target = place / f"{secrets.token_hex(8)}-batch.arrow"
        with open(self.file.path, "rb") as stream, atomic_write(target) as out:
            shutil.copyfileobj(stream, out, 4 << 20)
        return replace(self, file=replace(StoredFile.at(str(target)), name=self.file.name))


@contextmanager
def _connected(file: InputFile) -> Iterator[Any]:
    """A connection that cannot write or reach the network; what DuckDB says is one line."""
    import duckdb

    settings: dict[str, Any] = {"autoinstall_known_extensions": False, "enable_external_access": False}
    try:
        with duckdb.connect(file.path, read_only=True, config=settings) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection
    except duckdb.Error as error:
        line = str(error).splitlines()[0]
        raise InputError(
            f"{file.name} cannot be read as DuckDB: {line}", code="invalid_duckdb", path=file.name
        ) from error

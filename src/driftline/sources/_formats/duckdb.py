"""Tables, views and queries of DuckDB files (`shop.duckdb::orders`, `shop.duckdb::SELECT …`), opened read-only.

Rows come in the order in which DuckDB stores or returns them, and are copied into Arrow files before they are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from driftline.core import Workspace
from driftline.errors import InputError
from driftline.sources._addresses import Address, InputFile
from driftline.sources._source import Opening, Pool, Source, SplitSide, explained, quoted

if TYPE_CHECKING:
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
        words = f"{file.name} is a DuckDB database: name the table too, as {file.name}::TABLE (it has: {known})"
        raise InputError(words, code="missing_table_name", path=file.name)
    if address.query is None and table not in tables and table.partition(".")[2] not in tables:
        words = f"{file.name} has no table {table} (it has: {known})"
        raise InputError(words, code="no_such_table", path=file.name, table=table)
    relation = f"({address.query})" if address.query else ".".join(map(quoted, table.split(".")))
    return DuckDbSource((file,), relation)


@dataclass(frozen=True, slots=True)
class DuckDbSource(Source):
    """One table or query of one file."""

    files: tuple[InputFile, ...] = field()
    inner: str = field()  # after FROM
    format: str = "duckdb"
    seekable: bool = False

    def types(self) -> pa.Schema:
        with self._selected("LIMIT 0") as reader:
            return reader.schema

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Pool = None) -> SplitSide:
        from driftline.sources._in_memory import stored_side

        with self._selected() as reader:
            copied = stored_side(reader, workspace)
        self.files[0].check_unchanged()
        return replace(copied, schema=None)

    @contextmanager
    def _selected(self, limit: str = "") -> Iterator[pa.RecordBatchReader]:
        with _connected(self.files[0]) as connection:
            found = connection.execute(f"SELECT * FROM {self.inner} AS source {limit}")  # noqa: S608 - quoted
            yield found.to_arrow_reader(_BATCH_ROWS)


@contextmanager
def _connected(file: InputFile) -> Iterator[Any]:
    """A connection that cannot write or reach the network; what DuckDB says is one line."""
    import duckdb

    settings: dict[str, Any] = {"autoinstall_known_extensions": False, "enable_external_access": False}
    with (
        explained(duckdb.Error, f"{file.name} cannot be read as DuckDB", code="invalid_duckdb", path=file.name),
        duckdb.connect(file.path, read_only=True, config=settings) as connection,
    ):
        connection.execute("SET TimeZone = 'UTC'")
        yield connection

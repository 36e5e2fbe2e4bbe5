"""Tables, views and queries of SQLite databases, opened read-only: typed cells, copied into batches."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from driftline.errors import InputError
from driftline.sources._addresses import Address, InputFile
from driftline.sources._source import Opening, RowSource, explained, quoted

if TYPE_CHECKING:
    import sqlite3


def open_input(address: Address, opening: Opening) -> SqliteSource:
    """The table or query; a database with one table needs no name."""
    [file] = opening.files[:1]
    table = address.table or _only_table(file)
    return SqliteSource((file,), "sqlite", table, address.query is not None)


@dataclass(frozen=True, slots=True)
class SqliteSource(RowSource):
    """One table, view or query of one database."""

    inner: str = field()  # the table or query
    is_query: bool

    def declared(self) -> list[str]:
        connection, _, columns = self._selected()
        connection.close()
        return columns

    def rows(self, file: InputFile) -> Generator[dict[str, Any]]:
        """In the order in which SQLite stores or returns them."""
        connection, cursor, columns = self._selected()
        with closing(connection), _readable(file):
            for values in cursor:
                yield dict(zip(columns, values, strict=True))

    def _selected(self) -> tuple[sqlite3.Connection, sqlite3.Cursor, list[str]]:
        """A connection, the rows, and the names of the columns."""
        [file] = self.files
        connection, names = _connected(file)
        try:
            if not self.is_query and self.inner not in names:
                known = ", ".join(sorted(name for name in names if not name.startswith("sqlite_"))) or "none"
                words = f"{file.name} has no table {self.inner} (it has: {known})"
                raise InputError(words, code="no_such_table", path=file.name, table=self.inner)
            query = self.inner if self.is_query else f"SELECT * FROM {quoted(self.inner)}"  # noqa: S608 - the name is quoted
            with _readable(file):
                cursor = connection.execute(query)
            columns = [part[0] for part in cursor.description]
            if len(set(columns)) < len(columns):
                words = f"{file.name}: the query has two columns of one name: name them with AS"
                raise InputError(words, code="invalid_query")
        except InputError:
            connection.close()
            raise
        return connection, cursor, columns


def _readable(file: InputFile) -> AbstractContextManager[None]:
    import sqlite3

    return explained(sqlite3.Error, f"{file.name} cannot be read as SQLite", code="invalid_sqlite", path=file.name)


def _connected(file: InputFile) -> tuple[sqlite3.Connection, list[str]]:
    """A read-only connection, and the names of the tables and views."""
    import sqlite3
    from urllib.parse import quote

    with _readable(file):
        connection = sqlite3.connect(f"file:{quote(file.path)}?mode=ro", uri=True)
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
    return connection, names


def _only_table(file: InputFile) -> str:
    connection, names = _connected(file)
    connection.close()
    tables = sorted(name for name in names if not name.startswith("sqlite_"))
    if len(tables) != 1:
        words = f"{file.name} is a SQLite database: name the table too, as {file.name}::TABLE"
        raise InputError(words, code="missing_table_name", path=file.name)
    return tables[0]

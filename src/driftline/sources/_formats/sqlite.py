"""Tables and views of SQLite databases, opened read-only: typed cells, copied into batches."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from driftline.core import Workspace
from driftline.errors import InputError
from driftline.sources._addresses import Address, InputFile
from driftline.sources._source import FileFingerprint, Opening, SplitSide, TypedCells, fingerprint_of_files, reads_input

if TYPE_CHECKING:
    import sqlite3
    from concurrent.futures import Executor

_MAGIC = b"SQLite format 3\x00"


class SqliteFormat:
    """Reads `FILE::TABLE`."""

    name = "sqlite"
    suffixes = ()

    def recognises(self, address: Address, start: bytes | None) -> bool:
        """By the named table, or by the first bytes of a file."""
        return address.table is not None if start is None else start.startswith(_MAGIC)

    def open(self, address: Address, opening: Opening) -> SqliteSource:
        """The table, which must be named."""
        [file] = opening.files[:1]
        if address.table is None:
            raise InputError(
                f"{file.name} is a SQLite database: name the table too, as {file.name}::TABLE",
                code="missing_table_name",
                path=file.name,
            )
        return SqliteSource((file,), address.table)


@reads_input
@dataclass(frozen=True, slots=True)
class SqliteSource(TypedCells):
    """One table of one database."""

    files: tuple[InputFile, ...]
    table: str
    format: str = "sqlite"
    typed: bool = True
    seekable: bool = False
    ordered: bool = True

    @property
    def size(self) -> int:
        """Bytes of the database."""
        return self.files[0].size

    def header(self, side: str) -> tuple[str, ...]:
        """The columns of the table."""
        connection, _, columns = _selected(self.files[0], self.table)
        connection.close()
        return tuple(columns)

    def types(self) -> None:
        """Every cell has its own."""

    def fingerprint(self, of_file: FileFingerprint) -> str:
        """The bytes of the database, and which table."""
        return f"{fingerprint_of_files(self.files, of_file)}::{self.table}"

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Executor | None = None) -> SplitSide:
        """Batches in the workspace."""
        from driftline.sources._cells import spool_rows

        connection, cursor, columns = _selected(self.files[0], self.table)
        rows = _rows(connection, cursor, columns, self.files[0])
        return spool_rows([(self.files[0], rows)], workspace, columns)

    def sample(self, side: str, rows: int) -> dict[str, list[str]]:
        """The first rows."""
        from driftline.sources._cells import cells_by_column

        connection, cursor, columns = _selected(self.files[0], self.table)
        with closing(_rows(connection, cursor, columns, self.files[0])) as found:
            return cells_by_column(islice(found, rows), columns)

    def with_absolute_paths(self) -> SqliteSource:
        """The same source for processes in other folders."""
        return replace(self, files=tuple(file.with_absolute_path() for file in self.files))


def _selected(file: InputFile, table: str) -> tuple[sqlite3.Connection, sqlite3.Cursor, list[str]]:
    """A table or view opened for reading, in the order in which SQLite stores its rows, and its columns."""
    import sqlite3
    from urllib.parse import quote

    try:
        connection = sqlite3.connect(f"file:{quote(file.path)}?mode=ro", uri=True)
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        if table not in names:
            connection.close()
            raise _no_such_table(file, table, names)
        cursor = connection.execute(f"SELECT * FROM {quoted(table)}")  # noqa: S608 - the name is quoted
        columns = [part[0] for part in cursor.description]
    except sqlite3.Error as error:
        raise _unreadable(file, error) from error
    return connection, cursor, columns


def _rows(
    connection: sqlite3.Connection, cursor: sqlite3.Cursor, columns: list[str], file: InputFile
) -> Generator[dict[str, Any]]:
    import sqlite3

    try:
        for values in cursor:
            yield dict(zip(columns, values, strict=True))
    except sqlite3.Error as error:
        raise _unreadable(file, error) from error
    finally:
        connection.close()


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _no_such_table(file: InputFile, table: str, names: list[str]) -> InputError:
    known = ", ".join(sorted(name for name in names if not name.startswith("sqlite_"))) or "none"
    return InputError(
        f"{file.name} has no table {table} (it has: {known})", code="no_such_table", path=file.name, table=table
    )


def _unreadable(file: InputFile, error: sqlite3.Error) -> InputError:
    return InputError(f"{file.name} cannot be read as SQLite: {error}", code="invalid_sqlite", path=file.name)

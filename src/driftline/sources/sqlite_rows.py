"""Rows of a SQLite table, read from a database that is never written to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from driftline.errors import InputError
from driftline.sources.inputs import InputFile


def table_rows(file: InputFile, table: str) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """The columns of a table or view and its rows, in the order in which SQLite keeps them."""
    try:
        connection = sqlite3.connect(f"file:{quote(file.path)}?mode=ro", uri=True)
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        if table not in names:
            connection.close()
            raise _no_such_table(file, table, names)
        cursor = connection.execute(f"SELECT * FROM {_quoted(table)}")  # noqa: S608 - the name is quoted
        columns = [part[0] for part in cursor.description]
    except sqlite3.Error as error:
        raise _unreadable(file, error) from error
    return columns, _iterate(connection, cursor, columns, file)


def _iterate(
    connection: sqlite3.Connection, cursor: sqlite3.Cursor, columns: list[str], file: InputFile
) -> Iterator[dict[str, Any]]:
    try:
        for values in cursor:
            yield dict(zip(columns, values, strict=True))
    except sqlite3.Error as error:
        raise _unreadable(file, error) from error
    finally:
        connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _no_such_table(file: InputFile, table: str, names: list[str]) -> InputError:
    known = ", ".join(sorted(name for name in names if not name.startswith("sqlite_"))) or "none"
    return InputError(
        f"{file.name} has no table {table} (it has: {known})", code="no_such_table", path=file.name, table=table
    )


def _unreadable(file: InputFile, error: sqlite3.Error) -> InputError:
    return InputError(f"{file.name} cannot be read as SQLite: {error}", code="invalid_sqlite", path=file.name)

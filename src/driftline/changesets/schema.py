"""Tables as SQLite itself describes them: from `CREATE TABLE` text and from databases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from driftline.changesets.affinity import affinity_of, apply_affinity
from driftline.changesets.format import UNDEFINED, Field
from driftline.changesets.names import folded, quoted
from driftline.changesets.table import Column, Table
from driftline.errors import ChangesetError, OptionError
from driftline.files import StrPath, explain_os_error

Database = StrPath | apsw.Connection

_HIDDEN_GENERATED = (2, 3)  # PRAGMA table_xinfo: virtual and stored generated columns
_CREATING = {
    apsw.SQLITE_CREATE_TABLE,
    apsw.SQLITE_CREATE_INDEX,
    apsw.SQLITE_INSERT,
    apsw.SQLITE_UPDATE,
    apsw.SQLITE_READ,
    apsw.SQLITE_FUNCTION,
    apsw.SQLITE_TRANSACTION,
    apsw.SQLITE_REINDEX,
}


@contextmanager
def opened(database: Database, *, write: bool = False) -> Iterator[apsw.Connection]:
    """An open connection; a path is opened (and must exist) and closed again, a connection is left as it is."""
    if isinstance(database, apsw.Connection):
        yield database
        return
    if not isinstance(database, str | os.PathLike):
        raise OptionError(f"a database is a file name or an apsw.Connection, not {type(database).__name__}")
    path = os.fspath(database)
    connection = _open_file(path, write)
    try:
        yield connection
    finally:
        connection.close()


def _open_file(path: str, write: bool) -> apsw.Connection:
    try:
        os.stat(path)
    except OSError as error:
        raise explain_os_error(error, path) from error
    flags = (apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY) | apsw.SQLITE_OPEN_URI
    try:
        connection = apsw.Connection(Path(path).resolve().as_uri(), flags=flags)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except apsw.Error as error:
        raise ChangesetError(
            f"{path} cannot be opened as an SQLite database: {error}", code="not_a_database"
        ) from error
    return connection


def table_from_sql(text: str) -> Table:
    """The table that one `CREATE TABLE` statement makes, read by SQLite in memory."""
    tables = tables_from_sql(text)
    if len(tables) != 1:
        raise ChangesetError(f"one CREATE TABLE statement is wanted, {len(tables)} were found", code="invalid_schema")
    return tables[0]


def tables_from_sql(text: str) -> list[Table]:
    """The tables with a primary key that `CREATE TABLE` statements make; no other statement is run."""
    connection = apsw.Connection(":memory:")
    connection.authorizer = lambda action, *_: apsw.SQLITE_OK if action in _CREATING else apsw.SQLITE_DENY
    try:
        connection.execute(text)
    except apsw.Error as error:
        raise ChangesetError(
            f"the schema is not made of CREATE TABLE statements: {error}", code="invalid_schema"
        ) from error
    connection.authorizer = None
    names = _table_names(connection)
    return [table_from_database(connection, name) for name in names]


def table_from_database(database: Database, name: str, *, schema: str = "main") -> Table:
    """A table of a database, with its declared types, key and generated columns."""
    with opened(database) as connection:
        found = [stored for stored in _table_names(connection, schema) if folded(stored) == folded(name)]
        if not found:
            raise ChangesetError(f'the database has no table "{name}"', code="unknown_table")
        return _read_table(connection, found[0], schema)


def tables_from_database(database: Database, *, schema: str = "main") -> list[Table]:
    """All tables with a primary key, in the order of their creation."""
    with opened(database) as connection:
        names = _table_names(connection, schema)
        return [_read_table(connection, name, schema) for name in names if _has_key(connection, name, schema)]


def _table_names(connection: apsw.Connection, schema: str = "main") -> list[str]:
    # Virtual tables have no root page, and sessions do not see them.
    query = f"SELECT name FROM {quoted(schema)}.sqlite_schema WHERE type = 'table' AND rootpage > 0"  # noqa: S608
    return [name for (name,) in connection.execute(query) if not name.startswith("sqlite_")]


def _has_key(connection: apsw.Connection, name: str, schema: str) -> bool:
    return any(key for *_, key, _ in _column_rows(connection, name, schema))


def _column_rows(connection: apsw.Connection, name: str, schema: str) -> list[tuple[Any, ...]]:
    return connection.execute(
        "SELECT name, type, dflt_value, pk, hidden FROM pragma_table_xinfo(?, ?) ORDER BY cid", (name, schema)
    ).fetchall()


def _read_table(connection: apsw.Connection, name: str, schema: str) -> Table:
    rows = _column_rows(connection, name, schema)
    query = "SELECT wr, strict FROM pragma_table_list(?) WHERE schema = ?"
    without_rowid, strict = next(iter(connection.execute(query, (name, schema))), (0, 0))
    stored = [row for row in rows if row[4] not in _HIDDEN_GENERATED]
    keys = sorted((place, column) for column, _, _, place, _ in stored if place)
    columns = []
    for column, declared, default, _, _ in stored:
        affinity = affinity_of(declared, strict=bool(strict))
        value = apply_affinity(_default_value(default), affinity)
        columns.append(Column(column, declared, affinity, value))
    # INTEGER PRIMARY KEY is the rowid: SQLite chooses it when an INSERT leaves it out.
    is_rowid = len(keys) == 1 and not without_rowid and _type_of(stored, keys[0][1]) == "INTEGER"
    generated = [row[0] for row in rows if row[4] in _HIDDEN_GENERATED]
    return Table(name, columns, [column for _, column in keys], generated=generated, rowid_key=is_rowid)


def _type_of(rows: list[tuple[Any, ...]], column: str) -> str:
    return next(str(row[1]).upper() for row in rows if row[0] == column)


def _default_value(text: str | None) -> Field:
    """A constant default; one that only the running INSERT knows (CURRENT_TIMESTAMP, random()) is `UNDEFINED`."""
    if text is None:
        return None
    connection = apsw.Connection(":memory:")
    connection.authorizer = lambda action, *_: apsw.SQLITE_OK if action == apsw.SQLITE_SELECT else apsw.SQLITE_DENY
    try:
        return next(connection.execute(f"SELECT {text}"))[0]  # type: ignore[no-any-return]
    except apsw.Error:
        return UNDEFINED

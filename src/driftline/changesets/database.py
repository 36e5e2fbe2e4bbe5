"""SQLite databases to read from and write to: file names and open connections, with patience for locks."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from driftline.core._files import StrPath, explain_os_error
from driftline.errors import ChangesetError, DriftlineError, LockedError, OptionError, StorageError

Database = StrPath | apsw.Connection

PATIENCE = 5.0  # seconds to wait for a lock


@contextmanager
def opened(database: Database, *, write: bool = False, timeout: float = PATIENCE) -> Iterator[apsw.Connection]:
    """An open connection; a path is opened (and must exist) and closed again, a connection is left as it is."""
    if isinstance(database, apsw.Connection):
        yield database
        return
    path = file_name(database)
    with explained(path):
        connection = _open_file(path, write, timeout)
    try:
        yield connection
    finally:
        connection.close()


def file_name(database: Database) -> str:
    """The name of a database file; connections of Python's own module are refused with the reason."""
    if isinstance(database, sqlite3.Connection):
        raise OptionError(
            "a database is a file name or an apsw.Connection: Python's sqlite3 module has no sessions and does "
            "not share its connections. Give the file's name, or connect with apsw"
        )
    if not isinstance(database, str | os.PathLike):
        raise OptionError(f"a database is a file name or an apsw.Connection, not {type(database).__name__}")
    return os.fspath(database)


def _open_file(path: str, write: bool, timeout: float) -> apsw.Connection:
    try:
        os.stat(path)
    except OSError as error:
        raise explain_os_error(error, path) from error
    flags = (apsw.SQLITE_OPEN_READWRITE if write else apsw.SQLITE_OPEN_READONLY) | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(file_uri(path), flags=flags)
    connection.set_busy_timeout(round(timeout * 1000))
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    return connection


def file_uri(path: StrPath) -> str:
    """A file's address for SQLite, so that any path will do."""
    return Path(path).resolve().as_uri()


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn SQLite's errors about a database, its locks and its disk into one clear line."""
    try:
        yield
    except apsw.Error as error:
        raise explain_sqlite_error(error, name) from error
    except UnicodeDecodeError as error:
        raise ChangesetError(f"{name} has a name that is not UTF-8 in its schema", code="invalid_name") from error


def explain_sqlite_error(error: apsw.Error, name: str) -> DriftlineError:
    """The driftline error for one of SQLite's, with what to do about it."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return LockedError(
            f"{name} is locked by another connection: wait for it to end, or allow more time (--timeout)", path=name
        )
    if isinstance(error, apsw.NotADBError):
        return ChangesetError(f"{name} cannot be opened as an SQLite database: {error}", code="not_a_database")
    if isinstance(error, apsw.CorruptError):
        return ChangesetError(f"{name} is a damaged database: {error}", code="corrupt_database")
    if isinstance(error, apsw.FullError):
        return StorageError(f"the disk is full while writing {name}: free some space", code="disk_full", path=name)
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError):
        return StorageError(f"{name} cannot be written: {error}", code="permission_denied", path=name)
    if isinstance(error, apsw.SQLError) and "collation" in str(error):
        return ChangesetError(
            f"{name}: {error}. It belongs to another program; register it on an apsw.Connection and give that",
            code="unknown_collation",
        )
    return ChangesetError(f"{name}: SQLite says: {error}", code="sqlite_error")

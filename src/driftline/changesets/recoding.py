"""A copy of a database in another text encoding, rowids included, so that two databases can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import apsw

from driftline.changesets.names import folded, quoted
from driftline.changesets.schema import ROWID, STAT1, StoredTable


def recoded(source: apsw.Connection, tables: Iterable[StoredTable], path: Path, encoding: str) -> Path:
    """The rows of all plain tables of `source` in a new database at `path`."""
    copy = apsw.Connection(str(path))
    copy.execute(f"PRAGMA encoding = '{encoding}'; PRAGMA synchronous = OFF; PRAGMA ignore_check_constraints = ON")
    (source_encoding,) = next(source.execute("PRAGMA encoding"))
    plain = [table for table in tables if table.kind != "virtual"]
    with copy:
        for table in plain:
            if not table.is_internal:
                copy.execute(_definition(source, table.name))
        if any(table.name == STAT1 for table in plain):
            copy.execute("ANALYZE")  # the only way to get the tables of statistics
            copy.execute("DELETE FROM sqlite_stat1")
        made = {name for (name,) in copy.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        for table in plain:
            if table.name in made:
                _copy_rows(source, copy, table, source_encoding)
    copy.close()
    return path


def _definition(source: apsw.Connection, name: str) -> str:
    (text,) = next(source.execute("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)))
    return str(text)


def _copy_rows(source: apsw.Connection, copy: apsw.Connection, table: StoredTable, encoding: str) -> None:
    names = [quoted(column.name) for column in table.columns]
    has_rowid = not (table.without_rowid or table.key_is_rowid or table.is_internal)
    if has_rowid and not any(folded(column.name) == ROWID for column in table.columns):
        names = [ROWID, *names]
    insert = f"INSERT INTO {quoted(table.name)} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
    select = f"SELECT {', '.join(names)} FROM {quoted(table.name)}"  # noqa: S608
    try:
        with copy:
            copy.executemany(insert, source.execute(select))
    except UnicodeDecodeError:
        copy.executemany(insert, _rows_with_replacements(source, table.name, names, encoding))


def _rows_with_replacements(
    source: apsw.Connection, table: str, names: list[str], encoding: str
) -> Iterator[tuple[object, ...]]:
    """Rows whose text cannot all be read; what is no text becomes replacement characters, as SQLite converts it."""
    typed = [
        f"typeof({name}), CASE typeof({name}) WHEN 'text' THEN CAST({name} AS BLOB) ELSE {name} END" for name in names
    ]
    for row in source.execute(f"SELECT {', '.join(typed)} FROM {quoted(table)}"):  # noqa: S608
        pairs = zip(row[::2], row[1::2], strict=True)
        yield tuple(value.decode(encoding, "replace") if kind == "text" else value for kind, value in pairs)

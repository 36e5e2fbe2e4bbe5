"""One table of two databases compared by SQL: rows only in the new one, only in the old one, and differing pairs.

Two rows are partners when their keys are equal for SQL, so that the index of the primary key is used, and equal value
by value and type by type, which is what a session goes by (changesets §5.1).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from driftline.changesets._format.database import ROWID, STAT1, StoredTable, encoding_of, owner_of, rebuild_statement
from driftline.changesets._format.table import UNDEFINED, Affinity, Field, Row, decode_text, folded, quoted

NEW, OLD = "main", "old_version"  # the schemas of the two databases

_MOST_RESULT_COLUMNS = 2000
# Columns that hold numbers of one type only: there an equal value has an equal type.
_ONE_NUMBER_TYPE = (Affinity.TEXT, Affinity.REAL)
_BINARY = "BINARY"


@dataclass(frozen=True)
class TablePair:
    """The two sides of one table; `as_bytes` reads text as bytes, for text that is not UTF-8."""

    connection: apsw.Connection
    new: StoredTable
    old: StoredTable
    encoding: str = "UTF-8"
    as_bytes: bool = False
    copied: bool = False

    @classmethod
    def of(cls, connection: apsw.Connection, new: StoredTable, old: StoredTable, encoding: str) -> TablePair:
        """The two sides; keys in the order of another program's collation are compared in copies without it."""
        if not (new.foreign_collations or old.foreign_collations):
            return cls(connection, new, old, encoding)
        for side, stored in ((NEW, new), (OLD, old)):
            _copy_plainly(connection, side, stored)
        return cls(connection, new, old, encoding, copied=True)

    @property
    def width(self) -> int:
        return self.new.table.width

    def only_in(self, side: str) -> Iterator[Row]:
        """The rows of one side that have no partner on the other."""
        other = OLD if side == NEW else NEW
        query = (
            f"SELECT {self._selected('a')} FROM {self._table(side)} AS a "  # noqa: S608
            f"WHERE NOT EXISTS (SELECT 1 FROM {self._table(other)} AS b WHERE {self._partners('b', 'a')})"
        )
        return self._rows(self.connection.execute(query))

    def changed(self) -> Iterator[tuple[Row, Row]]:
        """Partners that differ, as old and new row; both have the old row's key."""
        differs = self._differs()
        if differs is None:
            return iter(())
        source = f"FROM {self._table(NEW)} AS n, {self._table(OLD)} AS o WHERE {self._partners('o', 'n')} AND {differs}"
        if 2 * (self.width + 1) > _MOST_RESULT_COLUMNS:
            return self._fetched_pairs(source)
        query = f"SELECT {self._selected('n', keys='o')}, {self._selected('o')} {source}"
        return self._split(self.connection.execute(query))

    def changes(self) -> Iterator[tuple[Row | None, Row | None]]:
        """All changes of rows with whole keys, as old and new row; what an update leaves alone is `UNDEFINED`."""
        for row in self.only_in(OLD):
            if self._has_whole_key(row):
                yield row, None
        for old, new in self.changed():
            yield old, tuple(map(if_changed, old, new))
        for row in self.only_in(NEW):
            if self._has_whole_key(row):
                yield None, row

    def _has_whole_key(self, row: Row) -> bool:
        return all(row[index] is not None for index in self.new.table.key_indexes)

    def count_equal_keys(self) -> int:
        """How many keys are equal for SQL and different for a session."""
        exact = self._exact_keys("o", "n")
        if not exact:
            return 0
        query = (
            f"SELECT count(*) FROM {self._table(NEW)} AS n, {self._table(OLD)} AS o "  # noqa: S608
            f"WHERE {' AND '.join(self._equal_keys('o', 'n'))} AND NOT ({' AND '.join(exact)})"
        )
        (count,) = next(self.connection.execute(query))
        return int(count)

    @property
    def may_have_null_keys(self) -> bool:
        """Whether a row can have NULL in its key: in a key that is not the rowid, of a table that has one."""
        return self.new.name != STAT1 and not all(
            side.is_keyed_by_rowid or side.key_is_rowid or side.without_rowid for side in (self.new, self.old)
        )

    def null_keys_differ(self) -> bool:
        """Whether the rows that have a NULL in their key differ as multisets."""
        if not self.may_have_null_keys:
            return False
        where = " OR ".join(f"{quoted(name)} IS NULL" for name in self.new.primary_key)
        return self._digest(NEW, where) != self._digest(OLD, where)

    def contents_differ(self) -> bool:
        """Whether the rows of the two sides differ as multisets."""
        return self._digest(NEW, "1") != self._digest(OLD, "1")

    def _digest(self, side: str, where: str) -> tuple[int, int]:
        """The number of rows and a sum of their hashes, whatever their order."""
        stored = self.new if side == NEW else self.old
        values = ", ".join(text_as_bytes(quoted(column.name)) for column in stored.columns)
        kinds = _tree([f"substr(typeof({quoted(column.name)}), 1, 1)" for column in stored.columns], "||")
        query = f"SELECT {kinds}, {values} FROM {self._table(side)} WHERE {where}"  # noqa: S608
        count = total = 0
        for row in self.connection.execute(query):
            plain = [value + 0.0 if isinstance(value, float) else value for value in row]
            total += int.from_bytes(hashlib.blake2b(repr(plain).encode(), digest_size=16).digest(), "big")
            count += 1
        return count, total % (1 << 128)

    def _table(self, side: str) -> str:
        if self.copied:
            return f"temp.{side}"
        return f"{side}.{quoted((self.new if side == NEW else self.old).name)}"

    def _partners(self, inner: str, outer: str) -> str:
        return " AND ".join([*self._equal_keys(inner, outer), *self._exact_keys(inner, outer)])

    def _equal_keys(self, inner: str, outer: str) -> list[str]:
        """Conditions that use the index of the inner table."""
        return [
            f"{self._column(inner, key)} = {self._column(outer, key)}"
            + ("" if self._is_binary(key, collation) else f" COLLATE {quoted(collation)}")
            for key, collation in zip(self._keys, self._collations, strict=True)
        ]

    def _exact_keys(self, inner: str, outer: str) -> list[str]:
        """Conditions that distinguish what SQL calls equal; none where it cannot happen."""
        if self.new.is_keyed_by_rowid or (self.new.key_is_rowid and self.old.key_is_rowid):
            return []
        exact = []
        for key, collation in zip(self._keys, self._collations, strict=True):
            index = self.new.table.index_of(key)
            if folded(collation) == folded(_BINARY) and self._has_one_number_type(index):
                continue
            a, b = self._column(inner, key), self._column(outer, key)
            exact.append(f"(+{a} IS +{b} COLLATE BINARY AND typeof({a}) = typeof({b}))")
        return exact

    def _differs(self) -> str | None:
        parts = []
        for index, (column, flag) in enumerate(zip(self.new.table.columns, self.new.table.key_flags, strict=True)):
            if flag:
                continue
            a, b = self._column("n", column.name), self._column("o", column.name)
            if self._has_one_number_type(index):
                parts.append(f"{a} IS NOT {b} COLLATE BINARY")
            else:
                parts.append(f"(+{a} IS NOT +{b} COLLATE BINARY OR typeof({a}) <> typeof({b}))")
        return f"({_tree(parts, 'OR')})" if parts else None

    def _has_one_number_type(self, index: int) -> bool:
        new, old = (side.table.columns[index].affinity for side in (self.new, self.old))
        return new is old and new in _ONE_NUMBER_TYPE

    def _is_binary(self, key: str, collation: str) -> bool:
        """Whether neither the index nor the column has a collation, so that none has to be named."""
        columns = {folded(c.name): folded(n) for c, n in zip(self.new.columns, self.new.collations, strict=True)}
        return folded(collation) == folded(columns.get(folded(key), _BINARY)) == folded(_BINARY)

    @property
    def _collations(self) -> Sequence[str]:
        """The collations of the keys, as the indexes have them."""
        return (() if self.copied else self.new.key_collations) or (_BINARY,) * len(self._keys)

    @property
    def _keys(self) -> Sequence[str]:
        return self.new.table.primary_key

    def _column(self, alias: str, name: str) -> str:
        column = f"{alias}.{quoted(name)}"
        # A session reads a NULL index name of the statistics as an empty blob, so that it can be a key.
        return f"ifnull({column}, x'')" if self.new.name == STAT1 and name == "idx" else column

    def _selected(self, alias: str, *, keys: str | None = None) -> str:
        """The columns of a row; as bytes, their types come first, as letters."""
        sides = [keys if keys and flag else alias for flag in self.new.table.key_flags]
        columns = [self._column(side, name) for side, name in zip(sides, self.new.table.column_names, strict=True)]
        if not self.as_bytes:
            return ", ".join(columns)
        kinds = _tree([f"substr(typeof({column}), 1, 1)" for column in columns], "||")
        return ", ".join([kinds, *map(text_as_bytes, columns)])

    def _rows(self, found: Iterator[tuple[Any, ...]]) -> Iterator[Row]:
        return map(self._decoded, found) if self.as_bytes else found

    def _decoded(self, row: tuple[Any, ...]) -> Row:
        kinds, *values = row
        return tuple(self._text(value) if kind == "t" else value for kind, value in zip(kinds, values, strict=True))

    def _text(self, stored: bytes) -> str:
        if self.encoding != "UTF-8":
            stored = stored.decode(self.encoding, "surrogatepass").encode(errors="surrogatepass")
        return decode_text(stored)

    def _split(self, found: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Row, Row]]:
        half = self.width + self.as_bytes
        for row in found:
            new, old = row[:half], row[half:]
            yield (self._decoded(old), self._decoded(new)) if self.as_bytes else (old, new)

    def _fetched_pairs(self, source: str) -> Iterator[tuple[Row, Row]]:
        """For tables whose two rows are too wide for one result: the keys first, then row by row."""
        keys = ", ".join(self._column("n", key) for key in self._keys)
        where = " AND ".join(f"{self._column('a', key)} IS ? COLLATE BINARY" for key in self._keys)
        for key in self.connection.execute(f"SELECT {keys} {source}"):
            new, old = (
                next(self._rows(self.connection.execute(self._one_row(side, where), key))) for side in (NEW, OLD)
            )
            flags = self.new.table.key_flags
            yield old, tuple(o if flag else n for o, n, flag in zip(old, new, flags, strict=True))

    def _one_row(self, side: str, where: str) -> str:
        return f"SELECT {self._selected('a')} FROM {self._table(side)} AS a WHERE {where}"  # noqa: S608


def _copy_plainly(connection: apsw.Connection, side: str, stored: StoredTable) -> None:
    """Copy a side's table to a temporary one of that side's name, whose key has no collation."""
    columns = [f"{quoted(column.name)} {quoted(column.affinity.value)}" for column in stored.columns]
    key = f"PRIMARY KEY ({', '.join(map(quoted, stored.primary_key))})"
    names = ", ".join(([] if stored.without_rowid else [ROWID]) + [quoted(column.name) for column in stored.columns])
    connection.execute(f"DROP TABLE IF EXISTS temp.{side}; CREATE TEMP TABLE {side} ({', '.join([*columns, key])})")
    connection.execute(f"INSERT INTO temp.{side} ({names}) SELECT {names} FROM {side}.{quoted(stored.name)}")  # noqa: S608


def if_changed(old: Field, new: Field, left_out: Field = UNDEFINED) -> Field:
    """The new value, or `left_out` where the old one is the same."""
    return left_out if type(old) is type(new) and old == new else new


def stored_rows(
    connection: apsw.Connection, table: StoredTable, where: str, encoding: str
) -> Iterator[tuple[Field, ...]]:
    """The rows of a table as they are, whatever their keys and their text."""
    order = ", ".join(map(quoted, table.primary_key)) or ROWID
    rest = f"main.{quoted(table.name)} WHERE {where} ORDER BY {order}"
    return _decoded_rows(connection, [quoted(column.name) for column in table.columns], rest, encoding)


def _decoded_rows(
    connection: apsw.Connection, names: Sequence[str], rest: str, encoding: str, *, strictly: bool = False
) -> Iterator[tuple[Field, ...]]:
    """Rows whose text need not be text; unless it is UTF-8, what is none becomes replacement characters."""
    values = ", ".join(f"typeof({name}), {text_as_bytes(name)}" for name in names)
    is_kept = encoding == "UTF-8" and not strictly
    for row in connection.execute(f"SELECT {values} FROM {rest}"):  # noqa: S608
        pairs = zip(row[::2], row[1::2], strict=True)
        yield tuple(
            value if kind != "text" else decode_text(value) if is_kept else value.decode(encoding, "replace")
            for kind, value in pairs
        )


def text_as_bytes(column: str) -> str:
    """The SQL expression for a column's value, with text as its bytes."""
    return f"CASE typeof({column}) WHEN 'text' THEN CAST({column} AS BLOB) ELSE {column} END"


def _tree(parts: Sequence[str], operator: str) -> str:
    """A balanced expression: SQLite allows a depth of 1,000."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return f"({_tree(parts[:middle], operator)} {operator} {_tree(parts[middle:], operator)})"


# Copies in another text encoding, rowids included: databases of two encodings cannot be compared by one connection.


def recoded(source: apsw.Connection, tables: Iterable[StoredTable], path: Path, encoding: str) -> Path:
    """The rows of all tables of `source` in a new database at `path`, with full-text indexes built from them."""
    copy = apsw.Connection(str(path))
    copy.execute(f"PRAGMA encoding = '{encoding}'; PRAGMA synchronous = OFF; PRAGMA ignore_check_constraints = ON")
    known = {folded(table.name): table for table in tables}
    virtual = [table for table in known.values() if table.kind == "virtual" and (table.has_rows or table.content)]
    owners = {name: owner_of(name, known) for name, table in known.items() if table.kind == "shadow"}
    plain = [table for name, table in known.items() if table.kind != "virtual" and owners.get(name) not in virtual]
    with copy:
        for table in (*plain, *virtual):
            if not table.is_internal:
                copy.execute(table.text)
        if any(table.name == STAT1 for table in plain):
            copy.execute("ANALYZE")  # the only way to get the tables of statistics
            copy.execute("DELETE FROM sqlite_stat1")
        made = {name for (name,) in copy.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        for table in (*plain, *virtual):
            if table.content:
                copy.execute(rebuild_statement(table.name))
            elif table.name in made:
                _copy_rows(source, copy, table)
    copy.close()
    return path


def _copy_rows(source: apsw.Connection, copy: apsw.Connection, table: StoredTable) -> None:
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
        # What is no text becomes replacement characters, as SQLite converts it.
        rows = _decoded_rows(source, names, quoted(table.name), encoding_of(source), strictly=True)
        copy.executemany(insert, rows)

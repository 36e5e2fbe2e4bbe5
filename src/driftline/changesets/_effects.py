"""What triggers and cascades did beside the changes of a file, by a session that watches the apply (changesets §6).

A file of `diff` or of a session already holds these effects. Without `as_recorded` they happen a second time, so that
rows can become other ones than the file says: those are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import apsw

from driftline.changesets._format.database import tables_from_database
from driftline.changesets._format.encoding import UNDEFINED, Row, encode_value, folded, quoted
from driftline.changesets._format.streams import iterate
from driftline.changesets._format.table import Operation, Table

_ACTING = "('CASCADE', 'SET NULL', 'SET DEFAULT')"
RowKey = tuple[str, tuple[bytes, ...]]  # a row: its table's folded name and its encoded key


def row_key(operation: Operation) -> RowKey:
    """What tells the row of an operation from all others."""
    return folded(operation.table.name), tuple(map(encode_value, operation.key))


class Effects:
    """Finds the rows that triggers and cascades altered; where no touched table has any, nothing is watched."""

    def __init__(
        self, connection: apsw.Connection, tables: Mapping[str, Table], *, triggers: bool, actions: bool
    ) -> None:
        self._connection = connection
        self._tables = tables
        triggers = triggers and bool(connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, -1))
        actions = actions and bool(connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, -1))
        self.are_possible = (triggers and self._has_triggers()) or (actions and self._has_actions())
        self._session: apsw.Session | None = None

    def _has_triggers(self) -> bool:
        query = "SELECT tbl_name FROM sqlite_schema WHERE type = 'trigger'"
        return any(folded(name) in self._tables for (name,) in self._connection.execute(query))

    def _has_actions(self) -> bool:
        query = (
            'SELECT f."table" FROM sqlite_schema AS s, pragma_foreign_key_list(s.name) AS f '  # noqa: S608
            "WHERE s.type = 'table' AND s.sql LIKE '%references%' "
            f"AND (f.on_delete IN {_ACTING} OR f.on_update IN {_ACTING})"
        )
        return any(folded(name) in self._tables for (name,) in self._connection.execute(query))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Record what happens to the database, where triggers or cascades can happen."""
        if not self.are_possible:
            yield
            return
        self._session = apsw.Session(self._connection, "main")
        try:
            self._session.config(apsw.SQLITE_SESSION_OBJCONFIG_ROWID, 1)
            self._session.attach()
            yield
        finally:
            self._session.close()

    def altered(self, told: Callable[[], Iterable[Operation]], passed_over: set[RowKey] | None) -> list[Operation]:
        """What happened to rows and is not what the file says; `passed_over` are rows that were not to be changed.

        It is None where a caller's function chose single changes: then only rows that did change are compared.
        """
        if self._session is None:
            return []
        changes = self._session.changeset()
        done = {row_key(change): change for change in iterate(changes, tables_from_database(self._connection))}
        found = []
        for change in told():
            key = row_key(change)
            happened = done.pop(key, None)
            if happened is not None and not _agrees(happened, change):
                found.append(happened)
            elif happened is None and passed_over is not None and key not in passed_over and self._is_undone(change):
                found.append(change.reverse() if not change.patchset else change)
        return found + list(done.values())

    def _is_undone(self, change: Operation) -> bool:
        """Whether a change that left no trace is not there: a trigger took it back, or it was nothing new."""
        names = ", ".join(map(quoted, change.table.column_names))
        where = " AND ".join(f"{quoted(key)} IS ? COLLATE BINARY" for key in change.table.primary_key)
        query = f"SELECT {names} FROM {quoted(change.table.name)} WHERE {where}"  # noqa: S608
        row = self._connection.execute(query, change.key).fetchall()
        if not row or change.new is None:
            return bool(row) != (change.new is not None)
        return not _same_where_known(row[0], change.new)


def _agrees(happened: Operation, told: Operation) -> bool:
    if happened.new is None or told.new is None:
        return happened.new is told.new
    if any(now is not UNDEFINED and then is UNDEFINED for now, then in zip(happened.new, told.new, strict=False)):
        return False
    return _same_where_known(happened.new, told.new)


def _same_where_known(one: Row, other: Row) -> bool:
    known = ((a, b) for a, b in zip(one, other, strict=False) if a is not UNDEFINED and b is not UNDEFINED)
    return all(encode_value(a) == encode_value(b) for a, b in known)

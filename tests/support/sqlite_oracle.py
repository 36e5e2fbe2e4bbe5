"""The judge: real SQLite sessions, watched through the preupdate hook."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import apsw

from driftline.changesets import Changeset, Patchset, Table
from driftline.changesets._format.database import tables_from_database

Event = tuple[str, str, tuple[Any, ...] | None, tuple[Any, ...] | None, bool]


def run_session(
    ddl: Iterable[str], setup: Iterable[str], work: Callable[[apsw.Connection], None], attach: Iterable[str] = ()
) -> tuple[bytes, bytes, list[Event], list[Table]]:
    """What a session records of `work`, and the events it saw."""
    connection = apsw.Connection(":memory:")
    for statement in (*ddl, *setup):
        connection.execute(statement)
    tables = tables_from_database(connection)
    session = apsw.Session(connection, "main")
    for name in attach:
        session.attach(name)
    if not attach:
        session.attach()
    # The preupdate hook belongs to the session, so events are watched in a twin database.
    work(connection)
    changeset, patchset = session.changeset(), session.patchset()
    return changeset, patchset, watch(ddl, setup, work, tables), tables


def watch(
    ddl: Iterable[str], setup: Iterable[str], work: Callable[[apsw.Connection], None], tables: list[Table]
) -> list[Event]:
    twin = apsw.Connection(":memory:")
    for statement in (*ddl, *setup):
        twin.execute(statement)
    widths = {table.name: table for table in tables}
    events: list[Event] = []

    def note(update: Any) -> None:
        if update.table_name in widths:
            old = None if update.op == "INSERT" else update.old
            new = None if update.op == "DELETE" else update.new
            events.append((update.op, update.table_name, old, new, update.depth > 0))

    twin.preupdate_hook(note)
    work(twin)
    return events


def replay(
    events: Iterable[Event], tables: Iterable[Table], rename: dict[str, str] | None = None
) -> tuple[Changeset, Patchset]:
    """The same events given to our builders."""
    by_name = {table.name: table for table in tables}
    changeset, patchset = Changeset(), Patchset()
    for target in (changeset, patchset):
        for kind, name, old, new, indirect in events:
            table = by_name[name]
            if kind == "INSERT":
                target.insert(table, new, indirect=indirect)
            elif kind == "DELETE":
                target.delete(table, old, indirect=indirect)
            else:
                target.update(table, old, new, indirect=indirect)
    return changeset, patchset


def contents(connection: apsw.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, ordered by key, with types told apart."""
    found = {}
    for table in tables_from_database(connection):
        columns = ", ".join(f'"{name}", typeof("{name}")' for name in table.column_names)
        query = f'SELECT {columns} FROM "{table.name}"'
        rows = [tuple(map(without_sign_of_zero, row)) for row in connection.execute(query)]
        found[table.name] = sorted(rows, key=repr)
    return found


def without_sign_of_zero(value: Any) -> Any:
    """0.0 and -0.0 are equal for a session, so that a change between them is not in its changesets."""
    return value + 0.0 if isinstance(value, float) else value

"""Answers to conflicts, table filters and what is told about them."""

from __future__ import annotations

import sqlite3

import apsw
import pytest

from driftline.changesets import Changeset, Table, apply, parse
from driftline.errors import ChangesetError, ConflictError, OptionError

USERS = Table("users", columns=[("id", "INTEGER"), ("name", "TEXT")], primary_key=["id"])
PETS = Table("pets", columns=[("id", "INTEGER"), ("owner", "INTEGER")], primary_key=["id"])


def database(*extra):
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
    connection.execute("INSERT INTO users VALUES (1, 'Alice'), (2, 'Bob')")
    for statement in extra:
        connection.execute(statement)
    return connection


def rows(connection, table="users"):
    return connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()


def changes():
    made = Changeset()
    made.update(USERS, (1, "Al"), (1, "Alicia"))  # DATA
    made.insert(USERS, (2, "Robert"))  # CONFLICT
    made.delete(USERS, (3, "Carol"))  # NOTFOUND
    made.insert(USERS, (4, "Dora"))  # fits
    return made


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("omit", [(1, "Alice"), (2, "Bob"), (4, "Dora")]),
        ("REPLACE", [(1, "Alicia"), (2, "Robert"), (4, "Dora")]),
        (apsw.SQLITE_CHANGESET_OMIT, [(1, "Alice"), (2, "Bob"), (4, "Dora")]),
        (lambda conflict: "replace" if conflict.reason == "DATA" else "omit", [(1, "Alicia"), (2, "Bob"), (4, "Dora")]),
    ],
)
def test_answers(answer, expected):
    connection = database()
    applied = apply(changes(), connection, answer)
    assert rows(connection) == expected
    assert {conflict.reason for conflict, _ in applied.conflicts} == {"DATA", "CONFLICT", "NOTFOUND"}


def test_abort_leaves_everything_as_it_was():
    connection = database()
    with pytest.raises(ConflictError, match="nothing was applied") as caught:
        apply(changes(), connection)
    assert rows(connection) == [(1, "Alice"), (2, "Bob")]
    assert caught.value.reason in ("DATA", "CONFLICT", "NOTFOUND")


@pytest.mark.parametrize("answer", ["maybe", lambda conflict: "maybe", lambda conflict: None])
def test_other_answers_are_refused_and_nothing_is_applied(answer):
    connection = database()
    with pytest.raises(OptionError, match="abort, omit or replace"):
        apply(changes(), connection, answer)
    assert rows(connection) == [(1, "Alice"), (2, "Bob")]


def test_an_error_in_the_handler_comes_out():
    connection = database()
    with pytest.raises(ZeroDivisionError):
        apply(changes(), connection, lambda conflict: 1 // 0)
    assert rows(connection) == [(1, "Alice"), (2, "Bob")]


def test_constraints_and_foreign_keys():
    connection = database("CREATE UNIQUE INDEX names ON users (name)")
    made = Changeset()
    made.insert(USERS, (9, "Alice"))
    assert [conflict.reason for conflict, _ in apply(made, connection, "omit").conflicts] == ["CONSTRAINT"]
    connection = database(
        "PRAGMA foreign_keys = ON", "CREATE TABLE pets (id INTEGER PRIMARY KEY, owner INTEGER REFERENCES users (id))"
    )
    made = Changeset()
    made.insert(PETS, (1, 99))
    with pytest.raises(ConflictError, match="FOREIGN_KEY"):
        apply(made, connection)
    assert rows(connection, "pets") == []
    # Leaving a row that refers to nothing is no answer to a conflict.
    for answer in ("omit", "replace", lambda conflict: "omit"):
        with pytest.raises(ConflictError, match="FOREIGN_KEY") as caught:
            apply(made, connection, answer)
        assert caught.value.conflict.foreign_key_violations == 1
        assert rows(connection, "pets") == []


def test_table_filters_and_missing_tables():
    both = Changeset()
    both.insert(USERS, (5, "Eve"))
    both.insert(PETS, (1, 5))
    connection = database()
    assert apply(both, connection, tables=["USERS"]).skipped_tables == []
    assert rows(connection)[-1] == (5, "Eve")
    connection = database()
    with pytest.raises(ChangesetError, match="table pets: the database has no such table") as caught:
        apply(both, connection)
    assert (caught.value.code, caught.value.tables) == ("unknown_table", ["pets"])
    assert len(rows(connection)) == 2
    applied = apply(both, connection, skip_missing_tables=True)
    assert applied.skipped_tables == ["pets"]
    assert (applied.tables["pets"].skipped, applied.tables["users"].applied) == (1, 1)
    assert rows(connection)[-1] == (5, "Eve")
    connection = database()
    apply(both, connection, tables=lambda name: name == "pets", skip_missing_tables=True)
    assert len(rows(connection)) == 2


def test_databases_that_are_refused(tmp_path):
    with pytest.raises(OptionError, match="a file name or an apsw"):
        apply(b"", sqlite3.connect(":memory:"))
    (tmp_path / "x.db").write_bytes(b"not a database, but long enough to look like one" * 50)
    with pytest.raises(ChangesetError, match="cannot be opened"):
        apply(b"", tmp_path / "x.db")


def test_empty_files_and_wide_tables():
    connection = database()
    assert apply(b"", connection).conflicts == []
    columns = [f"c{number}" for number in range(300)]
    wide = Table("wide", columns, ["c299", "c7"])
    connection.execute(f"CREATE TABLE wide ({', '.join(columns)}, PRIMARY KEY (c299, c7))")
    session = apsw.Session(connection, "main")
    session.attach("wide")
    connection.execute(f"INSERT INTO wide VALUES ({', '.join('?' * 300)})", tuple(range(300)))
    made = Changeset()
    made.insert(wide, range(300))
    assert bytes(made) == session.changeset()
    assert parse(bytes(made)).operations[0].key == (7, 299)

"""SQL in and out: SQLite runs the same statements and must end with the same rows and bytes."""

from __future__ import annotations

import random

import apsw
import pytest
from hypothesis import given, settings, strategies as st

from driftline.changesets import Changeset, Patchset, Table, apply, parse
from driftline.changesets._format.show import sql_literal
from driftline.errors import ChangesetError
from support.random_work import SHAPES, random_value, work_of
from support.sqlite_oracle import contents

USERS = Table.from_sql("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INTEGER DEFAULT 18)")


def patchset_of_sqlite(ddl, text):
    connection = apsw.Connection(":memory:")
    connection.execute(ddl)
    session = apsw.Session(connection, "main")
    session.attach()
    connection.execute(text)
    return session.patchset()


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 1 << 40), count=st.integers(1, 30))
def test_digested_inserts_are_what_a_session_records(seed, count):
    rng = random.Random(seed)
    ddl = "CREATE TABLE t (k INTEGER PRIMARY KEY, a TEXT, b REAL, c NUMERIC, d, e BLOB)"
    rows = [[key, *(random_value(rng) for _ in range(5))] for key in rng.sample(range(-500, 500), count)]
    values = ", ".join("(" + ", ".join(sql_literal(value) for value in row) + ")" for row in rows)
    text = f"INSERT INTO t VALUES {values}; DELETE FROM t WHERE k = {rows[0][0]};"
    assert bytes(Patchset.digest_sql(text, Table.from_sql(ddl))) == patchset_of_sqlite(ddl, text)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 40))
def test_literals_are_read_back_identically(seed):
    rng = random.Random(seed)
    connection = apsw.Connection(":memory:")
    for _ in range(40):
        value = random_value(rng)
        (back,) = next(connection.execute(f"SELECT {sql_literal(value)}"))
        assert repr(back) == repr(value)


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("patchset", [False, True])
def test_to_sql_does_what_the_file_does(shape, patchset):
    connection = apsw.Connection(":memory:")
    connection.execute(SHAPES[shape])
    work_of(shape, 11, 60)(connection)
    start = connection.serialize("main")
    session = apsw.Session(connection, "main")
    session.attach()
    work_of(shape, 12, 60)(connection)
    data = session.patchset() if patchset else session.changeset()
    by_sql, by_apply = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    for target in (by_sql, by_apply):
        target.deserialize("main", start)
    # Statements run one by one; a row may come before the one it replaces is gone, as in apply.
    table = Table.from_database(connection, "t")
    deletes_first = sorted(parse(data, [table]).to_sql().splitlines(), key=lambda line: not line.startswith("DELETE"))
    for statement in deletes_first:
        by_sql.execute(statement)
    apply(data, by_apply)
    assert contents(by_sql) == contents(by_apply)


def test_sql_and_back():
    rows = [(1, "it's", None), (2, "a\0b", -5), (3, "", 9223372036854775807), (4, "🙂", -9223372036854775808)]
    patch = Patchset()
    for row in rows:
        patch.insert(USERS, row)
    patch.update(USERS, {"id": 9}, {"name": "x"})
    patch.delete(USERS, {"id": 10})
    again = Patchset().digest_sql(patch.to_sql(), [USERS])
    assert sorted(op.encode(patchset=True) for op in again) == sorted(op.encode(patchset=True) for op in patch)


def test_statements_build_on_each_other():
    text = """
        INSERT INTO users (id, name) VALUES (1, 'Alice'), (2, 'Bob'); -- age has a default
        UPDATE main."users" SET name = 'Alicia', age = +31 WHERE id = '1';
        DELETE FROM [users] WHERE (id == 2);
        UPDATE users SET age = 0x1F WHERE id = 7;
        UPDATE users SET name = 'x' WHERE id = 7;
        DELETE FROM users WHERE id = NULL
    """
    patch = Patchset.digest_sql(text, {"users": USERS})
    found = {operation.key[0]: (operation.kind, operation.new) for operation in patch}
    unset = patch.operations[0].table and found[7][1][0]
    assert found == {1: ("insert", (1, "Alicia", 31)), 7: ("update", (unset, "x", 31))}


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("SELECT 1", 1, 1, "only INSERT, UPDATE and DELETE"),
        ("INSERT OR REPLACE INTO users VALUES (1, 'a', 2)", 1, 8, "INTO is wanted"),
        ("INSERT INTO users VALUES (1, 'a')", 1, 26, "2 values for 3 columns"),
        ("INSERT INTO users VALUES (1, upper('a'), 2)", 1, 30, "only literals"),
        ('INSERT INTO users VALUES (1, "a", 2)', 1, 30, "only literals"),
        ("INSERT INTO users VALUES (?, 'a', 2)", 1, 27, "only literals"),
        ("INSERT INTO users (name) VALUES ('a')", 1, 33, "would be chosen by a database"),
        ("INSERT INTO users (id, nick) VALUES (1, 'a')", 1, 24, 'no column "nick"'),
        ("INSERT INTO pets VALUES (1)", 1, 13, 'unknown table "pets"'),
        ("INSERT INTO temp.users VALUES (1)", 1, 13, 'schema "temp"'),
        ("INSERT INTO users SELECT 1, 'a', 2", 1, 19, "VALUES is wanted"),
        ("INSERT INTO users VALUES (1, x'0', 2)", 1, 30, "pairs of hexadecimal"),
        ("UPDATE users SET age = 1", 1, 25, "WHERE with the whole primary key"),
        ("UPDATE users SET age = age + 1 WHERE id = 1", 1, 24, "only literals"),
        ("UPDATE users SET age = 1 WHERE name = 'a'", 1, 32, "WHERE must be exactly: id"),
        ("UPDATE users SET age = 1 WHERE id = 1 OR id = 2", 1, 39, "end of the statement"),
        ("UPDATE users SET id = 2 WHERE id = 1", 1, 18, "change of key"),
        ("UPDATE users SET age = 1 WHERE id > 1", 1, 35, "= is wanted"),
        ("DELETE FROM users", 1, 18, "WHERE with the whole primary key"),
        ("DELETE FROM users\n  WHERE id IN (1)", 2, 12, "= is wanted"),
        ("DROP TABLE users", 1, 1, "only INSERT"),
    ],
)
def test_refusals_name_their_place(text, line, column, words):
    patch = Patchset()
    with pytest.raises(ChangesetError, match=words) as caught:
        patch.digest_sql(text, USERS)
    assert (caught.value.code, caught.value.line, caught.value.column) == ("unsupported_sql", line, column)
    assert bytes(patch) == b""


def test_nothing_is_digested_when_a_later_statement_is_refused():
    patch = Patchset()
    with pytest.raises(ChangesetError, match="line 2"):
        patch.digest_sql("INSERT INTO users VALUES (1, 'a', 2);\nVACUUM", USERS)
    assert not patch


def test_column_names_are_needed():
    changes = Changeset()
    changes.insert(USERS, (1, "a", 2))
    with pytest.raises(ChangesetError, match="give a schema"):
        parse(bytes(changes)).to_sql()
    assert parse(bytes(changes)).to_sql([USERS]) == changes.to_sql()
    assert changes.to_sql() == 'INSERT INTO "users" ("id", "name", "age") VALUES (1, \'a\', 2);\n'


def test_transactions_and_digit_separators():
    table = Table.from_sql("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    text = (
        "BEGIN IMMEDIATE TRANSACTION; INSERT INTO t VALUES (1_000, -1_0.5_0), (0x1_F, 1_0e1_0), (-1, .5);"
        " COMMIT; BEGIN; DELETE FROM t WHERE id = 7; END TRANSACTION"
    )
    found = sorted(operation.key + (operation.new or ())[1:] for operation in Patchset.digest_sql(text, table))
    assert found == [(-1, 0.5), (7,), (31, 1e11), (1000, -10.5)]
    for wrong in ("1__0", "1_", "1_.5", "1x", "1_000_", "0x", "1.5e"):
        with pytest.raises(ChangesetError, match="line 1"):
            Patchset.digest_sql(f"INSERT INTO t VALUES (1, {wrong})", table)

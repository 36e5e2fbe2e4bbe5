"""Scenarios of a session's life, with SQLite's own apply as the judge: same rows, same conflicts, same rebase data."""

# ruff: noqa: E501 - a scenario reads best in few lines

from __future__ import annotations

import itertools

import apsw
import pytest

from driftline.changesets import Session, apply, concat, invert, parse, rebase
from driftline.errors import ConflictError

REASONS = {
    apsw.SQLITE_CHANGESET_DATA: "DATA",
    apsw.SQLITE_CHANGESET_NOTFOUND: "NOTFOUND",
    apsw.SQLITE_CHANGESET_CONFLICT: "CONFLICT",
    apsw.SQLITE_CHANGESET_CONSTRAINT: "CONSTRAINT",
    apsw.SQLITE_CHANGESET_FOREIGN_KEY: "FOREIGN_KEY",
}
T = "CREATE TABLE t (a INTEGER PRIMARY KEY, b, c)"
ROWS = "INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3)"

# name, schema and rows on both sides, what was recorded, what happened to the target before
SCENARIOS = {
    "plain": ([T, ROWS], ["UPDATE t SET b = 'x' WHERE a = 1", "DELETE FROM t WHERE a = 2", "INSERT INTO t VALUES (9, 9, 9)"], []),
    "data in update": ([T, ROWS], ["UPDATE t SET b = 'x'"], ["UPDATE t SET b = 'mine' WHERE a = 2"]),
    "other column changed": ([T, ROWS], ["UPDATE t SET b = 'x'"], ["UPDATE t SET c = 77 WHERE a = 2"]),
    "data in delete": ([T, ROWS], ["DELETE FROM t"], ["UPDATE t SET c = 77 WHERE a = 2"]),
    "not found": ([T, ROWS], ["UPDATE t SET b = 'x'", "DELETE FROM t WHERE a = 3"], ["DELETE FROM t WHERE a > 1"]),
    "insert meets a row": ([T, ROWS], ["INSERT INTO t VALUES (4, 4, 4), (5, 5, 5)"], ["INSERT INTO t VALUES (4, 'mine', 0)"]),
    "unique values swapped": (
        ["CREATE TABLE t (a INTEGER PRIMARY KEY, b UNIQUE, c)", ROWS],
        ["UPDATE t SET b = 'tmp' WHERE a = 1", "UPDATE t SET b = 'one' WHERE a = 2", "UPDATE t SET b = 'two' WHERE a = 1"],
        [],
    ),
    "unique value taken": (
        ["CREATE TABLE t (a INTEGER PRIMARY KEY, b UNIQUE, c)", ROWS],
        ["INSERT INTO t VALUES (7, 'seven', 7), (8, 'eight', 8)", "UPDATE t SET b = 'zwei' WHERE a = 2"],
        ["INSERT INTO t VALUES (70, 'seven', 0), (71, 'zwei', 0)"],
    ),
    "check constraint": (
        ["CREATE TABLE t (a INTEGER PRIMARY KEY, b, c CHECK (c < 100))", ROWS],
        ["INSERT INTO t VALUES (10, 1, 1)"],
        ["DROP TABLE t", "CREATE TABLE t (a INTEGER PRIMARY KEY, b, c CHECK (c > 1 OR c IS NULL))"],
    ),
    "children before parents": (
        [
            "CREATE TABLE c (id INTEGER PRIMARY KEY, p REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
            "CREATE TABLE p (id INTEGER PRIMARY KEY)",
        ],
        ["INSERT INTO p VALUES (1), (2)", "INSERT INTO c VALUES (1, 1), (2, 2)"],
        [],
    ),
    "parent is gone": (
        ["CREATE TABLE p (id INTEGER PRIMARY KEY)", "CREATE TABLE c (id INTEGER PRIMARY KEY, p REFERENCES p)", "INSERT INTO p VALUES (1)"],
        ["INSERT INTO c VALUES (1, 1)"],
        ["DELETE FROM p"],
    ),
    "no key": (
        ["CREATE TABLE t (a, b)", "INSERT INTO t VALUES (1, 2), (3, 4), (5, 6)"],
        ["UPDATE t SET b = 20 WHERE a = 1", "DELETE FROM t WHERE a = 3", "INSERT INTO t VALUES (7, 8)"],
        ["UPDATE t SET b = 21 WHERE a = 1", "INSERT INTO t VALUES (9, 9)"],
    ),
    "statistics": (
        ["CREATE TABLE t (a INTEGER PRIMARY KEY, b)", "CREATE INDEX i ON t (b)", "INSERT INTO t VALUES (1, 1)", "ANALYZE"],
        ["INSERT INTO t VALUES (2, 2), (3, 3)", "ANALYZE"],
        ["UPDATE sqlite_stat1 SET stat = '9 9'"],
    ),
    "composite key without rowid": (
        ["CREATE TABLE t (a, b, c, PRIMARY KEY (b, a)) WITHOUT ROWID", "INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2)"],
        ["UPDATE t SET c = 5 WHERE a = 1", "UPDATE t SET a = 9 WHERE a = 2"],
        ["UPDATE t SET c = 6 WHERE a = 1"],
    ),
    "a trigger writes too": (
        [T, ROWS, "CREATE TABLE log (id INTEGER PRIMARY KEY, what)",
         "CREATE TRIGGER tr AFTER UPDATE ON t BEGIN INSERT INTO log (what) VALUES (new.a); END"],
        ["UPDATE t SET b = 'x' WHERE a < 3"],
        [],
    ),
    "many rows": (
        [T],
        ["WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 600) INSERT INTO t SELECT x, x, x FROM n"],
        ["WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 7 FROM n WHERE x < 600) INSERT INTO t SELECT x, 'mine', 0 FROM n"],
    ),
    "blobs, text and reals": (
        ["CREATE TABLE t (k BLOB PRIMARY KEY, v)", "INSERT INTO t VALUES (x'00', 1.5), ('x', x''), (2.5, 'é')"],
        ["UPDATE t SET v = NULL", "INSERT INTO t VALUES (x'', 9e99)"],
        ["UPDATE t SET v = 'other' WHERE k = 2.5"],
    ),
}  # fmt: skip
ANSWERS = {
    "omit": lambda reason: "omit",
    "replace": lambda reason: "replace" if reason in ("DATA", "CONFLICT") else "omit",
    "abort": lambda reason: "abort",
    "mixed": lambda reason: {"DATA": "replace", "CONSTRAINT": "abort"}.get(reason, "omit"),
}
CODES = {
    "omit": apsw.SQLITE_CHANGESET_OMIT,
    "replace": apsw.SQLITE_CHANGESET_REPLACE,
    "abort": apsw.SQLITE_CHANGESET_ABORT,
}


def database(*statements):
    connection = apsw.Connection(":memory:")
    for statement in statements:
        connection.execute(statement)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def recorded(schema, work):
    connection = database(*schema)
    with Session(connection) as session:
        for statement in work:
            connection.execute(statement)
        return session.changeset(), session.patchset()


def content(connection):
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in names}


def applied_by_sqlite(data, connection, answer):
    """The judge: apsw alone; None for an abort."""
    met = []

    def decide(reason, change):
        name = REASONS[reason]
        action = "abort" if name == "FOREIGN_KEY" else answer(name)
        met.append((name, None if name == "FOREIGN_KEY" else change.name, action))
        return CODES[action]

    try:
        return met, apsw.Changeset.apply(data, connection, conflict=decide, rebase=True)
    except apsw.Error:
        assert met
        assert met[-1][2] == "abort"
        return met, None


def applied_by_us(data, connection, answer):
    met = []

    def decide(conflict):
        action = answer(conflict.reason)
        met.append((conflict.reason, conflict.operation.table.name, action))
        return action

    try:
        return met, apply(data, connection, decide)
    except ConflictError as error:
        if error.reason == "FOREIGN_KEY":
            met.append(("FOREIGN_KEY", None, "abort"))
        return met, None


@pytest.mark.parametrize("name", SCENARIOS)
def test_applying(name):
    schema, work, before = SCENARIOS[name]
    for data, answer in itertools.product(recorded(schema, work), ANSWERS.values()):
        theirs, ours = database(*schema, *before), database(*schema, *before)
        start = content(ours)
        judged, wanted = applied_by_sqlite(bytes(data), theirs, answer)
        met, done = applied_by_us(data, ours, answer)
        assert met == judged
        assert content(ours) == content(theirs)
        assert (done is None) == (wanted is None)
        if done is None:
            assert content(ours) == start
            continue
        assert done.rebase_data == (wanted or b"")
        for table, report in done.tables.items():
            decided = [action for _, named, action in met if named == table]
            assert (report.omitted, report.replaced) == (decided.count("omit"), decided.count("replace"))
            assert report.applied + report.omitted == report.insert + report.update + report.delete


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in ("parent is gone", "check constraint")])
def test_undoing(name):
    schema, work, _ = SCENARIOS[name]
    changes, patch = recorded(schema, work)
    for connection, data in ((database(*schema), changes), (database(*schema), patch)):
        start = content(connection)
        apply(data, connection, triggers=False)
        after = content(connection)
        apply(changes, connection, invert=True, triggers=False)
        assert content(connection) == start
        apply(invert(invert(changes)), connection, triggers=False)
        assert content(connection) == after
        assert bytes(concat(changes, invert(changes))) == b""


@pytest.mark.parametrize("remote_answer", ["omit", "replace"])
@pytest.mark.parametrize(
    ("remote", "local"),
    [
        (["UPDATE t SET b = 'r'"], ["UPDATE t SET b = 'l' WHERE a < 3"]),
        (["UPDATE t SET c = 9 WHERE a = 1"], ["UPDATE t SET b = 'l', c = 7 WHERE a = 1"]),
        (["DELETE FROM t WHERE a = 1"], ["UPDATE t SET c = 7 WHERE a = 1"]),
        (["UPDATE t SET c = 7 WHERE a = 1"], ["DELETE FROM t WHERE a = 1"]),
        (["INSERT INTO t VALUES (8, 'r', 1)"], ["INSERT INTO t VALUES (8, 'l', 2)"]),
        (["DELETE FROM t WHERE a = 2"], ["DELETE FROM t WHERE a = 2"]),
    ],
)
def test_rebasing(remote, local, remote_answer):
    """Where local changes were rebased on remote ones, a third database ends as the local one did."""
    theirs, _ = recorded([T, ROWS], remote)
    mine, _ = recorded([T, ROWS], local)
    here = database(T, ROWS)
    apply(mine, here)
    told = apply(theirs, here, lambda conflict: remote_answer if conflict.reason in ("DATA", "CONFLICT") else "omit")
    rebaser = apsw.Rebaser()
    rebaser.configure(told.rebase_data)
    moved = rebase(mine, told)
    assert bytes(moved) == rebaser.rebase(bytes(mine))
    there = database(T, ROWS)
    apply(theirs, there)
    apply(moved, there)
    assert content(there) == content(here)


def test_changes_that_are_there_already():
    changes, _ = recorded(
        [T, ROWS], ["UPDATE t SET b = 'x'", "DELETE FROM t WHERE a = 3", "INSERT INTO t VALUES (9, 9, 9)"]
    )
    connection = database(T, ROWS)
    apply(changes, connection)
    after = content(connection)
    with pytest.raises(ConflictError):
        apply(changes, connection)
    report = apply(changes, connection, ignore_noop=True).tables["t"]
    assert (report.applied, report.omitted) == (4, 0)
    assert content(connection) == after


def test_a_column_that_was_added_later():
    changes, patch = recorded([T, ROWS], ["UPDATE t SET b = 'x' WHERE a = 1", "INSERT INTO t VALUES (9, 9, 9)"])
    for data in (changes, patch):
        connection = database(T, ROWS, "ALTER TABLE t ADD COLUMN d DEFAULT 'new'")
        apply(data, connection, allow_extra_columns=True)
        assert (9, 9, 9, "new") in content(connection)["t"]
    newer = database(T.replace("c)", "c, d DEFAULT 'new')"), "INSERT INTO t (a, b, c) VALUES (1, 'x', 1), (9, 9, 9)")
    with Session(newer) as session:
        newer.execute("UPDATE t SET d = 'set' WHERE a = 9")
        later = session.changeset()
    both = concat(changes, later, schema=newer)
    assert {operation.new_values.get("d") for operation in parse(bytes(both), both.tables)} == {None, "set"}

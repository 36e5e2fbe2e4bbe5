"""Applying is whole or nothing, and says what it did: shapes, damage, callbacks, locks, foreign keys and triggers."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3

import apsw
import pytest

from driftline.changesets import Changeset, Patchset, Table, apply, diff
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import ChangesetError, ConflictError, CorruptChangesetError, DriftlineError, OptionError

USERS = Table("users", columns=[("id", "INTEGER"), ("name", "TEXT"), ("age", "INTEGER")], primary_key=["id"])
T = Table("t", columns=["id", "v"], primary_key=["id"])


def database(path, *statements):
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


def rows(path, table="t"):
    return sorted(apsw.Connection(str(path)).execute(f"SELECT * FROM {table}").fetchall(), key=repr)


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("CREATE TABLE users (id INTEGER PRIMARY KEY, name)", "the file has 3 columns, the database 2"),
        ("CREATE TABLE users (id, name PRIMARY KEY, age)", "the file's key is column 1, the database's is name"),
        ("CREATE TABLE users (id, name, age, PRIMARY KEY (id, name))", "another|key is column 1"),
        ("CREATE TABLE users (id INTEGER PRIMARY KEY, name, age, x)", "--allow-extra-columns"),
        ("CREATE TABLE users (id, name, age)", "the database's is _rowid_|the file has 3 columns"),
        ("CREATE TABLE others (id INTEGER PRIMARY KEY)", "no such table"),
        ("CREATE VIRTUAL TABLE users USING fts5(a)", "virtual table"),
    ],
)
def test_shapes_are_checked_before_the_first_row(tmp_path, ddl, words):
    path = database(tmp_path / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, v)", ddl)
    changes = Changeset().insert(T, (1, 1)).insert(USERS, (1, "A", 3))
    with pytest.raises(ChangesetError, match=words) as caught:
        apply(changes, path, "omit")
    assert caught.value.code in ("schema_mismatch", "unknown_table")
    assert caught.value.tables == ["users"]
    assert rows(path) == []


def test_too_many_columns_are_told(tmp_path):
    names = [f"c{number}" for number in range(999)]
    path = database(tmp_path / "a.db", f"CREATE TABLE w ({', '.join(names)}, PRIMARY KEY (c0))")
    with pytest.raises(ChangesetError, match="at most 998 columns"):
        apply(Changeset().insert(Table("w", names, ["c0"]), range(999)), path)


def test_a_name_that_is_not_utf8_is_refused_before_anything_is_applied(tmp_path):
    path = database(tmp_path / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    bad = bytes(Changeset().insert(T, (1, 1))) + bytes.fromhex("54010174ff001200010000000000000001")
    with pytest.raises(ChangesetError, match="not UTF-8"):
        apply(bad, path)
    with pytest.raises(CorruptChangesetError):
        apply(bad[:-3], path)
    assert rows(path) == []


@pytest.mark.parametrize("place", ["tables", "change_filter", "on_conflict"])
@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3), apsw.BusyError("mine")])
def test_an_error_in_a_callback_comes_out_and_nothing_is_applied(tmp_path, place, error):
    path = database(tmp_path / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, v)", "INSERT INTO t VALUES (5, 0)")

    def fail(given):
        raise error

    changes = Changeset()
    for number in range(10):
        changes.insert(T, (number, number))
    with pytest.raises(type(error)) as caught:
        apply(changes, path, **{"on_conflict": "omit", place: fail})
    assert caught.value is error
    assert rows(path) == [(5, 0)]


def test_a_filter_takes_single_changes(tmp_path):
    path = database(tmp_path / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    changes = Changeset().insert(T, (1, 1)).insert(T, (2, 2)).insert(T, (3, 3))
    applied = apply(changes, path, change_filter=lambda operation: operation.new_values["v"] != 2)
    assert rows(path) == [(1, 1), (3, 3)]
    report = applied.tables["t"]
    assert (report.insert, report.applied, report.filtered) == (3, 2, 1)


def test_replace_answers_only_what_sqlite_replaces(tmp_path):
    path = database(tmp_path / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    with pytest.raises(OptionError, match="NOTFOUND conflict cannot be answered with replace"):
        apply(Changeset().delete(T, (1, 1)), path, lambda conflict: "replace")


def test_foreign_keys_are_enforced_for_files(tmp_path):
    path = database(
        tmp_path / "a.db",
        "CREATE TABLE p (id INTEGER PRIMARY KEY)",
        "CREATE TABLE c (id INTEGER PRIMARY KEY, p REFERENCES p)",
        "INSERT INTO p VALUES (1)",
        "INSERT INTO c VALUES (1, 1)",
    )
    parent = Table("p", [("id", "INTEGER")], ["id"])
    file = tmp_path / "c.bin"
    file.write_bytes(bytes(Changeset().delete(parent, (1,))))
    for answer in ("abort", "omit"):
        assert run(driftline, ["changeset", "apply", str(file), str(path), "--on-conflict", answer]) == 2
        assert rows(path, "p") == [(1,)]
    assert run(driftline, ["changeset", "apply", str(file), str(path), "--no-foreign-keys"]) == 0
    assert rows(path, "p") == []


def test_cascades_can_be_left_to_the_file(tmp_path):
    schema = (
        "CREATE TABLE p (id INTEGER PRIMARY KEY)",
        "CREATE TABLE c (id INTEGER PRIMARY KEY, p REFERENCES p ON DELETE CASCADE)",
        "INSERT INTO p VALUES (1)",
        "INSERT INTO c VALUES (1, 1)",
    )
    old = database(tmp_path / "old.db", *schema)
    new = database(tmp_path / "new.db", *schema, "PRAGMA foreign_keys = ON", "DELETE FROM p")
    changes = diff(old, new).changes
    with pytest.raises(ConflictError, match="NOTFOUND"):
        apply(changes, old)
    assert rows(old, "c") == [(1, 1)]
    apply(changes, old, foreign_key_actions=False)
    assert (rows(old, "p"), rows(old, "c")) == ([], [])


def test_a_connection_keeps_its_settings():
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v); CREATE TABLE log (id INTEGER PRIMARY KEY)")
    connection.execute("CREATE TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO log VALUES (new.id); END")
    apply(Changeset().insert(T, (1, 1)), connection, triggers=False, foreign_keys=True)
    assert connection.execute("SELECT * FROM log").fetchall() == []
    assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, -1) == 1
    assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, -1) == 0
    connection.execute("BEGIN")
    apply(Changeset().insert(T, (2, 2)), connection)
    with pytest.raises(OptionError, match="inside a transaction"):
        apply(Changeset().insert(T, (3, 3)), connection, foreign_keys=True)
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT id FROM t").fetchall() == [(1,)]


def test_an_audit_trigger_is_no_conflict_without_triggers(tmp_path):
    schema = (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v)",
        "CREATE TABLE log (id INTEGER PRIMARY KEY, what)",
        "CREATE TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO log(what) VALUES (new.id); END",
    )
    old = database(tmp_path / "old.db", *schema)
    new = database(tmp_path / "new.db", *schema, "INSERT INTO t VALUES (1, 1)")
    file = tmp_path / "c.bin"
    assert run(driftline, ["changeset", "diff", str(old), str(new), "-o", str(file)]) == 1
    assert run(driftline, ["changeset", "apply", str(file), str(old)]) == 2
    assert run(driftline, ["changeset", "apply", str(file), str(old), "--no-triggers"]) == 0
    assert rows(old, "log") == rows(new, "log")


def test_a_locked_database_is_told_as_locked(tmp_path, capfd):
    path = database(tmp_path / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    (tmp_path / "c.bin").write_bytes(bytes(Changeset().insert(T, (1, 1))))
    writer = apsw.Connection(str(path))
    writer.execute("BEGIN EXCLUSIVE")
    arguments = ["changeset", "apply", str(tmp_path / "c.bin"), str(path), "--timeout", "0.05"]
    assert run(driftline, arguments) == 2
    assert "error[locked]" in capfd.readouterr().err
    with pytest.raises(DriftlineError) as caught:
        apply(b"", path, timeout=0.01)
    assert caught.value.code == "locked"
    writer.execute("COMMIT")
    assert run(driftline, arguments) == 0


def test_conflicts_with_text_that_is_not_utf8(tmp_path):
    path = database(
        tmp_path / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, v)", "INSERT INTO t VALUES (1, CAST(x'ff' AS TEXT))"
    )
    bad = (
        bytes.fromhex("5402010074001200010000000000000007")
        + b"\x05"
        + bytes.fromhex("120001000000000000000103" + "01fe")
    )
    applied = apply(bad, path, "omit")
    [(conflict, action)] = applied.conflicts
    assert (conflict.reason, action, conflict.current) == ("CONFLICT", "omit", None)
    assert conflict.operation.new == (1, b"\xfe".decode(errors="surrogateescape"))
    assert "insert of t (id=1)" in conflict.describe()
    apply(bad, path, "replace", change_filter=lambda operation: operation.key == (1,))
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT hex(CAST(v AS BLOB)) FROM t WHERE id = 1").fetchall() == [("FE",)]


@pytest.mark.parametrize("ddl", ["k PRIMARY KEY, v", "k TEXT COLLATE NOCASE PRIMARY KEY, v"])
@pytest.mark.parametrize("constraint", ["", ", FOREIGN KEY (v) REFERENCES t (k)"])
def test_inserts_wait_for_rows_whose_keys_sql_calls_equal(tmp_path, ddl, constraint):
    olds, news = ([1, 2, 16, 300], [1.0, 2.0, 16.0, 300.0]) if "TEXT" not in ddl else (list("abcd"), list("ABCD"))
    old = database(tmp_path / "old.db", f"CREATE TABLE t ({ddl}{constraint})")
    new = database(tmp_path / "new.db", f"CREATE TABLE t ({ddl}{constraint})")
    for path, keys in ((old, olds), (new, news)):
        connection = apsw.Connection(str(path))
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(key, key) for key in keys])
        connection.close()
    found = diff(old, new)
    assert [note.code for note in found.notes] == ["equal_keys"]
    applied = apply(found.changes, old)
    assert applied.conflicts == []
    assert rows(old) == rows(new)
    apply(found.changes, old, invert=True)
    assert [type(key) for key, _ in rows(old)] == [type(key) for key in olds]


def test_rows_that_refer_to_an_insert_that_waits_are_no_conflict(tmp_path):
    """The first attempt leaves the insert out, so that its children refer to nothing; only the second one counts."""
    ddl = (
        "CREATE TABLE parent (k TEXT PRIMARY KEY COLLATE NOCASE);"
        "CREATE TABLE child (id INTEGER PRIMARY KEY, k TEXT COLLATE NOCASE REFERENCES parent)"
    )
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    for path, key in ((old, "a"), (new, "A")):
        connection = apsw.Connection(str(path))
        connection.execute(ddl)
        connection.execute("INSERT INTO parent VALUES (?)", (key,))
        if path == new:
            connection.execute("INSERT INTO child VALUES (1, 'A')")
        connection.close()
    apply(diff(old, new).changes, old)
    connection = apsw.Connection(str(old))
    assert list(connection.execute("SELECT * FROM parent, child")) == [("A", 1, "A")]


def test_a_handler_is_asked_once_however_often_the_file_is_tried(tmp_path):
    path = database(
        tmp_path / "a.db",
        "CREATE TABLE t (k TEXT COLLATE NOCASE PRIMARY KEY, v)",
        "INSERT INTO t VALUES ('a', 1), ('z', 9)",
    )
    table = Table("t", [("k", "TEXT"), "v"], ["k"])
    asked = []

    def omit(conflict):
        asked.append(conflict.operation.key)
        return "omit"

    changes = Changeset().insert(table, ("A", 2)).delete(table, ("a", 1)).update(table, ("z", 8), ("z", 10))
    applied = apply(changes, path, omit)
    assert asked == [("z",)]
    assert rows(path) == [("A", 2), ("z", 9)]
    assert (applied.tables["t"].applied, applied.tables["t"].omitted) == (2, 1)


def test_conflicts_in_statistics_and_in_tables_without_a_key(tmp_path):
    path = database(
        tmp_path / "a.db",
        "CREATE TABLE t (a, b)",
        "CREATE TABLE u (id INTEGER PRIMARY KEY, v)",
        "CREATE INDEX i ON u (v)",
        "INSERT INTO t VALUES (1, 2)",
        "INSERT INTO u VALUES (1, 2)",
        "ANALYZE",
    )
    rowid = Table("t", ["_rowid_", "a", "b"], ["_rowid_"])
    stat = Table("sqlite_stat1", ["tbl", "idx", "stat"], ["tbl", "idx"])
    changes = Changeset().update(rowid, (1, 7, 7), (1, 8, 8)).insert(stat, ("u", "i", "9 9"))
    applied = apply(changes, path, "omit")
    told = sorted((conflict.reason, conflict.operation.table.name) for conflict, _ in applied.conflicts)
    assert told == [("CONFLICT", "sqlite_stat1"), ("DATA", "t")]
    assert rows(path) == [(1, 2)]


def test_the_report_as_json(tmp_path, capfd):
    path = database(tmp_path / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, v)", "INSERT INTO t VALUES (1, 0)")
    file = tmp_path / "c.bin.gz"
    file.write_bytes(gzip.compress(bytes(Changeset().insert(T, (1, 1)).insert(T, (2, 2)))))
    arguments = ["changeset", "apply", str(file), str(path), "--on-conflict", "omit", "--format", "json"]
    assert run(driftline, arguments) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["tables"]["t"] == {
        "insert": 2,
        "update": 0,
        "delete": 0,
        "applied": 1,
        "omitted": 1,
        "replaced": 0,
        "filtered": 0,
        "skipped": 0,
    }
    [conflict] = report["conflicts"]
    assert (conflict["reason"], conflict["action"], conflict["change"]["new"]) == (
        "CONFLICT",
        "omit",
        {"id": 1, "v": 1},
    )


def test_extra_columns_without_a_default_are_a_conflict(tmp_path):
    path = database(tmp_path / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, v, x NOT NULL)")
    with pytest.raises(ConflictError, match="CONSTRAINT conflict at insert of t"):
        apply(Changeset().insert(T, (1, 1)), path, allow_extra_columns=True)


def test_what_cannot_be_applied_is_refused(tmp_path):
    path = database(tmp_path / "a.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    with pytest.raises(OptionError, match="connect with apsw"):
        apply(b"", sqlite3.connect(":memory:"))
    with pytest.raises(OptionError, match="changes are bytes"):
        apply(1000, path)
    with pytest.raises(ChangesetError, match="cannot be inverted"):
        apply(Patchset().delete(T, 1), path, invert=True)
    apply(io.BytesIO(bytes(Changeset().insert(T, (1, 1)))), path)
    assert rows(path) == [(1, 1)]

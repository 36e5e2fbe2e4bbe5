"""Recording a connection with a session, and a file around a command."""

from __future__ import annotations

import sqlite3
import sys

import apsw
import pytest

from driftline.changesets import Session, apply, parse
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import ChangesetError, OptionError


def database():
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v); CREATE TABLE u (a, b)")
    return connection


def test_a_session_records_its_connection():
    connection = database()
    with Session(connection) as session:
        connection.execute("INSERT INTO t VALUES (1, 'a'); INSERT INTO u VALUES (1, 2)")
        session.indirect = True
        connection.execute("INSERT INTO t VALUES (2, 'b')")
        session.indirect = False
        session.enabled = False
        connection.execute("INSERT INTO t VALUES (3, 'c')")
        assert (session.enabled, session.indirect) == (False, False)
        changes = session.changeset()
        assert session.size >= len(bytes(changes))
        assert [(op.new_values, op.indirect) for op in changes if op.table.name == "t"] == [
            ({"id": 1, "v": "a"}, 0),
            ({"id": 2, "v": "b"}, 1),
        ]
        assert [op.new_values for op in changes if op.table.name == "u"] == [{"_rowid_": 1, "a": 1, "b": 2}]
        assert len(session.patchset()) == 3
    other = database()
    apply(changes, other)
    assert other.execute("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_tables_of_a_session():
    connection = database()
    with Session(connection, ["T"]) as session:
        connection.execute("INSERT INTO t VALUES (1, 'a'); INSERT INTO u VALUES (1, 2)")
        assert [table.name for table in session.changeset().tables] == ["t"]
    with Session(connection, rowid=False) as session:
        connection.execute("INSERT INTO u VALUES (1, 2)")
        assert len(session.changeset()) == 0
    with pytest.raises(ChangesetError, match='no table "nowhere"'):
        Session(connection, ["nowhere"])
    with pytest.raises(OptionError, match="sqlite3 module has no sessions"):
        Session(sqlite3.connect(":memory:"))
    with pytest.raises(OptionError, match="records an open apsw"):
        Session("app.db")


def test_recording_a_command(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    connection = sqlite3.connect("app.db")
    connection.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 'a')")
    connection.close()
    script = "import sqlite3, sys; c = sqlite3.connect('app.db'); c.execute(sys.argv[1]); c.commit(); sys.exit(7)"
    program = [sys.executable, "-c", script]
    record = ["changeset", "record", "app.db", "-o", "out.bin"]
    assert run(driftline, [*record, "--", *program, "UPDATE t SET v = 'b'"]) == 7
    [operation] = parse("out.bin")
    assert (operation.kind, operation.old, operation.new[1]) == ("update", (1, "a"), "b")
    assert run(driftline, [*record, "--format", "patchset", "--", *program, "DELETE FROM t"]) == 7
    assert [op.kind for op in parse("out.bin")] == ["delete"]
    before = (tmp_path / "out.bin").read_bytes()
    assert run(driftline, [*record, "--", *program, "CREATE TABLE other (x)"]) == 2
    shown = capfd.readouterr().err
    assert "problem[only_in_new]: other" in shown
    assert "error[incomplete_diff]" in shown
    assert (tmp_path / "out.bin").read_bytes() == before
    assert run(driftline, [*record, "--", str(tmp_path / "no-such-program")]) == 2
    assert "error[not_found]" in capfd.readouterr().err

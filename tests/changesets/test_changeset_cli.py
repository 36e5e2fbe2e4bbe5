"""`driftline changeset` from end to end, on database files."""

from __future__ import annotations

import json

import apsw
import pytest
from click.testing import CliRunner

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from support.sqlite_oracle import contents

DDL = "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)"


def make(path, rows):
    connection = apsw.Connection(str(path))
    connection.execute(DDL)
    connection.executemany("INSERT INTO users VALUES (?, ?, ?)", rows)
    connection.close()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    make(tmp_path / "old.db", [(1, "Alice", 30), (2, "Bob", 41), (3, "Carol", None)])
    make(tmp_path / "new.db", [(1, "Alicia", 30), (3, "Carol", None), (4, b"\0\xff", float("inf"))])
    (tmp_path / "tables.sql").write_text(DDL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments, code=0):
    result = CliRunner().invoke(driftline, ["changeset", *arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert (result.return_value or 0) == code
    return result.stdout


def rows(path):
    return contents(apsw.Connection(str(path)))


def test_diff_show_sql_digest_apply_invert(folder):
    call("diff", "old.db", "new.db", "-o", "changes.bin", code=1)
    assert call("show", "changes.bin", "--database", "old.db").splitlines() == [
        "table users (3 changes)",
        "     id*  name                age",
        "  ~  1    'Alice' → 'Alicia'",
        "  -  2    'Bob'               41",
        "  +  4    x'00ff'             9e999",
    ]
    assert "column2" in call("show", "changes.bin")
    lines = [
        json.loads(line)
        for line in call("show", "changes.bin", "--schema", "tables.sql", "--format", "jsonl").splitlines()
    ]
    assert lines[0] == {
        "table": "users",
        "op": "update",
        "indirect": False,
        "old": {"id": 1, "name": "Alice"},
        "new": {"name": "Alicia"},
    }
    assert json.loads(call("show", "changes.bin", "--schema", "tables.sql", "--format", "json")) == lines
    (folder / "changes.sql").write_text(call("sql", "changes.bin", "-d", "old.db"))
    call("digest", "changes.sql", "--schema", "tables.sql", "-o", "patch.bin")
    call("diff", "old.db", "new.db", "--format", "patchset", "-o", "patch2.bin", code=1)
    assert (folder / "patch.bin").read_bytes() == (folder / "patch2.bin").read_bytes()
    before = rows("old.db")
    call("apply", "patch.bin", "old.db")
    assert rows("old.db") == rows("new.db")
    call("diff", "old.db", "new.db", "-o", "none.bin", code=0)
    assert (folder / "none.bin").read_bytes() == b""
    call("invert", "changes.bin", "-o", "undo.bin")
    call("apply", "undo.bin", "old.db")
    assert rows("old.db") == before
    call("concat", "changes.bin", "undo.bin", "-o", "both.bin")
    assert (folder / "both.bin").read_bytes() == b""


def test_conflicts_and_rebase(folder, capfd):
    call("diff", "old.db", "new.db", "-o", "remote.bin", code=1)
    make(folder / "mine.db", [(1, "Al", 30), (3, "Carol", None)])
    call("diff", "old.db", "mine.db", "-o", "local.bin", code=1)
    before = rows("mine.db")
    assert run(driftline, ["changeset", "apply", "remote.bin", "mine.db"]) == 2
    assert "error[conflict]: nothing was applied: DATA conflict at update of users (id=1)" in capfd.readouterr().err
    assert rows("mine.db") == before
    call("apply", "remote.bin", "mine.db", "--on-conflict", "omit", "--rebase-data", "rebase.bin")
    call("rebase", "local.bin", "rebase.bin", "-o", "rebased.bin")
    call("apply", "remote.bin", "old.db")
    call("apply", "rebased.bin", "old.db")
    assert rows("old.db") == rows("mine.db")


def test_table_filter_and_missing_tables(folder, capfd):
    call("diff", "old.db", "new.db", "-o", "changes.bin", code=1)
    before = rows("old.db")
    assert run(driftline, ["changeset", "apply", "changes.bin", "old.db", "--table", "pets"]) == 2
    assert "error[unknown_table]: nothing was applied: table pets" in capfd.readouterr().err
    assert rows("old.db") == before
    apsw.Connection("empty.db").execute("CREATE TABLE pets (id INTEGER PRIMARY KEY)")
    assert run(driftline, ["changeset", "apply", "changes.bin", "empty.db"]) == 2
    assert "error[unknown_table]: nothing was applied: table users" in capfd.readouterr().err
    assert run(driftline, ["changeset", "apply", "changes.bin", "empty.db", "--skip-missing-tables"]) == 0
    assert "no table users" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "tables.sql"], "error[corrupt_changeset]: not a changeset or patchset (at byte 0)"),
        (["show", "nowhere.bin"], "error[not_found]: no such file or directory: nowhere.bin"),
        (["digest", "tables.sql"], "digest needs --database or --schema"),
        (["digest", "tables.sql", "--schema", "tables.sql"], "SQL line 1, column 1: only INSERT"),
        (["show", "old.db", "-d", "old.db", "--schema", "tables.sql"], "not both"),
        (["apply", "tables.sql", "missing.db"], "no such file or directory: missing.db"),
        (["apply", "tables.sql", "tables.sql"], "cannot be opened as an SQLite database"),
        (["diff", "old.db", "new.db", "-t", "pets"], 'no database has a table "pets"'),
    ],
)
def test_one_clear_line(folder, capfd, arguments, words):
    assert run(driftline, ["changeset", *arguments]) == 2
    shown = capfd.readouterr()
    assert words in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""
    assert "missing.db" not in [path.name for path in folder.iterdir()]


def test_sections_of_one_table_are_shown_together(folder):
    call("diff", "old.db", "new.db", "-o", "changes.bin", code=1)
    twice = (folder / "changes.bin").read_bytes()
    other = twice.replace(b"users", b"other")
    (folder / "many.bin").write_bytes(twice + twice + other + twice)
    headings = [line for line in call("show", "many.bin").splitlines() if line.startswith("table")]
    assert headings == ["table users (6 changes)", "table other (3 changes)", "table users (3 changes)"]
    assert len(call("show", "many.bin", "--format", "jsonl").splitlines()) == 12

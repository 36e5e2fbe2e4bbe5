"""Scripts that make one database into another, run by the plain SQLite shell and judged by SQLite's own pragmas."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import apsw
import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from support.sqlite_judge import described, run_shell

pytestmark = pytest.mark.skipif(
    shutil.which("sqlite3") is None, reason="needs the SQLite shell: apt-get install -y sqlite3"
)

T = "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT, w)"


def database(path, statements):
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


def make_script(tmp_path, old, new, code=1, options=()):
    script = tmp_path / "change.sql"
    assert run(driftline, ["changeset", "diff", str(old), str(new), "-o", str(script), *options]) == code
    return script


def check(tmp_path, old, new):
    old, new = database(tmp_path / "old.db", old), database(tmp_path / "new.db", new)
    script = make_script(tmp_path, old, new)
    text = script.read_text()
    run_shell(old, script)
    assert described(old) == described(new), text
    make_script(tmp_path, old, new, code=0)
    return text


CASES = {
    name: (case["old"], case["new"])
    for name, case in json.loads((Path(__file__).parent / "script_cases.json").read_text()).items()
}


@pytest.mark.parametrize("name", CASES)
def test_the_shell_arrives_at_the_new_database(tmp_path, name):
    old, new = CASES[name]
    check(tmp_path, old, new)


@pytest.mark.parametrize("name", ["added column", "views and triggers", "foreign keys", "swapped", "sequences"])
def test_and_back(tmp_path, name):
    new, old = CASES[name]
    check(tmp_path, old, new)


def test_alter_table_where_sqlite_can(tmp_path):
    assert 'ALTER TABLE "t" ADD COLUMN' in check(tmp_path, *CASES["added column"])
    for file in tmp_path.glob("*.db"):
        file.unlink()
    text = check(tmp_path, *CASES["dropped column"])
    assert 'ALTER TABLE "t" DROP COLUMN "w"' in text
    assert "driftline_new" not in text


FTS = "CREATE VIRTUAL TABLE f USING fts5(a, b)"
RTREE = "CREATE VIRTUAL TABLE r USING rtree(id, x0, x1, y0, y1, +label)"
EXTERNAL = [
    "CREATE TABLE doc (id INTEGER PRIMARY KEY, body)",
    "CREATE VIRTUAL TABLE f USING fts5(body, content='doc', content_rowid='id')",
    "CREATE TRIGGER ai AFTER INSERT ON doc BEGIN INSERT INTO f(rowid, body) VALUES (new.id, new.body); END",
]


@pytest.mark.parametrize(
    ("old", "new", "asked"),
    [
        (
            [FTS, "INSERT INTO f VALUES ('one two', 'x'), ('three', 'y')"],
            [FTS, "INSERT INTO f VALUES ('one', 'x'), ('three', 'y'), ('four', NULL)"],
            ["SELECT rowid, a FROM f WHERE f MATCH 'one OR four'", "SELECT count(*) FROM f WHERE f MATCH 'two'"],
        ),
        ([], [FTS, "INSERT INTO f VALUES ('one', 'x')"], ["SELECT rowid, b FROM f WHERE f MATCH 'one'"]),
        (
            [FTS.replace("fts5", "fts4"), "INSERT INTO f VALUES ('one two', 'x')"],
            [FTS.replace("fts5", "fts4"), "INSERT INTO f VALUES ('one', 'x'), ('two', 'z')"],
            ["SELECT rowid, a FROM f WHERE f MATCH 'two'"],
        ),
        (
            [FTS, "INSERT INTO f VALUES ('one', 'x')"],
            [FTS.replace("b)", "b, tokenize = 'porter')"), "INSERT INTO f VALUES ('running', 'x')"],
            ["SELECT rowid FROM f WHERE f MATCH 'run'"],
        ),
        (
            [*EXTERNAL, "INSERT INTO doc VALUES (1, 'one'), (2, 'two')"],
            [*EXTERNAL, "INSERT INTO doc VALUES (1, 'one'), (3, 'two three')"],
            ["SELECT rowid FROM f WHERE f MATCH 'two'", "INSERT INTO f(f) VALUES ('integrity-check')"],
        ),
        (
            [RTREE, "INSERT INTO r VALUES (1, 0, 1, 0, 1, 'a'), (2, 5, 6.7, 5, 6, 'b')"],
            [RTREE, "INSERT INTO r VALUES (1, 0, 1.1, 0, 1, 'a'), (3, 5, 6.7, 5, 6, 'c')"],
            ["SELECT id, label FROM r WHERE x0 > 3", "SELECT rtreecheck('r')", "SELECT * FROM r"],
        ),
    ],
)
def test_virtual_tables_go_by_their_content(tmp_path, old, new, asked):
    old, new = database(tmp_path / "old.db", old), database(tmp_path / "new.db", new)
    script = make_script(tmp_path, old, new)
    assert "_data" not in script.read_text()
    assert "_node" not in script.read_text()
    run_shell(old, script)
    answers = [[apsw.Connection(str(path)).execute(query).fetchall() for query in asked] for path in (old, new)]
    assert answers[0] == answers[1]
    assert apsw.Connection(str(old)).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_contentless_full_text_is_refused_by_name(tmp_path, capfd):
    table = "CREATE VIRTUAL TABLE f USING fts5(a, content='')"
    old = database(tmp_path / "old.db", [table])
    new = database(tmp_path / "new.db", [table, "INSERT INTO f(rowid, a) VALUES (1, 'one')"])
    make_script(tmp_path, old, new, code=2)
    assert "problem[virtual_table]: f: a contentless fts5 table" in capfd.readouterr().err
    make_script(tmp_path, old, old, code=0)


def test_a_script_for_another_database_leaves_it_alone(tmp_path):
    """Foreign keys that the script would break: the shell says so, and nothing is there afterwards."""
    tables = ["CREATE TABLE p (id INTEGER PRIMARY KEY)", "CREATE TABLE c (p REFERENCES p)", "INSERT INTO p VALUES (1)"]
    old = database(tmp_path / "old.db", tables)
    script = make_script(tmp_path, old, database(tmp_path / "new.db", [*tables, "DELETE FROM p"]))
    other = database(tmp_path / "other.db", [*tables, "INSERT INTO c VALUES (1)"])
    before = described(other)
    done = subprocess.run(["sqlite3", str(other)], input=script.read_bytes(), capture_output=True, check=False)
    assert done.returncode
    assert described(other) == before


def test_only_some_tables(tmp_path):
    old = database(tmp_path / "old.db", [T, "CREATE TABLE u (a)"])
    new = database(
        tmp_path / "new.db", [T, "CREATE TABLE u (a, b)", "INSERT INTO t VALUES (1, 2, 3)", "CREATE TABLE n (a)"]
    )
    text = make_script(tmp_path, old, new, options=["--table", "t"]).read_text()
    assert '"t"' in text
    assert '"u"' not in text
    text = make_script(tmp_path, old, new, options=["--skip", "t"]).read_text()
    assert '"t"' not in text
    assert "CREATE TABLE n" in text


KEYED = "CREATE TABLE t (id INTEGER PRIMARY KEY, u {})"
BACKWARDS = "CREATE TRIGGER x AFTER UPDATE ON t BEGIN UPDATE t SET u = -new.u WHERE id = new.id; END"


@pytest.mark.parametrize(
    ("tables", "rows", "new_rows"),
    [
        ([KEYED.format("UNIQUE")], "(1, 'a'), (2, 'b'), (3, 'c')", "(1, 'b'), (2, 'a'), (3, 'd')"),
        (["CREATE TABLE t (id TEXT COLLATE NOCASE PRIMARY KEY, u)"], "('a', 1), ('b', 2)", "('A', 1), ('B', 3)"),
        ([KEYED.format(""), BACKWARDS], "(1, 1), (2, 2)", "(1, 5), (2, 0.30000000000000004)"),
        ([KEYED.format("REFERENCES t ON DELETE CASCADE")], "(1, NULL), (2, 1), (3, 2)", "(7, 8), (8, NULL), (3, 3)"),
        (["CREATE TABLE t (a, b)", "CREATE UNIQUE INDEX i ON t (a)"], "(1, 1), (2, 2)", "(2, 1), (1, 2)"),
    ],
)
@pytest.mark.parametrize("form", ["changeset", "patchset"])
def test_a_file_that_apply_takes_is_a_script_that_runs(tmp_path, capfdbinary, tables, rows, new_rows, form):
    for name in ("old.db", "new.db", "applied.db"):
        database(tmp_path / name, [*tables, f"INSERT INTO t VALUES {rows}"])
    old, new, applied = (tmp_path / name for name in ("old.db", "new.db", "applied.db"))
    database(new, ["PRAGMA foreign_keys = OFF", "DELETE FROM t", f"INSERT INTO t VALUES {new_rows}"])
    file = str(tmp_path / "changes.bin")
    assert run(driftline, ["changeset", "diff", str(old), str(new), "--format", form, "-o", file]) == 1
    assert run(driftline, ["changeset", "apply", file, str(applied), "--as-recorded"]) == 0
    capfdbinary.readouterr()
    assert run(driftline, ["changeset", "sql", file, "--database", str(old)]) == 0
    run_shell(old, capfdbinary.readouterr().out)
    assert described(old) == described(applied) == described(new)

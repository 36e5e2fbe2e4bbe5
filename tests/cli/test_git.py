"""Databases and tables in a real Git repository."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from random import Random

import apsw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline as command
from support.processes import run_process
from support.sqlite_judge import described

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

USERS = "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)"


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """An empty repository in which `driftline` is the one of this environment."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name, value in (("AUTHOR", "a"), ("COMMITTER", "c")):
        monkeypatch.setenv(f"GIT_{name}_NAME", value)
        monkeypatch.setenv(f"GIT_{name}_EMAIL", f"{value}@example.org")
    (tmp_path / "home").mkdir()
    folder = tmp_path / "repo"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git("init", "-q", "-b", "main")
    return folder


def git(*arguments, code=0):
    done = run_process(["git", *arguments], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def driftline(*arguments, code=0):
    assert run(command, list(arguments)) == code


def run_sql(*statements, path="app.db"):
    connection = apsw.Connection(path)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def rows(path="app.db"):
    return apsw.Connection(path).execute("SELECT * FROM users ORDER BY id").fetchall()


def commit(message):
    git("add", "-A")
    git("commit", "-q", "-m", message)


def branches(base, ours, theirs):
    """A repository with a base, a change on main and another on the branch `theirs`."""
    run_sql(*base)
    commit("base")
    git("checkout", "-q", "-b", "theirs")
    run_sql(*theirs)
    commit("theirs")
    git("checkout", "-q", "main")
    run_sql(*ours)
    commit("ours")


def test_diffs_name_rows(repository, capfd):
    driftline("git", "install")
    shown = capfd.readouterr().out
    assert "diff.driftline.command = driftline git diff" in shown
    assert "merge.driftline.driver = driftline git merge %O %A %B %P" in shown
    assert (repository / ".gitattributes").read_text() == "*.db diff=driftline merge=driftline\n"
    driftline("git", "install")
    assert (repository / ".gitattributes").read_text() == "*.db diff=driftline merge=driftline\n"
    run_sql(USERS, "INSERT INTO users VALUES (1, 'Alice', 30), (2, 'Bob', 41)")
    commit("first")
    run_sql(
        "UPDATE users SET name = 'Alicia' WHERE id = 1", "DELETE FROM users WHERE id = 2", "CREATE VIEW w AS SELECT 1"
    )
    assert git("diff").splitlines() == [
        "--- a/app.db",
        "+++ b/app.db",
        "table users (2 changes)",
        "     id*  name                age",
        "  ~  1    'Alice' → 'Alicia'",
        "  -  2    'Bob'               41",
        "! view w: differs; changes of rows do not touch it",
    ]
    commit("second")
    assert "+  1    'Alice'" in git("log", "-p", "--ext-diff", "--reverse", "--", "app.db")
    (repository / "app.db").unlink()
    assert "-  1    'Alicia'" in git("diff")
    (repository / "app.db").write_bytes(b"no database")
    assert "! one version is a database, the other is not" in git("diff")


def test_text_of_a_database(repository, capfd):
    driftline("git", "install", "--textconv", "--pattern", "*.sqlite")
    run_sql(USERS, "INSERT INTO users VALUES (2, 'b', 1), (1, CAST(x'ff' AS TEXT), 2)", path="a.sqlite")
    capfd.readouterr()
    driftline("git", "textconv", "a.sqlite")
    assert capfd.readouterr().out.splitlines() == [
        f"{USERS};",
        """INSERT INTO "users" ("id", "name", "age") VALUES (1, CAST(x'ff' AS TEXT), 2);""",
        """INSERT INTO "users" ("id", "name", "age") VALUES (2, 'b', 1);""",
    ]
    commit("first")
    run_sql("UPDATE users SET age = 5 WHERE id = 2", path="a.sqlite")
    assert '+INSERT INTO "users" ("id", "name", "age") VALUES (2, \'b\', 5);' in git("diff")


BASE = (USERS, "INSERT INTO users VALUES (1, 'Alice', 30), (2, 'Bob', 41), (3, 'Carol', 5)")


def test_a_merge_of_different_columns_and_rows(repository):
    driftline("git", "install")
    branches(
        BASE,
        ["UPDATE users SET age = 31 WHERE id = 1", "INSERT INTO users VALUES (4, 'Dora', 9)"],
        ["UPDATE users SET name = 'Alicia' WHERE id = 1", "DELETE FROM users WHERE id = 3"],
    )
    git("merge", "-q", "theirs", "-m", "merged")
    assert rows() == [(1, "Alicia", 31), (2, "Bob", 41), (4, "Dora", 9)]
    assert sorted(path.name for path in repository.iterdir()) == [".git", ".gitattributes", "app.db"]


def test_a_conflict_keeps_ours_and_is_listed(repository):
    driftline("git", "install")
    branches(
        BASE,
        ["UPDATE users SET name = 'O' WHERE id = 2"],
        ["UPDATE users SET name = 'T' WHERE id = 2", "UPDATE users SET age = 1 WHERE id = 1"],
    )
    shown = git("merge", "theirs", code=1)
    assert "app.db: ours was kept: DATA conflict at update of users (id=2)" in shown
    assert "CONFLICT (content)" in shown
    assert rows() == [(1, "Alice", 1), (2, "O", 41), (3, "Carol", 5)]


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ("CREATE TABLE other (x)", "CREATE TABLE other (y)", "table other: both sides changed its definition"),
        ("ALTER TABLE users ADD COLUMN y", "ALTER TABLE users ADD COLUMN z", "table users: both sides changed"),
        ("CREATE INDEX i ON users (name)", "CREATE INDEX i ON users (age)", "index i: both sides changed"),
        ("UPDATE users SET age = 1", "ALTER TABLE users DROP COLUMN age", "does not keep the other's rows"),
        ("UPDATE users SET age = 1", "DROP TABLE users", "does not keep the other's rows"),
        ("ALTER TABLE users DROP COLUMN age", "INSERT INTO users VALUES (9, 'x', 1)", "does not keep the other's rows"),
        ("PRAGMA user_version = 3", "PRAGMA user_version = 7", "PRAGMA user_version: ours changed it from 0 to 3"),
        ("CREATE TABLE p (o REFERENCES users); INSERT INTO p VALUES (3)", "DELETE FROM users", "FOREIGN_KEY conflict"),
    ],
)
def test_what_cannot_be_merged_leaves_ours(tmp_path, monkeypatch, capfd, ours, theirs, words):
    monkeypatch.chdir(tmp_path)
    for name, more in (("base", ()), ("ours", (ours,)), ("theirs", (theirs,))):
        run_sql(*BASE, *more, path=name)
    before = (tmp_path / "ours").read_bytes()
    driftline("git", "merge", "base", "ours", "theirs", "app.db", code=1)
    shown = capfd.readouterr().err
    assert "app.db: cannot be merged, ours was kept: " in shown
    assert words in shown
    assert (tmp_path / "ours").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "ours", "theirs"]


def test_both_added_it(repository):
    driftline("git", "install")
    (repository / "readme").write_text("x")
    commit("base")
    git("checkout", "-q", "-b", "theirs")
    run_sql(USERS, "INSERT INTO users VALUES (1, 'a', 1), (2, 'b', 2)")
    commit("theirs")
    git("checkout", "-q", "main")
    run_sql(USERS, "INSERT INTO users VALUES (1, 'a', 1), (3, 'c', 3)")
    commit("ours")
    git("merge", "-q", "theirs", "-m", "merged")
    assert rows() == [(1, "a", 1), (2, "b", 2), (3, "c", 3)]


def test_tables_are_compared_as_tables(repository):
    driftline("git", "install", "--pattern", "*.csv")
    (repository / "t.csv").write_text("id,v\n1,a\n2,b\n")
    commit("first")
    (repository / "t.csv").write_text("id,v\n1,a\n2,c\n")
    shown = git("diff")
    assert "+++ b/t.csv" in shown
    assert "| b | c |" in shown or "b" in shown


def test_tables_are_merged_by_key(repository):
    (repository / "rules.toml").write_text('key = ["id"]\n')
    driftline("git", "install", "--pattern", "*.csv", "--rules", "rules.toml")
    (repository / "t.csv").write_text("id,v\n1,a\n2,b\n")
    commit("base")
    git("checkout", "-q", "-b", "theirs")
    (repository / "t.csv").write_text("id,v\n1,a\n2,y\n")
    commit("theirs")
    git("checkout", "-q", "main")
    (repository / "t.csv").write_text("id,v\n1,x\n2,b\n")
    commit("ours")
    git("merge", "-q", "theirs", "-m", "merged")
    assert (repository / "t.csv").read_text() == "id,v\n1,x\n2,y\n"


def table_branches(folder, base, ours, theirs, name="t.csv"):
    (folder / name).write_text(base)
    commit("base")
    git("checkout", "-q", "-b", "theirs")
    (folder / name).write_text(theirs)
    commit("theirs")
    git("checkout", "-q", "main")
    (folder / name).write_text(ours)
    commit("ours")


def test_a_conflict_leaves_the_merged_table_with_both_versions(repository):
    (repository / "rules.toml").write_text('key = ["id"]\n')
    driftline("git", "install", "--pattern", "*.csv", "--rules", "rules.toml")
    theirs = "id,name,v\n1,Ann,99\n2,Bob,20\n3,Cyrus,3\n4,Di,4\n5,Ed,5\n"
    table_branches(
        repository, "id,name,v\n1,Ann,1\n2,Bob,2\n3,Cy,3\n", "id,name,v\n1,Ann,77\n2,Bob,2\n3,Cy,3\n", theirs
    )
    assert "t.csv: conflict at id=1: v" in git("merge", "theirs", code=1)
    marked = (repository / "t.csv").read_text()
    rest = "2,Bob,20\n3,Cyrus,3\n4,Di,4\n5,Ed,5\n"
    assert marked == f"id,name,v\n<<<<<<< ours\n1,Ann,77\n=======\n1,Ann,99\n>>>>>>> theirs\n{rest}"
    assert git("ls-files", "-u").count("t.csv") == 3
    copies = [str(repository / name) for name in ("base.csv", "theirs.csv")]
    for number, path in zip((1, 3), copies, strict=True):
        Path(path).write_text(git("show", f":{number}:t.csv"))
    merging = ["merge", copies[0], "t.csv", copies[1], "--key", "id", "-o", "out.csv"]
    driftline(*merging, code=2)
    driftline(*merging, "--prefer", "theirs")
    assert (repository / "out.csv").read_text() == theirs


@pytest.mark.parametrize("seed", range(3))
def test_no_change_of_either_branch_is_missing(repository, seed):
    """Random histories of three branches, merged by Git one after the other."""
    random = Random(seed)
    (repository / "rules.toml").write_text('key = ["id"]\n')
    driftline("git", "install", "--pattern", "*.csv", "--rules", "rules.toml")
    base = {str(number): [random.choice("abc"), random.choice("xyz")] for number in range(8)}

    def write(rows):
        lines = [",".join([key, *cells]) for key, cells in rows.items()]
        (repository / "t.csv").write_text("\n".join(["id,v,w", *lines]) + "\n")

    write(base)
    commit("base")
    changes = {}
    for name in ("one", "two", "three"):
        git("checkout", "-q", "-B", name, "main")
        rows = {key: list(cells) for key, cells in base.items()}
        for key in random.sample(sorted(rows), 3):
            changes.setdefault((key, at := random.randrange(2)), {})[name] = value = f"{name}{key}"
            rows[key][at] = value
        rows[f"new-{name}"] = [name, name]
        write(rows)
        commit(name)
    git("checkout", "-q", "one")
    for name in ("two", "three"):
        done = run_process(["git", "merge", "-q", name, "-m", name], capture_output=True, check=False)
        text = (repository / "t.csv").read_text()
        assert ("<<<<<<< ours" in text) == bool(done.returncode)
        if done.returncode:
            clean = re.sub("<<<<<<< ours\n.*?=======\n(.*?)>>>>>>> theirs\n", r"\1", text, flags=re.S)
            (repository / "t.csv").write_text(clean)
            commit(name)
        assert all(f"new-{other}," in text for other in ("one", name))
        for made in changes.values():
            assert name not in made or made[name] in text
            assert "one" not in made or len(made) > 1 or made["one"] in text


def test_rules_by_path_and_drivers_by_rules(repository):
    (repository / "rules.toml").write_text('key = ["id"]\n[files."u.csv"]\nkey = ["k"]\nignore = ["at"]\n')
    (repository / "other.toml").write_text('key = ["name"]\n')
    driftline("git", "install", "--pattern", "*.csv", "--rules", "rules.toml")
    driftline("git", "install", "--pattern", "names.csv", "--rules", "other.toml")
    tables = {"t.csv": "id,v\n1,{}\n", "u.csv": "k,v,at\n1,{},2\n", "names.csv": "name,v\na,{}\n"}
    for name, text in tables.items():
        (repository / name).write_text(text.format("old"))
    commit("first")
    for name, text in tables.items():
        (repository / name).write_text(text.format("new"))
    shown = git("diff")
    assert "cannot compare" not in shown
    assert shown.count("| new |") == 3


def test_what_the_rules_do_not_fit_is_diffed_and_merged_by_lines(repository):
    (repository / "rules.toml").write_text('key = ["id"]\n')
    driftline("git", "install", "--pattern", "*.csv", "--rules", "rules.toml")
    lines = [f"{letter},1" for letter in "abcdefgh"]
    texts = ["k,v\n" + "\n".join(changed) + "\n" for changed in (lines, ["a,2", *lines[1:]], [*lines[:-1], "h,2"])]
    table_branches(repository, *texts)
    shown = git("show", "--ext-diff", "HEAD")
    assert 'Missing key column "id"' in shown
    assert "-a,1\n+a,2" in shown
    assert "-a,1\n+a,2" in git("log", "-p")
    assert "merged by lines" in git("merge", "theirs", "-m", "merged")
    assert (repository / "t.csv").read_text() == "k,v\na,2\n" + "\n".join(lines[1:-1]) + "\nh,2\n"
    (repository / "new.csv").write_text("id\n7\n")
    git("add", "-A")
    assert "+7" in git("diff", "--cached")


def test_a_pager_that_is_left_early_is_no_error(repository):
    driftline("git", "install", "--pattern", "*.csv")
    for text in ("a", "b"):
        (repository / "t.csv").write_text("id,v\n" + "".join(f"{number},{text}\n" for number in range(9000)))
        commit(text)
    done = run_process(
        ["bash", "-c", "git show --ext-diff HEAD | head -n 3 > seen; exit ${PIPESTATUS[1]}"],
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_global_settings(repository, tmp_path, capfd):
    driftline("git", "install", "--global")
    assert git("config", "--global", "diff.driftline.command").strip() == "driftline git diff"
    assert (tmp_path / "home" / ".config" / "git" / "attributes").read_text() == "*.db diff=driftline merge=driftline\n"
    os.chdir(tmp_path)
    driftline("git", "install", code=2)
    assert "not a git repository" in capfd.readouterr().err


def test_a_merge_never_drops_a_definition_of_theirs(tmp_path, capfd):
    base, ours, theirs = (str(tmp_path / name) for name in ("base.db", "ours.db", "theirs.db"))
    for path in (base, ours):
        run_sql("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)", "INSERT INTO t VALUES (1, 1)", path=path)
    run_sql("INSERT INTO t VALUES (9, 9)", path=ours)
    run_sql(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT CHECK (v <> ''))",
        "INSERT INTO t VALUES (1, 1), (3, '007')",
        path=theirs,
    )
    code = run(command, ["git", "merge", base, ours, theirs])
    found = apsw.Connection(ours).execute("SELECT typeof(v), v FROM t WHERE id = 3").fetchall()
    assert (code, found) in ((0, [("text", "007")]), (1, []))


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE other (x); INSERT INTO other VALUES (1)",
        "ALTER TABLE users ADD COLUMN z DEFAULT 5",
        "CREATE INDEX i ON users (age); CREATE VIEW w AS SELECT * FROM users",
        "CREATE TRIGGER g AFTER INSERT ON users BEGIN DELETE FROM users; END",
        "ALTER TABLE users RENAME TO u; CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, age INTEGER, "
        "CHECK (age > 0)); INSERT INTO users SELECT * FROM u; DROP TABLE u",
        "PRAGMA user_version = 7",
    ],
)
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_merge_keeps_the_schema_changes_of_either_side(tmp_path, schema, is_ours):
    rows = "UPDATE users SET age = 31 WHERE id = 1; DELETE FROM users WHERE id = 2; INSERT INTO users(id, name, age) "
    rows += "VALUES (9, 'Zoe', 1)"
    paths = [str(tmp_path / name) for name in ("base.db", "ours.db", "theirs.db")]
    for path, more in zip(paths, ((), (schema,), (rows,)) if is_ours else ((), (rows,), (schema,)), strict=True):
        run_sql(*BASE, *more, path=path)
    base, ours, theirs = paths
    run_sql(*BASE, rows, schema, path=str(tmp_path / "wanted.db"))
    driftline("git", "merge", base, ours, theirs)
    assert described(Path(ours)) == described(tmp_path / "wanted.db")


def test_log_and_show_have_the_text(repository):
    driftline("git", "install")
    run_sql(USERS, "INSERT INTO users VALUES (1, 'Alice', 30)")
    commit("first")
    run_sql("UPDATE users SET age = 31")
    commit("second")
    for shown in (git("log", "-p", "-1"), git("show")):
        assert """+INSERT INTO "users" ("id", "name", "age") VALUES (1, 'Alice', 31);""" in shown
    assert "'Alice'" not in git("diff", "HEAD~1")
    assert "30 → 31" in git("diff", "HEAD~1")


# Tables of typed columns.


def write_parquet(rows, path="t.parquet"):
    columns = {"id": pa.array(list(rows), pa.int32()), "v": pa.array([row[0] for row in rows.values()], pa.date32())}
    pq.write_table(pa.table({**columns, "w": pa.array([row[1] for row in rows.values()], pa.int8())}), path)


def read_parquet(path="t.parquet"):
    found = pq.ParquetFile(path).read()
    assert [str(field.type) for field in found.schema] == ["int32", "date32[day]", "int8"]
    days = found.column("v").cast(pa.int32()).to_pylist()
    return dict(zip(found.column("id").to_pylist(), zip(days, found.column("w").to_pylist(), strict=True), strict=True))


def install_for_parquet(folder):
    (folder / "rules.toml").write_text('key = ["id"]\n')
    driftline("git", "install", "--pattern", "*.parquet", "--rules", "rules.toml")


def test_a_conflict_in_a_binary_table_leaves_ours_and_the_merged_file_beside_it(repository):
    install_for_parquet(repository)
    (repository / "data").mkdir()
    path = "data/t.parquet"
    write_parquet({1: (1, 1), 2: (2, 2)}, path)
    commit("base")
    git("checkout", "-q", "-b", "theirs")
    write_parquet({1: (9, 1), 2: (2, 20), 3: (3, 3)}, path)
    commit("theirs")
    git("checkout", "-q", "main")
    write_parquet({1: (7, 1), 2: (2, 2)}, path)
    commit("ours")
    ours = (repository / path).read_bytes()
    shown = git("merge", "theirs", code=1)
    assert f"{path}: conflict at id=1: v" in shown
    assert "ours was kept; data/t.merged.parquet has all that was merged" in shown
    assert "CONFLICT (content): Merge conflict in data/t.parquet" in shown
    assert (repository / path).read_bytes() == ours
    assert read_parquet("data/t.merged.parquet") == {1: (7, 1), 2: (2, 20), 3: (3, 3)}
    assert '"ours":"1970-01-08","theirs":"1970-01-10"' in (repository / f"{path}.conflicts.jsonl").read_text()
    assert git("ls-files", "-u").count(path) == 3
    assert sorted(found.name for found in repository.iterdir()) == [".git", ".gitattributes", "data", "rules.toml"]


def test_a_binary_table_that_cannot_be_merged_stays(repository):
    install_for_parquet(repository)
    write_parquet({1: (1, 1)})
    commit("base")
    git("checkout", "-q", "-b", "theirs")
    pq.write_table(pq.read_table("t.parquet").set_column(2, "w", pa.array(["x"])), "t.parquet")
    commit("theirs")
    git("checkout", "-q", "main")
    write_parquet({1: (1, 5)})
    commit("ours")
    ours = (repository / "t.parquet").read_bytes()
    shown = git("merge", "theirs", code=1)
    assert 't.parquet: ours was kept, because driftline cannot merge it as a table: column "w" is int8 in one' in shown
    assert (repository / "t.parquet").read_bytes() == ours
    assert git("ls-files", "-u").count("t.parquet") == 3


@pytest.mark.parametrize("seed", range(3))
def test_no_change_of_either_branch_is_missing_in_parquet(repository, seed):
    """Random histories of three branches; a plain model says what each merge has."""
    random = Random(seed)
    install_for_parquet(repository)
    branches = {"main": {number: (number, 0) for number in range(8)}}
    write_parquet(branches["main"])
    commit("base")
    base = branches["main"]
    for name in ("one", "two", "three"):
        git("checkout", "-q", "-B", name, "main")
        rows = dict(base)
        for key in random.sample(range(8), 3):
            rows[key] = random.choice(
                [(random.randrange(90, 92), rows[key][1]), (rows[key][0], random.randrange(1, 3))]
            )
        for key in random.sample(range(8), 2):
            rows.pop(key)
        rows.update({random.randrange(10, 14): (random.randrange(2), 5)})
        branches[name] = rows
        write_parquet(rows)
        commit(name)
    git("checkout", "-q", "one")
    ours = branches["one"]
    for name in ("two", "three"):
        theirs, before = branches[name], (repository / "t.parquet").read_bytes()
        wanted, conflicts = {}, 0
        for key in {**ours, **theirs}:
            versions = [side.get(key) for side in (base, ours, theirs)]
            if None not in versions:
                cells = list(zip(*versions, strict=True))
                conflicts += sum(was != mine != new != was for was, mine, new in cells)
                wanted[key] = tuple(mine if mine != was else new for was, mine, new in cells)
                continue
            was, mine, new = versions
            if was != mine != new != was:
                conflicts += 1
            if chosen := new if mine == was else mine:
                wanted[key] = chosen
        done = run_process(["git", "merge", "-q", name, "-m", name], capture_output=True, check=False)
        assert bool(done.returncode) == bool(conflicts), done.stdout + done.stderr
        if conflicts:
            assert (repository / "t.parquet").read_bytes() == before
            assert len((repository / "t.parquet.conflicts.jsonl").read_text().splitlines()) == conflicts
            (repository / "t.merged.parquet").rename(repository / "t.parquet")
            (repository / "t.parquet.conflicts.jsonl").unlink()
            commit(name)
        assert read_parquet() == wanted
        ours = wanted


def test_binary_tables_are_shown_as_rows(repository):
    install_for_parquet(repository)
    write_parquet({1: (1, 1), 2: (2, 2)})
    git("add", "-A")
    assert '+{"id":1,"v":"1970-01-02","w":1}' in git("diff", "--cached")
    commit("first")
    write_parquet({1: (1, 1), 2: (2, 5)})
    assert "| 5" in git("diff")
    commit("second")
    for shown in (git("log", "-p", "-1"), git("show")):
        assert '-{"id":2,"v":"1970-01-03","w":2}\n+{"id":2,"v":"1970-01-03","w":5}' in shown
    (repository / "t.parquet").write_bytes(b"\0no table\xff")
    assert "Binary files differ" in git("diff")


@pytest.mark.parametrize(
    ("name", "base", "ours", "theirs", "merged"),
    [
        ("t.tsv", "id\tv\tw\n1\ta\tx\n", "id\tv\tw\n1\tA\tx\n", "id\tv\tw\n1\ta\tX\n", "id\tv\tw\n1\tA\tX\n"),
        ("t.jsonl", '{"id":1,"v":1,"w":1}\n', '{"id":1,"v":2,"w":1}\n', '{"id":1,"v":1,"w":2}\n',
         '{"id":1,"v":2,"w":2}\n'),
    ],
)  # fmt: skip
def test_the_ending_of_a_file_says_how_it_is_merged(repository, name, base, ours, theirs, merged):
    (repository / "rules.toml").write_text('key = ["id"]\n')
    driftline("git", "install", "--pattern", "t.*", "--rules", "rules.toml")
    table_branches(repository, base, ours, theirs, name)
    git("merge", "-q", "theirs", "-m", "merged")
    assert (repository / name).read_text() == merged


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_two_common_ancestors_leave_no_trace_of_the_merge_of_these(repository, name):
    """Criss-cross: Git merges the ancestors first, whose conflict was decided the same way on both branches."""
    (repository / "rules.toml").write_text('key = ["id"]\n')
    driftline("git", "install", "--pattern", "t.*", "--rules", "rules.toml")

    def write(rows):
        if name == "t.parquet":
            write_parquet(rows)
        else:
            (repository / name).write_text("id,v,w\n" + "".join(f"{key},{v},{w}\n" for key, (v, w) in rows.items()))

    write({1: (0, 0), 2: (0, 0)})
    commit("base")
    for branch, value in (("one", 1), ("two", 2)):
        git("checkout", "-q", "-B", branch, "main")
        write({1: (value, 0), 2: (0, 0)})
        commit(branch)
    git("tag", "two-before")
    for branch, other in (("one", "two-before"), ("two", "one^1")):
        git("checkout", "-q", branch)
        git("merge", "-q", other, code=1)
        for path in repository.glob("t.*"):
            if path.name != name:
                path.unlink()
        write({1: (1, 0), 2: (0, 0)})
        commit(f"{branch} merged")
    git("checkout", "-q", "one")
    write({1: (1, 0), 2: (5, 0)})
    commit("one again")
    git("merge", "two", "-m", "end")
    assert sorted(path.name for path in repository.iterdir()) == [".git", ".gitattributes", "rules.toml", name]
    wanted = {1: (1, 0), 2: (5, 0)}
    if name == "t.parquet":
        assert read_parquet() == wanted
    else:
        assert (repository / name).read_text() == "id,v,w\n1,1,0\n2,5,0\n"

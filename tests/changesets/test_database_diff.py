"""Random databases compared: applying the diff gives the new content, and the bytes are SQLite's where it works."""

from __future__ import annotations

import contextlib
import random
import sys

import apsw
import pytest

from driftline.changesets import apply, diff
from driftline.changesets._format.database import stored_tables
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import ChangesetError, InputError
from support.processes import run_process

PLAIN_KEYS = ["id INTEGER PRIMARY KEY", "k TEXT PRIMARY KEY NOT NULL", "k REAL PRIMARY KEY NOT NULL"]
ODD_KEYS = [
    "k PRIMARY KEY",
    "k TEXT PRIMARY KEY",
    "k TEXT COLLATE NOCASE PRIMARY KEY NOT NULL",
    "k TEXT COLLATE RTRIM PRIMARY KEY",
    "k NUMERIC PRIMARY KEY",
    "k INTEGER PRIMARY KEY DESC",
]
PLAIN_TYPES = ["TEXT", "REAL", "INTEGER"]
ODD_TYPES = ["", "TEXT", "INTEGER", "REAL", "NUMERIC", "BLOB", "TEXT COLLATE NOCASE", "COLLATE RTRIM"]
VALUES = [None, 0, 1, -1, 2.5, "a", "b", "é", "", b"", b"a", 1e300, 2**62]
ODD_VALUES = [*VALUES, 1.0, "A", "a ", "1", b"1", -0.0, 0.0, "x\0y", 16, 16.0, "Ä", "ä"]
NAMES = ["t", "Ä", "ä", "two words", "U"]


def definition(r, name, odd):
    types = ODD_TYPES if odd else PLAIN_TYPES
    others = [f"c{number} {r.choice(types)}" for number in range(r.randint(1, 4))]
    generated = ["g AS (c0)", "h AS (c0 || 'x') STORED"][: r.randint(0, 2)] if odd else []
    kind = r.random()
    if odd and kind < 0.2:
        return f'CREATE TABLE "{name}" ({", ".join(others + generated)})'
    if kind < 0.6:
        body = [r.choice(PLAIN_KEYS + ODD_KEYS if odd else PLAIN_KEYS), *others]
        r.shuffle(body)
        return f'CREATE TABLE "{name}" ({", ".join(body + generated)})'
    keys = [f"k{number}" for number in range(r.randint(1, 3))]
    body = [f"{key} {r.choice(types)} {'' if odd else 'NOT NULL'}" for key in keys] + others
    r.shuffle(body)
    r.shuffle(keys)
    suffix = " WITHOUT ROWID" if r.random() < 0.4 else ""
    return f'CREATE TABLE "{name}" ({", ".join([*body, *generated])}, PRIMARY KEY ({", ".join(keys)})){suffix}'


def work(r, connection, table, odd, count, only_inserts=False):
    columns = [column.name for column in table.columns]
    values = ODD_VALUES if odd else VALUES

    def value():
        return r.choice(values) if r.random() < 0.7 else r.randint(0, 400)

    for _ in range(count):
        kind = 0 if only_inserts else r.random()
        if kind < 0.4:
            statement = (
                f'INSERT OR IGNORE INTO "{table.name}" ({",".join(columns)}) VALUES ({",".join("?" * len(columns))})'
            )
            with contextlib.suppress(apsw.MismatchError):  # an INTEGER PRIMARY KEY takes integers only
                connection.execute(statement, [value() for _ in columns])
        elif kind < 0.6:
            connection.execute(f'DELETE FROM "{table.name}" WHERE {r.choice(columns)} IS ?', (value(),))
        else:
            set_, where = r.choice(columns), r.choice(columns)
            with contextlib.suppress(apsw.MismatchError):
                statement = f'UPDATE OR IGNORE "{table.name}" SET {set_} = ? WHERE {where} IS ?'
                connection.execute(statement, (value(), value()))


def database_pair(tmp_path, seed, odd):
    r = random.Random(seed)
    old, new = tmp_path / f"{seed}-old.db", tmp_path / f"{seed}-new.db"
    connection = apsw.Connection(str(old))
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        for name in r.sample(NAMES, r.randint(1, 3)):
            connection.execute(definition(r, name, odd))
        for table in stored_tables(connection).values():
            work(r, connection, table, odd, r.choice([0, 5, 40, 250]), only_inserts=True)
    connection.execute("VACUUM INTO ?", (str(new),))
    connection.close()
    connection = apsw.Connection(str(new))
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        for table in stored_tables(connection).values():
            work(r, connection, table, odd, r.choice([0, 3, 30, 160]))
    connection.close()
    return old, new


def content(path):
    connection = apsw.Connection(str(path))
    found = {}
    for table in stored_tables(connection).values():
        names = (["rowid"] if table.is_keyed_by_rowid else []) + [f'"{column.name}"' for column in table.columns]
        query = f'SELECT {", ".join(f"typeof({name}), quote({name})" for name in names)} FROM "{table.name}"'
        # 0.0 and -0.0 are no change.
        rows = [tuple("0.0" if value == "-0.0" else value for value in row) for row in connection.execute(query)]
        found[table.name] = sorted(rows, key=repr)
    return found


def sqlite_diff(old, new):
    connection = apsw.Connection(str(new))
    connection.execute("ATTACH ? AS old_version", (str(old),))
    session = apsw.Session(connection, "main")
    for table in stored_tables(connection).values():
        session.attach(table.name)
        session.diff("old_version", table.name)
    return session.changeset(), session.patchset()


# Rows go into a changegroup as they are, as encoded records, or through the disk.
WAYS = {"rows": {}, "records": {"_MOST_COLUMNS": 0}, "disk": {"_GROUP_BYTES": 0}}


def go(monkeypatch, way):
    for name, value in WAYS[way].items():
        monkeypatch.setattr(f"driftline.changesets._make.databases.{name}", value)


@pytest.mark.parametrize("way", WAYS)
def test_bytes_are_sqlites_where_it_sees_every_difference(tmp_path, monkeypatch, way):
    go(monkeypatch, way)
    for seed in range(list(WAYS).index(way), 40, 3):
        old, new = database_pair(tmp_path, seed, odd=False)
        changeset, patchset = sqlite_diff(old, new)
        found = diff(old, new)
        assert bytes(found.changes) == changeset, seed
        assert bytes(diff(old, new, patchset=True).changes) == patchset, seed
        assert (found.problems, found.notes) == ([], [])
        before = content(old)
        apply(found.changes, old)
        assert content(old) == content(new), seed
        apply(found.changes, old, invert=True)
        assert content(old) == before, seed


def test_applying_a_diff_gives_the_new_content(tmp_path):
    noted, incomplete = set(), 0
    for seed in range(1000, 1060):
        old, new = database_pair(tmp_path, seed, odd=True)
        found = diff(old, new, allow_incomplete=True)
        assert {problem.code for problem in found.problems} <= {"null_key"}
        apply(found.changes, old)
        wrong = {problem.table for problem in found.problems}
        incomplete += bool(wrong)
        got, wanted = content(old), content(new)
        assert {name for name in wanted if got[name] != wanted[name]} == wrong, seed
        noted |= {note.code for note in found.notes}
    assert noted == {"rowid", "equal_keys"}
    assert incomplete


@pytest.mark.parametrize("count", [127, 128, 129, 255, 256, 257])
@pytest.mark.parametrize("kind", ["insert", "delete", "update", "null keys"])
def test_the_hash_table_grows_as_sqlites(tmp_path, monkeypatch, count, kind):
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    for path in (old, new):
        connection = apsw.Connection(str(path))
        connection.execute("BEGIN; CREATE TABLE t (k TEXT PRIMARY KEY, v)")
        has_rows = kind in ("update", "null keys") or (kind == "insert") == (path is new)
        if kind == "null keys":
            connection.execute("INSERT INTO t VALUES (NULL, 1)")
            has_rows = path is new
        if has_rows:
            connection.executemany("INSERT INTO t VALUES (?, ?)", [(f"k{n}", str(path)) for n in range(count)])
        if kind == "null keys" and path is new:
            connection.execute("DELETE FROM t WHERE k IS NULL; INSERT INTO t VALUES (NULL, 1)")
        connection.execute("COMMIT")
        connection.close()
    for way in WAYS:
        with monkeypatch.context() as patched:
            go(patched, way)
            assert bytes(diff(old, new).changes) == sqlite_diff(old, new)[0], way
            assert bytes(diff(old, new, patchset=True).changes) == sqlite_diff(old, new)[1], way


def test_a_small_diff_needs_no_columns(tmp_path):
    """The columnar writer, NumPy and Arrow are not imported for a few rows."""
    rows = "CREATE TABLE t (id INTEGER PRIMARY KEY, v)"
    old, new = pair(tmp_path, [rows], [rows, "INSERT INTO t VALUES (1, 'a')"])
    program = (
        "import io, sys; from driftline.changesets import DiffSettings, diff_to; out = io.BytesIO(); "
        f"diff_to(out, {str(old)!r}, {str(new)!r}, DiffSettings()); assert out.getvalue(); "
        "sys.exit(', '.join({'numpy', 'pyarrow', 'polars'} & set(sys.modules)) or None)"
    )
    done = run_process([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")


def pair(tmp_path, old, new):
    for name, statements in (("old.db", old), ("new.db", new)):
        connection = apsw.Connection(str(tmp_path / name))
        for statement in statements:
            connection.execute(statement)
        connection.close()
    return tmp_path / "old.db", tmp_path / "new.db"


@pytest.mark.parametrize(
    ("old", "new", "code", "name"),
    [
        (["CREATE TABLE t (a PRIMARY KEY, b)"], ["CREATE TABLE t (a PRIMARY KEY, c)"], "schema_mismatch", "t"),
        (["CREATE TABLE t (a PRIMARY KEY, b)"], ["CREATE TABLE t (a, b PRIMARY KEY)"], "schema_mismatch", "t"),
        (["CREATE TABLE t (a)", "CREATE TABLE u (a)"], ["CREATE TABLE t (a)"], "only_in_old", "u"),
        (["CREATE TABLE t (_rowid_)"], ["CREATE TABLE t (_rowid_)", "INSERT INTO t VALUES (1)"], "no_rowid", "t"),
        (["CREATE TABLE t (k PRIMARY KEY)", "INSERT INTO t VALUES (NULL), (NULL)"],
         ["CREATE TABLE t (k PRIMARY KEY)", "INSERT INTO t VALUES (NULL)"], "null_key", "t"),
    ],
)  # fmt: skip
def test_problems_stop_the_diff(tmp_path, capfd, old, new, code, name):
    old, new = pair(tmp_path, old, new)
    out = tmp_path / "out.bin"
    assert run(driftline, ["changeset", "diff", str(old), str(new), "-o", str(out)]) == 2
    shown = capfd.readouterr().err
    assert f"problem[{code}]: {name}:" in shown
    assert "error[incomplete_diff]" in shown
    assert not out.exists()
    assert run(driftline, ["changeset", "diff", str(old), str(new), "-o", str(out), "--allow-incomplete"]) == 1
    assert out.exists()
    assert run(driftline, ["changeset", "diff", str(old), str(new), "-o", str(out), "--skip", name]) == 0
    with pytest.raises(ChangesetError) as caught:
        diff(old, new)
    assert [(problem.code, problem.table) for problem in caught.value.problems] == [(code, name)]


def test_names_differ_only_where_sqlite_says_so(tmp_path):
    old, new = pair(
        tmp_path,
        ["CREATE TABLE T (Id INTEGER PRIMARY KEY, V)", "INSERT INTO T VALUES (1, 1)"],
        ["CREATE TABLE t (id INTEGER PRIMARY KEY, v)", "INSERT INTO t VALUES (1, 2)"],
    )
    assert len(diff(old, new).changes) == 1
    assert len(diff(old, new, tables=["T"]).changes) == 1
    with pytest.raises(ChangesetError, match='no database has a table "ſ"'):
        diff(old, new, tables=["ſ"])


def test_notes(tmp_path):
    common = [
        "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v)",
        "CREATE INDEX i ON t (v)",
        "CREATE VIEW w AS SELECT 1",
        "INSERT INTO t(v) VALUES (1)",
    ]
    more = [
        "INSERT INTO t(v) VALUES (2)",
        "ANALYZE",
        "DROP VIEW w",
        "CREATE VIEW w AS SELECT 2",
        "CREATE TRIGGER tr AFTER INSERT ON t BEGIN SELECT 1; END",
    ]
    old, new = pair(tmp_path, [*common, "ANALYZE"], [*common, *more])
    found = diff(old, new)
    told = {(note.code, note.name) for note in found.notes}
    assert ("internal_table", "sqlite_stat1") in told
    assert ("internal_table", "sqlite_sequence") in told
    assert {("schema", "view w"), ("schema", "trigger tr")} <= told
    with_stat = diff(old, new, stat=True)
    assert {operation.table.name for operation in with_stat.changes} == {"t", "sqlite_stat1"}
    assert bytes(diff(old, new, tables=["sqlite_stat1"]).changes)


def test_statistics_with_a_null_index(tmp_path):
    rows = ["CREATE TABLE t (v)", "INSERT INTO t VALUES (1)", "ANALYZE"]
    old, new = pair(tmp_path, rows, [*rows, "INSERT INTO t VALUES (2)", "ANALYZE"])
    [operation] = diff(old, new, tables=["sqlite_stat1"]).changes
    assert (operation.kind, operation.key) == ("update", ("t", b""))
    apply(diff(old, new, stat=True).changes, old)
    query = "SELECT tbl, idx, stat FROM sqlite_stat1"
    assert apsw.Connection(str(old)).execute(query).fetchall() == [("t", None, "2")]


def test_shadow_tables_on_demand(tmp_path):
    rows = ["CREATE VIRTUAL TABLE f USING fts5(a)", "INSERT INTO f VALUES ('one two')"]
    old, new = pair(tmp_path, rows, [*rows, "INSERT INTO f VALUES ('three')"])
    found = diff(old, new, shadow=True)
    assert not found.problems
    apply(found.changes, old)
    connection = apsw.Connection(str(old))
    assert connection.execute("SELECT a FROM f WHERE f MATCH 'three'").fetchall() == [("three",)]


@pytest.mark.parametrize("encodings", [("UTF-8", "UTF-16le"), ("UTF-16be", "UTF-8"), ("UTF-16le", "UTF-16be")])
def test_other_encodings(tmp_path, encodings):
    statements = [
        "CREATE TABLE t (a, b)",
        "CREATE TABLE k (k TEXT PRIMARY KEY, v, g AS (v || '!'), CHECK (v <> 'never'))",
        "INSERT INTO t(_rowid_, a, b) VALUES (5, 'ü', x'00ff'), (9, '漢字', NULL)",
        "INSERT INTO k(_rowid_, k, v) VALUES (3, 'é', 1), (2, 'x', 'a')",
    ]
    more = ["UPDATE t SET b = 1 WHERE a = 'ü'", "DELETE FROM k WHERE k = 'x'"]
    first, second = (f"PRAGMA encoding = '{encoding}'" for encoding in encodings)
    old, new = pair(tmp_path, [first, *statements], [second, *statements, *more])
    found = diff(old, new)
    assert sorted((operation.kind, operation.table.name) for operation in found.changes) == [
        ("delete", "k"),
        ("update", "t"),
    ]
    apply(found.changes, old)
    assert content(old) == content(new)


def compare_backwards(a, b):
    return (a[::-1] > b[::-1]) - (a[::-1] < b[::-1])


@pytest.mark.parametrize("kind", ["", " WITHOUT ROWID"])
def test_a_collation_of_another_program(tmp_path, kind):
    for name, rows in (("old.db", "('ab', 1), ('ba', 1), ('x', 1)"), ("new.db", "('ab', 1), ('ba', 2), ('y', 1)")):
        connection = apsw.Connection(str(tmp_path / name))
        connection.create_collation("mine", compare_backwards)
        connection.execute(f"CREATE TABLE t (k TEXT COLLATE mine PRIMARY KEY, v){kind}; INSERT INTO t VALUES {rows}")
        connection.close()
    found = diff(tmp_path / "old.db", tmp_path / "new.db")
    assert [(note.code, note.name) for note in found.notes] == [("unknown_collation", "t")]
    assert sorted((op.kind, op.key) for op in found) == [("delete", ("x",)), ("insert", ("y",)), ("update", ("ba",))]
    with pytest.raises(ChangesetError, match="mine"):
        apply(found.changes, tmp_path / "old.db")
    connection = apsw.Connection(str(tmp_path / "old.db"))
    connection.create_collation("mine", compare_backwards)
    apply(found.changes, connection)
    assert connection.execute("SELECT k, v FROM t ORDER BY k COLLATE BINARY").fetchall() == [
        ("ab", 1),
        ("ba", 2),
        ("y", 1),
    ]
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("id INTEGER PRIMARY KEY, v INTEGER", "id INTEGER PRIMARY KEY, v TEXT", "affinity of v: INTEGER in OLD, TEXT"),
        ("id TEXT PRIMARY KEY, v", "id INTEGER PRIMARY KEY, v", "rowid"),
        ("id INT PRIMARY KEY, v", "id INTEGER PRIMARY KEY, v", "rowid"),
        ("id TEXT COLLATE NOCASE PRIMARY KEY, v", "id TEXT PRIMARY KEY, v", "key collation: NOCASE in OLD, BINARY"),
        ("id INTEGER PRIMARY KEY, v TEXT", "id INTEGER PRIMARY KEY, v TEXT COLLATE RTRIM", "collation of v"),
        ("id INTEGER PRIMARY KEY, v, g AS (v)", "id INTEGER PRIMARY KEY, v, g AS (v || 'x')", "generated column g"),
        ("id INTEGER PRIMARY KEY, v", "id INTEGER PRIMARY KEY, v, g AS (v)", "generated column g: no in OLD"),
        ("id INTEGER PRIMARY KEY, v", "id INTEGER PRIMARY KEY, w", "only OLD has column v; only NEW has column w"),
        ("v, id INTEGER PRIMARY KEY", "id INTEGER PRIMARY KEY, v", "another order"),
    ],
)
def test_another_table_of_the_same_name_is_refused(tmp_path, old, new, word):
    old, new = pair(tmp_path, [f"CREATE TABLE t ({old})"], [f"CREATE TABLE t ({new})"])
    with pytest.raises(ChangesetError) as caught:
        diff(old, new)
    [problem] = caught.value.problems
    assert (problem.code, problem.table) == ("schema_mismatch", "t")
    assert word in problem.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("id INTEGER PRIMARY KEY, v", "id INTEGER PRIMARY KEY, v NOT NULL DEFAULT 7"),
        ("id INTEGER PRIMARY KEY, v", "id INTEGER PRIMARY KEY, v, CHECK (v > 0)"),
        ("id INTEGER PRIMARY KEY, v", "id INTEGER PRIMARY KEY, v REFERENCES t"),
        ("id INTEGER PRIMARY KEY, v INT", "id INTEGER PRIMARY KEY, v INTEGER"),
        ("id INTEGER PRIMARY KEY, v", "id INTEGER PRIMARY KEY, v UNIQUE"),
    ],
)
def test_another_definition_of_the_same_table_is_noted(tmp_path, old, new):
    old, new = pair(tmp_path, [f"CREATE TABLE t ({old})"], [f"CREATE TABLE t ({new})", "INSERT INTO t VALUES (1, 1)"])
    found = diff(old, new)
    assert ("schema", "table t") in [(note.code, note.name) for note in found.notes]
    apply(found.changes, old)
    assert content(old) == content(new)


def test_blanks_and_comments_are_no_difference(tmp_path):
    old, new = pair(
        tmp_path,
        ["CREATE TABLE t (id INTEGER PRIMARY KEY, v)"],
        ["create table 't'(ID integer primary key /* key */,\n v -- value\n)"],
    )
    assert diff(old, new).notes == []


def test_a_key_that_names_a_column_twice(tmp_path):
    table = "CREATE TABLE t (a COLLATE NOCASE, b, v, PRIMARY KEY (a, b, a))"
    old, new = pair(tmp_path, [table, "INSERT INTO t VALUES (1, 2, 3)"], [table, "INSERT INTO t VALUES (1, 2, 4)"])
    [operation] = diff(old, new)
    assert (operation.kind, operation.key) == ("update", (1, 2))


def test_files_that_are_no_databases(tmp_path):
    (tmp_path / "a.db").write_bytes(b"not a database, but long enough" * 50)
    apsw.Connection(str(tmp_path / "b.db")).execute("CREATE TABLE t (a)")
    with pytest.raises(InputError, match="no such file"):
        diff(tmp_path / "missing.db", tmp_path / "b.db")
    with pytest.raises(ChangesetError, match="cannot be opened"):
        diff(tmp_path / "a.db", tmp_path / "b.db")
    assert not (tmp_path / "missing.db").exists()


def test_equal_virtual_tables_are_no_note(tmp_path):
    rows = ["CREATE VIRTUAL TABLE f USING fts5(a)", "INSERT INTO f VALUES ('one two')"]
    old, new = pair(tmp_path, rows, rows)
    assert diff(old, new).notes == []


def test_the_damaged_database_is_named(tmp_path):
    for name in ("old.db", "new.db"):
        connection = apsw.Connection(str(tmp_path / name))
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
        connection.executemany("INSERT INTO t VALUES (?, zeroblob(500))", [(n,) for n in range(99)])
        connection.close()
    content = bytearray((tmp_path / "new.db").read_bytes())
    content[4096:12288] = b"\xff" * 8192
    (tmp_path / "new.db").write_bytes(content)
    with pytest.raises(ChangesetError, match=r"^\S*new\.db is a damaged database$"):
        diff(tmp_path / "old.db", tmp_path / "new.db")

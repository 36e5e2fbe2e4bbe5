"""Triggers, cascades, missing functions and full disks while changes are applied."""

from __future__ import annotations

import apsw
import pytest

from driftline.changesets import apply, diff
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import ChangesetError, ConflictError, StorageError

CASCADE = [
    "CREATE TABLE p (id INTEGER PRIMARY KEY)",
    "CREATE TABLE c (id INTEGER PRIMARY KEY, p REFERENCES p ON DELETE CASCADE ON UPDATE SET NULL)",
    "INSERT INTO p VALUES (1), (2)",
    "INSERT INTO c VALUES (10, 1), (11, 2), (12, 2)",
]
AUDIT = [
    "CREATE TABLE t (id INTEGER PRIMARY KEY, v)",
    "CREATE TABLE log (id INTEGER PRIMARY KEY, what)",
    "CREATE TRIGGER audit AFTER INSERT ON t BEGIN INSERT INTO log(what) VALUES ('insert ' || new.id); END",
]
UPDATED_AT = [
    "CREATE TABLE t (id INTEGER PRIMARY KEY, v, updated_at)",
    "CREATE TRIGGER touched AFTER UPDATE OF v ON t BEGIN UPDATE t SET updated_at = random() WHERE id = new.id; END",
    "INSERT INTO t VALUES (1, 1, 0), (2, 2, 0)",
]
# As GDAL writes them: the triggers of a spatial index call functions that only GDAL has.
SPATIAL = [
    "CREATE TABLE f (fid INTEGER PRIMARY KEY, geom BLOB)",
    "CREATE TRIGGER rtree_f_geom_insert AFTER INSERT ON f WHEN (new.geom NOT NULL AND NOT ST_IsEmpty(NEW.geom)) "
    "BEGIN INSERT OR REPLACE INTO f VALUES (NEW.fid, ST_MinX(NEW.geom)); END",
]


def database(path, statements):
    connection = apsw.Connection(str(path))
    connection.create_scalar_function("ST_IsEmpty", lambda _: 1)
    connection.create_scalar_function("ST_MinX", lambda _: 1)
    connection.execute("PRAGMA foreign_keys = ON")
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


def content(path):
    connection = apsw.Connection(str(path))
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}


def both(tmp_path, common, *edits):
    old, new = database(tmp_path / "old.db", common), database(tmp_path / "new.db", common)
    return old, database(new, edits)


@pytest.mark.parametrize(
    ("common", "edits"),
    [
        (CASCADE, ["DELETE FROM p WHERE id = 1", "UPDATE p SET id = 3 WHERE id = 2"]),
        (AUDIT, ["INSERT INTO t VALUES (1, 'a'), (2, 'b')"]),
        (UPDATED_AT, ["UPDATE t SET v = 5 WHERE id = 1"]),
        (SPATIAL, ["INSERT INTO f VALUES (1, x'00')"]),
    ],
)
def test_a_diff_applied_as_recorded_leads_to_the_new_content(tmp_path, common, edits):
    old, new = both(tmp_path, common, *edits)
    out = tmp_path / "out.bin"
    assert run(driftline, ["changeset", "diff", str(old), str(new), "-o", str(out)]) == 1
    assert run(driftline, ["changeset", "apply", str(out), str(old), "--as-recorded"]) == 0
    assert content(old) == content(new)
    assert apply(out.read_bytes(), old, as_recorded=True, invert=True).altered == []


def test_as_recorded_still_checks_foreign_keys(tmp_path):
    old, _ = both(tmp_path, CASCADE)
    dangling = database(tmp_path / "dangling.db", [*CASCADE, "PRAGMA foreign_keys = OFF", "DELETE FROM p WHERE id = 1"])
    with pytest.raises(ConflictError, match="FOREIGN_KEY"):
        apply(diff(old, dangling).changes, old, as_recorded=True)


@pytest.mark.parametrize(
    ("common", "edits", "reason"),
    [
        (CASCADE, ["DELETE FROM p WHERE id = 1"], "NOTFOUND"),
        (AUDIT, ["INSERT INTO t VALUES (1, 'a')"], "CONFLICT"),
    ],
)
def test_a_conflict_names_the_way_out(tmp_path, common, edits, reason):
    old, new = both(tmp_path, common, *edits)
    with pytest.raises(ConflictError, match=rf"{reason} conflict.*--as-recorded"):
        apply(diff(old, new).changes, old)


def test_rows_that_a_trigger_altered_are_named(tmp_path, capfd):
    old, new = both(tmp_path, UPDATED_AT, "UPDATE t SET v = 5 WHERE id = 1")
    out = tmp_path / "out.bin"
    out.write_bytes(bytes(diff(old, new)))
    assert run(driftline, ["changeset", "apply", str(out), str(old)]) == 0
    assert "altered by a trigger or cascade: <update of t: {'id': 1" in capfd.readouterr().err
    assert content(old)["t"][0][:2] == (1, 5)


def test_rows_of_other_tables_and_changes_taken_back_are_named(tmp_path):
    taken_back = "CREATE TRIGGER back AFTER UPDATE ON t BEGIN UPDATE t SET v = old.v WHERE id = new.id; END"
    old, new = both(
        tmp_path, [*AUDIT, "INSERT INTO t VALUES (7, 'x')"], "DELETE FROM log", "INSERT INTO t VALUES (1, 1)"
    )
    database(old, ["DELETE FROM log", taken_back])
    database(new, ["DELETE FROM log", "UPDATE t SET v = 'y' WHERE id = 7"])
    altered = apply(diff(old, new).changes, old).altered
    assert sorted((operation.table.name, operation.kind, operation.key) for operation in altered) == [
        ("log", "insert", (1,)),
        ("t", "update", (7,)),
    ]


def test_nothing_is_said_where_triggers_alter_nothing(tmp_path):
    harmless = ["CREATE TABLE t (id INTEGER PRIMARY KEY, v)", "CREATE TRIGGER x AFTER UPDATE ON t BEGIN SELECT 1; END"]
    old, new = both(
        tmp_path, [*harmless, "INSERT INTO t VALUES (1, 1), (2, 2)"], "UPDATE t SET v = 5", "DELETE FROM t WHERE id = 2"
    )
    assert apply(diff(old, new).changes, old).altered == []


def test_a_missing_function_is_named_with_the_way_out(tmp_path):
    old, new = both(tmp_path, SPATIAL, "INSERT INTO f VALUES (1, x'00')")
    with pytest.raises(ChangesetError, match=r"table f: no such function: ST_.*A trigger needs it.*--as-recorded"):
        apply(diff(old, new).changes, old)
    connection = apsw.Connection(str(old))
    connection.create_scalar_function("mine", lambda value: value, deterministic=True)
    connection.execute("DROP TRIGGER rtree_f_geom_insert; CREATE INDEX i ON f (mine(geom))")
    connection.close()
    with pytest.raises(ChangesetError, match=r"unknown function: mine.*register it on an apsw\.Connection"):
        apply(diff(old, new).changes, old)


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_full_disk_is_told_as_one(tmp_path, in_transaction):
    common = ["CREATE TABLE t (id INTEGER PRIMARY KEY, v)"]
    old, new = both(tmp_path, common, "INSERT INTO t VALUES (1, zeroblob(100000))")
    connection = apsw.Connection(str(old))
    connection.execute("PRAGMA max_page_count = 5")
    if in_transaction:
        connection.execute("BEGIN")
    with pytest.raises(StorageError, match="disk is full"):
        apply(diff(tmp_path / "old.db", new).changes, connection)
    assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]


# A table with a spatial index, as in a GeoPackage: triggers keep an R-tree, with functions that only GDAL has.
FEATURES = [
    "CREATE TABLE f (fid INTEGER PRIMARY KEY, geom BLOB)",
    "CREATE VIRTUAL TABLE rtree_f_geom USING rtree(id, minx, maxx, miny, maxy)",
    "CREATE TRIGGER rtree_f_geom_insert AFTER INSERT ON f WHEN ST_IsEmpty(NEW.geom) BEGIN "
    "INSERT OR REPLACE INTO rtree_f_geom VALUES (NEW.fid, ST_MinX(NEW.geom), 2, 3, 4); END",
    "INSERT INTO f VALUES (1, x'01'), (2, x'02')",
]


def test_a_spatial_index_follows_its_table(tmp_path):
    old, new = both(tmp_path, FEATURES, "DELETE FROM rtree_f_geom WHERE id = 1", "INSERT INTO f VALUES (3, x'03')")
    with pytest.raises(ChangesetError) as caught:
        diff(old, new)
    assert all("--format sql" in problem.text for problem in caught.value.problems)
    script, shadow = tmp_path / "change.sql", tmp_path / "shadow.bin"
    by_script = tmp_path / "script.db"
    by_script.write_bytes(old.read_bytes())
    assert run(driftline, ["changeset", "diff", str(old), str(new), "-o", str(script)]) == 1
    assert run(driftline, ["changeset", "diff", str(old), str(new), "--shadow", "-o", str(shadow)]) == 1
    apsw.Connection(str(by_script)).execute(script.read_text()).fetchall()
    assert run(driftline, ["changeset", "apply", str(shadow), str(old), "--as-recorded"]) == 0
    for path in (by_script, old):
        connection = apsw.Connection(str(path))
        assert connection.execute("SELECT rtreecheck('rtree_f_geom')").fetchall() == [("ok",)]
        assert connection.execute("SELECT id FROM rtree_f_geom WHERE minx < 9 ORDER BY id").fetchall() == [(2,), (3,)]
        assert connection.execute("SELECT fid FROM f").fetchall() == [(1,), (2,), (3,)]

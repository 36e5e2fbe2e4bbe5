"""driftline's work on DataFrames gives what the same functions give on one machine."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import apsw
import pytest

import driftline.spark
from driftline import codeindex, payloads
from driftline.changesets._make.rows import from_events as changeset_of
from driftline.deltas import RowDelta, TableSchema
from driftline.deltas._extract import from_events
from driftline.errors import DriftlineError
from driftline.lake import replay
from support.index_caches import small_index
from support.index_layouts import write_index

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

SCHEMA = {"properties": {"total": {"type": "number", "x-migration-precision": 0.01}}}


@pytest.fixture(scope="module")
def changes(spark, two_partitions):
    a = spark.sql(
        "SELECT * FROM VALUES (1L, 'ä', 1.50, timestamp'2026-01-01 00:00:00Z', X'ff'), (2L, 'b', null, null, null), "
        "(3L, 'c', 3, null, null) AS t(id, `the name`, price, seen, raw)"
    )
    b = spark.sql(
        "SELECT * FROM VALUES (1L, 'ä', 2.50, timestamp'2026-01-01 00:00:00Z', X'ff'), (4L, 'd', 4, null, null), "
        "(3L, 'c', 3, null, null) AS t(id, `the name`, price, seen, raw)"
    )
    columns = ["id", "`the name`", "CAST(price AS decimal(9,2)) AS price", "seen", "raw"]
    frames = [frame.selectExpr(*columns) for frame in (a, b)]
    return driftline.spark.diff(*frames, key=["id"])


def test_rows_for_merge(changes) -> None:
    rows = driftline.spark.merge_rows(changes)
    assert rows.columns == ["op", "id", "the name", "price", "seen", "raw"]
    found = {(row["op"], row["id"], str(row["price"])) for row in rows.collect()}
    assert found == {("update", 1, "2.50"), ("delete", 2, "None"), ("insert", 4, "4.00")}


def test_deltas_are_those_of_the_events(changes) -> None:
    made = driftline.spark.row_deltas(changes, table="t", client_id="c", start=1000)
    got = [json.loads(row["delta"]) for row in made.orderBy("hlc").collect()]
    base = {"id": 1, "the name": "ä", "seen": "2026-01-01T00:00:00Z", "raw": "ff"}
    gone = {"id": 2, "the name": "b", "price": None, "seen": None, "raw": None}
    new = {"id": 4, "the name": "d", "price": "4", "seen": None, "raw": None}
    events = [
        {"type": "changed", "key": {"id": 1}, "before": {**base, "price": "1.5"}, "after": {**base, "price": "2.5"}},
        {"type": "removed", "key": {"id": 2}, "row": gone},
        {"type": "added", "key": {"id": 4}, "row": new},
    ]
    assert got == [delta.to_wire() for delta in from_events(events, table="t", client_id="c", start=1000)]


def test_payloads_are_compared_in_tasks(spark) -> None:
    pairs = [('{"total": 1.00}', '{"total": 1.01}'), ('{"total": 1}', '{"total": 2}'), ("{", "{}"), (None, "null")]
    frame = spark.createDataFrame([(n, *pair) for n, pair in enumerate(pairs)], "`a b` int, old string, new string")
    found = driftline.spark.compare_payloads(frame, "old", "new", SCHEMA).orderBy("a b").collect()
    assert [row["is_match"] for row in found] == [True, False, None, True]
    plan = payloads.compile(SCHEMA)
    assert json.loads(found[1]["report"]) == plan.compare(*map(str.encode, pairs[1])).to_dict(execution=False)
    assert found[2]["error"]
    with pytest.raises(DriftlineError):
        driftline.spark.compare_payloads(frame, "old", "new", {"properties": 1})


def test_rows_without_a_key_cannot_be_merged(spark) -> None:
    frame = spark.range(2)
    with pytest.raises(DriftlineError, match="by key"):
        driftline.spark.merge_rows(driftline.spark.diff(frame, frame))


TODOS = TableSchema(
    table="todos",
    columns=[
        {"name": "the title", "type": "string"},
        {"name": "size", "type": "number"},
        {"name": "done", "type": "boolean"},
        {"name": "tags", "type": "json"},
    ],
)


def some_deltas(seed: int, count: int) -> list[RowDelta]:
    """Deltas of a few rows by a few clients, in any order, some of them twice, some of another table."""
    from driftline.deltas import ColumnDelta

    chance = random.Random(seed)
    values = {"the title": ["a", "é", None], "size": [1, 2.5, None], "done": [True, False], "tags": [["x"], {"k": 1}]}
    made = []
    for _ in range(count):
        op = chance.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"])
        names = [] if op == "DELETE" else chance.sample(sorted(values), chance.randint(1, 4))
        made.append(
            RowDelta.make(
                op=op,
                table=chance.choice(["todos", "todos", "todos", "other"]),
                row_id=f"r{chance.randint(0, 20)}",
                client_id=chance.choice(["a", "b", "\U0001f600", "\uffee"]),
                columns=[ColumnDelta(name, chance.choice(values[name])) for name in names],
                hlc=chance.randint(1, 40),
            )
        )
    return made + chance.sample(made, count // 4)


def test_folds_are_those_of_the_plain_replay(spark) -> None:
    deltas = some_deltas(7, 300)
    texts = [(json.dumps(delta.to_wire()),) for delta in deltas]
    frame = spark.createDataFrame(texts, "delta string").repartition(3)
    mine = [delta for delta in deltas if delta.table == "todos"]
    for until, rows in ((None, driftline.spark.fold(frame, TODOS, ordered=True)),
                        (17, driftline.spark.state_as_of(frame, TODOS.to_wire(), 17, ordered=True))):  # fmt: skip
        found = [row.asDict() for row in rows.collect()]
        wanted = replay(mine, as_of=until)
        for row in wanted.values():
            if "tags" in row:
                row["tags"] = json.dumps(row["tags"], separators=(",", ":"))
        assert [row.pop("_row_id") for row in found] == sorted(wanted)
        assert found == [{name: wanted[key].get(name) for name in TODOS.names} for key in sorted(wanted)]


def test_a_delta_that_is_none_is_named(spark) -> None:
    frame = spark.createDataFrame([('{"op": "INSERT"}',)], "delta string")
    with pytest.raises(Exception, match="a delta needs the member table"):
        driftline.spark.fold(frame, TODOS).collect()


def test_exact_numbers_stay_rows_of_their_own(spark) -> None:
    from decimal import Decimal

    rows = [(1834567890123456768 + n, Decimal(f"12345678901234567890.012345678{n}")) for n in range(3)]
    frames = [spark.createDataFrame(part, "id long, price decimal(38, 10)") for part in ([], rows)]
    changes = driftline.spark.diff(*frames, key=["id"])
    columns = [{"name": "id", "type": "integer"}, {"name": "price", "type": "decimal(10)"}]
    deltas = driftline.spark.row_deltas(changes, table="t", client_id="c", start=1000)
    found = driftline.spark.fold(deltas, {"table": "t", "columns": columns, "key": ["id"]}, ordered=True)
    assert [tuple(row) for row in found.collect()] == [(str(number), number, price) for number, price in rows]
    doubles = {"table": "t", "columns": [{"name": "id", "type": "integer"}, {"name": "price", "type": "number"}]}
    with pytest.raises(Exception, match="which would change 12345678901234567890"):
        driftline.spark.row_deltas(changes, table="t", client_id="c", start=1000, schema=doubles).collect()


@pytest.mark.parametrize("form", ["changeset", "patchset"])
def test_changesets_have_the_bytes_of_a_local_one(spark, form: str) -> None:
    a = spark.range(60).selectExpr("id", "concat('n', id) AS name", "id / 3 AS score", "id % 2 = 0 AS good")
    b = spark.range(20, 90).selectExpr("id", "concat('n', id % 50) AS name", "id / 3 AS score", "id % 2 = 0 AS good")
    changes = driftline.spark.diff(a, b, key="id")
    out = io.BytesIO()
    assert driftline.spark.write_changeset(changes, out, table="people", format=form) == 60
    columns = ["id", "name", "score", "good"]
    events = [{"type": "schema", "columns_a": columns, "columns_b": columns}]
    for row in changes.events.collect():
        event = {name: cell for name, cell in row.asDict(recursive=True).items() if cell is not None}
        events.append(event)
    types = {"id": "INTEGER", "name": "TEXT", "score": "REAL", "good": "INTEGER"}
    assert out.getvalue() == bytes(changeset_of(events, "people", format=form, types=types))
    database = apsw.Connection(":memory:")
    database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, score REAL, good INTEGER)")
    database.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", [tuple(row) for row in a.collect()])
    apsw.Changeset.apply(out.getvalue(), database, conflict=lambda *_: apsw.SQLITE_CHANGESET_ABORT)
    assert list(database.execute("SELECT * FROM people ORDER BY id")) == [tuple(row) for row in b.collect()]


def test_a_changeset_needs_a_key_and_says_when_keys_become_one(spark) -> None:
    with pytest.raises(DriftlineError, match="by key"):
        driftline.spark.write_changeset(driftline.spark.diff(spark.range(1), spark.range(2)), io.BytesIO(), table="t")
    a, b = spark.sql("SELECT '1' k"), spark.sql("SELECT k FROM VALUES ('01'), ('001') AS t(k)")
    changes = driftline.spark.diff(a, b, key="k")
    with pytest.raises(DriftlineError, match="different keys become the same"):
        driftline.spark.write_changeset(changes, io.BytesIO(), table="t", types={"k": "INTEGER"})


def test_indexes_of_many_repositories(spark, tmp_path: Path) -> None:
    for name in ("old", "new"):
        write_index(tmp_path / name, small_index(name))
    refs = [(f"path:{tmp_path / one}", f"path:{tmp_path / two}") for one, two in (("old", "new"), ("new", "new"))]
    frame = spark.createDataFrame([*refs, ("path:/nowhere", "nonsense")], "old string, new string")
    found = driftline.spark.index_diffs(frame, "old", "new").collect()
    local = codeindex.diff(*refs[0])
    assert [row["changed"] for row in found] == [True, False, None]
    assert found[0]["diff_id"] == local.diff_id
    assert [json.loads(text) for text in found[0]["events"]] == list(local.events)
    assert "INVALID_REQUEST" in found[2]["error"]
    with pytest.raises(DriftlineError):
        driftline.spark.index_diffs(frame, "old", "new", modes=["poetry"])


def test_flat_layouts_hold_what_the_events_do(spark, changes) -> None:
    """Judge: the structs of the events, taken apart in plain Python."""
    rows = {row["id"]: row.asDict() for row in driftline.spark.side_by_side(changes).collect()}
    cells = [row.asDict() for row in driftline.spark.changed_cells(changes).collect()]
    events = [event.asDict(recursive=True) for event in changes.events.collect()]
    assert len(rows) == len(events)
    for event in events:
        row = rows[event["key"]["id"]]
        assert row.pop("type") == event["type"]
        assert row.pop("id") == event["key"]["id"]
        before = event["before"] or (event["row"] if event["type"] == "removed" else {})
        after = event["after"] or (event["row"] if event["type"] == "added" else {})
        names = events[0]["before"] or events[0]["row"]
        expected = {
            f"{name}_{side}": held.get(name) for side, held in (("before", before), ("after", after)) for name in names
        }
        assert row == expected
    assert cells == [{"id": 1, "column": "price", "before": "1.50", "after": "2.50"}]


def test_flat_layouts_of_other_columns_values_and_modes(spark) -> None:
    a = spark.sql("SELECT 1 AS id, 'x' AS old, array(1) AS list, X'ff' AS raw, map('a', 1) AS named")
    b = spark.sql("SELECT 1 AS id, 'y' AS new, array(2) AS list, X'00' AS raw, map('a', 2) AS named")
    changes = driftline.spark.diff(a, b, key="id", header_mode="common", rename={"old": "new"}, emit_unchanged=True)
    cells = {row["column"]: (row["before"], row["after"]) for row in driftline.spark.changed_cells(changes).collect()}
    assert cells == {"old": ("x", "y"), "list": ("[1]", "[2]"), "raw": ("FF", "00"), "named": ('{"a":1}', '{"a":2}')}
    [row] = driftline.spark.side_by_side(changes).collect()
    assert (row["old_before"], row["new_after"], row["list_after"]) == ("x", "y", [2])

    rows = [spark.sql("SELECT 1 AS id, 2 AS v"), spark.sql("SELECT 1 AS id, 3 AS v")]
    [placed] = driftline.spark.changed_cells(driftline.spark.diff(*rows)).collect()
    assert placed.asDict() == {"row_index": 2, "column": "v", "before": "2", "after": "3"}
    unordered = driftline.spark.diff(*rows, ignore_row_order=True)
    assert {
        (row["type"], row["v_before"], row["v_after"]) for row in driftline.spark.side_by_side(unordered).collect()
    } == {
        ("removed", 2, None),
        ("added", None, 3),
    }
    with pytest.raises(DriftlineError, match="have no changed cells: diff with key"):
        driftline.spark.changed_cells(unordered)
    twice = spark.sql("SELECT 1 AS id, 2 AS Type")
    named = driftline.spark.diff(*(frame.withColumnRenamed("id", "column") for frame in rows), key="column")
    with pytest.raises(DriftlineError, match="two columns would be called 'column'"):
        driftline.spark.changed_cells(named)
    assert "Type_before" in driftline.spark.side_by_side(driftline.spark.diff(twice, twice, key="id")).columns

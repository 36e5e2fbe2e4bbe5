"""DataFrame in, DataFrame out: every Spark type, every mode, against plain Python."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import driftline as dl
import driftline.spark
from driftline.errors import TableError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

# For each type a value, an equal one that is built differently, and another one.
TYPES = {
    "boolean": ("true", "not false", "false"),
    "decimal(20,4)": ("12345678901234.5670", "12345678901234.567", "12345678901234.5671"),
    "double": ("double('NaN')", "double('NaN')", "1.5D"),
    "float": ("float(0.0)", "float('-0.0')", "float(0.1)"),
    "binary": ("X'00FF'", "X'00ff'", "X'00FE'"),
    "date": ("date'2026-01-31'", "date'2026-01-31'", "date'2026-02-01'"),
    "timestamp": ("timestamp'2026-01-01 00:00:00Z'", "timestamp'2026-01-01 01:00:00+01:00'", "null"),
    "timestamp_ntz": ("timestamp_ntz'2026-01-01 00:00:00.1'", "timestamp_ntz'2026-01-01 00:00:00.100'", "null"),
    "interval day to second": ("interval '1' day", "interval '24' hour", "interval '25' hour"),
    "array<int>": ("array(1, null)", "array(1, null)", "array(null, 1)"),
    "map<string,array<int>>": (
        "map('a', array(1), 'b', null)",
        "map_from_arrays(array('a', 'b'), array(array(1), null))",
        "map('a', array(2), 'b', null)",
    ),
    "struct<x:int,y:map<int,int>>": (
        "named_struct('x', 1, 'y', map(1, 2, 3, 4))",
        "named_struct('x', 1, 'y', map_from_arrays(array(1, 3), array(2, 4)))",
        "null",
    ),
    "array<map<int,int>>": (
        "array(map(1, 2, 3, 4))",
        "array(map_from_entries(array((1, 2), (3, 4))))",
        "array(map(3, 4, 1, 2))",
    ),
    "variant": ('parse_json(\'{"a": 1, "b": [1]}\')', 'parse_json(\'{"b":[1],"a":1}\')', "parse_json('1')"),
    "string": ("'é'", "concat('', 'é')", "'e'"),
}


def test_every_type_is_compared_by_value_and_kept(spark) -> None:
    def frame(which: int):
        cells = ", ".join(f"cast({texts[which]} as {kind}) `v {kind}`" for kind, texts in TYPES.items())
        return spark.sql(f"select 1 id, {cells}")

    assert driftline.spark.diff(frame(0), frame(1), key="id").events.count() == 0
    as_text = {"types": {"*": "text"}}  # by the forms of cells, which every type has
    assert driftline.spark.diff(frame(0), frame(1), key="id", **as_text).events.count() == 0
    [event] = driftline.spark.diff(frame(0), frame(2), key="id", **as_text).events.collect()
    assert event["changed"] == [f"v {kind}" for kind in TYPES]
    events, stats = driftline.spark.diff(frame(0), frame(2), key="id").frames
    (event,) = events.collect()
    assert event["type"] == "changed"
    assert event["key"]["id"] == 1
    assert event["changed"] == [f"v {kind}" for kind in TYPES]
    assert event["before"]["v decimal(20,4)"] == Decimal("12345678901234.5670")
    assert event["delta"]["v binary"]["to"] == b"\x00\xfe"
    assert event["after"]["v struct<x:int,y:map<int,int>>"] is None
    kinds = {field.name: field.dataType for field in events.schema["before"].dataType.fields}
    assert kinds["v variant"].simpleString() == "variant"
    assert [tuple(row) for row in stats.collect()] == [(1, 0, 0, 1, 0)]


NAN, MAP = float("nan"), pa.map_(pa.string(), pa.float64())
# For each type pairs of cells: `driftline.diff` of Arrow tables with the same cells is the judge of each pair.
PAIRS: dict[str, tuple[pa.DataType, list[tuple[Any, Any]]]] = {
    "double": (pa.float64(), [(-0.0, 0.0), (NAN, NAN), (None, NAN), (1.0, 2.0)]),
    "float": (pa.float32(), [(-0.0, 0.0), (NAN, NAN), (0.5, 0.25)]),
    "array<double>": (
        pa.list_(pa.float64()),
        [([NAN], [NAN]), ([-0.0], [0.0]), ([0.0], [0.0]), ([], None), ([None], [])],
    ),
    "array<float>": (pa.list_(pa.float32()), [([-0.0, 1.5], [0.0, 1.5]), ([-0.0], [-0.0])]),
    "struct<x:double,y:string>": (
        pa.struct([("x", pa.float64()), ("y", pa.string())]),
        [
            ({"x": -0.0, "y": ""}, {"x": 0.0, "y": ""}),
            ({"x": -0.0, "y": ""}, {"x": -0.0, "y": ""}),
            ({"x": None, "y": None}, None),
            ({"x": NAN, "y": None}, {"x": NAN, "y": None}),
        ],
    ),
    "map<string,double>": (
        MAP,
        [
            ({"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}),
            ({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 2.0}),
            ({"a": -0.0}, {"a": 0.0}),
            ({}, None),
        ],
    ),
    "array<struct<m:map<string,double>>>": (
        pa.list_(pa.struct([("m", MAP)])),
        [([{"m": {"a": 1.0, "b": -0.0}}], [{"m": {"b": -0.0, "a": 1.0}}]), ([{"m": {"a": 0.0}}], [{"m": {"a": 0.0}}])],
    ),
}


def _entries(value: Any) -> Any:
    """A value as Arrow takes it: maps are lists of entries."""
    if isinstance(value, list):
        return [_entries(one) for one in value]
    if isinstance(value, dict) and set(value) <= {"a", "b"}:
        return list(value.items())
    return {name: _entries(cell) for name, cell in value.items()} if isinstance(value, dict) else value


def test_cells_are_equal_where_those_of_files_are(spark) -> None:
    """All types side by side, a pair of cells a row; Spark gets the very Arrow tables, which keep the order of maps."""
    height = max(len(pairs) for _, pairs in PAIRS.values())
    tables = []
    for side in (0, 1):
        columns = {"id": pa.array(range(height), pa.int32())}
        for kind, (arrow, pairs) in PAIRS.items():
            cells = [_entries(pair[side]) for pair in pairs]
            columns[kind] = pa.array(cells + [None] * (height - len(cells)), arrow)
        tables.append(pa.table(columns))
    frames = [spark.createDataFrame(table) for table in tables]
    for rules in ({}, {"duplicates": "match"}):
        of_frames = driftline.spark.diff(*frames, key="id", **rules).events.collect()
        of_files = [*dl.diff(*tables, key="id", **rules).changes()]
        changed = [[(one["key"]["id"], list(one["changed"])) for one in side] for side in (of_frames, of_files)]
        assert changed[0] == changed[1]
    assert "map<string,double>" in changed[0][0][1], "entries in another order are a change"
    assert "array<double>" in changed[0][1][1], "and so is the sign of a zero inside"
    whole = {"ignore_row_order": True, "only": ["id", "map<string,double>", "array<double>"]}
    of_frames = driftline.spark.diff(*frames, **whole).events.collect()
    of_files = [*dl.diff(*tables, **whole).changes()]
    rows = [sorted((one["type"], one["row"]["id"]) for one in side) for side in (of_frames, of_files)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("emit_unchanged", [False, True])
def test_keyed_events_are_those_of_a_plain_loop(spark, emit_unchanged: bool) -> None:
    chance = random.Random(3)
    before = {(n % 5, f"k{n}"): (chance.choice([None, 1, 2]), dt.date(2026, 1, n % 28 + 1)) for n in range(120)}
    after = {place: (chance.choice([None, 1, 2]), day) for place, (_, day) in before.items() if place[0] != 3}
    after |= {(9, f"k{n}"): (1, dt.date(2026, 1, 1)) for n in range(7)}
    # Names that Spark would take for a path into a struct, and names that differ in letter case alone.
    schema = "group int, `a.b` string, Value int, value date"
    a, b = (spark.createDataFrame([(*k, *v) for k, v in side.items()], schema) for side in (before, after))
    events, stats = driftline.spark.diff(a, b, key=["group", "a.b"], emit_unchanged=emit_unchanged).frames
    expected = []
    for place in sorted({*before, *after}):
        old, new = before.get(place), after.get(place)
        kind = "added" if old is None else "removed" if new is None else "unchanged" if old == new else "changed"
        if kind != "unchanged" or emit_unchanged:
            expected.append((kind, place, None if kind == "changed" else (*place, *(old or new))))
    found = [(e["type"], tuple(e["key"]), None if e["row"] is None else tuple(e["row"])) for e in events.collect()]
    assert found == expected
    counts = stats.first()
    assert counts["rows_total_compared"] == len(before.keys() & after.keys())
    assert counts["rows_changed"] == sum(before[k] != after[k] for k in before.keys() & after.keys())


def test_positional_and_multiset(spark) -> None:
    a = spark.createDataFrame([(1, "x"), (1, "x"), (2, None), (3, "z")], "n int, s string").coalesce(1)
    b = spark.createDataFrame([(1, "x"), (2, None), (2, None)], "n int, s string").coalesce(1)
    events, stats = driftline.spark.diff(a, b).frames
    assert [(e["type"], e["row_index"]) for e in events.collect()] == [("changed", 3), ("removed", 5)]
    assert tuple(stats.first()) == (3, 0, 1, 1, 2)
    events, stats = driftline.spark.diff(a, b, ignore_row_order=True).frames
    assert [(e["type"], tuple(e["row"])) for e in events.collect()] == [
        ("removed", (1, "x")),
        ("added", (2, None)),
        ("removed", (3, "z")),
    ]
    assert tuple(stats.first()) == (2, 1, 2, 0, 2)


def test_other_column_order(spark) -> None:
    a, b = spark.sql("select 1 id, 2 x, 3 a"), spark.sql("select 5 a, 1 id, 4 x")
    with pytest.raises(TableError) as caught:
        driftline.spark.diff(a, b, key="id")
    assert caught.value.code == "header_mismatch"
    event = driftline.spark.diff(a, b, key="id", header_mode="sorted").events.first()
    assert event["changed"] == ["a", "x"]
    assert event["after"].asDict() == {"id": 1, "x": 4, "a": 5}


@pytest.mark.parametrize(
    ("rows_a", "rows_b", "code", "message"),
    [
        ("(1), (2), (1)", "(null)", "duplicate_key", 'Duplicate key in A: {"id":1} (2 rows)'),
        ("(1)", "(2), (null), (2)", "missing_key_value", 'Missing key value in B: column "id" of {"id":null}'),
    ],
)
def test_bad_keys(spark, rows_a: str, rows_b: str, code: str, message: str) -> None:
    a, b = (spark.sql(f"select int(id) id from values {rows} as t(id)") for rows in (rows_a, rows_b))
    with pytest.raises(TableError) as caught:
        driftline.spark.diff(a, b, key="id")
    assert (caught.value.code, caught.value.message) == (code, message)


def test_types_must_be_the_same(spark) -> None:
    with pytest.raises(TableError, match=r'Type mismatch in column "v": int in A, bigint in B; cast one of them'):
        driftline.spark.diff(spark.sql("select 1 v"), spark.sql("select 1L v"))


def test_hundreds_of_columns(spark) -> None:
    """Expressions stay as flat as the table is wide."""
    names = [f"column {number}" for number in range(300)]
    a = spark.range(3).selectExpr("id", *(f"concat('v', id) AS `{name}`" for name in names))
    b = spark.range(3).selectExpr("id", *(f"concat('v', id % 2) AS `{name}`" for name in names))
    [event] = driftline.spark.diff(a, b, key=["id"]).events.collect()
    assert event["changed"] == names
    assert event["after"]["column 299"] == "v0"


@pytest.mark.parametrize(
    "rules",
    [
        {"key": "id"},
        {"key": "id", "tolerance": {"price": "0.01"}, "column_stats": True},
        {"key": "id", "duplicates": "first"},
        {"ignore_row_order": True},
        {},
    ],
    ids=["key", "rules", "duplicates", "multiset", "position"],
)
def test_events_and_counts_scan_each_input_once(spark, tmp_path: Path, rules: dict) -> None:
    for name, price in (("a", "1.0"), ("b", "1.5")):
        spark.sql(f"SELECT id, double({price}) AS price FROM range(20)").write.parquet(str(tmp_path / name))
    before, after = (spark.read.parquet(str(tmp_path / name)) for name in "ab")
    for frame in driftline.spark.diff(before, after, **rules).frames:
        leaves = frame._jdf.queryExecution().optimizedPlan().collectLeaves()
        assert leaves.size() == 2


@pytest.mark.parametrize("policy", ["match", "last"])
def test_duplicates_that_came_to_dataframes(policy: str, spark) -> None:
    a = [("k1", 1), ("k2", 1), ("k3", 1), ("k3", 2), ("k3", 3), ("k4", 1), ("k4", 1), ("k6", 1)]
    b = [("k1", 1), ("k1", 2), ("k1", 1), ("k3", 3), ("k4", 1), ("k4", 2), ("k5", 1), ("k5", 1)]
    frames = [spark.createDataFrame(rows, "id string, v int") for rows in (a, b)]
    profile = driftline.spark.diff(*frames, key="id", duplicates=policy).profile()
    assert profile.to_dict()["duplicates"]["came"] == {
        "keys": 2,
        "rows": 3,
        "most": [{"key": {"id": "k1"}, "rows_a": 1, "rows_b": 3}, {"key": {"id": "k5"}, "rows_a": 0, "rows_b": 2}],
    }
    assert profile.about_rows() == [
        "3 duplicates came, in 2 keys: k1 (1 → 3 rows), k5 (0 → 2 rows)",
        "2 duplicates went, in 1 key: k3 (3 → 1 rows)",
    ]


def test_the_kind_of_change_of_dataframes(spark) -> None:
    """The kinds, frequent pairs, blocks and suggestions are those of the same rows in memory."""
    before = [
        {"id": n, "name": "Ann" if n % 3 else None, "score": n / 8, "day": dt.date(2024, 1, n)} for n in range(1, 29)
    ]
    after = [
        {"id": row["id"] + 4, "name": "ANN" if row["id"] % 2 else "", "score": row["id"] / 8 + 1, "day": row["day"]}
        for row in before
    ]
    schema = "id int, name string, score double, day date"
    frames = [spark.createDataFrame(rows, schema) for rows in (before, after)]
    found = driftline.spark.diff(*frames, key="id").profile().to_dict()
    assert found == dl.diff(before, after, key="id").profile().to_dict()
    assert found["columns"]["day"]["words"] == ["date shifted by −4 days"]
    loose = driftline.spark.diff(*frames, ignore_row_order=True).profile().to_dict()
    assert loose["columns"] == {}
    assert loose["rows"]["added"]["longest"]["first"] == "?"

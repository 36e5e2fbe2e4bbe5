"""driftline's work on DataFrames gives what the same functions give on one machine."""

from __future__ import annotations

import json

import pytest

import driftline.spark
from driftline import payloads
from driftline.deltas.from_events import from_events
from driftline.errors import DriftlineError

pytestmark = pytest.mark.spark

SCHEMA = {"properties": {"total": {"type": "number", "x-migration-precision": 0.01}}}


@pytest.fixture(scope="module")
def changes(spark):
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
    new = {"id": 4, "the name": "d", "price": 4, "seen": None, "raw": None}
    events = [
        {"type": "changed", "key": {"id": 1}, "before": {**base, "price": 1.5}, "after": {**base, "price": 2.5}},
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

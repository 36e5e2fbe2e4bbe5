"""Rules on DataFrames: drawn at random against the oracle, and on typed columns against the diff of Arrow tables."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, assume, given, settings

import driftline as dl
import driftline.spark
from driftline.errors import DriftlineError
from driftline.tables._options import READING_OPTIONS, check_options
from support import table_rules_oracle as rules_oracle
from support.table_rules_strategies import cases

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("two_partitions")]

EXAMPLES = 12  # each takes three jobs; more were tried by hand


def told(changes) -> tuple[list[dict], dict]:
    """Events and counts as the events of a file have them: what is not there is left out."""
    events, stats = ([row.asDict(recursive=True) for row in frame.collect()] for frame in changes.frames)
    for event in events:
        if event.get("delta") is not None:
            event["delta"] = {name: cell for name, cell in event["delta"].items() if cell is not None}
    return [{name: cell for name, cell in event.items() if cell is not None} for event in events], stats[0]


def expected_of(text: str) -> tuple[list[dict], dict]:
    """The same from the lines of a stream."""
    schema, *events, stats = [json.loads(line) for line in text.splitlines()]
    counts = {name: count for name, count in stats.items() if name != "type"}
    counts |= {name: schema[name] for name in ("columns_added", "columns_removed") if name in schema}
    if events and events[-1]["type"] == "column_stats":
        counts["column_stats"] = events.pop()["columns"]
    return events, counts


def csv_bytes(head: list[str], rows: list[list[str]]) -> bytes:
    out = io.StringIO("\ufeff", newline="")  # a mark of its own, so that one in a name stays
    out.seek(1)
    csv.writer(out).writerows([head, *rows])
    return out.getvalue().encode()


def refused_before_reading(rules: dict) -> bool:
    try:
        check_options(**rules)
    except DriftlineError:
        return True
    return False


@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(case=cases())
def test_rules_mean_what_they_mean_for_files(spark, case: tuple[bytes, bytes, dict]) -> None:
    *sides, rules = case
    try:
        tables = [rules_oracle.read(data, rules, side) for data, side in zip(sides, "ab", strict=True)]
    except rules_oracle.Refused:
        assume(False)
    assume(all(len(set(head)) == len(head) for head, _, _ in tables))
    tables = [(head, [row for _, row in rows if len(row) == len(head)]) for head, rows, _ in tables]
    rules = {name: value for name, value in rules.items() if name not in READING_OPTIONS}
    assume(not refused_before_reading(rules))
    wanted = rules_oracle.diff(*(csv_bytes(*table) for table in tables), rules)
    frames = [
        spark.createDataFrame(rows, ", ".join(f"`{name}` string" for name in head)).coalesce(1) for head, rows in tables
    ]
    if isinstance(wanted, str):
        with pytest.raises(DriftlineError) as caught:
            driftline.spark.diff(*frames, **rules)
        assert caught.value.code == wanted
        return
    events, stats = told(driftline.spark.diff(*frames, **rules))
    for event in events:
        if "row" in event:  # names of the other side
            event["row"] = {name: cell for name, cell in event["row"].items() if cell is not None}
    exceeded = stats.pop("exceeded", None)
    assert (events, stats) == expected_of(wanted[0])
    assert exceeded is None or bool(exceeded) == bool(wanted[1])


TYPED = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "price": pa.decimal128(9, 2),
        "score": pa.float64(),
        "day": pa.date32(),
        "seen": pa.timestamp("us", "UTC"),
        "good": pa.bool_(),
        "tags": pa.list_(pa.string()),
    }
)
MIDNIGHT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
BEFORE = [
    [1, "Ann ", Decimal("1.50"), 1.0, dt.date(2026, 1, 1), MIDNIGHT, True, ["a", None]],
    [2, "n/a", Decimal("2.00"), float("nan"), None, None, None, None],
    [3, "é", None, -0.0, dt.date(2026, 1, 3), MIDNIGHT, False, []],
    [3, "É", None, 9.5, dt.date(2026, 1, 3), MIDNIGHT, False, []],
    [4, None, Decimal("4.00"), 1e300, None, None, None, ["x"]],
]
AFTER = [
    [1, "ANN", Decimal("1.51"), 1.005, dt.date(2026, 1, 2), MIDNIGHT + dt.timedelta(seconds=2), True, ["a", None]],
    [2, None, Decimal("2.00"), float("nan"), None, None, None, ["A"]],
    [3, "e\u0301", None, 0.0, dt.date(2026, 1, 3), MIDNIGHT, True, []],
    [5, "new", Decimal("5.00"), None, None, None, None, None],
]


@pytest.mark.parametrize(
    "rules",
    [
        {"key": "id", "duplicates": "first", "normalize": {"name": ["trim", "case", "nfc"]}, "null": ["n/a", "NaN"]},
        {"key": "id", "duplicates": "match", "tolerance": {"price": "0.02", "score": "1%", "seen": "5s"},
         "types": {"seen": "datetime", "good": "boolean"}, "column_stats": True,
         "fail_if": ["changed > 50%", "changed(score) >= 9"]},
        {"types": {"*": "text", "day": "date"}, "tolerance": {"day": "1d"}, "ignore": ["tags"]},
        {"ignore_row_order": True, "only": ["id", "name"], "normalize": {"name": "nfc,case,trim"}},
    ],
    ids=["first", "match", "positional", "multiset"],
)  # fmt: skip
def test_typed_columns_under_rules(spark, rules: dict) -> None:
    tables = [pa.table([list(column) for column in zip(*rows, strict=True)], schema=TYPED) for rows in (BEFORE, AFTER)]
    frames = [spark.createDataFrame(table).coalesce(1) for table in tables]
    events, stats = driftline.spark.diff(*frames, **rules).frames
    if rules.get("fail_if"):
        assert [text.partition(" (measured")[0] for text in stats.first()["exceeded"]] == ["changed > 50%"]
        stats = stats.drop("exceeded")
    local = dl.diff(*tables, **rules)
    wanted, counts = expected_of(b"".join(local.lines()).decode())
    found = events.collect()
    assert stats.first().asDict(recursive=True) == counts
    assert [event["type"] for event in found] == [event["type"] for event in wanted]
    for event, other in zip(found, wanted, strict=True):
        assert event.asDict().get("changed") == other.get("changed")
        assert (event["row"] or event["before"])["id"] == (other.get("row") or other["before"])["id"]


def test_declared_columns_may_have_other_types(spark) -> None:
    """Text meets numbers under a declared type; rows keep the types and names of their own side."""
    a = spark.sql("SELECT * FROM VALUES ('1', '1.50', 'x'), ('2', '7', 'y') AS t(id, price, note)")
    b = spark.sql("SELECT * FROM VALUES (1, 1.5D, 8), (3, 2.0D, 9) AS t(number, price, extra)")
    rules: dict[str, Any] = {"rename": {"id": "number"}, "types": {"id": "number", "price": "number"}}
    changes = driftline.spark.diff(a, b, key="id", header_mode="common", **rules)
    events, stats = told(changes)
    assert [(event["type"], event["key"]) for event in events] == [("removed", {"id": "2"}), ("added", {"id": "3"})]
    assert events[1]["row"] == {"id": None, "price": "2.0", "note": None, "number": 3, "extra": 9}
    assert stats["columns_added"] == ["extra"]
    assert stats["columns_removed"] == ["note"]
    with pytest.raises(DriftlineError, match="same columns"):
        driftline.spark.merge_rows(changes)


def test_only_the_columns_that_differ(spark) -> None:
    a, b = spark.sql("SELECT 1 id, 2 x, 3 y, 4 z"), spark.sql("SELECT 1 id, 2 x, 5 y, 4 z")
    changes = driftline.spark.diff(a, b, key="id", changed_columns_only=True)
    [event] = changes.events.collect()
    assert event["before"].asDict() == {"id": 1, "y": 3}
    assert event["delta"].asDict(recursive=True) == {"id": None, "y": {"from": 3, "to": 5}}
    with pytest.raises(DriftlineError, match="whole rows"):
        driftline.spark.merge_rows(changes)
    with pytest.raises(DriftlineError, match="whole rows"):
        driftline.spark.row_deltas(changes, table="t", client_id="c", start=0)


def test_options_about_files_are_refused(spark) -> None:
    with pytest.raises(DriftlineError, match="encoding is about reading files"):
        driftline.spark.diff(spark.range(1), spark.range(1), encoding="utf-8")


def test_other_tables_and_tolerances_of_nested_columns_are_refused_in_one_line(spark) -> None:
    frame = spark.sql("SELECT 1 AS id, named_struct('x', 1.5D) AS v")
    for other in ("a.csv", [{"id": 1}]):
        with pytest.raises(DriftlineError, match=f"B is a {type(other).__name__}, not a DataFrame of Spark"):
            driftline.spark.diff(frame, other, key="id")
    with pytest.raises(DriftlineError, match="which has no tolerance: select its fields"):
        driftline.spark.diff(frame, frame, key="id", tolerance={"v": "0.1"})

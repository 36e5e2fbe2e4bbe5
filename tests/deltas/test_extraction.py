"""What counts as a change, by the rulings."""

from __future__ import annotations

import math
from typing import Any

import pytest

from driftline.deltas import ColumnDelta, RowDelta, TableSchema, extract
from driftline.errors import DeltaError

NAN = math.nan


def changed(before: Any, after: Any, schema: TableSchema | None = None) -> RowDelta | None:
    return extract(before, after, table="t", row_id="r", client_id="c", hlc=1, schema=schema)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (1, 1.0),
        (NAN, float("nan")),
        ({"x": 0.0}, {"x": -0.0}),
        ({"x": NAN}, {"x": float("nan")}),
        ([1, {"a": 1, "b": 2}], [1.0, {"b": 2, "a": 1}]),
        (2**53 + 1, 2**53),  # one double
        ((1, 2), [1, 2]),
        ("é", "é"),
        (None, None),
    ],
)
def test_the_same(old: Any, new: Any) -> None:
    assert changed({"v": old}, {"v": new}) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (0.0, -0.0),
        (0, -0.0),
        (1, "1"),
        (1, True),
        (True, 1.0),
        (0, False),
        (None, 0),
        (None, ""),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": True}),
        ({"a": None}, {}),
        ({}, []),
        (10**400, 1),
        ("a", "A"),
    ],
)
def test_a_change(old: Any, new: Any) -> None:
    for before, after in ((old, new), (new, old)):
        delta = changed({"v": before}, {"v": after})
        assert delta is not None
        assert delta.op == "UPDATE"
        assert delta.columns == (ColumnDelta("v", after),)
        assert delta.has_own_id()


def test_negative_zero_travels_as_zero() -> None:
    delta = changed({"v": 0.0}, {"v": -0.0})
    zero = changed({"v": 1}, {"v": 0})
    assert delta is not None
    assert zero is not None
    assert math.copysign(1, delta.columns[0].value) == -1
    assert delta.delta_id == zero.delta_id
    assert repr(delta.to_wire()["columns"][0]["value"]) == "0"


def test_null_appears_where_nothing_was() -> None:
    delta = changed({"a": 1}, {"a": 1, "b": None})
    assert delta is not None
    assert delta.columns == (ColumnDelta("b", None),)


def test_a_column_missing_from_after_says_nothing() -> None:
    assert changed({"a": 1, "b": 2}, {"a": 1}) is None


def test_nan_and_infinities_become_null_when_the_delta_is_made() -> None:
    delta = changed(None, {"a": NAN, "b": [math.inf, {"c": -math.inf}], "d": 1.5})
    assert delta is not None
    assert [entry.value for entry in delta.columns] == [None, [None, {"c": None}], 1.5]


def test_no_rows_no_delta() -> None:
    assert changed(None, None) is None


def test_delete_has_no_columns() -> None:
    delta = changed({"a": 1}, None)
    assert delta is not None
    assert (delta.op, delta.columns) == ("DELETE", ())


def test_a_schema_filters_columns_and_checks_no_type() -> None:
    schema = TableSchema(table="t", columns=[{"name": "a", "type": "number"}])
    delta = changed({"a": 1, "b": 1}, {"a": "text", "b": 2}, schema)
    assert delta is not None
    assert delta.columns == (ColumnDelta("a", "text"),)
    assert changed({"a": 1, "b": 1}, {"a": 1, "b": 2}, schema) is None
    insert = changed(None, {"b": 1}, schema)
    assert insert is not None
    assert (insert.op, insert.columns) == ("INSERT", ())


@pytest.mark.parametrize(
    "change",
    [{"op": "MERGE"}, {"hlc": -1}, {"hlc": 1 << 63}, {"hlc": "1"}, {"hlc": True}, {"op": "DELETE"}, {"columns": "a"}],
)
def test_records_are_checked_and_frozen(change: dict[str, Any]) -> None:
    good = {
        "op": "UPDATE",
        "table": "t",
        "row_id": "r",
        "client_id": "c",
        "columns": (ColumnDelta("a", 1),),
        "hlc": 1,
        "delta_id": "x",
    }
    delta = RowDelta(**good)  # type: ignore[arg-type]
    assert RowDelta(**{**good, "columns": [ColumnDelta("a", 1)]}) == delta  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        delta.hlc = 2  # type: ignore[misc]
    with pytest.raises(DeltaError):
        RowDelta(**{**good, **change})  # type: ignore[arg-type]

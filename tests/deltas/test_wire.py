"""The wire form: round trips, and one clear error for each malformed field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from driftline.deltas import RowDelta, TableSchema, extract
from driftline.errors import DeltaError
from support.delta_strategies import clean_text, values

GOOD = {
    "op": "UPDATE",
    "table": "todos",
    "rowId": "row-1",
    "clientId": "a",
    "columns": [{"column": "Unit Price", "value": 1}, {"column": "é", "value": None}],
    "hlc": "655360",
    "deltaId": "A",
}


@given(clean_text.filter(bool), st.lists(values(clean_text), max_size=4))
def test_round_trip_through_json(row_id: str, cells: list[Any]) -> None:
    row = {f"c{position}": cell for position, cell in enumerate(cells)}
    delta = extract(None, row, table="t", row_id=row_id, client_id="c", hlc=1 << 62)
    assert delta is not None
    back = RowDelta.from_wire(json.loads(json.dumps(delta.to_wire())))
    assert back == delta
    assert back.has_own_id()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op": "UPSERT"}, "op is INSERT, UPDATE or DELETE, not 'UPSERT'"),
        ({"op": None}, "op is INSERT"),
        ({"op": ["INSERT"]}, "op is INSERT"),
        ({"table": 7}, "table is a string, not 7"),
        ({"table": "1abc"}, "table name '1abc' is not valid"),
        ({"table": "t" * 65}, "table name"),
        ({"table": ""}, "table name"),
        ({"table": "todos\n"}, "table name"),
        ({"rowId": 5}, "rowId is a string, not 5"),
        ({"rowId": ""}, "rowId has 0 characters"),
        ({"rowId": "r" * 2000}, "rowId has 2000 characters"),
        ({"rowId": "\ud800"}, "rowId holds a lone surrogate"),
        ({"clientId": None}, "clientId is a string"),
        ({"hlc": 655360}, "hlc is a string of decimal digits, not 655360"),
        ({"hlc": "0x10"}, "hlc is a string of decimal digits"),
        ({"hlc": ""}, "hlc is a string of decimal digits"),
        ({"hlc": " 7"}, "hlc is a string of decimal digits"),
        ({"hlc": "-7"}, "hlc is a string of decimal digits"),
        ({"hlc": "٧"}, "hlc is a string of decimal digits"),
        ({"hlc": "9" * 5000}, "hlc is a string of decimal digits"),
        ({"hlc": str(1 << 63)}, "is beyond 2\\^63 - 1"),
        ({"deltaId": 1}, "deltaId is a string"),
        ({"columns": {}}, "columns is a list, not {}"),
        ({"columns": [{"column": "a"}]}, "an entry of columns is {column, value}"),
        ({"columns": [{"column": "a", "value": 1, "zz": 1}]}, "an entry of columns is {column, value} and no more"),
        ({"columns": ["a"]}, "an entry of columns is"),
        ({"columns": [{"column": 1, "value": 1}]}, "column is a string"),
        ({"columns": [{"column": "", "value": 1}]}, "1 to 255 characters"),
        ({"columns": [{"column": "c" * 256, "value": 1}]}, "1 to 255 characters"),
        ({"columns": [{"column": "_hlc", "value": 1}]}, "begins with _"),
        ({"columns": [{"column": "a\tb", "value": 1}]}, "control characters"),
        ({"columns": [{"column": "a", "value": 1}, {"column": "a", "value": 2}]}, "column 'a' is named twice"),
        ({"columns": [{"column": "a", "value": 1}, {"column": "A", "value": 2}]}, "differ only in case"),
        ({"columns": [{"column": "a", "value": "\udfff"}]}, "column 'a' holds a lone surrogate"),
        ({"columns": [{"column": "a", "value": [{"\ud800": 1}]}]}, "lone surrogate"),
        ({"columns": [{"column": "a", "value": object()}]}, "is a object, which is not JSON"),
        ({"op": "DELETE"}, "a DELETE has no columns"),
        ({"extra": 1}, "a delta has no member 'extra'"),
    ],
)
def test_malformed_fields_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DeltaError, match=message) as caught:
        RowDelta.from_wire({**GOOD, **change})
    assert caught.value.code == "VALIDATION_ERROR"
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("name", list(GOOD))
def test_every_member_is_needed(name: str) -> None:
    data = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(DeltaError, match=f"a delta needs the member {name}"):
        RowDelta.from_wire(data)


@pytest.mark.parametrize("data", [None, [], "delta", 7])
def test_a_delta_is_an_object(data: Any) -> None:
    with pytest.raises(DeltaError, match="a delta is an object"):
        RowDelta.from_wire(data)


def test_endless_nesting_is_refused() -> None:
    value: Any = 1
    for _ in range(100):
        value = [value]
    with pytest.raises(DeltaError, match="nested deeper than 64"):
        RowDelta.from_wire({**GOOD, "columns": [{"column": "a", "value": value}]})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"table": "a b", "columns": []}, "table name"),
        ({"table": "t", "columns": [{"name": "a", "type": "date"}]}, "use one of string, number, boolean, json"),
        ({"table": "t", "columns": [{"name": "a"}]}, "is {name, type}"),
        ({"table": "t", "columns": [{"name": 1, "type": "json"}]}, "a column name of table t is text"),
        ({"table": "t", "columns": [{"name": "_a", "type": "json"}]}, "begins with _"),
        ({"table": "t", "columns": [{"name": "a", "type": "json"}, {"name": "A", "type": "json"}]}, "only in case"),
        ({"table": "t", "columns": [], "key": ["id"]}, "key column 'id' is not a column"),
        ({"table": "t", "columns": {}}, "columns of a table schema is a list"),
        ({"table": "t", "columns": [], "key": "id"}, "key of a table schema is a list"),
        ({"table": "t", "columns": [], "primary": []}, "has no member 'primary'"),
        ({"columns": []}, "table name None"),
        ({"table": {}, "columns": []}, "table name {}"),
        ([], "a table schema is an object"),
    ],
)
def test_malformed_schemas(data: Any, message: str) -> None:
    with pytest.raises(DeltaError, match=message):
        TableSchema.from_wire(data)


def test_schema_round_trip() -> None:
    data = {"table": "t", "columns": [{"name": "id", "type": "string"}, {"name": "n", "type": "number"}], "key": ["id"]}
    schema = TableSchema.from_wire(data)
    assert schema.to_wire() == data
    assert schema == TableSchema(table="t", columns=data["columns"], key=["id"])  # type: ignore[arg-type]
    assert hash(schema) == hash(TableSchema.from_wire(data))
    with pytest.raises(AttributeError):
        schema.table = "u"  # type: ignore[misc]
    assert [schema.by_name["n"].accepts(value) for value in (1, 1.5, None, True, "1")] == [
        True,
        True,
        True,
        False,
        False,
    ]

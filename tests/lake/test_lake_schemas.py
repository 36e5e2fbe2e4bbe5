"""Schema changes between files, odd column names, values of the wrong type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from hypothesis import given, strategies as st

from driftline.deltas import TableSchema
from driftline.errors import DriftlineError
from driftline.lake import Lake, compact, flush, register, registered, replay, verify
from driftline.lake._read.state import all_deltas, state_rows
from driftline.lake._store.rows import escape_name, unescape_name
from support.lakes import delta


def schema(**types: str) -> TableSchema:
    return TableSchema("todos", [{"name": name, "type": kind} for name, kind in types.items()])


def put(lake: Lake, sequence: int, *deltas: Any) -> None:
    flush(lake, "todos", deltas, gateway_id="gw", sequence=sequence)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20))
def test_names_are_escaped_reversibly(name: str) -> None:
    in_files = escape_name(name)
    assert unescape_name(in_files) == name
    assert not set(in_files) & set(" ,;{}()=")


@pytest.mark.parametrize("compact_between", [True, False])
def test_added_and_removed_columns(tmp_path: Path, compact_between: bool) -> None:
    lake = Lake(str(tmp_path))
    register(lake, schema(a="string", b="number"))
    put(lake, 1, delta("INSERT", "r1", 1, a="x", b=1))
    if compact_between:
        compact(lake, "todos")
    register(lake, schema(a="string", b="number", **{"c d": "json"}))
    put(lake, 2, delta("UPDATE", "r1", 2, **{"c d": [1]}), delta("INSERT", "r2", 3, a="y"))
    compact(lake, "todos")
    assert dict(state_rows(lake, "todos")) == {"r1": {"a": "x", "b": 1, "c d": [1]}, "r2": {"a": "y"}}
    register(lake, schema(a="string", **{"c d": "json"}))
    assert dict(state_rows(lake, "todos")) == {"r1": {"a": "x", "c d": [1]}, "r2": {"a": "y"}}
    assert compact(lake, "todos").is_new
    base = pl.scan_delta(str(tmp_path / "tables/todos/base")).collect()
    assert base.columns == ["_row_id", "a", "c%20d", "_stamps"]
    assert verify(lake, "todos").is_proved
    # the removed column stays in the delta files
    assert "b" in DeltaTable(str(tmp_path / "tables/todos/deltas")).to_pyarrow_table().column_names
    assert {entry.column for each in all_deltas(lake, "todos") for entry in each.columns} == {"a", "b", "c d"}


def test_a_column_that_comes_back_brings_its_values(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    register(lake, schema(a="string", b="number"))
    put(lake, 1, delta("INSERT", "r1", 1, a="x", b=1))
    compact(lake, "todos")
    register(lake, schema(a="string"))
    compact(lake, "todos")
    register(lake, schema(a="string", b="number"))
    put(lake, 2, delta("INSERT", "r2", 2, b=2))
    assert compact(lake, "todos").full
    assert dict(state_rows(lake, "todos")) == replay(all_deltas(lake, "todos"))
    assert verify(lake, "todos", oracle=True).is_proved


@pytest.mark.parametrize(
    "changed", [schema(a="number"), schema(A="string"), schema(b="string")], ids=["retyped", "renamed", "came back"]
)
def test_what_cannot_change(tmp_path: Path, changed: TableSchema) -> None:
    lake = Lake(str(tmp_path))
    register(lake, schema(a="string", b="json"))
    register(lake, schema(a="string"))
    with pytest.raises(DriftlineError, match="migrate") as caught:
        register(lake, changed)
    assert caught.value.code == "SCHEMA_ERROR"
    assert registered(lake, "todos") == schema(a="string")


@pytest.mark.parametrize(
    "values", [{"a": 1}, {"n": "1"}, {"n": True}, {"f": 0}, {"unknown": 1}], ids=lambda value: str(value)
)
def test_values_of_the_wrong_type_are_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    lake = Lake(str(tmp_path))
    register(lake, schema(a="string", n="number", f="boolean", j="json"))
    with pytest.raises(DriftlineError) as caught:
        put(lake, 1, delta("INSERT", "r0", 1), delta("INSERT", "r1", 2, **values))
    assert caught.value.code == "SCHEMA_ERROR"
    assert list(all_deltas(lake, "todos")) == []
    assert list((tmp_path / "tables/todos/deltas").rglob("*.parquet")) == []


def test_table_names_differ_in_more_than_case(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    register(lake, schema(a="string"))
    with pytest.raises(DriftlineError, match="case"):
        register(lake, TableSchema("Todos", [{"name": "a", "type": "string"}]))


def test_more_than_64_columns(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    names = [f"c{number}" for number in range(130)]
    register(lake, schema(**dict.fromkeys(names, "number")))
    put(lake, 1, delta("INSERT", "r", 1, **{name: number for number, name in enumerate(names) if number % 3}))
    put(lake, 2, delta("UPDATE", "r", 2, c127=None, c129=5))
    compact(lake, "todos")
    assert dict(state_rows(lake, "todos")) == replay(all_deltas(lake, "todos"))


def test_a_table_without_columns(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    register(lake, schema())
    put(lake, 1, delta("INSERT", "r1", 1), delta("INSERT", "r2", 2), delta("DELETE", "r2", 3))
    compact(lake, "todos")
    put(lake, 2, delta("INSERT", "r3", 4))
    compact(lake, "todos")
    assert dict(state_rows(lake, "todos")) == {"r1": {}, "r3": {}}

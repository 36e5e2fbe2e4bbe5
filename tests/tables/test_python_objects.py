"""Tables as Python code holds them: frames, relations, cursors, lists of dicts, and results as frames."""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import given, settings, strategies as st

import driftline as dl

A = [{"id": 1, "name": "Ann", "n": 1.5}, {"id": 2, "name": "Bob", "n": None}, {"id": 3, "name": "Cy", "n": 2.0}]
B = [{"id": 1, "name": "Ann", "n": 1.5}, {"id": 3, "name": "Cyd", "n": 2.0}, {"id": 4, "name": "Di", "n": 4.0}]


def in_sqlite(rows: list[dict]) -> sqlite3.Cursor:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (id, name, n)")
    database.executemany("INSERT INTO t VALUES (:id, :name, :n)", rows)
    return database.execute("SELECT * FROM t")


def in_duckdb(rows: list[dict]) -> duckdb.DuckDBPyRelation:
    return duckdb.connect().from_arrow(pa.Table.from_pylist(rows))


DOORS = {
    "list": lambda rows: rows,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "lazy": lambda rows: pl.DataFrame(rows).lazy(),
    "arrow": pa.Table.from_pylist,
    "reader": lambda rows: pa.Table.from_pylist(rows).to_reader(),
    "dataset": lambda rows: pyarrow.dataset.dataset(pa.Table.from_pylist(rows)),
    "duckdb": in_duckdb,
    "sqlite": in_sqlite,
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door(door: str) -> None:
    result = dl.diff(DOORS[door](A), DOORS[door](B), key="id")
    assert (bool(result), len(result)) == (True, 3)
    assert [event["type"] for event in result] == ["schema", "removed", "changed", "added", "stats"]
    (changed,) = (event for event in result if event["type"] == "changed")
    assert changed["delta"] == {"name": {"from": "Cy", "to": "Cyd"}}
    assert not dl.diff(DOORS[door](A), DOORS[door](A), key="id")


def test_doors_meet_each_other_and_files(tmp_path: Path) -> None:
    pl.DataFrame(B).write_parquet(tmp_path / "b.parquet")
    pl.DataFrame(B).write_csv(tmp_path / "b.csv")
    assert not dl.diff(pl.DataFrame(B), tmp_path / "b.parquet", key="id")
    assert not dl.diff(B, tmp_path / "b.csv", key="id")
    assert not dl.diff(pd.DataFrame(B), pl.DataFrame(B), key="id", types={"id": "number"})


def test_results_as_frames() -> None:
    result = dl.diff(A, B, key="id", ignore=["n"])
    assert result.added.to_dicts() == [{"id": 4, "name": "Di", "n": 4.0}]
    assert result.removed.to_dicts() == [{"id": 2, "name": "Bob", "n": None}]
    assert result.changed.to_dicts() == [{"id": 3, "column": "name", "before": "Cy", "after": "Cyd"}]
    assert result.column_stats == {"name": 1}
    frame = result.to_polars()
    assert frame["_change"].to_list() == ["removed", "before", "after", "added"]
    assert result.to_arrow().num_rows == len(result.to_pandas()) == 4
    assert repr(result) == "<TableDiff: 1 added, 1 removed, 1 changed, 1 unchanged>"
    assert "<td>changed</td><td>id=3</td>" in result._repr_html_()
    same = dl.diff(A, A)
    assert same.added.is_empty()
    assert same.changed.is_empty()


def test_assert_equal_says_what_differs() -> None:
    dl.assert_equal(A, A, key="id")
    dl.assert_equal([{"id": 1, "v": 1.0}], [{"id": 1, "v": 1.0000001}], key="id", tolerance={"v": "1e-6"})
    with pytest.raises(AssertionError, match=r"1 added, 1 removed, 1 changed(.|\n)*changed id=3: name: 'Cy' → 'Cyd'"):
        dl.assert_equal(A, B, key="id")


def test_values_of_python_and_numpy() -> None:
    row = {
        "d": datetime.date(2024, 5, 1),
        "t": datetime.datetime(2024, 5, 1, 10),
        "m": decimal.Decimal("1.50"),
        "b": b"\x01",
    }
    assert not dl.diff([row], [{**row, "d": "2024-05-01", "m": 1.5}])
    frame = pd.DataFrame({"x": [1, 2]}, index=pd.Index(["a", "b"], name="key"))
    assert next(iter(dl.diff(frame, frame)))["columns_a"] == ["key", "x"]
    assert next(iter(dl.diff(pd.DataFrame({"x": [1]}, index=["a"]), pd.DataFrame({"x": [1]}))))["columns_a"] == ["x"]


def test_what_is_no_table_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(dl.InputError, match="give a path, a DataFrame or a list of dicts"):
        dl.diff(3, A)
    database = sqlite3.connect(":memory:")
    with pytest.raises(dl.InputError, match=r"has no table: give a cursor: connection.execute\("):
        dl.diff(database, A)
    database.executescript('CREATE TABLE "t""1" (id, name, n); INSERT INTO "t""1" VALUES (1, \'Ann\', 1.5);')
    assert dl.diff(database, A[:1], key="id").stats["rows_unchanged"] == 1
    database.execute("CREATE TABLE other (x)")
    with pytest.raises(dl.InputError, match=r"has 2 tables \(t\"1, other\): give a cursor"):
        dl.diff(database, A)
    with pytest.raises(FileNotFoundError):
        dl.diff(tmp_path / "missing.csv", A)
    with pytest.raises(dl.DriftlineError):
        dl.diff(tmp_path / "missing.csv", A)


UTC = datetime.UTC
VALUES = {
    "i": (st.sampled_from([None, 0, -1, 7, 2**31 - 1]), [pl.Int32, pl.Int64, pl.Float64]),
    "f": (st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), float("inf"), 1e300]), [pl.Float32, pl.Float64]),
    "s": (st.sampled_from([None, "", "null", "a", "é\n"]), [pl.String, pl.Categorical]),
    "b": (st.sampled_from([None, True, False]), [pl.Boolean]),
    "d": (st.sampled_from([None, datetime.date(2024, 5, 1), datetime.date(1, 1, 1)]), [pl.Date]),
    "t": (
        st.sampled_from([None, datetime.datetime(2024, 5, 1, 12, tzinfo=UTC), datetime.datetime(1, 1, 1, tzinfo=UTC)]),
        [pl.Datetime("us", "UTC"), pl.Datetime("ms", "Europe/Oslo")],
    ),
    "l": (st.sampled_from([None, [], [1], [1, None]]), [pl.List(pl.Int64)]),
}


@st.composite
def frames(draw: st.DrawFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    names = draw(st.lists(st.sampled_from(list(VALUES)), unique=True, min_size=1, max_size=3))
    pair = []
    for _ in range(2):
        keys = draw(st.lists(st.sampled_from([1, 2, 3, None]), max_size=4, unique=draw(st.booleans())))
        columns = {
            name: pl.Series(
                [draw(VALUES[name][0]) for _ in keys], dtype=draw(st.sampled_from(VALUES[name][1])), strict=False
            )
            for name in names
        }
        pair.append(pl.DataFrame({"id": pl.Series(keys, dtype=pl.Int64), **columns}))
    return pair[0], pair[1]


@settings(max_examples=80, deadline=None)
@given(pair=frames(), key=st.sampled_from(["id", None]))
def test_values_compare_as_their_json_text_does(pair: tuple[pl.DataFrame, pl.DataFrame], key: str | None) -> None:
    """Frames are compared by value; the same rows as a stream become text first."""

    def found(a: Any, b: Any) -> Any:
        try:
            return list(dl.diff(a, b, key=key, ignore_row_order=key is None, column_stats=True))
        except dl.DriftlineError as error:
            return error.code, error.message

    assert found(*pair) == found(*(frame.to_arrow().to_reader() for frame in pair))

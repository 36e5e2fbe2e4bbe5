"""Results as tables: the types and values of the inputs, whatever they are and wherever they come from."""

from __future__ import annotations

import datetime
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import driftline as dl
from support.arrow_types import DAY, DECIMAL, NOON, TYPES


def tables(kind: pa.DataType) -> tuple[pa.Table, pa.Table]:
    """Two tables whose rows all differ: removed, added, and changed by another column."""
    cells = pa.array(TYPES[kind], kind)
    a = pa.table({"id": pa.array([1, 2, 3, 4], pa.int16()), "v": cells, "w": pa.array([0] * 4, pa.int8())})
    b = pa.table({"id": pa.array([5, 6, 3, 4], pa.int16()), "v": cells, "w": pa.array([1] * 4, pa.int8())})
    return a, b


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("door", ["table", "reader", "parquet"])
def test_results_have_the_types_and_values_of_the_inputs(kind: pa.DataType, door: str, tmp_path: Path) -> None:
    a, b = tables(kind)
    given: list = [a, b]
    if door == "reader":
        given = [table.to_reader() for table in given]
    elif door == "parquet":
        try:
            for table, name in zip(given, "ab", strict=True):
                pq.write_table(table, tmp_path / f"{name}.parquet")
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            pytest.skip("Parquet has no such type")
        given = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
        a, b = (pq.read_table(path, partitioning=None) for path in given)
    found = dl.diff(*given, key="id").to_arrow()
    assert found.schema.remove(0).equals(a.schema)
    rows = found.to_pylist()
    for name, expected in (("removed", a), ("added", b)):
        versions = [{"_change": name, **row} for row in expected.slice(0, 2).to_pylist()]
        assert [row for row in rows if row["_change"] == name] == versions
    assert found.column("_change").to_pylist() == [
        "removed", "removed", "before", "after", "before", "after", "added", "added"
    ]  # fmt: skip
    same = dl.diff(a, a, key="id")
    assert same.to_arrow().schema.equals(found.schema)
    assert same.to_arrow().num_rows == 0


def test_frames_of_polars_come_back_with_their_schema() -> None:
    a = pl.DataFrame({"id": [1, 2], "c": ["x", "y"], "e": ["x", "y"], "i": [1, 2], "t": [NOON] * 2, "s": ["a", "b"]})
    a = a.cast({"c": pl.Categorical, "e": pl.Enum(["x", "y"]), "i": pl.Int8}).with_columns(
        pl.col("t").dt.cast_time_unit("ms").dt.replace_time_zone("UTC")
    )
    result = dl.diff(a, a.with_columns(pl.col("id") + 1), key="id")
    assert result.added.schema == result.removed.schema == a.schema
    assert result.removed.equals(a.head(1))
    assert dl.diff(a, a, key="id").added.schema == a.schema
    assert result.to_pandas()["i"].dtype == pd.ArrowDtype(pa.int8())


def test_values_without_a_type_are_not_guessed() -> None:
    a = [{"id": 1, "x": [1, {"c": 2}], "n": 2**53 + 1, "f": 1.5}, {"id": 2, "x": 1, "n": 0.5, "f": float("nan")}]
    b = [{"id": 1, "x": [1, {"c": 3}], "n": 2**53, "f": 1.5}, {"id": 2, "x": "1", "n": 0.5, "f": 2.5}]
    result = dl.diff(a, b, key="id")
    assert result.changed.rows() == [
        (1, "x", '[1,{"c":2}]', '[1,{"c":3}]'),
        (1, "n", "9007199254740993", "9007199254740992"),
        (2, "x", "1", '"1"'),
        (2, "f", "NaN", "2.5"),
    ]
    assert result.to_arrow().schema.field("f").type == pa.float64()
    assert result.to_arrow().schema.equals(dl.diff(a[:1], a[1:], key="id").to_arrow().schema)
    long = dl.diff([{"id": 1, "n": 2**80}], [{"id": 1, "n": DECIMAL}], key="id")
    assert (long.to_arrow().column("n").to_pylist(), long.to_pandas()["n"].tolist()) == ([str(2**80), "1.1"],) * 2


def test_changed_cells_keep_the_one_type_that_they_have() -> None:
    days = [
        pl.DataFrame({"id": [1, 2], "on": [DAY, day], "off": [DAY, DAY]}) for day in (DAY, datetime.date(2025, 1, 1))
    ]
    changed = dl.diff(*days, key="id").changed
    assert changed.schema == {"id": pl.Int64, "column": pl.String, "before": pl.Date, "after": pl.Date}
    assert changed.rows() == [(2, "on", DAY, datetime.date(2025, 1, 1))]
    assert dl.diff(days[0], days[0], key="id").changed.schema == changed.schema


@pytest.mark.parametrize("engine", ["local", "vectorized"])
def test_text_stays_text_in_every_order(engine: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,v\n1,007\n2,"a ""b"""\n3,é\n')
    (tmp_path / "b.csv").write_text("id,v\n1,7\n3,é\n4,\n")
    pair = tmp_path / "a.csv", tmp_path / "b.csv"
    keyed = dl.diff(*pair, key="id", engine=engine)
    assert keyed.to_polars().rows() == [
        ("before", "1", "007"), ("after", "1", "7"), ("removed", "2", 'a "b"'), ("added", "4", ""),
    ]  # fmt: skip
    assert keyed.changed.rows() == [("1", "v", "007", "7")]
    placed = dl.diff(*pair, engine=engine)
    assert placed.changed.rows()[:2] == [(2, "v", "007", "7"), (3, "id", "2", "3")]
    assert placed.to_polars()["_row"].to_list() == [2, 2, 3, 3, 4, 4]
    assert dl.diff(*pair, ignore_row_order=True, engine=engine).added.rows() == [("1", "7"), ("4", "")]


def test_columns_of_two_types_keep_every_value() -> None:
    a, b = pl.DataFrame({"id": [1], "n": [2**53 + 1]}), pl.DataFrame({"id": [2], "n": [0.5]})
    assert dl.diff(a, b, key="id").to_polars()["n"].to_list() == ["9007199254740993", "0.5"]
    small = a.with_columns(pl.lit(7, pl.Int16).alias("n"))
    assert dl.diff(small, b, key="id").to_polars()["n"].to_list() == [7.0, 0.5]

"""Tables as Python code holds them: frames, relations, cursors, lists of dicts, and results as frames."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import itertools
import json
import sqlite3
import uuid
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest
from hypothesis import given, settings, strategies as st

import driftline as dl

UTC = datetime.UTC

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
    with pytest.raises(dl.InputError, match=r"has no name and is not 0…n-1: give reset_index\(\)"):
        dl.assert_equal(pd.DataFrame({"x": [1]}, index=["a"]), pd.DataFrame({"x": [1]}, index=["b"]))
    assert not dl.diff(pd.DataFrame({"x": [1]}), pd.DataFrame({"x": [1]}, index=[0]))


LONG, OTHER = decimal.Decimal("12345678901234567.89"), decimal.Decimal("12345678901234567.88")


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (LONG, OTHER),
        (decimal.Decimal("1e400"), decimal.Decimal("1e401")),
        ([LONG], [OTHER]),
        (uuid.UUID(int=1), uuid.UUID(int=2)),
        (datetime.timedelta(seconds=1), datetime.timedelta(seconds=1.5)),
        ({1, 2}, {1, 3}),
        (Colour.RED, "blue"),
        ({"on": datetime.date(2024, 5, 1)}, {"on": datetime.date(2024, 5, 2)}),
        (decimal.Decimal("Infinity"), decimal.Decimal("NaN")),
        ([float("nan")], [None]),
        (2**80, 2**80 + 1),
    ],
)
def test_ordinary_values_are_compared_exactly(a: object, b: object) -> None:
    assert dl.diff([{"id": 1, "v": a}], [{"id": 1, "v": b}], key="id").stats["rows_changed"] == 1
    assert not dl.diff([{"id": 1, "v": a}], [{"id": 1, "v": a}], key="id")


def test_long_numbers_keep_their_digits_as_keys_and_in_results(tmp_path: Path) -> None:
    rows = [{"id": LONG, "v": 1}, {"id": OTHER, "v": 2}]
    assert not dl.diff(rows, rows, key="id")
    with pytest.raises(dl.TableError, match=r'Duplicate key in A: \{"id":12345678901234567.89\}'):
        dl.diff([rows[0], rows[0]], rows, key="id")
    result = dl.diff(rows[:1], rows[1:], key="id")
    assert [event["key"]["id"] for event in list(result)[1:-1]] == [OTHER, LONG]
    for name in ("changes.csv", "changes.md", "changes.html", "changes.json"):
        result.write(tmp_path / name)
        assert "12345678901234567.89" in (tmp_path / name).read_text(), name


@pytest.mark.parametrize(("a", "b"), [("12345678901234567.89", "12345678901234567.88"), ("1e400", "1e401")])
@pytest.mark.parametrize("form", ["t.jsonl", "t.json"])
def test_numbers_of_json_files_are_exact(tmp_path: Path, a: str, b: str, form: str) -> None:
    files = []
    for side, text in (("a", a), ("b", b)):
        (tmp_path / side).mkdir()
        line = f'{{"id":1,"v":{text},"w":[{text}]}}'
        files.append(tmp_path / side / form)
        files[-1].write_text(f"[{line}]" if form.endswith("json") else line + "\n")
    (changed,) = list(dl.diff(*files, key="id"))[1:-1]
    assert changed["changed"] == ["v", "w"]
    assert not dl.diff(files[0], files[0], key="id")
    same = tmp_path / f"same-{form}"
    same.write_text(files[0].read_text().replace("1e400", "10E+399").replace("567.89", "567.8900"))
    assert not dl.diff(files[0], same, key="id")


def test_an_instant_is_the_same_in_every_zone() -> None:
    oslo = datetime.timezone(datetime.timedelta(hours=2))
    a, b = datetime.datetime(2024, 5, 1, 12, tzinfo=UTC), datetime.datetime(2024, 5, 1, 14, tzinfo=oslo)
    assert not dl.diff([{"id": 1, "t": a}], [{"id": 1, "t": b}], key="id")
    assert not dl.diff([{"id": 1, "t": a}], pl.DataFrame({"id": [1], "t": [b]}), key="id")


NUMBERS = {
    pa.int8(): [0, 1, -7],
    pa.uint64(): [0, 1, 2**53 + 1, 2**64 - 1, 9223372036854774784],
    pa.int64(): [0, 1, -7, 2**53 + 1, 9223372036854774784, 9223372036854775000],
    pa.float64(): [0.0, 1.0, -7.0, 0.1, 2.0**53, 9.223372036854775e18, 2.0**64, 1e300],
    pa.float32(): [0.0, 1.0, 0.1, 16777216.0],
    pa.decimal128(30, 2): [decimal.Decimal(text) for text in ("0", "1", "0.10", "-7", "16777216", "9007199254740993")],
}


def value_of(value: Any, kind: pa.DataType, other: pa.DataType) -> fractions.Fraction:
    """What a number counts as against a column of another type."""
    if not pa.types.is_floating(kind):
        return fractions.Fraction(value)
    if not pa.types.is_decimal(other):
        return fractions.Fraction(float(np.float32(value)) if pa.types.is_float32(kind) else value)
    return fractions.Fraction(str(np.float32(value)) if pa.types.is_float32(kind) else repr(value))


@pytest.mark.parametrize("kinds", list(itertools.combinations(NUMBERS, 2)), ids=lambda pair: f"{pair[0]}-{pair[1]}")
def test_numbers_of_two_types_meet_by_value(kinds: tuple[pa.DataType, pa.DataType]) -> None:
    a, b = (pa.table({"id": pa.array(sorted(NUMBERS[kind]), kind), "n": [1] * len(NUMBERS[kind])}) for kind in kinds)
    values = [{value_of(value, kind, other) for value in NUMBERS[kind]} for kind, other in (kinds, kinds[::-1])]
    stats = dl.diff(a, b, key="id").stats
    assert (stats["rows_unchanged"], stats["rows_removed"]) == (len(values[0] & values[1]), len(values[0] - values[1]))
    pairs = list(itertools.product(*(NUMBERS[kind] for kind in kinds)))
    sides = [
        pa.table({"id": range(len(pairs)), "n": pa.array(column, kind)})
        for column, kind in zip(zip(*pairs, strict=True), kinds, strict=True)
    ]
    equal = sum(value_of(one, *kinds) == value_of(other, *kinds[::-1]) for one, other in pairs)
    assert dl.diff(*sides, key="id").stats["rows_unchanged"] == equal


def test_an_integer_column_with_a_gap_is_one_change() -> None:
    a, b = pd.DataFrame({"id": [1, 2, 3], "n": [1, 2, 3]}), pd.DataFrame({"id": [1, 2, 3], "n": [1, 2, None]})
    result = dl.diff(a, b, key="id")
    assert result.stats["rows_changed"] == 1
    assert result.heading().rules == "n: integer in A, float in B, compared by value"
    assert dl.diff(a, b, key="id", types={"n": "text"}).stats["rows_changed"] == 3
    assert not dl.diff(a, a.assign(id=[1.0, 2.0, 3.0]), key="id")
    assert not dl.diff([{"id": 1, "n": 1e16}], pl.DataFrame({"id": [1.0], "n": [10**16]}), key="id")


def test_a_tolerance_on_typed_times() -> None:
    times = [pl.DataFrame({"id": [1], "t": [datetime.datetime(2024, 5, 1, 0, 0, second)]}) for second in (1, 3)]
    assert not dl.diff(*times, key="id", tolerance={"t": "2s"})
    assert dl.diff(*times, key="id", tolerance={"t": "1s"})


def dated_cursor() -> sqlite3.Cursor:
    database = sqlite3.connect(":memory:", detect_types=sqlite3.PARSE_DECLTYPES)
    database.execute("CREATE TABLE t (id INTEGER, day [cursor date])")
    database.execute("INSERT INTO t VALUES (1, '2024-05-01')")
    return database.execute("SELECT * FROM t")


def test_objects_that_no_column_type_fits() -> None:
    sqlite3.register_converter("cursor date", lambda text: datetime.date.fromisoformat(text.decode()))
    assert not dl.diff(dated_cursor(), [{"id": 1, "day": datetime.date(2024, 5, 1)}], key="id")
    mixed = pd.DataFrame({"id": [1, 2], "v": [1, "a"]})
    assert dl.diff(mixed, mixed.assign(v=[1, "b"]), key="id").stats["rows_changed"] == 1
    sparse = pd.DataFrame({"id": [1, 2], "v": pd.arrays.SparseArray([0, 1])})
    assert dl.diff(sparse, pd.DataFrame({"id": [1, 2], "v": [0, 1]}), key="id").stats["rows_unchanged"] == 2
    months = [duckdb.connect().sql(f"SELECT 1 AS id, INTERVAL {count} MONTH AS v") for count in (2, 3)]
    assert dl.diff(*months, key="id").stats["rows_changed"] == 1
    wide = [pa.table({"id": [1], "v": pa.array([LONG], pa.decimal256(60, scale))}) for scale in (2, 4)]
    assert not dl.diff(*wide, key="id")
    runs = pa.table({"id": [1, 2], "v": pa.RunEndEncodedArray.from_arrays([2], [7])})
    assert not dl.diff(runs, [{"id": 1, "v": 7}, {"id": 2, "v": 7}], key="id")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([{"id": 1, "c": 1j}], 'column "c" holds a complex'),
        (pd.DataFrame({"id": [1, 2], "c": [1j, 2]}), 'column "c" holds a complex'),
        (pd.Series([1]), r"a pandas Series is no table: give to_frame\(\)"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns are called 'a'"),
        (pd.DataFrame({"id": [1]}, index=pd.Index([1], name="id")), "the index and a column are both called 'id'"),
        (pl.DataFrame({"c": pl.Series([object()], dtype=pl.Object)}), 'column "c" holds a object'),
    ],
)
def test_objects_that_are_refused_say_why(given: object, words: str) -> None:
    with pytest.raises(dl.InputError, match=words) as raised:
        dl.diff(given, given)
    assert raised.value.code == "unsupported_input"


@pytest.mark.parametrize("options", [{"tolerance": 0.5}, {"key": 0}, {"normalize": {"a": 3}}, {"rename": [1]}])
def test_options_of_a_wrong_type_are_refused(options: dict) -> None:
    with pytest.raises(dl.DriftlineError) as raised:
        dl.diff(A, B, **options)
    assert raised.value.code == "invalid_option"


def test_arrow_files_of_polars(tmp_path: Path) -> None:
    for name, text in (("a", "a"), ("b", "c")):
        pl.DataFrame({"id": [1], "name": [text], "tags": [[text]]}).write_ipc(tmp_path / f"{name}.arrow")
    (changed,) = list(dl.diff(tmp_path / "a.arrow", tmp_path / "b.arrow", key="id"))[1:-1]
    assert json.loads(json.dumps(changed["after"])) == {"id": 1, "name": "c", "tags": ["c"]}


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

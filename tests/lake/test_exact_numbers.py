"""Exact numbers where sources differ: types that are found, declared or changed later, and digits in diffs."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import driftline
from driftline.lake import Lake, registered
from support.shop import lake_rows, run

IDS = (1834567890123456768, 1834567890123456769, 1834567890123456770)


def make(folder: Path, ending: str, more: str = "") -> Path:
    (folder / "p.toml").write_text(
        f'[pipeline]\nname = "p"\n[lake]\npath = "lake"\n[tables.t]\nsnapshots = "t-{{date}}.{ending}"\n'
        f'key = "id"\ndeltas = true\n{more}'
    )
    return folder / "p.toml"


def problems(record) -> list[str]:
    return [stage.problem for stage in record.stages if stage.problem]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((1, 2), "number"),
        ((1, 2.5), "number"),
        (IDS[:2], "integer"),
        ((1, IDS[0]), "integer"),
        ((5.0, IDS[0]), "integer"),
        ((0.5, IDS[0]), "decimal(18)"),
        ((1, 2**64), "decimal(18)"),
    ],
)
def test_json_is_a_double_unless_a_value_is_not(tmp_path: Path, values: tuple[float, ...], kind: str) -> None:
    lines = (json.dumps({"id": str(n), "v": value}) for n, value in enumerate(values))
    (tmp_path / "t-2026-03-01.jsonl").write_text("\n".join(lines))
    assert problems(run(make(tmp_path, "jsonl"))) == []
    schema = registered(Lake(tmp_path / "lake"), "t")
    assert schema is not None
    assert schema.by_name["v"].type == kind


def test_snowflake_ids_stay_apart_and_changes_go_to_their_rows(tmp_path: Path) -> None:
    for day, first in (("01", "a"), ("02", "b")):
        table = pa.table({"id": pa.array(IDS, pa.int64()), "v": [first, "x", "y"]})
        pq.write_table(table, tmp_path / f"t-2026-03-{day}.parquet")
    assert problems(run(make(tmp_path, "parquet"))) == []
    assert {row: held["v"] for row, held in lake_rows(tmp_path, "t").items()} == {
        str(IDS[0]): "b",
        str(IDS[1]): "x",
        str(IDS[2]): "y",
    }


def test_a_declared_string_keeps_the_digits_of_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array(IDS, pa.int64()), "v": ["a", "b", "c"]}), tmp_path / "t-2026-03-01.parquet")
    assert problems(run(make(tmp_path, "parquet", 'columns = { id = "string" }\n'))) == []
    assert [held["id"] for held in lake_rows(tmp_path, "t").values()] == [str(each) for each in IDS]


def test_an_old_lake_refuses_what_its_doubles_would_change(tmp_path: Path) -> None:
    file = make(tmp_path, "jsonl")
    (tmp_path / "t-2026-03-01.jsonl").write_text('{"id":"a","v":7}\n')
    assert problems(run(file)) == []
    (tmp_path / "t-2026-03-02.jsonl").write_text('{"id":"a","v":9007199254740993}\n')
    [first, *_] = problems(run(file))
    assert first.startswith("inexact_number: table t, row 'a': column 'v' holds numbers as doubles")
    assert 'columns = { v = "integer" }' in first
    assert "--full-refresh" in first
    file = make(tmp_path, "jsonl", 'columns = { v = "integer" }\n')
    assert problems(run(file, full_refresh=True)) == []
    assert lake_rows(tmp_path, "t")["a"]["v"] == "9007199254740993"
    assert problems(run(file)) == []


def test_diffs_tell_digits_that_doubles_do_not(tmp_path: Path) -> None:
    before, after = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    before.write_text('{"id":1,"v":0.1,"w":{"n":[0.1]},"x":1e400}\n')
    after.write_text('{"id":1,"v":0.10000000000000001,"w":{"n":[0.10000000000000001]},"x":1e401}\n')
    [event] = [event for event in driftline.diff(before, after, key=["id"]) if event["type"] == "changed"]
    assert set(event["delta"]) == {"v", "w", "x"}
    same = tmp_path / "c.jsonl"
    same.write_text('{"id":1,"v":0.100,"w":{"n":[0.10]},"x":10e399}\n')
    assert not driftline.diff(before, same, key=["id"])


def test_decimals_of_python_rows_keep_their_digits() -> None:
    rows = [[{"id": 1, "v": Decimal(text)}] for text in ("0.1", "0.10000000000000001", "0.100")]
    assert driftline.diff(rows[0], rows[1], key=["id"])
    assert not driftline.diff(rows[0], rows[2], key=["id"])


def test_decimals_of_more_than_38_digits_are_compared_and_not_loaded(tmp_path: Path) -> None:
    for day, text in (("01", "1.50"), ("02", "1.51")):
        table = pa.table({"id": [1], "v": pa.array([Decimal(text)], pa.decimal256(50, 2))})
        pq.write_table(table, tmp_path / f"t-2026-03-{day}.parquet")
    assert len(driftline.diff(tmp_path / "t-2026-03-01.parquet", tmp_path / "t-2026-03-02.parquet", key=["id"])) == 1
    [first, *_] = problems(run(make(tmp_path, "parquet")))
    assert first.startswith('unsupported_type: column "v" has decimals of 50 digits, and 38 are the most: cast it')

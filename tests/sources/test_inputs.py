"""What users may name as a side: compressed files, folders, globs, standard input, typed sources."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import json
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from backports import zstd

import driftline as dl
from driftline.errors import DriftlineError

A = "id,v\n1,a\n2,b\n"
B = "id,v\n1,a\n2,c\n"


def events(a: object, b: object, **options: object) -> list[dict]:
    return list(dl.diff(str(a), str(b), **options))


def changed(result: list[dict]) -> list[dict]:
    return [event for event in result if event["type"] == "changed"]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.csv"
    path.write_text(B)
    return path


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "odd-name"])
def test_compressed_files_are_known_by_their_bytes(tmp_path: Path, plain: Path, pack, name: str) -> None:
    (tmp_path / name).write_bytes(pack(A.encode()))
    (event,) = changed(events(tmp_path / name, plain, key="id"))
    assert event["delta"] == {"v": {"from": "b", "to": "c"}}


def test_a_gzip_file_cut_short_is_an_error(tmp_path: Path, plain: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(A.encode() * 50)[:-12])
    with pytest.raises(DriftlineError, match="damaged or cut short") as caught:
        events(tmp_path / "a.csv.gz", plain)
    assert caught.value.code == "corrupt_compression"


def test_tab_separated_files_and_other_delimiters(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("id\tv\n1\ta,b\n")
    (tmp_path / "b.csv").write_text("id;v\n1;a,c\n")
    (tmp_path / "b.tsv").write_text("id\tv\n1\ta,c\n")
    assert changed(events(tmp_path / "a.tsv", tmp_path / "b.tsv"))[0]["delta"] == {"v": {"from": "a,b", "to": "a,c"}}
    assert events(tmp_path / "b.csv", tmp_path / "b.csv", delimiter=";")[0]["columns_a"] == ["id", "v"]


@pytest.mark.parametrize("engine", ["local", "kernels"])
def test_folders_and_globs_of_parts_are_one_table(tmp_path: Path, engine: str) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "part-0.csv").write_text("id,v\n1,a\n")
    (parts / "part-1.csv").write_text("id,v\n2,b\n3,c")
    (parts / "_SUCCESS").write_text("")
    (parts / ".part-0.csv.crc").write_bytes(b"\xff")
    whole = tmp_path / "whole.csv"
    whole.write_text("id,v\n1,a\n2,b\n3,X\n")
    for given in (parts, parts / "part-*.csv"):
        result = events(given, whole, engine=engine)
        assert [event["row_index"] for event in changed(result)] == [4]
    (parts / "part-1.csv").write_text("id,v\n2,b\n3\n")
    with pytest.raises(DriftlineError, match="Row width mismatch in A at row 4: expected 2, got 1"):
        events(parts, whole, engine=engine)
    (parts / "part-1.csv").write_text("id,w\n2,b\n")
    with pytest.raises(DriftlineError, match="parts of A have different headers"):
        events(parts, whole, engine=engine)


def test_standard_input(monkeypatch: pytest.MonkeyPatch, plain: Path) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(gzip.compress(A.encode())))))
    assert len(changed(events("-", plain, key="id"))) == 1


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("nothing.csv", "not_found"),
        ("none-*.csv", "not_found"),
        ("empty", "is_a_directory"),
        ("a.db", "missing_table_name"),
    ],
)
def test_what_cannot_be_opened(tmp_path: Path, plain: Path, given: str, code: str) -> None:
    (tmp_path / "empty").mkdir()
    sqlite3.connect(tmp_path / "a.db").execute("CREATE TABLE t (id)")
    with pytest.raises(DriftlineError) as caught:
        events(tmp_path / given, plain)
    assert caught.value.code == code


def test_mixed_folders_are_refused(tmp_path: Path, plain: Path) -> None:
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.csv").write_text(A)
    (tmp_path / "mixed" / "b.jsonl").write_text('{"id":1}\n')
    with pytest.raises(DriftlineError, match="mixes files of several kinds: csv, jsonl"):
        events(tmp_path / "mixed", plain)


def test_csv_against_a_typed_source_says_what_to_do(tmp_path: Path, plain: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"id":1,"v":"a"}\n')
    with pytest.raises(DriftlineError, match=r"one side is CSV .* and the other jsonl .*convert one of them"):
        events(plain, tmp_path / "b.jsonl")


def test_typed_values_compare_as_values_and_print_as_json_types(tmp_path: Path) -> None:
    before = {
        "id": [10, 9, 2, 1],
        "n": [1, 2, None, 4],
        "f": [1.5, float("nan"), 0.0, 1e300],
        "t": [datetime.datetime(2026, 1, 2, 3, 4, 5), None, None, None],
        "d": [decimal.Decimal("1.50"), None, None, None],
        "s": ['q"', "", None, "x"],
        "l": [[1, 2], [], None, [3]],
    }
    after = {**before, "n": [1, 3, 3, 4], "f": [1.5, float("nan"), -0.0, 1e300], "s": ['q"', "", "", "x"]}
    pl.DataFrame(before).write_parquet(tmp_path / "a.parquet", row_group_size=2)
    pl.DataFrame(after).write_parquet(tmp_path / "b.parquet")
    result = events(tmp_path / "a.parquet", tmp_path / "b.parquet", key="id", emit_unchanged=True)
    assert [(event["type"], event["key"]["id"]) for event in result[1:-1]] == [
        ("unchanged", 1),
        ("changed", 2),
        ("changed", 9),
        ("unchanged", 10),
    ]
    assert result[2]["delta"] == {"n": {"from": None, "to": 3}, "s": {"from": None, "to": ""}}
    assert result[3]["delta"] == {"n": {"from": 2, "to": 3}}
    assert result[4]["row"] == {
        "id": 10,
        "n": 1,
        "f": 1.5,
        "t": "2026-01-02T03:04:05",
        "d": 1.5,
        "s": 'q"',
        "l": [1, 2],
    }
    assert result[3]["before"]["f"] == "NaN"


def test_json_lines_sqlite_and_parquet_hold_the_same_table(tmp_path: Path) -> None:
    rows = [{"id": number, "v": value} for number, value in enumerate([1, 2.5, "x", None, "é\n", 1e300, -7, 0.1])]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute('CREATE TABLE "my table" (id INTEGER, v)')
        database.executemany('INSERT INTO "my table" VALUES (:id, :v)', rows)
    result = events(tmp_path / "a.jsonl", f"{tmp_path / 'a.db'}::my table", key="id")
    assert result[-1]["rows_unchanged"] == len(rows)
    floats = [row for row in rows if isinstance(row["v"], float)]
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, floats)))
    pl.DataFrame(floats).write_parquet(tmp_path / "f.parquet")
    assert events(tmp_path / "f.jsonl", tmp_path / "f.parquet")[-1]["rows_unchanged"] == len(floats)


def test_columns_of_json_lines_may_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id":1}\n{"id":2,"extra":true}\n')
    (tmp_path / "b.jsonl").write_text('{"id":1,"extra":null}\n{"id":2,"extra":false}\n')
    result = events(tmp_path / "a.jsonl", tmp_path / "b.jsonl", key="id")
    assert result[0]["columns_a"] == ["id", "extra"]
    assert changed(result)[0]["delta"] == {"extra": {"from": True, "to": False}}


@pytest.mark.parametrize(
    ("line", "words"), [("[1]", "line 2: not an object"), ("{", "line 2: not JSON"), ('{"a":NaN}', "NaN is not JSON")]
)
def test_bad_json_lines_are_named(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"id":1}\n' + line + "\n")
    with pytest.raises(DriftlineError, match=words) as caught:
        events(tmp_path / "a.jsonl", tmp_path / "a.jsonl")
    assert caught.value.code == "invalid_jsonl"


def test_typed_keys_must_be_there_and_unique(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id":1}\n{"id":null}\n')
    (tmp_path / "b.jsonl").write_text('{"id":"x"}\n{"id":7}\n{"id":7}\n')
    with pytest.raises(DriftlineError, match='Missing key value in A at row 3: column "id"'):
        events(tmp_path / "a.jsonl", tmp_path / "b.jsonl", key="id")
    with pytest.raises(DriftlineError, match=r'Duplicate key in A: {"id":7} \(rows 3 and 4\)'):
        events(tmp_path / "b.jsonl", tmp_path / "b.jsonl", key="id")


def test_other_typed_errors(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 this is not parquet PAR1")
    sqlite3.connect(tmp_path / "a.db").execute("CREATE TABLE t (id)")
    with pytest.raises(DriftlineError, match="not a readable Parquet file"):
        events(tmp_path / "a.parquet", tmp_path / "a.parquet")
    with pytest.raises(DriftlineError, match=r"has no table u \(it has: t\)"):
        events(f"{tmp_path}/a.db::u", f"{tmp_path}/a.db::t")
    pl.DataFrame({"id": [1], "b": [[b"x"]]}).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(DriftlineError, match='column "b" holds binary data inside lists'):
        events(tmp_path / "b.parquet", tmp_path / "b.parquet")


def test_an_empty_typed_table_is_fine(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "a.db").execute("CREATE TABLE t (id, v)")
    (tmp_path / "b.jsonl").write_text('{"id":1,"v":2}\n')
    assert events(f"{tmp_path}/a.db::t", tmp_path / "b.jsonl", key="id")[-1]["rows_added"] == 1

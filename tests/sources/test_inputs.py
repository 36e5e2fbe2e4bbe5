"""What users may name as a side: compressed files, folders, globs, standard input, typed sources."""

from __future__ import annotations

import bz2
import csv
import datetime
import decimal
import gzip
import io
import json
import lzma
import os
import sqlite3
import sys
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from backports import zstd

import driftline as dl
from driftline.errors import DriftlineError
from driftline.sources._formats import jsonl as json_rows
from support.engines import LOCAL_ENGINES
from support.processes import run_process

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


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
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
        ("two.db", "missing_table_name"),
    ],
)
def test_what_cannot_be_opened(tmp_path: Path, plain: Path, given: str, code: str) -> None:
    (tmp_path / "empty").mkdir()
    sqlite3.connect(tmp_path / "two.db").executescript("CREATE TABLE t (id); CREATE TABLE u (id);")
    with pytest.raises(DriftlineError) as caught:
        events(tmp_path / given, plain)
    assert caught.value.code == code


def test_mixed_folders_are_refused(tmp_path: Path, plain: Path) -> None:
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.csv").write_text(A)
    (tmp_path / "mixed" / "b.jsonl").write_text('{"id":1}\n')
    with pytest.raises(DriftlineError, match="mixes files of several kinds: csv, jsonl"):
        events(tmp_path / "mixed", plain)


MIXED = "id,n,flag,day,at,t\n1,1.50,TRUE,2024-05-01,2024-05-01 10:00,a\n2,7,no,2024-05-02,,\n"


def typed_twin(folder: Path, kind: str) -> Path | str:
    """The same rows with types; SQLite and JSON know no dates."""
    day = [datetime.date(2024, 5, 1), datetime.date(2024, 5, 2)]
    at = [datetime.datetime(2024, 5, 1, 10), None]
    frame = pl.DataFrame({"id": [1, 2], "n": [1.5, 7.0], "flag": [True, False], "day": day, "at": at, "t": ["a", None]})
    if kind == "parquet":
        frame.write_parquet(folder / "b.parquet")
        return folder / "b.parquet"
    rows = [{**row, "day": str(row["day"]), "at": row["at"] and "2024-05-01 10:00"} for row in frame.to_dicts()]
    if kind == "jsonl":
        (folder / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder / "b.jsonl"
    with sqlite3.connect(folder / "b.db") as database:
        database.execute("CREATE TABLE t (id, n, flag, day, at, t)")
        database.executemany("INSERT INTO t VALUES (:id, :n, :flag, :day, :at, :t)", rows)
    return f"{folder / 'b.db'}::t"


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "sqlite"])
def test_csv_meets_typed_values(tmp_path: Path, kind: str) -> None:
    """CSV is read as the other side's types say (tables §4.6)."""
    (tmp_path / "a.csv").write_text(MIXED)
    twin = typed_twin(tmp_path, kind)
    rules = {"types": {"flag": "boolean"}} if kind == "sqlite" else {}
    assert not dl.diff(tmp_path / "a.csv", twin, key="id", null=[""], **rules)
    assert not dl.diff(twin, tmp_path / "a.csv", key="id", null=[""], **rules)
    (event,) = changed(events(tmp_path / "a.csv", twin, key="id", **rules))
    assert event["key"] == {"id": "2"}
    assert event["delta"] == {"at": {"from": "", "to": None}, "t": {"from": "", "to": None}}
    (tmp_path / "a.csv").write_text(MIXED.replace("1.50", "1.51").replace(",a\n", ",A\n"))
    (event,) = changed(events(twin, tmp_path / "a.csv", key="id", null=[""], **rules))
    assert event["delta"] == {"n": {"from": 1.5, "to": "1.51"}, "t": {"from": "a", "to": "A"}}
    near = dl.diff(
        twin, tmp_path / "a.csv", key="id", null=[""], tolerance={"n": "1%"}, normalize={"t": ["case"]}, **rules
    )
    assert not near


def test_rules_on_typed_values(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id":1,"n":1,"t":" X "}\n{"id":2,"n":2.5,"t":null}\n{"id":10,"n":3,"t":"y"}\n')
    (tmp_path / "b.jsonl").write_text('{"id":1,"n":1.0,"t":"x"}\n{"id":2,"n":2.6,"t":"-"}\n{"id":10,"n":3,"t":"y"}\n')
    paths = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    assert [event["changed"] for event in changed(events(*paths, key="id"))] == [["t"], ["n", "t"]]  # 1 = 1.0
    texts = {"normalize": {"t": ["trim", "case"]}, "null": ["-"]}
    assert [event["changed"] for event in changed(events(*paths, key="id", **texts))] == [["n"]]
    assert [event["key"] for event in changed(events(*paths, key="id", **texts, types={"n": "number"}))] == [{"id": 2}]
    assert not dl.diff(*paths, key="id", **texts, tolerance={"n": "0.11"})


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
    pl.DataFrame({"id": [1], "b": [[b"y"]]}).write_parquet(tmp_path / "c.parquet")
    assert len(events(tmp_path / "b.parquet", tmp_path / "c.parquet")) == 3


def test_an_empty_typed_table_is_fine(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "a.db").execute("CREATE TABLE t (id, v)")
    (tmp_path / "b.jsonl").write_text('{"id":1,"v":2}\n')
    assert events(f"{tmp_path}/a.db::t", tmp_path / "b.jsonl", key="id")[-1]["rows_added"] == 1


def test_pipes_are_spooled(tmp_path: Path, plain: Path) -> None:
    """Read once for their kind and once for their rows, they would hang."""
    os.mkfifo(tmp_path / "fifo")
    for content, key in ((A.encode(), "id"), (gzip.compress(A.encode()), "id")):
        writer = threading.Thread(target=(tmp_path / "fifo").write_bytes, args=(content,))
        writer.start()
        (event,) = changed(events(tmp_path / "fifo", plain, key=key))
        writer.join()
        assert event["delta"] == {"v": {"from": "b", "to": "c"}}


def test_process_substitution_and_standard_input_by_name(plain: Path) -> None:
    command = f"exec {sys.executable} -m driftline diff <(printf '{A}') /dev/stdin -k id"
    with open(plain, "rb") as stdin:
        done = run_process(["bash", "-c", command.replace("\n", "\\n")], stdin=stdin, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
    assert b'"delta":{"v":{"from":"b","to":"c"}}' in done.stdout


def test_standard_input_is_one_side_only() -> None:
    with pytest.raises(DriftlineError, match="only one side can be standard input"):
        events("-", "-")


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, A)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["bz2", "xz", "zip"])
def test_other_compressions_are_read(tmp_path: Path, plain: Path, kind: str) -> None:
    data = {"bz2": bz2.compress(A.encode()), "xz": lzma.compress(A.encode()), "zip": zipped("inner.csv")}[kind]
    for name in (f"a.csv.{kind}", "named-wrongly.csv"):
        (tmp_path / name).write_bytes(data)
        (event,) = changed(events(tmp_path / name, plain, key="id"))
        assert event["delta"] == {"v": {"from": "b", "to": "c"}}
    (tmp_path / f"cut.csv.{kind}").write_bytes(data[:-12])
    with pytest.raises(DriftlineError) as caught:
        events(tmp_path / f"cut.csv.{kind}", plain)
    assert caught.value.code == "corrupt_compression"


def test_a_header_that_begins_like_bzip2_is_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("BZh91,v\n1,2\n")
    (tmp_path / "b.csv").write_text("BZh91,v\n1,3\n")
    assert [event["type"] for event in events(tmp_path / "a.csv", tmp_path / "b.csv", key=["BZh91"])][1] == "changed"


@pytest.mark.parametrize(
    ("name", "start", "remedy"),
    [
        ("a.zip", zipped("a.csv", "b.csv"), "ZIP archive of 2 files .a.csv, b.csv.: unpack it and name one"),
        ("a.csv", zipped(), "ZIP archive of 0 files"),
        ("a.csv", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "Excel"),
        ("a.csv", b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    ],
)
def test_what_nobody_can_read_is_refused_with_a_remedy(
    tmp_path: Path, plain: Path, name: str, start: bytes, remedy: str
) -> None:
    (tmp_path / name).write_bytes(start + b"\x00" * 40)
    with pytest.raises(DriftlineError, match=remedy) as caught:
        events(tmp_path / name, plain)
    assert caught.value.code == "unsupported_format"


ROWS = [{"id": 1, "v": "é€\U0001f600", "w": [1, {"]": "}"}]}, {"id": 2, "v": None}, {"id": 3, "v": -1.5e3}]


@pytest.mark.parametrize("block", [5, 7, 1 << 20])
@pytest.mark.parametrize("mark", ["", "\ufeff", " \n"])
def test_a_json_array_reads_like_json_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, mark: str
) -> None:
    monkeypatch.setattr(json_rows, "_BLOCK_BYTES", block)
    for indent in (None, 0, 2):
        (tmp_path / "a.json").write_text(mark + json.dumps(ROWS, ensure_ascii=False, indent=indent))
        (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        assert not dl.diff(tmp_path / "a.json", tmp_path / "b.jsonl", key="id")
    (tmp_path / "a.json").write_text("[]")
    assert dl.diff(tmp_path / "a.json", tmp_path / "a.json").stats["rows_total_compared"] == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[{}", "Expecting ',' delimiter"),
        ("[", "Expecting value"),
        ("[1]", "not an object"),
        ("[{},]", "line 1: not JSON"),
        ("[{}] {}", "Extra data"),
        ("[{} {}]", "Expecting ',' delimiter"),
        ('[{"a": NaN}]', "NaN is not JSON"),
        ('[{"\\ud800": 1}]', "half a character"),
        ('[\n{"a":1},\n{"a":}]', "line 3: not JSON"),
    ],
)
def test_damaged_json_arrays_say_where(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DriftlineError, match=reason) as caught:
        events(tmp_path / "a.json", tmp_path / "a.json")
    assert caught.value.code == "invalid_jsonl"


def test_half_characters_in_json_compare_and_print(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id":"\\ud800","v":"\\udfff"}\n{"id":"b","v":"x"}\n')
    (tmp_path / "b.jsonl").write_text('{"id":"\\ud800","v":"y"}\n{"id":"b","v":"x"}\n')
    result = dl.diff(tmp_path / "a.jsonl", tmp_path / "b.jsonl", key="id")
    (event,) = changed(list(result))
    assert event["delta"] == {"v": {"from": "\udfff", "to": "y"}}
    for name in ("jsonl", "json", "csv", "markdown", "summary", "html"):
        result.write(tmp_path / "out", name)
        assert (tmp_path / "out").read_bytes().decode()


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_fields_of_any_size(tmp_path: Path, engine: str) -> None:
    """The csv module's limit is for the process, and stays what the program around us made it."""
    name, cell = "n" * 200_000, "c" * 200_000
    (tmp_path / "a.csv").write_text(f"id,{name}\n1,{cell}\n2,x\n")
    (tmp_path / "b.csv").write_text(f"id,{name}\n1,{cell}\n2\n")
    (tmp_path / "c.csv").write_text(f'id,{name}\n1,{cell}\n2,5" disk\n')
    limit = csv.field_size_limit()
    with pytest.raises(DriftlineError, match="Row width mismatch in B at row 3"):
        events(tmp_path / "a.csv", tmp_path / "b.csv", engine=engine)
    (event,) = changed(events(tmp_path / "a.csv", tmp_path / "c.csv", engine=engine))
    assert event["delta"] == {name: {"from": "x", "to": '5" disk'}}
    assert csv.field_size_limit() == limit == 131072


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path: Path, engine: str) -> None:
    (tmp_path / "a.csv").write_text(A)
    os.mkfifo(tmp_path / "b")

    def write_both() -> None:
        with open(tmp_path / "b", "w") as out:  # by now A has been looked at
            (tmp_path / "a.csv").write_text(A + "3,c\n")
            out.write(B)

    writer = threading.Thread(target=write_both)
    writer.start()
    with pytest.raises(DriftlineError) as caught:
        events(tmp_path / "a.csv", tmp_path / "b", engine=engine)
    writer.join()
    assert caught.value.code == "file_changed"

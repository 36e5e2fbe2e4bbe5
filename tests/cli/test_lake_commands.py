"""The `lake` commands from outside: output, exit codes, one-line errors."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline

A = "id,name,city\n1,Ann,Oslo\n2,Bob,Rome\n3,Cyd,Bern\n"
B = "id,name,city\n1,Anna,Oslo\n3,Cyd,Bern\n4,Dan,Kyiv\n"


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("empty.csv", "id,name,city\n"), ("a.csv", A), ("b.csv", B)):
        (tmp_path / name).write_text(text)
    return tmp_path


def lake(*words: str) -> int:
    return run(driftline, ["lake", *words])


def extract(before: str, after: str, start: str) -> int:
    return lake("extract", before, after, "-k", "id", "-t", "users", "--client-id", "nightly", "--start", start)


def test_from_snapshots_to_any_moment(workplace: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert extract("empty.csv", "a.csv", "1000") == 0
    assert extract("a.csv", "b.csv", "2000") == 0
    assert lake("compact", "-t", "users") == 0
    assert lake("verify", "-t", "users", "--oracle") == 0
    capfdbinary.readouterr()
    assert lake("materialize", "-t", "users", "--as-of", "1999", "--format", "csv") == 0
    assert capfdbinary.readouterr().out.decode() == "_row_id,id,name,city\n1,1,Ann,Oslo\n2,2,Bob,Rome\n3,3,Cyd,Bern\n"
    assert lake("materialize", "-t", "users", "--format", "sqlite", "-o", "users.db") == 0
    assert sqlite3.connect("users.db").execute("SELECT name FROM users WHERE id = '1'").fetchall() == [("Anna",)]
    assert lake("changes", "-t", "users", "--from", "1999") == 1
    events = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [event["type"] for event in events] == ["schema", "changed", "removed", "added", "stats"]
    assert lake("changes", "-t", "users", "--from", "2005") == 0
    assert lake("log", "-t", "users") == 0
    assert lake("history", "-t", "users", "--row", "1", "--json") == 0
    as_before = capfdbinary.readouterr().out.splitlines()
    assert lake("history", "-t", "users", "--row", "1", "--format", "json") == 0
    now = capfdbinary.readouterr().out.splitlines()
    assert as_before[-2:] == now
    told = [json.loads(line) for line in now if b'"won"' in line]
    assert [entry["won"] for entry in told] == [["id", "city"], ["name"]]


def test_deltas_travel_between_lakes(workplace: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    extract("empty.csv", "a.csv", "1000")
    capfdbinary.readouterr()
    lake("changes", "-t", "users", "--from", "0", "--format", "deltas", "-o", "deltas.jsonl")
    lake("schema", "users")
    Path("schema.json").write_bytes(capfdbinary.readouterr().out)
    assert lake("schema", "users", "schema.json", "--lake", "other") == 0
    assert lake("flush", "deltas.jsonl", "--lake", "other") == 0
    assert lake("flush", "deltas.jsonl", "--lake", "other") == 0
    results = [json.loads(line)["deltas"] for line in capfdbinary.readouterr().out.splitlines()]
    assert results == [3, 0]
    lake("materialize", "-t", "users")
    lake("materialize", "-t", "users", "--lake", "other")
    lines = capfdbinary.readouterr().out.splitlines()
    assert lines[:3] == lines[3:]
    assert lake("flush", "deltas.jsonl", "--lake", "third") == 0
    assert lake("schema", "users", "schema.json", "--lake", "third") == 0
    assert lake("flush", "--lake", "third") == 0
    assert lake("vacuum", "-t", "users", "--hours", "0", "--lake", "third") == 0
    assert b"envelopes" in capfdbinary.readouterr().out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["materialize", "-t", "nothing"], "unknown_table"),
        (["materialize", "-t", "users", "--as-of", "yesterday"], "invalid_moment"),
        (["changes", "-t", "users", "--from", "9", "--to", "8"], "empty_window"),
        (["verify", "-t", "users"], "no_snapshot"),
        (["materialize", "-t", "users", "--format", "parquet"], "invalid_option"),
        (["flush", "missing.jsonl"], "not_found"),
        (["compact", "-t", "users", "--engine", "local", "--master", "local[2]"], "invalid_option_combination"),
        (["vacuum", "-t", "users", "--horizon", "2999-01-01"], "invalid_option"),
        (["extract", "a.csv", "b.csv", "-k", "nope", "-t", "users", "--client-id", "c"], "missing_key_column"),
        (["extract", "a.csv", "b.csv", "-k", "id", "-t", "no table", "--client-id", "c"], "VALIDATION_ERROR"),
    ],
)
def test_errors_are_one_line(workplace: Path, capfd: pytest.CaptureFixture[str], words: list[str], code: str) -> None:
    extract("empty.csv", "a.csv", "1000")
    capfd.readouterr()
    assert lake(*words) == 2
    told = capfd.readouterr()
    assert told.err.startswith(f"error[{code.lower()}]: ")
    assert len(told.err.splitlines()) == 1
    assert told.out == ""


def test_an_extraction_starts_from_what_the_lake_holds(workplace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["extract", "a.csv", "b.csv", "-k", "id", "-t", "users", "--client-id", "nightly"]
    assert lake(*words) == 2
    assert capfd.readouterr().err.startswith(
        "error[base_mismatch]: A is not what the lake holds of users (it holds not"
    )
    assert lake(*words, "--load-base") == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["base"], told["deltas"]) == (3, 3)
    assert lake("materialize", "-t", "users", "--format", "csv") == 0
    assert capfd.readouterr().out == "_row_id,id,name,city\n1,1,Anna,Oslo\n3,3,Cyd,Bern\n4,4,Dan,Kyiv\n"
    assert lake(*words) == 0
    assert "in the lake already" in capfd.readouterr().err
    (workplace / "other.csv").write_text(B.replace("Anna", "Ann").replace("4,Dan,Kyiv\n", ""))
    assert lake("extract", "other.csv", "a.csv", *words[3:]) == 2
    assert "(2 rows differ, as '1', '4')" in capfd.readouterr().err
    assert lake("extract", "b.csv", "a.csv", *words[3:]) == 0
    assert lake(*words) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["deltas"] == 3, "back and forth is not done before"
    assert lake("extract", "b.csv", "a.csv", *words[3:], "--start", "1") == 2
    assert "error[late_start]" in capfd.readouterr().err


def test_rows_of_others_are_part_of_what_the_lake_holds(workplace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    extract("empty.csv", "a.csv", "1000")
    from driftline.deltas import ColumnDelta, RowDelta
    from driftline.lake import Lake, flush

    own = [ColumnDelta("id", "1"), ColumnDelta("name", "Zoe"), ColumnDelta("city", "Oslo")]
    pushed = RowDelta.make(op="INSERT", table="users", row_id="1", client_id="app", columns=own, hlc=1500)
    flush(Lake("lake"), "users", [pushed], gateway_id="gw", sequence=1)
    assert extract("a.csv", "b.csv", "2000") == 2
    assert "(1 rows differ, as '1')" in capfd.readouterr().err
    (workplace / "pushed.csv").write_text(A.replace("Ann", "Zoe"))
    assert extract("pushed.csv", "b.csv", "2000") == 0

"""Extraction of snapshots and flushing of files: deterministic, increasing, exactly once."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import driftline as dl
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.core._parts import line_ranges
from driftline.deltas import ColumnDelta, ColumnSchema, RowDelta, TableSchema, from_events
from driftline.errors import DriftlineError
from driftline.lake import Lake, flush, register, registered
from driftline.lake._fold.local import check_delta_ids, delta_ids
from driftline.lake._load.ingest import commit_ingested, ingest_locally, plan_ingest
from driftline.lake._load.load import Schedulers, extract_snapshots
from driftline.lake._read.state import all_deltas, state_rows
from driftline.lake._store.envelopes import envelope_paths, read_envelope
from driftline.lake._store.rows import decode_deltas, encode_deltas, json_texts
from support.lakes import BATCHES, SCHEMA, delta, row_deltas


def write_snapshots(folder: Path, rows: int = 300, seed: int = 1) -> tuple[Path, Path]:
    chance = random.Random(seed)
    before = {f"k{n:05d}": [f"name {n}", f"city, {chance.randrange(9)}", ""] for n in range(rows)}
    after = {key: list(value) for key, value in before.items() if chance.random() > 0.1}
    for key in list(after):
        if chance.random() < 0.2:
            after[key][chance.randrange(3)] = f'new "{key}"\n'
    after |= {f"k{n:05d}": ["new", "row", ""] for n in range(rows, rows + 20)}
    for name, content in (("a.csv", before), ("b.csv", after)):
        with open(folder / name, "w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(["id", "Full Name", "city", "note"])
            items = list(content.items())
            chance.shuffle(items)
            writer.writerows([key, *value] for key, value in items)
    return folder / "a.csv", folder / "b.csv"


def nothing_like(path: Path) -> Path:
    """An empty table with the same columns."""
    empty = path.with_name("empty.csv")
    empty.write_text(path.read_text(encoding="utf-8").partition("\n")[0] + "\n", encoding="utf-8")
    return empty


def run_extract(lake: Lake, a: Path, b: Path, **options: Any) -> Any:
    given: dict[str, Any] = {"key": ["id"], "table": "people", "client_id": "nightly", **options}
    return extract_snapshots(lake, a, b, **given)


def test_extraction_is_the_door_from_events(tmp_path: Path) -> None:
    a, b = write_snapshots(tmp_path)
    lake = Lake(str(tmp_path / "lake"))
    run_extract(lake, nothing_like(a), a, start=500 << 16)
    result = run_extract(lake, a, b, start=1000 << 16)
    made = sorted((each for each in all_deltas(lake, "people") if each.hlc >= 1000 << 16), key=lambda each: each.hlc)
    events = list(dl.diff(a, b, key=["id"]))
    assert made == list(from_events(events, table="people", client_id="nightly", start=1000 << 16))
    assert result.deltas == len(made) == len(events) - 2
    assert [each.row_id for each in made] == sorted(each.row_id for each in made)
    assert [each.hlc for each in made] == list(range(1000 << 16, (1000 << 16) + len(made)))
    assert all(each.has_own_id() for each in made)
    assert registered(lake, "people") == TableSchema(
        "people", [{"name": name, "type": "string"} for name in ("id", "Full Name", "city", "note")], key=["id"]
    )


def test_a_rerun_adds_nothing_and_a_killed_one_left_nothing(tmp_path: Path) -> None:
    a, b = write_snapshots(tmp_path)
    lake = Lake(str(tmp_path / "lake"))
    base = run_extract(lake, nothing_like(a), a).deltas

    def killed(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_extract(lake, a, b, schedulers=Schedulers(ingest=killed))
    assert len(list(all_deltas(lake, "people"))) == base
    first = run_extract(lake, a, b)
    second = run_extract(lake, a, b)
    assert list((tmp_path / "lake/tables/people/extracts").iterdir()) == []
    assert second.was_done_before
    assert second.start == first.start
    assert len(list(all_deltas(lake, "people"))) == base + first.deltas


def test_extractions_in_a_row_lead_to_the_last_snapshot(tmp_path: Path) -> None:
    a, b = write_snapshots(tmp_path)
    (tmp_path / "empty.csv").write_text("id,Full Name,city,note\n")
    lake = Lake(str(tmp_path / "lake"))
    run_extract(lake, tmp_path / "empty.csv", a)
    run_extract(lake, a, b)
    with open(b, newline="", encoding="utf-8") as file:
        expected = {row["id"]: row for row in csv.DictReader(file)}
    assert dict(state_rows(lake, "people")) == expected


def test_composite_keys_and_a_registered_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y,v,w\n1,1,a,b\n")
    (tmp_path / "b.csv").write_text("x,y,v,w\n1,1,c,d\n")
    lake = Lake(str(tmp_path / "lake"))
    register(lake, TableSchema("people", [{"name": "v", "type": "string"}]))
    run_extract(lake, tmp_path / "a.csv", tmp_path / "b.csv", key=["x", "y"], load_base=True)
    base, made = sorted(all_deltas(lake, "people"), key=lambda each: each.hlc)
    assert (base.op, base.columns) == ("INSERT", (ColumnDelta("v", "a"),))
    assert (made.row_id, made.columns) == ('["1","1"]', (ColumnDelta("v", "c"),))


def flush_lines(lake: Lake, path: Path, application: str = "file:1", size: int = 400) -> int:
    plan = plan_ingest(lake, ["todos"], "gw")
    work = [(lines, 0) for lines in line_ranges(path, size)]
    return sum(result.deltas for result in commit_ingested(plan, ingest_locally(plan, work), application))


@pytest.mark.parametrize("ending", ["\n", ""])
def test_a_stream_of_deltas_in_ranges(tmp_path: Path, ending: str) -> None:
    deltas = [delta("UPDATE", f"r{n % 7}", n, title=f"é{n}") for n in range(1, 101)]
    lines = [json.dumps(each.to_wire(), ensure_ascii=False) for each in deltas]
    (tmp_path / "d.jsonl").write_text("\n".join(lines) + ending, encoding="utf-8")
    lake = Lake(str(tmp_path / "lake"))
    register(lake, SCHEMA)
    assert len(line_ranges(tmp_path / "d.jsonl", 400)) > 10
    assert flush_lines(lake, tmp_path / "d.jsonl") == 100
    assert flush_lines(lake, tmp_path / "d.jsonl") == 0
    assert sorted(all_deltas(lake, "todos"), key=lambda each: each.hlc) == deltas


def test_a_delta_whose_copies_lie_far_apart_in_a_file_is_stored_once(tmp_path: Path) -> None:
    """Each range is written on its own and knows nothing of the others."""
    deltas = [delta("UPDATE", f"r{n % 7}", n, title=f"é{n}") for n in range(1, 41)]
    file = [*deltas, *deltas[:15], deltas[3]]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(each.to_wire()) + "\n" for each in file), encoding="utf-8")
    lake = Lake(str(tmp_path / "lake"))
    register(lake, SCHEMA)
    plan = plan_ingest(lake, ["todos"], "gw")
    work = [(lines, 0) for lines in line_ranges(tmp_path / "d.jsonl", 400)]
    assert len(work) > 10
    [result] = commit_ingested(plan, ingest_locally(plan, work), "file:1")
    assert (result.deltas, result.known) == (40, 16)
    assert sorted(all_deltas(lake, "todos"), key=lambda each: each.hlc) == deltas


TWINS = [delta("INSERT", "t", 50), delta("DELETE", "t", 50)]  # one id, two operations


def lines_of(path: Path, deltas: list[RowDelta]) -> Path:
    path.write_text("".join(json.dumps(each.to_wire()) + "\n" for each in deltas), encoding="utf-8")
    return path


@pytest.mark.parametrize("is_registered", [True, False], ids=["parquet", "envelopes"])
@pytest.mark.parametrize("twins", [TWINS, TWINS[::-1]], ids=["delete second", "delete first"])
def test_a_delta_that_shares_its_id_with_another_operation_is_refused_by_name(
    tmp_path: Path, capfd: Any, is_registered: bool, twins: list[RowDelta]
) -> None:
    """Wherever the first one is: in an earlier file, in the same one, in one that was flushed with a counter."""
    lake = Lake(str(tmp_path / "lake"))
    if is_registered:
        register(lake, SCHEMA)
    command = ["lake", "flush", "--lake", str(tmp_path / "lake"), "--gateway", "gw"]
    both = lines_of(tmp_path / "both.jsonl", [delta("UPDATE", "r", 1, title="a"), *twins])
    assert run(driftline, [*command, str(both)]) == 2
    words = capfd.readouterr().err
    assert words.startswith("error[validation_error]")
    assert words.endswith(f"({twins[0].delta_id[:16]}…): its id is known with another op\n")
    assert held(lake) == []
    assert run(driftline, [*command, str(lines_of(tmp_path / "first.jsonl", twins[:1]))]) == 0
    assert run(driftline, [*command, str(lines_of(tmp_path / "second.jsonl", twins[1:]))]) == 2
    assert "its id is known with another op" in capfd.readouterr().err
    again = lines_of(tmp_path / "again.jsonl", [twins[0], delta("DELETE", "u", 60)])
    assert run(driftline, [*command, str(again)]) == 0
    assert held(lake) == [("t", twins[0].op), ("u", "DELETE")]
    with pytest.raises(DriftlineError, match="its id is known with another op") as caught:
        flush(lake, "todos", twins, gateway_id="gw", sequence=1)
    assert caught.value.code == "VALIDATION_ERROR"


def held(lake: Lake) -> list[tuple[str, str]]:
    """Rows and operations of what the lake has, in Parquet or waiting."""
    waiting = [each for name in envelope_paths(lake, "todos") for each in read_envelope(lake, "todos", name).deltas]
    stored = [] if registered(lake, "todos") is None else all_deltas(lake, "todos")
    return sorted((each.row_id, each.op) for each in [*waiting, *stored])


def test_operations_of_one_id_in_ranges_far_apart_are_refused(tmp_path: Path) -> None:
    deltas = [delta("UPDATE", f"r{n % 7}", n, title=f"é{n}") for n in range(1, 101)]
    path = lines_of(tmp_path / "d.jsonl", [TWINS[0], *deltas, TWINS[1]])
    lake = Lake(str(tmp_path / "lake"))
    register(lake, SCHEMA)
    with pytest.raises(DriftlineError, match="its id is known with another op"):
        flush_lines(lake, path)
    assert list(all_deltas(lake, "todos")) == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("{", "delta 1"),
        ('{"op": "INSERT"}', "delta 1"),
        (json.dumps({**delta("INSERT", "r", 1).to_wire(), "deltaId": "0" * 64}), "does not match"),
        (json.dumps(delta("INSERT", "r", 1, table="other").to_wire()), "no schema is registered"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_committed(tmp_path: Path, line: str, word: str) -> None:
    good = json.dumps(delta("INSERT", "r", 1).to_wire())
    (tmp_path / "d.jsonl").write_text(f"{good}\n{line}\n")
    lake = Lake(str(tmp_path / "lake"))
    register(lake, SCHEMA)
    with pytest.raises(DriftlineError, match=word):
        flush_lines(lake, tmp_path / "d.jsonl")
    assert list(all_deltas(lake, "todos")) == []


@given(st.lists(row_deltas(), max_size=10))
def test_ids_of_whole_files(deltas: list[RowDelta]) -> None:
    rows = encode_deltas(deltas, SCHEMA.columns)
    assert delta_ids("todos", rows, SCHEMA.columns).to_pylist() == [each.delta_id for each in deltas]
    check_delta_ids("todos", rows, SCHEMA.columns, "x")
    assert list(decode_deltas(rows, "todos", SCHEMA.columns)) == deltas


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53).map(float)))
def test_numbers_as_javascript_prints_them(numbers: list[float]) -> None:
    import pyarrow as pa

    from driftline.core._json import canonical_json

    texts = json_texts(pa.array(numbers, pa.float64()), ColumnSchema("x", "number")).to_pylist()
    assert texts == [canonical_json(number) for number in numbers]


@given(st.lists(st.text() | st.none()))
def test_strings_as_canonical_json(texts: list[str | None]) -> None:
    import pyarrow as pa

    from driftline.core._json import canonical_json

    clean = [None if text is None else text.encode("utf-8", "replace").decode() for text in texts]
    assert json_texts(pa.array(clean, pa.string()), ColumnSchema("x", "string")).to_pylist() == [
        canonical_json(text) for text in clean
    ]


@given(batches=BATCHES)
def test_envelopes_and_parquet_hold_the_same(batches: list[list[RowDelta]], tmp_path_factory: Any) -> None:
    with_schema, without = (Lake(str(tmp_path_factory.mktemp("lake"))) for _ in range(2))
    register(with_schema, SCHEMA)
    for number, batch in enumerate(batches):
        one_op_each = list({each.delta_id: each for each in batch}.values())  # a batch with both is refused
        for lake in (with_schema, without):
            flush(lake, "todos", one_op_each, gateway_id="gw", sequence=number + 1)
    key = lambda each: (each.hlc, each.delta_id, each.op)  # noqa: E731
    assert sorted(all_deltas(with_schema, "todos"), key=key) == sorted(all_deltas(without, "todos"), key=key)

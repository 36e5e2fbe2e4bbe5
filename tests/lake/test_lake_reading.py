"""Materialise, changes, history and log on hand-made timelines."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings, strategies as st

from driftline.deltas import RowDelta, TableSchema
from driftline.errors import DriftlineError
from driftline.lake import (
    STATE_FORMATS,
    Lake,
    changes,
    compact,
    flush,
    lake_log,
    materialize,
    register,
    replay,
    row_history,
)
from driftline.lake._read.state import all_deltas, state_rows
from support.lakes import BATCHES, SCHEMA, delta, load_lake

TIMELINE = [
    [
        delta("INSERT", "r1", 10, title="Buy milk", done=False),
        delta("INSERT", "r2", 20, title="Sleep", **{"Unit Price": 1.5, "tags (all)": {"b": 1, "a": [2]}}),
    ],
    [delta("UPDATE", "r1", 30, title=None), delta("DELETE", "r2", 40)],
    [delta("UPDATE", "r1", 25, client="late", title="too late", done=True), delta("INSERT", "r2", 50, done=True)],
]


@pytest.fixture(params=[set(), {0}, {1}, {0, 1, 2}], ids=str)
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    return load_lake(tmp_path / "lake", TIMELINE, request.param)


def jsonl(lake: Lake, **options: Any) -> list[dict[str, Any]]:
    out = io.BytesIO()
    materialize(lake, "todos", out, **options)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_time_travel(lake: Lake) -> None:
    assert jsonl(lake, as_of=9) == []
    assert jsonl(lake, as_of=10) == [{"_row_id": "r1", "title": "Buy milk", "done": False}]
    assert jsonl(lake, as_of=25)[0] == {"_row_id": "r1", "title": "too late", "done": True}
    assert jsonl(lake, as_of=30)[0] == {"_row_id": "r1", "title": None, "done": True}
    assert [row["_row_id"] for row in jsonl(lake, as_of=45)] == ["r1"]
    # r2 lives again with what was set after its death only: absent is not null
    assert jsonl(lake) == [{"_row_id": "r1", "title": None, "done": True}, {"_row_id": "r2", "done": True}]


def test_every_format_says_the_same(lake: Lake, tmp_path: Path) -> None:
    for name in STATE_FORMATS:
        assert materialize(lake, "todos", tmp_path / f"out.{name}", format=name, as_of=30) == 2
    rows = list(csv.reader(io.StringIO((tmp_path / "out.csv").read_text(encoding="utf-8"))))
    assert rows[0] == ["_row_id", "title", "Unit Price", "done", "tags (all)"]
    assert rows[1:] == [["r1", "", "", "true", ""], ["r2", "Sleep", "1.5", "", '{"a":[2],"b":1}']]
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == rows[0]
    assert table["Unit Price"].to_pylist() == [None, 1.5]
    database = sqlite3.connect(tmp_path / "out.sqlite")
    stored = database.execute('SELECT _row_id, title, "Unit Price", done, "tags (all)" FROM todos').fetchall()
    database.close()
    assert stored == [("r1", None, None, 1, None), ("r2", "Sleep", 1.5, None, '{"a":[2],"b":1}')]


def test_sqlite_uses_the_key_that_the_schema_names(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    columns = [{"name": "id", "type": "string"}, {"name": "n", "type": "number"}]
    register(lake, TableSchema("todos", columns, key=["id"]))
    flush(lake, "todos", [delta("INSERT", "7", 1, id="7", n=2)], gateway_id="gw", sequence=1)
    materialize(lake, "todos", tmp_path / "out.db", format="sqlite")
    database = sqlite3.connect(tmp_path / "out.db")
    assert database.execute("SELECT * FROM todos").fetchall() == [("7", 2.0)]
    assert [row[5] for row in database.execute("PRAGMA table_info(todos)")] == [1, 0]
    database.close()


def test_changes_as_events(lake: Lake) -> None:
    out = io.BytesIO()
    counts = changes(lake, "todos", out, since=20, until=45)
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [event["type"] for event in events] == ["schema", "changed", "removed", "stats"]
    assert events[1]["key"] == {"_row_id": "r1"}
    assert events[1]["changed"] == ["title", "done"]
    assert events[1]["delta"]["title"] == {"from": "Buy milk", "to": None}
    assert events[2]["row"]["title"] == "Sleep"
    assert counts.any_difference
    assert events[3] == {
        "type": "stats",
        "rows_total_compared": 1,
        "rows_added": 0,
        "rows_removed": 1,
        "rows_changed": 1,
        "rows_unchanged": 0,
    }


def test_no_change_in_an_empty_window(lake: Lake) -> None:
    out = io.BytesIO()
    assert not changes(lake, "todos", out, since=60, until=70).any_difference
    with pytest.raises(DriftlineError, match="window is empty"):
        changes(lake, "todos", out, since=70, until=60)


@settings(max_examples=25)
@given(batches=BATCHES, since=st.integers(-1, 6), data=st.data())
def test_changed_deltas_lead_from_one_moment_to_the_other(
    batches: list[list[RowDelta]], since: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    until = data.draw(st.integers(since, 7))
    lake = load_lake(tmp_path_factory.mktemp("lake"), batches, data.draw(st.sets(st.integers(0, 3))))
    out = io.BytesIO()
    changes(lake, "todos", out, since=since, until=until, kind="deltas")
    net = [RowDelta.from_wire(json.loads(line)) for line in out.getvalue().splitlines()]
    everything = [each for batch in batches for each in batch]
    earlier = [each for each in everything if each.hlc <= since]
    assert replay([*earlier, *net]) == replay(everything, as_of=until)
    assert all(each.has_own_id() for each in net)
    assert {each.delta_id for each in net} <= {each.delta_id for each in everything}


def test_deltas_survive_the_files(lake: Lake) -> None:
    everything = [each for batch in TIMELINE for each in batch]
    assert sorted(all_deltas(lake, "todos"), key=lambda each: each.hlc) == sorted(everything, key=lambda e: e.hlc)


def test_history_tells_who_won(lake: Lake) -> None:
    told = [(entry.delta.hlc, entry.won, entry.is_visible) for entry in row_history(lake, "todos", "r1")]
    assert told == [(10, (), False), (25, ("done",), True), (30, ("title",), True)]
    dead = [(entry.delta.op, entry.is_visible) for entry in row_history(lake, "todos", "r2")]
    assert dead == [("INSERT", False), ("DELETE", True), ("INSERT", True)]


def test_the_log_names_every_flush(lake: Lake) -> None:
    entries = [entry for entry in lake_log(lake, "todos") if entry.operation == "flush"]
    assert [(entry.min_hlc, entry.max_hlc, entry.deltas, entry.gateway) for entry in entries] == [
        (10, 20, 2, "gw"),
        (30, 40, 2, "gw"),
        (25, 50, 2, "gw"),
    ]


def test_round_trip_of_every_type(tmp_path: Path) -> None:
    columns = [("title", "string"), ("score", "number"), ("active", "boolean"), ("metadata", "json")]
    schema = TableSchema("todos", [{"name": name, "type": kind} for name, kind in columns])
    values = {"title": "Hello World", "score": 42.5, "active": True, "metadata": {"tags": ["a", "b"], "count": 3}}
    lake = Lake(str(tmp_path))
    register(lake, schema)
    given_delta = delta("INSERT", "r", 1, **values)
    flush(lake, "todos", [given_delta], gateway_id="gw", sequence=1)
    assert list(all_deltas(lake, "todos")) == [given_delta]
    compact(lake, "todos")
    assert dict(state_rows(lake, "todos")) == {"r": values}


def test_a_table_without_a_schema_lives_in_envelopes(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    for number, batch in enumerate(TIMELINE):
        flush(lake, "todos", batch, gateway_id="gw", sequence=number + 1)
    assert jsonl(lake, as_of=10) == [{"_row_id": "r1", "title": "Buy milk", "done": False}]
    assert [entry.won for entry in row_history(lake, "todos", "r1")] == [(), ("done",), ("title",)]
    with pytest.raises(DriftlineError, match="register"):
        compact(lake, "todos")
    register(lake, SCHEMA)  # which turns into Parquet what it takes
    from driftline.lake import flush_envelopes

    assert DeltaTable(lake.part("todos", "deltas")).to_pyarrow_table().num_rows == 6
    assert flush_envelopes(lake, "todos") == []
    assert jsonl(lake)[1] == {"_row_id": "r2", "done": True}


def test_changes_as_a_changeset_lead_a_database_along(lake: Lake, tmp_path: Path) -> None:
    import apsw

    from driftline.lake._read.history import write_changes

    for moment in (20, 45):
        materialize(lake, "todos", tmp_path / f"{moment}.db", format="sqlite", as_of=moment)
    out = io.BytesIO()
    write_changes(lake, "todos", out, since=20, until=45, kind="changeset")
    with apsw.Connection(str(tmp_path / "20.db")) as database:
        apsw.Changeset.apply(out.getvalue(), database, conflict=lambda *_: pytest.fail("a conflict"))
    dumps = [list(sqlite3.connect(tmp_path / f"{moment}.db").iterdump()) for moment in (20, 45)]
    assert dumps[0] == dumps[1]


def test_a_day_alone_is_its_end_for_states_and_its_beginning_for_what_starts_then() -> None:
    from driftline.lake import parse_timestamp
    from driftline.pipeline._declare.snapshots import parse_period

    day = parse_period("2026-03-02")
    assert day is not None
    assert parse_timestamp("2026-03-02", whole_day=True) == day.end
    assert parse_timestamp("2026-03-02T00:00:00Z", whole_day=True) == parse_timestamp("2026-03-02")

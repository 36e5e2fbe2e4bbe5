"""The change data feed of `state`: replayed from version to version it gives the state at each version.

The judges are deltalake's own readers (`load_cdf`, and the table at a version), a replay written here that checks every
image against the row that it replaces, and the rows that `materialize` writes.
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import given, settings, strategies as st

from driftline.cli._commands.lake import compact as compact_command
from driftline.deltas import RowDelta, TableSchema
from driftline.lake import Lake, compact, flush, lake_log, materialize, register, vacuum, verify
from driftline.lake._store.flush import append_deltas
from driftline.lake._store.tables import loaded
from support.lakes import BATCHES, SCHEMA, delta, load_lake

Rows = dict[str, dict[str, Any]]
FEED = "delta.enableChangeDataFeed"
KINDS = {"done": "boolean", "title": "string", "a.b\"c`d'é": "integer"}
FEWER = TableSchema("todos", [{"name": name, "type": kind} for name, kind in KINDS.items()])


def opened(lake: Lake, version: int | None = None) -> DeltaTable:
    return DeltaTable(lake.part("todos", "state"), version=version)


def rows_at(lake: Lake, version: int | None = None) -> Rows:
    found = opened(lake, version).to_pyarrow_table().to_pylist()
    assert len({row["_row_id"] for row in found}) == len(found)
    return {row["_row_id"]: row for row in found}


def changes_at(lake: Lake, version: int) -> list[tuple[str, dict[str, Any]]]:
    """The changes of one version: their types, and the rows without the columns of the feed."""
    feed = opened(lake, version).load_cdf(starting_version=version, ending_version=version)
    rows = pa.table(feed).to_pylist()
    assert all(row.pop("_commit_version") == version and row.pop("_commit_timestamp") for row in rows)
    return [(row.pop("_change_type"), row) for row in rows]


def replayed(lake: Lake, rows: Rows, version: int) -> Rows:
    """The rows after a version; every old image must be the row that there was."""
    now, changes = dict(rows), changes_at(lake, version)
    images = {kind: {row["_row_id"]: row for each, row in changes if each == kind} for kind, _ in changes}
    assert sum(map(len, images.values())) == len(changes), "one change a row"
    before, after = images.get("update_preimage", {}), images.get("update_postimage", {})
    assert before.keys() == after.keys()
    assert all(before[row_id] != after[row_id] for row_id in before), "a change that changes nothing"
    for row_id, row in {**images.get("delete", {}), **before}.items():
        gone = now.pop(row_id)
        assert {name: gone.get(name) for name in row} == row
    for row_id, row in {**images.get("insert", {}), **after}.items():
        assert row_id not in now
        now[row_id] = row
    return now


def materialized(lake: Lake) -> Rows:
    out = io.BytesIO()
    materialize(lake, "todos", out)
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    return {row["_row_id"]: row for row in rows}


def assert_shows_the_lake(lake: Lake) -> None:
    """The state is what `materialize` writes; there a null may be an absent column."""
    shown = rows_at(lake)
    for row in shown.values():
        if row.get("tags (all)") is not None:
            row["tags (all)"] = json.loads(row["tags (all)"])
    states = [{key: without_nulls(row) for key, row in rows.items()} for rows in (shown, materialized(lake))]
    assert states[0] == states[1]


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


class KilledError(Exception):
    pass


def kill_after_base(stage: str) -> None:
    if stage == "base committed":
        raise KilledError


WAYS = ["compact", "compact", "full", "killed", "schema", "on", "off", "vacuum"]


@given(BATCHES, st.lists(st.sampled_from(WAYS), min_size=4, max_size=4))
@settings(max_examples=40, deadline=None)
def test_replaying_the_feed_gives_the_state_at_each_version(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[RowDelta]], ways: list[str]
) -> None:
    """Random pushes, deletes and late deltas, compacted in every way; the feed is switched off and on in between."""
    lake = Lake(str(tmp_path_factory.mktemp("feed")))
    register(lake, SCHEMA)
    compact(lake, "todos", feed=True)
    rows, done, told = {}, 1, 0  # version 0 is the empty table, with version 1 the feed begins
    for number, (batch, way) in enumerate(zip(batches, ways, strict=False)):
        if way == "schema":
            register(lake, SCHEMA if number % 2 else FEWER)
        append_deltas(lake, "todos", batch, "gw", {"flush:gw": number + 1})
        if way == "killed":
            with pytest.raises(KilledError):
                compact(lake, "todos", rows_per_range=2, at_stage=kill_after_base)
            assert rows_at(lake) == rows, "the state of before, whole"
        compact(lake, "todos", rows_per_range=2, full=way == "full", feed={"on": True, "off": False}.get(way))
        newest = opened(lake).version()
        for version in range(done + 1, newest + 1):
            if has_feed(lake, version):
                rows, told = replayed(lake, rows, version), told + 1
                assert rows == rows_at(lake, version)
            rows = rows_at(lake, version)
        done = newest
        assert_shows_the_lake(lake)
        if way == "vacuum":
            vacuum(lake, "todos", hours=0)
            assert rows_at(lake) == rows
    assert told or "off" in ways
    assert verify(lake, "todos").is_proved


HANDS = ["nothing", "base removed", "state removed", "base restored", "state restored", "rows deleted", "rows doubled"]


@given(BATCHES, st.lists(st.sampled_from(HANDS), min_size=4, max_size=4), st.sampled_from([None, True]))
@settings(max_examples=40, deadline=None)
def test_whatever_became_of_base_and_state_the_next_compaction_shows_the_lake(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[RowDelta]], hands: list[str], feed: bool | None
) -> None:
    """Of a folder that was restored or made anew the numbers say nothing: another base has the versions of the old."""
    lake = Lake(str(tmp_path_factory.mktemp("hands")))
    register(lake, SCHEMA)
    copies = tmp_path_factory.mktemp("copies")
    for number, (batch, hand) in enumerate(zip(batches, hands, strict=False)):
        append_deltas(lake, "todos", batch, "gw", {"flush:gw": number + 1})
        compact(lake, "todos", rows_per_range=2, feed=feed)
        if number == 0:
            for name in ("base", "state"):
                shutil.copytree(lake.part("todos", name), copies / name)  # type: ignore[arg-type]
        part, _, deed = hand.partition(" ")
        folder = Path(lake.part("todos", "state" if part == "rows" else part))  # type: ignore[arg-type]
        if deed in ("removed", "restored"):
            shutil.rmtree(folder)
            if deed == "restored":
                shutil.copytree(copies / part, folder)
        elif part == "rows" and rows_at(lake):
            rows = opened(lake).to_pyarrow_table().slice(0, 1)
            if deed == "deleted":
                opened(lake).delete()
            else:  # under another id, as a row that nobody wrote
                other = rows.set_column(0, "_row_id", pa.array(["by hand"]))
                write_deltalake(lake.part("todos", "state"), other, mode="append")
        late = delta("INSERT", "late", 900 + number, title=str(number))
        if number % 2:  # also where nothing is new
            append_deltas(lake, "todos", [late], "gw", {"flush:other": number + 1})
        if feed and part == "rows":
            continue  # compared with the next change of base
        compact(lake, "todos", rows_per_range=2)
        assert_shows_the_lake(lake)
        assert verify(lake, "todos").is_proved


def has_feed(lake: Lake, version: int | None = None) -> bool:
    return opened(lake, version).metadata().configuration.get(FEED) == "true"


def test_one_changed_row_is_one_change(tmp_path: Path) -> None:
    """Files of a thousand rows are rewritten, and the feed has the row alone."""
    rows = [delta("INSERT", f"r{number:04}", number + 1, title="x") for number in range(1000)]
    lake = load_lake(tmp_path, [rows])
    compact(lake, "todos", feed=True)
    changed = [delta("UPDATE", "r0500", 5000, title="y"), delta("UPDATE", "r0501", 5001, title="x")]
    flush(lake, "todos", [*changed, delta("DELETE", "r0007", 5002)], gateway_id="gw", sequence=9)
    compact(lake, "todos")
    told = sorted((kind, row["_row_id"], row["title"]) for kind, row in changes_at(lake, opened(lake).version()))
    images = [("update_postimage", "r0500", "y"), ("update_preimage", "r0500", "x")]
    assert told == [("delete", "r0007", "x"), *images]


def test_many_merges_leave_few_files(tmp_path: Path) -> None:
    lake = load_lake(tmp_path, [[delta("INSERT", "r", 1, title="first")]])
    compact(lake, "todos", feed=True)
    rows, done = rows_at(lake), opened(lake).version()
    for number in range(36):
        new = delta("INSERT", f"r{number}", 10 + number, title=str(number))
        flush(lake, "todos", [new], gateway_id="gw", sequence=2 + number)
        compact(lake, "todos")
    assert len(opened(lake).file_uris()) < 12
    for version in range(done + 1, opened(lake).version() + 1):
        rows = replayed(lake, rows, version)
    assert rows == rows_at(lake)
    assert len(rows) == 37


def test_switching_is_told_and_every_compaction_keeps_to_it(tmp_path: Path) -> None:
    lake = load_lake(tmp_path, [[delta("INSERT", "a", 1, title="x")]])
    assert compact(lake, "todos").notice is None
    assert not has_feed(lake)
    assert set(names_of(lake, "state")) == set(names_of(lake, "base"))
    on = compact(lake, "todos", feed=True)  # also without a new delta
    assert (on.is_new, on.notice) == (False, "tables/todos/state: the change data feed is on after version 0")
    assert compact(lake, "todos", feed=True).notice is None
    flush(lake, "todos", [delta("INSERT", "b", 2, title="y")], gateway_id="gw", sequence=5)
    assert compact(lake, "todos").notice is None
    assert [(kind, row["_row_id"]) for kind, row in changes_at(lake, 2)] == [("insert", "b")]
    flush(lake, "todos", [delta("INSERT", "c", 3, title="z")], gateway_id="gw", sequence=6)
    off = compact(lake, "todos", feed=False)
    assert off.notice == "tables/todos/state: the change data feed is off after version 2"
    assert set(names_of(lake, "state")) == set(names_of(lake, "base"))
    assert set(rows_at(lake)) == {"a", "b", "c"}
    with pytest.raises(DeltaError, match="not enabled"):  # a reader hears of it, too
        opened(lake).load_cdf(starting_version=2)
    told = [entry.operation for entry in lake_log(lake, "todos") if entry.part == "state"]
    assert told == ["state", "feed on", "state", "feed off", "state"]


def names_of(lake: Lake, part: Any) -> list[str]:
    return [file.path for file in loaded(lake, "todos", part).files()]


def test_the_command_tells_it(tmp_path: Path) -> None:
    lake = load_lake(tmp_path, [[delta("INSERT", "a", 1, title="x")]])
    ran = [
        CliRunner().invoke(compact_command, ["--lake", lake.root, *options])
        for options in ((), ("--state-feed",), ("--no-state-feed",))
    ]
    assert [each.exit_code for each in ran] == [0, 0, 0]
    assert [each.stderr for each in ran] == [
        "",
        "note: tables/todos/state: the change data feed is on after version 0\n",
        "note: tables/todos/state: the change data feed is off after version 1\n",
    ]

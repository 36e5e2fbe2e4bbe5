"""Any arrival order, file split and number of compaction generations: one state, equal to plain replay."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftline.deltas import ColumnDelta, RowDelta, TableSchema, merge
from driftline.lake import Lake, compact, flush, register, replay
from driftline.lake.rows import decode_state
from driftline.lake.state import snapshot_table, state_rows

SCHEMA = TableSchema(
    "todos",
    [
        {"name": "title", "type": "string"},
        {"name": "Unit Price", "type": "number"},
        {"name": "done", "type": "boolean"},
        {"name": "tags (all)", "type": "json"},
    ],
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "title": st.sampled_from(["", "a", "é", "\U0001f602", None]),
    "Unit Price": st.sampled_from([0, -1.5, 1e300, 42, None]),
    "done": st.sampled_from([True, False, None]),
    "tags (all)": st.sampled_from([[], {"b": 1, "a": [None]}, "x", 3, None]),
}
# the last two order differently by UTF-16 than by code point
CLIENTS = ["a", "b", "\U0001f602", "\ufb33"]
ROWS = ["r1", "r2", "é", "x" * 80 + "1", "x" * 80 + "2"]


@st.composite
def row_deltas(draw: st.DrawFn) -> RowDelta:
    op = draw(st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE"]))
    names = [] if op == "DELETE" else draw(st.lists(st.sampled_from(list(VALUES)), unique=True))
    return RowDelta.make(
        op=op,
        table="todos",
        row_id=draw(st.sampled_from(ROWS)),
        client_id=draw(st.sampled_from(CLIENTS)),
        columns=[ColumnDelta(name, draw(VALUES[name])) for name in names],
        hlc=draw(st.integers(0, 6)),
    )


BATCHES = st.lists(st.lists(row_deltas(), min_size=1, max_size=8), min_size=1, max_size=4)


def load_lake(root: str, batches: list[list[RowDelta]], compact_after: set[int]) -> Lake:
    lake = Lake(root)
    register(lake, SCHEMA)
    for number, batch in enumerate(batches):
        flush(lake, "todos", batch, gateway_id="gw", sequence=number + 1)
        if number in compact_after:
            compact(lake, "todos", rows_per_range=2)
    return lake


@settings(max_examples=60, deadline=None)
@given(batches=BATCHES, data=st.data())
def test_one_state_whatever_the_order_and_the_generations(batches: list[list[RowDelta]], data: st.DataObject) -> None:
    everything = [delta for batch in batches for delta in batch]
    expected = replay(everything)
    generations = data.draw(st.sets(st.integers(0, len(batches) - 1)))
    with tempfile.TemporaryDirectory() as root:
        lake = load_lake(root, batches, generations)
        assert dict(state_rows(lake, "todos")) == expected
        compact(lake, "todos")
        base = snapshot_table(lake, "todos")
        assert dict(decode_state(base, SCHEMA.columns)) == expected
        assert base["_row_id"].to_pylist() == sorted(expected)


@settings(max_examples=25, deadline=None)
@given(batches=BATCHES, data=st.data())
def test_every_moment_can_be_visited(batches: list[list[RowDelta]], data: st.DataObject) -> None:
    everything = [delta for batch in batches for delta in batch]
    generations = data.draw(st.sets(st.integers(0, len(batches) - 1)))
    with tempfile.TemporaryDirectory() as root:
        lake = load_lake(root, batches, generations)
        for moment in range(-1, 8):
            assert dict(state_rows(lake, "todos", as_of=moment)) == replay(everything, as_of=moment)


@settings(max_examples=100, deadline=None)
@given(deltas=st.lists(row_deltas(), max_size=12), data=st.data())
def test_replay_is_the_closed_form(deltas: list[RowDelta], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(deltas))
    closed = {key[1]: state.columns for key, state in merge(shuffled).items() if state.live}
    assert closed == replay(deltas)


def test_a_second_compaction_has_nothing_to_do(tmp_path: Any) -> None:
    delta = RowDelta.make(op="INSERT", table="todos", row_id="r", client_id="c", columns=[], hlc=5)
    lake = load_lake(str(tmp_path), [[delta]], set())
    first, second = compact(lake, "todos"), compact(lake, "todos")
    assert first.is_new
    assert not second.is_new
    assert second.base_version == first.base_version


@pytest.mark.parametrize("sequence", [3, 2])
def test_a_flush_happens_once(tmp_path: Any, sequence: int) -> None:
    delta = RowDelta.make(op="INSERT", table="todos", row_id="r", client_id="c", columns=[], hlc=5)
    lake = Lake(str(tmp_path))
    register(lake, SCHEMA)
    assert flush(lake, "todos", [delta], gateway_id="gw", sequence=3).deltas == 1
    again = flush(lake, "todos", [delta], gateway_id="gw", sequence=sequence)
    assert again.was_done_before
    assert flush(lake, "todos", [delta], gateway_id="other", sequence=1).deltas == 1

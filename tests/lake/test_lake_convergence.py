"""Any arrival order, file split and number of compaction generations: one state, equal to plain replay."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from driftline.deltas import RowDelta, merge
from driftline.lake import Lake, compact, flush, register, replay, verify
from driftline.lake._read.state import state_rows
from driftline.lake._store.rows import decode_state
from support.lakes import BATCHES, SCHEMA, load_lake, row_deltas, snapshot_table


@settings(max_examples=20)
@given(batches=BATCHES, data=st.data())
def test_one_state_whatever_the_order_and_the_generations(batches: list[list[RowDelta]], data: st.DataObject) -> None:
    check_one_state(batches, data)


@pytest.mark.faults
@settings(max_examples=300)
@given(batches=BATCHES, data=st.data())
def test_one_state_at_length(batches: list[list[RowDelta]], data: st.DataObject) -> None:
    check_one_state(batches, data)


def check_one_state(batches: list[list[RowDelta]], data: st.DataObject) -> None:
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
        assert verify(lake, "todos", oracle=True).is_proved


@settings(max_examples=10)
@given(batches=BATCHES, data=st.data())
def test_every_moment_can_be_visited(batches: list[list[RowDelta]], data: st.DataObject) -> None:
    check_every_moment(batches, data)


@pytest.mark.faults
@settings(max_examples=150)
@given(batches=BATCHES, data=st.data())
def test_every_moment_at_length(batches: list[list[RowDelta]], data: st.DataObject) -> None:
    check_every_moment(batches, data)


def check_every_moment(batches: list[list[RowDelta]], data: st.DataObject) -> None:
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

"""Table-diff events become deltas that lead from A to B."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from driftline.deltas import Clock, from_events, merge
from driftline.errors import DeltaError

rows = st.dictionaries(st.sampled_from("123456"), st.tuples(st.sampled_from("xyz"), st.sampled_from("pq")))


def diff(a: dict[str, tuple[str, str]], b: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    """Keyed table diff in a few lines, in the document's shapes."""

    def row(side: dict[str, tuple[str, str]], key: str) -> dict[str, str]:
        return {"id": key, "name": side[key][0], "kind": side[key][1]}

    events: list[dict[str, Any]] = [{"type": "schema", "columns_a": ["id"], "columns_b": ["id"]}]
    for key in sorted({*a, *b}):
        if key not in a:
            events.append({"type": "added", "key": {"id": key}, "row": row(b, key)})
        elif key not in b:
            events.append({"type": "removed", "key": {"id": key}, "row": row(a, key)})
        elif a[key] != b[key]:
            events.append({"type": "changed", "key": {"id": key}, "before": row(a, key), "after": row(b, key)})
        else:
            events.append({"type": "unchanged", "key": {"id": key}, "row": row(a, key)})
    return [*events, {"type": "stats"}]


@given(rows, rows)
def test_replaying_the_deltas_gives_the_new_version(
    a: dict[str, tuple[str, str]], b: dict[str, tuple[str, str]]
) -> None:
    load = list(from_events(diff({}, a), table="t", client_id="c", start=0))
    change = list(from_events(diff(a, b), table="t", client_id="c", start=1 << 20))
    live = {key[1]: tuple(state.columns.values()) for key, state in merge(load + change).items() if state.live}
    assert live == {key: (key, kind, name) for key, (name, kind) in b.items()}
    assert [delta.hlc for delta in change] == list(range(1 << 20, (1 << 20) + len(change)))


def test_a_rerun_makes_the_same_deltas() -> None:
    events = diff({"1": ("x", "p")}, {"2": ("y", "q")})
    first, again = (list(from_events(events, table="t", client_id="c", start=7)) for _ in range(2))
    assert first == again
    assert [delta.op for delta in first] == ["DELETE", "INSERT"]


def test_a_clock_gives_live_timestamps() -> None:
    clock = Clock(wall=lambda: 1000)
    deltas = list(from_events(diff({}, {"1": ("x", "p"), "2": ("y", "q")}), table="t", client_id="c", start=clock))
    assert [delta.hlc for delta in deltas] == [1000 << 16, (1000 << 16) + 1]


def test_compound_keys_and_positions() -> None:
    compound = {"type": "added", "key": {"a": "1", "b": "x"}, "row": {"a": "1", "b": "x"}}
    positional = {"type": "removed", "row_index": 2, "row": {"a": "1"}}
    deltas = list(from_events([compound, positional], table="t", client_id="c", start=1))
    assert [delta.row_id for delta in deltas] == ['["1","x"]', "2"]


@pytest.mark.parametrize(
    ("event", "message"),
    [({"type": "added", "row": {}}, "without key and row_index"), ({"type": "moved"}, "no event of type 'moved'")],
)
def test_events_that_cannot_become_deltas(event: dict[str, Any], message: str) -> None:
    with pytest.raises(DeltaError, match=message):
        list(from_events([event], table="t", client_id="c", start=1))

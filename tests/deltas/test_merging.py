"""Merging against an independent plain replay, and its algebra."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from hypothesis import given, strategies as st

from driftline.deltas import ColumnDelta, RowDelta, RowState, merge
from driftline.deltas._merge import RowMerge, fold_rows
from support.delta_strategies import deltas


def plain_replay(log: list[RowDelta]) -> dict[tuple[str, str], RowState]:
    """The rule as the ruling words it: sort, then apply one after the other."""
    order = sorted(
        log,
        key=lambda delta: (delta.hlc, delta.client_id.encode("utf-16-be"), delta.delta_id, delta.op == "DELETE"),
    )
    rows: dict[tuple[str, str], tuple[bool, dict[str, Any]]] = {}
    for delta in order:
        live, columns = rows.get((delta.table, delta.row_id), (False, {}))
        if delta.op == "DELETE":
            live, columns = False, {}
        else:
            live, columns = True, {**columns, **{entry.column: entry.value for entry in delta.columns}}
        rows[delta.table, delta.row_id] = (live, columns)
    return {key: RowState(live, columns) for key, (live, columns) in rows.items()}


@given(st.lists(deltas(), max_size=12), st.randoms())
def test_any_order_and_repetition_equals_plain_replay(log: list[RowDelta], random: Any) -> None:
    arrived = log + random.sample(log, len(log) // 2)
    random.shuffle(arrived)
    assert merge(arrived) == plain_replay(log)


def join_folds(folds: dict[Any, RowMerge], more: dict[Any, RowMerge]) -> None:
    for key, fold in more.items():
        folds.setdefault(key, RowMerge()).join(fold)


@given(st.lists(deltas(), max_size=6), st.lists(deltas(), max_size=6), st.lists(deltas(), max_size=6))
def test_joining_folds_is_associative_commutative_and_idempotent(
    one: list[RowDelta], two: list[RowDelta], three: list[RowDelta]
) -> None:
    left = fold_rows(one)
    join_folds(left, fold_rows(two))
    join_folds(left, fold_rows(three))
    right = fold_rows(three)
    inner = fold_rows(two)
    join_folds(inner, copy.deepcopy(right))
    join_folds(inner, fold_rows(one))
    assert left == inner
    join_folds(left, copy.deepcopy(left))
    assert {key: fold.state() for key, fold in left.items()} == plain_replay(one + two + three)


def _delta(op: str, hlc: int, client: str = "c", **columns: Any) -> RowDelta:
    entries = [ColumnDelta(name, value) for name, value in columns.items()]
    return RowDelta.make(op=op, table="t", row_id="r", client_id=client, columns=entries, hlc=hlc)  # type: ignore[arg-type]


def test_delete_then_insert_again() -> None:
    log = [_delta("INSERT", 10, title="Original", done=False), _delta("DELETE", 20), _delta("INSERT", 30, title="New")]
    for order in itertools.permutations(log):
        assert merge(order) == {("t", "r"): RowState(True, {"title": "New"})}


def test_explicit_null_is_a_value_and_absent_is_not() -> None:
    state = merge([_delta("INSERT", 10, t="A", u="U"), _delta("UPDATE", 20, t=None)])["t", "r"]
    assert state.columns == {"t": None, "u": "U"}


def test_a_late_older_update_cannot_raise_the_dead() -> None:
    log = [_delta("INSERT", 10, a=1), _delta("DELETE", 20), _delta("UPDATE", 15, a=2)]
    assert merge(log) == {("t", "r"): RowState(False, {})}


def test_update_alone_makes_a_row_live() -> None:
    assert merge([_delta("UPDATE", 1)]) == {("t", "r"): RowState(True, {})}


def test_client_ids_tie_in_utf16_order() -> None:
    # U+1F602 is a surrogate pair (0xD83D…), which sorts before U+FB33; by code point it would be after.
    log = [_delta("UPDATE", 5, client="\U0001f602", a="emoji"), _delta("UPDATE", 5, client="\ufb33", a="letter")]
    assert merge(log)["t", "r"].columns == {"a": "letter"}

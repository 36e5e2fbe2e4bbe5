"""The early fold may leave deltas out, never change what they fold to."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from driftline.deltas import RowDelta
from driftline.lake._fold import fold as folding
from driftline.lake._fold.fold import Folded, fold
from driftline.lake._store.rows import encode_deltas
from driftline.lake._store.stamps import stamp_deltas
from support.lakes import SCHEMA, delta, row_deltas

FULL = {"title": "x", "Unit Price": 1, "done": True, "tags (all)": []}


def stamped(deltas: list[RowDelta]) -> pa.Table:
    return stamp_deltas(encode_deltas(deltas, SCHEMA.columns), SCHEMA.columns)


def early(table: pa.Table, worth: float, hot: float) -> pa.Table:
    with patch.multiple(folding, _WORTH_FOLDING=worth, _HOT=hot):
        return folding.fold_early(SCHEMA.columns, table)


def as_rows(folded: Folded) -> tuple[object, object]:
    return folded.base.to_pylist(), folded.deletes.to_pylist()


BATCHES = st.lists(st.lists(row_deltas(), min_size=1, max_size=12), min_size=1, max_size=3)
WORTH, HOT = st.sampled_from([0, 1.3]), st.sampled_from([0, 3, 100])


@settings(max_examples=80)
@given(BATCHES, WORTH, HOT)
def test_what_is_left_folds_to_the_same_state(batches: list[list[RowDelta]], worth: float, hot: float) -> None:
    check_the_same_state(batches, worth, hot)


@pytest.mark.faults
@settings(max_examples=2000)
@given(BATCHES, WORTH, HOT)
def test_what_is_left_folds_to_the_same_state_at_length(
    batches: list[list[RowDelta]], worth: float, hot: float
) -> None:
    check_the_same_state(batches, worth, hot)


def check_the_same_state(batches: list[list[RowDelta]], worth: float, hot: float) -> None:
    parts = [stamped(batch) for batch in batches]
    left = pa.concat_tables([early(part, worth, hot) for part in parts])
    again = early(left, worth, hot)
    expected = as_rows(fold(SCHEMA.columns, pa.concat_tables(parts)))
    assert as_rows(fold(SCHEMA.columns, left)) == expected
    assert as_rows(fold(SCHEMA.columns, again)) == expected


def test_covered_deltas_do_not_travel() -> None:
    covered = [delta("UPDATE", "r", hlc, title=str(hlc)) for hlc in range(50)]
    death, birth = delta("DELETE", "r", 60), delta("INSERT", "r", 70, **FULL)
    left = early(stamped([*covered, death, birth]), 1.3, 3)
    assert sorted(left["hlc"].to_pylist()) == [60, 70]


def test_hot_rows_that_nothing_covers_are_folded_by_column() -> None:
    updates = [delta("UPDATE", "r", hlc, title=str(hlc)) for hlc in range(1000)]
    other = delta("UPDATE", "r", 5, client="d", done=True)
    left = early(stamped([*updates, other]), 1.3, 3)
    assert sorted(left["hlc"].to_pylist()) == [5, 999]


def test_rows_that_hardly_repeat_are_left_alone() -> None:
    table = stamped([delta("INSERT", f"r{number % 90}", number, **FULL) for number in range(100)])
    assert early(table, 1.3, 3) is table

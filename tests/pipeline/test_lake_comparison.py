"""Merging a snapshot with the lake's state, against plain dictionaries."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from driftline.pipeline.lake_comparison import differing_rows, in_order_of_ids

TABLES = st.dictionaries(st.text(max_size=3), st.fixed_dictionaries({"v": st.integers(0, 2)}), max_size=12)


@given(TABLES, TABLES, st.integers(1, 4), st.randoms())
def test_like_dictionaries(there: dict, wanted: dict, limit: int, chance: random.Random) -> None:
    shuffled = list(wanted.items())
    chance.shuffle(shuffled)
    with tempfile.TemporaryDirectory() as scratch:
        ordered = list(in_order_of_ids(shuffled, Path(scratch), limit))
        assert ordered == sorted(wanted.items())
        assert len(list(Path(scratch).iterdir())) == max(0, -(-len(wanted) // limit) - 1)
    found = dict(differing_rows(sorted(there.items()), ordered))
    expected = {key: row for key, row in wanted.items() if there.get(key) != row}
    assert found == {**expected, **{key: None for key in there if key not in wanted}}

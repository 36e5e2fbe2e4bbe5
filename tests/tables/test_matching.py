"""Matching of row hashes: colliding hashes are noticed, duplicates are named by their rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from driftline.tables._engines import LocalPlan, TableDiffJob, run_vectorized
from driftline.tables._kernels import stages
from driftline.tables._kernels.match import ROW_HASH, Duplicate, HashCollision, key_pairs, match_keyed
from driftline.tables._options import check_options


def hashes(*rows: tuple[int, int, int, int, int]) -> np.ndarray:
    return np.array(list(rows), ROW_HASH)


def test_keys_that_share_half_of_their_hash_are_a_collision_not_a_match() -> None:
    with pytest.raises(HashCollision):
        match_keyed(hashes((1, 5, 0, 0, 0)), hashes((1, 6, 0, 0, 0)))
    with pytest.raises(HashCollision):
        match_keyed(hashes((1, 5, 0, 0, 0), (1, 6, 0, 0, 1)), hashes())


def test_either_half_of_a_row_hash_makes_a_change() -> None:
    a = hashes((1, 1, 7, 7, 0), (2, 2, 7, 7, 1), (3, 3, 7, 7, 2))
    b = hashes((1, 1, 7, 7, 0), (2, 2, 8, 7, 1), (3, 3, 7, 8, 2))
    assert match_keyed(a, b).stats.changed == 2


def test_duplicates_are_found_with_and_without_a_partner() -> None:
    twice = hashes((9, 9, 0, 0, 4), (1, 1, 0, 0, 5), (9, 9, 0, 0, 6), (1, 1, 0, 0, 8))
    assert match_keyed(twice, hashes()).duplicate_a == Duplicate(repeated=6, first=4)
    assert match_keyed(twice, hashes((1, 1, 0, 0, 0))).duplicate_a == Duplicate(repeated=6, first=4)
    assert match_keyed(hashes((1, 1, 0, 0, 0)), twice).duplicate_b == Duplicate(repeated=6, first=4)


# Many keys share their low bits, so that they push each other out of their slots round after round.
keys = st.lists(st.builds(lambda high, low: high << 59 | low, st.integers(0, 31), st.integers(0, 3)), max_size=40)


@settings(max_examples=200, deadline=None)
@given(keys_a=keys, keys_b=keys)
def test_pairs_of_keys_are_those_of_a_plain_search(keys_a: list[int], keys_b: list[int]) -> None:
    found = key_pairs(np.array(keys_a, np.uint64), np.array(keys_b, np.uint64))
    if len(set(keys_b)) < len(keys_b):
        assert found is None
        return
    assert found is not None
    expected = {(at, keys_b.index(key)) for at, key in enumerate(keys_a) if key in keys_b}
    assert set(zip(*(part.tolist() for part in found), strict=True)) == expected
    assert len(found[0]) == len(expected)


def test_a_collision_starts_the_run_again_with_other_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,a\n")
    (tmp_path / "b.csv").write_text("id,v\n1,b\n")
    matching, seeds = stages.match_bucket, []

    def collide_once(a, b, plan):
        seeds.append(plan.seeds)
        if len(seeds) == 1:
            raise HashCollision
        return matching(a, b, plan)

    monkeypatch.setattr(stages, "match_bucket", collide_once)
    job = TableDiffJob(tmp_path / "a.csv", tmp_path / "b.csv", check_options(key_columns=["id"]))
    assert run_vectorized(job, lambda data: None, LocalPlan(threads=2)).changed == 1
    assert len(set(seeds)) == 2

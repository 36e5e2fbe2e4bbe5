"""Rules drawn at random: the plain reader and the vectorised steps against an oracle that shares no code with them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from driftline.errors import DriftlineError
from driftline.tables._engines import LocalPlan, TableDiffJob, run, run_vectorized
from driftline.tables._options import check_options
from support import table_rules_oracle as rules_oracle
from support.table_rules_strategies import cases

EXAMPLES = 60  # many more were tried by hand


def ours(engine, a: bytes, b: bytes, rules: dict) -> tuple[str, int] | str:
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "a.csv", Path(folder) / "b.csv"
        for path, content in zip(paths, (a, b), strict=True):
            path.write_bytes(content)
        written: list[bytes] = []
        try:
            checked = check_options(**rules)
            stats = engine(TableDiffJob(*paths, checked), lambda data: written.append(bytes(data)))
        except DriftlineError as error:
            assert not written
            return error.code
    failed = bool(stats.exceeded(checked.fail_if)) if checked.fail_if else stats.any_difference
    return b"".join(written).decode(), int(failed)


def refused_before_reading(rules: dict) -> bool:
    try:
        check_options(**rules)
    except DriftlineError:
        return True
    return False


PLANS = st.builds(
    LocalPlan,
    threads=st.just(2),
    split_bytes=st.integers(1, 60),
    bucket_rows=st.integers(1, 6),
    range_bytes=st.integers(1, 200),
    hash_bytes=st.sampled_from([0, 100, 1 << 20]),
    chunk_bytes=st.sampled_from([0, 100, 1 << 20]),
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(case=cases(), plan=PLANS)
def test_rules_mean_the_same_everywhere(case: tuple[bytes, bytes, dict], plan: LocalPlan) -> None:
    a, b, rules = case
    plainly = ours(run, a, b, rules)
    if not refused_before_reading(rules):
        assert plainly == rules_oracle.diff(a, b, rules)
    assert ours(lambda job, write: run_vectorized(job, write, plan), a, b, rules) == plainly


@pytest.mark.parametrize(
    "rules",
    [
        {"key": "id", "tolerance": {"id": "1"}},
        {"ignore_row_order": True, "tolerance": {"v": "1"}},
        {"duplicates": "first"},
        {"empty_key": "allow"},
        {"key": "id", "rename": {"v": "z", "w": "z"}},
        {"key": "id", "ignore": ["id"]},
    ],
)
def test_combinations_that_make_no_sense(rules: dict) -> None:
    with pytest.raises(DriftlineError) as caught:
        check_options(**rules)
    assert caught.value.code == "invalid_option_combination"

"""A snapshot that takes part in two comparisons: both give the events of a plain diff, and both tell what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import driftline
from driftline.tables import _engines as local
from support.shop import DAYS, assert_lake_is_the_snapshots, make_shop, run


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "SMALL_BYTES", 0)


def test_events_are_those_of_a_plain_diff(tmp_path: Path) -> None:
    file = make_shop(tmp_path, rows=2000)
    assert run(file, engine="local").exit_code == 0
    assert_lake_is_the_snapshots(tmp_path)
    plain = driftline.diff(*(tmp_path / f"data/orders-{day}.csv" for day in DAYS[1:]), key=["id"])
    assert (tmp_path / "out/orders-2026-03-03.jsonl").read_bytes() == b"".join(plain.lines())


def test_what_is_wrong_is_told_by_each_comparison(tmp_path: Path) -> None:
    file = make_shop(tmp_path)
    middle = tmp_path / f"data/orders-{DAYS[1]}.csv"
    good = middle.read_text()
    middle.write_text(good + ",no key,1\n" + good.splitlines()[1] + "\n")
    fates = {stage.stage: stage.problem for stage in run(file, engine="local").stages if stage.result == "failed"}
    assert fates["orders/2026-03-02/diff"].startswith("missing_key_value: Missing key value in B at row 303")
    assert fates["orders/2026-03-03/diff"].startswith("missing_key_value: Missing key value in A at row 303")
    middle.write_text(good + good.splitlines()[1] + "\n")
    fates = {stage.stage: stage.problem for stage in run(file, engine="local").stages if stage.result == "failed"}
    assert fates["orders/2026-03-02/diff"].startswith("duplicate_key: Duplicate key in B")
    assert fates["orders/2026-03-03/diff"].startswith("duplicate_key: Duplicate key in A")
    middle.write_text(good)
    assert run(file, engine="local").exit_code == 0
    assert_lake_is_the_snapshots(tmp_path)

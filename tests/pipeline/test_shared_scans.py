"""Each snapshot is parsed once in a run, however many comparisons it takes part in; the events stay the same."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest

import driftline
from driftline.pipeline import load, run_pipeline
from driftline.sources.csv_splits import CsvSplit
from driftline.tables import local
from driftline.tables.engines import DiffJob, find_engine
from driftline.tables.options import check_options
from driftline.tables.print_shelf import PrintShelf
from pipeline.shop import DAYS, assert_lake_is_the_snapshots, make_shop, output_bytes, results, run


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file was parsed as a whole, in the kernels, whatever its size."""
    counted: Counter[str] = Counter()
    original = CsvSplit.read

    def read(self: CsvSplit):
        counted[Path(self.range.file.path).name] += 1
        return original(self)

    monkeypatch.setattr(CsvSplit, "read", read)
    monkeypatch.setattr(local, "SMALL_BYTES", 0)
    return counted


def test_a_snapshot_is_parsed_once_in_a_run(tmp_path: Path, readings: Counter[str]) -> None:
    file = make_shop(tmp_path, rows=2000)
    assert run(file, engine="local").exit_code == 0
    snapshots = {f"{table}-{day}.csv": 1 for table in ("customers", "orders") for day in DAYS}
    assert {name: count for name, count in readings.items() if name in snapshots} == snapshots
    assert_lake_is_the_snapshots(tmp_path)
    assert not list((tmp_path / ".driftline/shop/work").iterdir()), "the shelf goes with the run"
    plain = driftline.diff(*(tmp_path / f"data/orders-{day}.csv" for day in DAYS[1:]), key=["id"])
    assert (tmp_path / "out/orders-2026-03-03.jsonl").read_bytes() == b"".join(plain.lines())


def test_a_snapshot_in_the_middle_that_is_wrong_is_told_by_each_comparison(tmp_path: Path, readings) -> None:
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


def events_of(job: DiffJob, sizes: local.LocalPlan) -> bytes:
    written = io.BytesIO()
    local.run_kernels(job, written.write, sizes)
    return written.getvalue()


def test_a_shelf_serves_other_rules_and_bucket_counts_rightly(tmp_path: Path) -> None:
    make_shop(tmp_path)
    days = [str(tmp_path / f"data/orders-{day}.csv") for day in DAYS]
    (tmp_path / "shelf").mkdir()
    shelf = PrintShelf(str(tmp_path / "shelf"), frozenset(days))
    for sizes in (local.LocalPlan(), local.LocalPlan(bucket_rows=7, split_bytes=500)):
        for options in (
            {"key_columns": ["id"]},
            {"key_columns": ["name", "id"]},
            {"mode": "positional"},
            {"mode": "positional", "ignore_row_order": True},
        ):
            for pair in (days[:2], days[1:], days[::-1][:2]):
                checked = check_options(**options)
                with_shelf = events_of(DiffJob(*pair, checked, shelf=shelf), sizes)
                assert with_shelf == events_of(DiffJob(*pair, checked), sizes)
    assert list((tmp_path / "shelf").iterdir())


@pytest.mark.spark
def test_the_same_on_spark(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "local", tmp_path / "spark"
    assert run(make_shop(here, rows=3000), engine="local").exit_code == 0
    # Tasks run in other processes: whether a snapshot was read again shows in the files that were left for it.
    from driftline.tables import print_shelf

    kept: list[PrintShelf] = []

    def remembered(*arguments: object) -> PrintShelf:
        kept.append(PrintShelf(*arguments))
        return kept[-1]

    monkeypatch.setattr(print_shelf, "PrintShelf", remembered)
    record = run_pipeline(load(make_shop(there, rows=3000)), engine="spark", master="local[2]")
    assert set(results(record).values()) == {"done"}, record.stages
    assert output_bytes(there) == output_bytes(here)
    assert sorted(len(shelf.files) for shelf in kept) == [2, 2]


def test_a_file_that_changed_finds_nothing_on_the_shelf(tmp_path: Path) -> None:
    make_shop(tmp_path)
    days = [str(tmp_path / f"data/orders-{day}.csv") for day in DAYS]
    (tmp_path / "shelf").mkdir()
    shelf = PrintShelf(str(tmp_path / "shelf"), frozenset(days))
    found: list[int] = []
    for turn in range(2):
        job = DiffJob(days[0], days[1], check_options(key_columns=["id"]), shelf=shelf)
        found.append(find_engine("kernels")(job, lambda data: None).changed)
        if turn == 0:
            Path(days[1]).write_text(Path(days[1]).read_text().replace("orders ", "order "))
    assert found[0] < 20 < found[1]

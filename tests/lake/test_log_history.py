"""Old entries of Delta logs are removed; what a snapshot pins, what was flushed and the rows stay as they were."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from driftline.deltas import ColumnDelta, RowDelta, TableSchema
from driftline.gateway._lake.process import LakeDesk
from driftline.gateway._settings import GatewaySettings
from driftline.lake import (
    FlushTarget,
    Lake,
    LogRange,
    compact,
    cut_logs,
    load,
    newest_snapshot,
    register,
    state_rows,
    verify,
)
from driftline.lake._store.schemas import start_generation
from driftline.lake._store.tables import loaded

LOG, COMMITS = "ab" * 8, 105  # a checkpoint is written at version 99
SCHEMA = TableSchema("t", [{"name": "x", "type": "number"}])


def flushed(store: FlushTarget, number: int) -> int:
    made = RowDelta.make(
        op="INSERT", table="t", row_id=str(number), client_id="c", columns=[ColumnDelta("x", number)], hlc=number << 16
    )
    return store.append("t", [made], LogRange("gw", LOG, number, number)).deltas


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table after many flushes, compacted in the middle; its log is a day old."""
    folder = tmp_path_factory.mktemp("grown")
    store = FlushTarget(str(folder))
    register(store.lake, SCHEMA)
    for number in range(1, COMMITS + 1):
        flushed(store, number)
        if number == COMMITS // 2:
            compact(store.lake, "t")
    return folder


@pytest.fixture
def lake(grown: Path, tmp_path: Path) -> Lake:
    shutil.copytree(grown, tmp_path / "lake")
    age(tmp_path / "lake")
    return Lake(str(tmp_path / "lake"))


def age(root: Path) -> None:
    for path in root.glob("tables/t/*/_delta_log/*"):
        os.utime(path, (time.time() - 86_400, time.time() - 86_400))


def entries(lake: Lake) -> list[int]:
    names = Path(lake.root, "tables/t/deltas/_delta_log").glob("*.json")
    return sorted(int(path.stem) for path in names)


def test_old_entries_go_and_everything_else_stays(lake: Lake) -> None:
    compact(lake, "t")
    age(Path(lake.root))
    before = dict(state_rows(lake, "t"))
    snapshot = newest_snapshot(lake, "t")
    assert snapshot is not None
    assert snapshot.deltas_version > 99
    assert cut_logs(lake, "t", 2) == 0  # none of them is that old
    assert cut_logs(lake, "t", 0.5) == 99
    assert entries(lake)[0] == 99
    assert cut_logs(lake, "t", 0.5) == 0
    assert load(lake, "t", "deltas", snapshot.deltas_version) is not None
    assert load(lake, "t", "deltas", 98) is None
    assert dict(state_rows(lake, "t")) == before
    assert len(before) == COMMITS
    assert verify(lake, "t").is_proved
    # Transactions survive in checkpoints: a range that is in the lake changes nothing, the next one is taken.
    store = FlushTarget(lake.root)
    assert loaded(lake, "t").transaction(f"log:{LOG}") == COMMITS
    assert [flushed(store, number) for number in (COMMITS, COMMITS + 1)] == [0, 1]
    compact(lake, "t")
    assert len(dict(state_rows(lake, "t"))) == COMMITS + 1
    assert DeltaTable(f"{lake.root}/tables/t/state").to_pyarrow_table().num_rows == COMMITS + 1


def test_many_flushes_are_cut_before_they_are_old(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a table lists its log, and every flush is an entry of it: the newest stay, and other tables' entries."""
    compact(lake, "t")
    before, others = dict(state_rows(lake, "t")), sorted(Path(lake.root).glob("tables/t/[bs]*/_delta_log/*"))
    assert cut_logs(lake, "t", 30) == 0  # fewer than that
    monkeypatch.setattr("driftline.lake._fold.compact.KEPT_COMMITS", 10)
    assert cut_logs(lake, "t", 30) == 0  # the checkpoint is among the newest ten
    for number in range(COMMITS + 1, COMMITS + 8):
        flushed(FlushTarget(lake.root), number)
    assert cut_logs(lake, "t", 30) == 99
    assert entries(lake)[0] == 99
    assert sorted(Path(lake.root).glob("tables/t/[bs]*/_delta_log/*")) == others
    assert before.items() <= dict(state_rows(lake, "t")).items()
    assert verify(lake, "t").is_proved


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_damaged_checkpoint_replaces_no_entry(lake: Lake, share: float) -> None:
    """A machine that lost its power may leave an empty one: the entries that it was made of still have everything."""
    [checkpoint] = Path(lake.root).glob("tables/t/deltas/_delta_log/*.checkpoint.parquet")
    whole = checkpoint.read_bytes()
    for content, cut in ((whole[: int(len(whole) * share)], 0), (whole, 99)):
        checkpoint.write_bytes(content)
        assert lake.store().cut_log("tables/t/deltas", None, time.time() * 1000) == cut
        assert entries(lake)[0] == cut


def test_what_a_snapshot_pins_stays(lake: Lake) -> None:
    """The newest snapshot is from before the checkpoint: its version of the deltas would go."""
    snapshot = newest_snapshot(lake, "t")
    assert snapshot is not None
    assert snapshot.deltas_version < 99
    assert cut_logs(lake, "t", 0.5) == 0
    assert load(lake, "t", "deltas", snapshot.deltas_version) is not None


def test_a_log_that_lists_generations_stays(lake: Lake) -> None:
    start_generation(lake, "t", SCHEMA.columns)
    age(Path(lake.root))
    assert cut_logs(lake, "t", 0.5) == 0
    assert entries(lake)[0] == 0


def test_a_gateway_cuts_logs_now_and_then(lake: Lake, tmp_path: Path) -> None:
    compact(lake, "t")
    age(Path(lake.root))
    for days, first in ((None, 0), (2.0, 0), (0.5, 99)):
        settings = GatewaySettings("gw", tmp_path, lake=lake.root, insecure=True, history_days=days)
        desk = LakeDesk(settings)
        desk.refresh()
        assert entries(lake)[0] == first
        left_over = Path(lake.root, f"tables/t/deltas/_delta_log/{0:020}.json")
        if days == 0.5:
            left_over.write_bytes(b"{}")
        desk.refresh()
        assert left_over.exists()  # ten minutes later at the earliest
        desk.close()

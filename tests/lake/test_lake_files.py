"""What the files of a snapshot look like: their order and size, and how long tombstones stay."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable

from driftline.lake import Lake, compact, flush, set_horizon, verify
from driftline.lake._read.state import state_rows
from driftline.lake._store.tables import load
from support.lakes import delta, load_lake

TARGET = 40_000


def base_files(lake: Lake) -> list[tuple[int, list[str]]]:
    """Size and row ids of each base file, in the order of the row ids that the log says they begin with."""
    files = sorted(load(lake, "todos", "base").files(), key=lambda file: file.min_row_id or "")
    found = []
    for file in files:
        path = Path(lake.part("todos", "base"), file.path)
        row_ids = pq.read_table(path, columns=["_row_id"])["_row_id"].to_pylist()
        assert (file.min_row_id, file.max_row_id, file.rows) == (row_ids[0], row_ids[-1], len(row_ids))
        assert file.size == path.stat().st_size
        found.append((file.size, row_ids))
    return found


def test_base_files_are_sorted_and_near_the_target_size(tmp_path: Path) -> None:
    chance = random.Random(1)
    numbers = chance.sample(range(3000), 3000)
    first = [delta("INSERT", f"r{n:04d}", n, title=chance.randbytes(40).hex()) for n in numbers]
    lake = load_lake(tmp_path, [first])
    compact(lake, "todos", target_file_bytes=TARGET)
    for _ in range(2):
        files = base_files(lake)
        assert len(files) > 3
        assert [row_id for _, row_ids in files for row_id in row_ids] == sorted(
            row for row, _ in state_rows(lake, "todos")
        )
        assert max(size for size, _ in files) < 2.5 * TARGET
        flush(lake, "todos", [delta("DELETE", f"r{n:04d}", 9000 + n) for n in range(100)], gateway_id="gw", sequence=2)
        compact(lake, "todos", target_file_bytes=TARGET)
    assert len([row for _, row_ids in base_files(lake) for row in row_ids]) == 2900


def test_tombstones_stay_until_the_horizon_has_passed_them(tmp_path: Path) -> None:
    batch = [delta("INSERT", f"r{n}", n, title="x") for n in range(1, 4)]
    lake = load_lake(tmp_path, [batch, [delta("DELETE", "r1", 20), delta("DELETE", "r2", 40)]], {1})
    assert tombstones(lake) == {"r1": 20, "r2": 40}
    compact(lake, "todos", full=True)
    assert tombstones(lake) == {"r1": 20, "r2": 40}
    set_horizon(lake, "todos", 30)
    compact(lake, "todos", full=True)
    assert tombstones(lake) == {"r2": 40}
    # what the remaining tombstone is for: an older write that arrives late stays dead
    flush(lake, "todos", [delta("UPDATE", "r2", 35, title="late")], gateway_id="gw", sequence=3)
    compact(lake, "todos")
    assert sorted(row for row, _ in state_rows(lake, "todos")) == ["r3"]
    assert verify(lake, "todos").is_proved


def tombstones(lake: Lake) -> dict[str, int]:
    rows = DeltaTable(lake.part("todos", "deletes")).to_pyarrow_table().to_pylist()
    return {row["_row_id"]: row["_deleted"]["hlc"] for row in rows}

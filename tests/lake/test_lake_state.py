"""`state`: the current rows as a plain Delta table that every reader takes, and the list of tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from driftline.cli._commands.lake import tables
from driftline.deltas import TableSchema
from driftline.lake import Lake, compact, flush, register, set_horizon, status_of, vacuum
from driftline.lake._fold.compact import CompactionPolicy, backlog_of, compact_due
from driftline.lake._read.state import state_rows
from driftline.lake._store.tables import load
from support.lakes import SCHEMA, delta, load_lake

BATCHES = [
    [delta("INSERT", "r1", 10, title="Buy milk", **{"Unit Price": 1.5, "tags (all)": [1, {"b": None}]})],
    [delta("INSERT", "r2", 20, title="é", done=True), delta("INSERT", "r3", 21, title="gone")],
    [delta("DELETE", "r3", 30), delta("UPDATE", "r1", 31, done=False)],
]
ROWS = [
    {"_row_id": "r1", "title": "Buy milk", "Unit Price": 1.5, "done": False, "tags (all)": '[1,{"b":null}]'},
    {"_row_id": "r2", "title": "é", "Unit Price": None, "done": True, "tags (all)": None},
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return load_lake(tmp_path / "lake", BATCHES, {2})


def shown(lake: Lake) -> list[dict[str, Any]]:
    """The state by deltalake's reader."""
    rows: list[dict[str, Any]] = DeltaTable(lake.part("todos", "state")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["_row_id"])


def test_every_reader_sees_the_current_rows(lake: Lake) -> None:
    assert shown(lake) == ROWS
    assert polars.read_delta(lake.part("todos", "state")).sort("_row_id").to_dicts() == ROWS
    package = pytest.importorskip("duckdb_extension_delta", reason="needs duckdb-extension-delta, a dev dependency")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    [extension] = Path(package.__file__).parent.rglob("delta.duckdb_extension")
    if f"v{duckdb.__version__}" not in extension.parts:
        pytest.skip(f"the extension {extension.parent.name} is not for DuckDB {duckdb.__version__}")
    connection.execute(f"LOAD '{extension}'")
    found = connection.sql(f"SELECT * FROM delta_scan('{lake.part('todos', 'state')}') ORDER BY _row_id")
    assert [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()] == ROWS


def test_each_file_stands_beside_its_base_file(tmp_path: Path) -> None:
    rows = [delta("INSERT", f"r{number:03}", number + 1, title="x") for number in range(60)]
    lake = load_lake(tmp_path, [rows[::2], rows[1::2]])
    compact(lake, "todos", rows_per_range=10, target_file_bytes=500)
    before = {file.path: file.size for file in load(lake, "todos", "state").files()}
    assert len(before) > 3
    flush(lake, "todos", [delta("UPDATE", "r005", 900, title="y")], gateway_id="gw", sequence=99)
    compact(lake, "todos", rows_per_range=10, target_file_bytes=500)
    after = {file.path: file.size for file in load(lake, "todos", "state").files()}
    assert set(after) == {file.path for file in load(lake, "todos", "base").files()}
    assert len(set(before) & set(after)) == len(before) - 1, "files of ranges that nothing touched stay"
    assert shown(lake)[5]["title"] == "y"


@pytest.mark.parametrize("damage", ["no commit", "no file", "half a file"])
def test_a_state_that_was_left_behind_is_mended(tmp_path: Path, damage: str) -> None:
    lake = load_lake(tmp_path, BATCHES[:2], {1})

    class KilledError(Exception):
        pass

    def at_stage(name: str) -> None:
        if name == "base committed":
            raise KilledError

    flush(lake, "todos", BATCHES[2], gateway_id="gw", sequence=3)
    with pytest.raises(KilledError):
        compact(lake, "todos", at_stage=at_stage)
    assert len(shown(lake)) == 3  # the state of before, whole
    for file in load(lake, "todos", "base").files():
        path = tmp_path / "tables/todos/state" / file.path
        if damage == "no file":
            path.unlink()
        elif damage == "half a file":
            path.write_bytes(path.read_bytes()[:50])
    compact(lake, "todos")
    assert shown(lake) == ROWS


def test_columns_come_and_go(lake: Lake) -> None:
    columns = [{"name": column.name, "type": column.type} for column in SCHEMA.columns if column.name != "done"]
    register(lake, TableSchema("todos", [*columns, {"name": "100%20", "type": "number"}]))
    compact(lake, "todos")
    assert list(shown(lake)[0]) == ["_row_id", "title", "Unit Price", "tags (all)", "100%20"]
    assert not compact(lake, "todos").is_new
    assert vacuum(lake, "todos", hours=0)
    assert [row["_row_id"] for row in shown(lake)] == [row for row, _ in state_rows(lake, "todos")]


def test_tables_are_compacted_when_enough_waits(lake: Lake) -> None:
    assert backlog_of(lake, "todos").deltas == 0
    flush(lake, "todos", [delta("INSERT", "r4", 50, title="new")], gateway_id="gw", sequence=9)
    backlog = backlog_of(lake, "todos")
    assert backlog.deltas == 1
    assert backlog.size > 0
    lazy = CompactionPolicy(deltas=2, size=1 << 20, seconds=60)
    assert compact_due(lake, lazy) == []
    for policy in (CompactionPolicy(deltas=1), CompactionPolicy(size=1), CompactionPolicy(seconds=0)):
        assert policy.is_due(backlog)
    assert compact_due(lake, CompactionPolicy(deltas=1)) == ["todos"]
    assert compact_due(lake, CompactionPolicy(deltas=0, seconds=0)) == []
    assert len(shown(lake)) == 3


def listed(lake: Lake, *options: str) -> str:
    ended = CliRunner().invoke(tables, ["--lake", lake.root, *options], catch_exceptions=False)
    assert ended.exit_code == 0
    return ended.output


def test_the_list_of_tables_tells_what_the_state_lacks(lake: Lake) -> None:
    flush(lake, "free", [delta("INSERT", "f", 5, table="free", any=1)], gateway_id="gw", sequence=1)
    flush(lake, "todos", [delta("INSERT", "r4", 50, title="new")], gateway_id="gw", sequence=9)
    free, todos = (json.loads(line) for line in listed(lake, "--format", "json").splitlines())
    assert (free["columns"], free["rows"], free["waiting"]) == (None, None, 1)
    assert (todos["rows"], todos["unfolded"], todos["waiting"], todos["setAside"]) == (2, 1, 0, 0)
    assert todos["columns"] == ["title", "Unit Price", "done", "tags (all)"]
    assert todos["stateAgeSeconds"] >= 0
    compact(lake, "todos")
    assert status_of(lake, "todos").state_age_seconds == 0
    set_horizon(lake, "todos", 25)
    assert "todos  3 rows  columns title, Unit Price, done, tags (all)\n" in listed(lake)

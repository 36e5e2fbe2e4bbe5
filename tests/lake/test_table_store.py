"""The contract of the lake's store of tables: Delta and a store in memory answer alike, and a lake runs on both."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from driftline.lake import Lake, compact, flush, lake_log, materialize, merge_small_files, set_horizon, vacuum, verify
from driftline.lake._store.delta import DeltaStore
from driftline.lake._store.parquet import DataFile, read_file, write_file
from driftline.lake._store.tables import Commit, TableStore
from support.lakes import SCHEMA, delta, load_lake
from support.memory_store import MemoryStore

PATH = "tables/t/deltas"
COLUMNS = pa.schema([pa.field("_row_id", pa.string(), nullable=False), pa.field("_hlc", pa.int64())])
TYPED = pa.field("v", pa.float64(), metadata={"driftline.type": "number"})


@pytest.fixture(params=["delta", "memory"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    root = str(tmp_path)
    return Lake(root) if request.param == "delta" else Lake(root, table_store=MemoryStore(root))


@pytest.fixture
def store(lake: Lake) -> TableStore:
    lake.make_directory(PATH)
    return lake.store()


def written(lake: Lake, name: str, *rows: str) -> DataFile:
    return write_file(lake, PATH, f"{name}.parquet", pa.table({"_row_id": rows, "_hlc": range(len(rows))}, COLUMNS))


def made(lake: Lake, *names: str) -> Any:
    """A table of some files, opened."""
    files = [written(lake, name, name) for name in names]
    assert lake.store().create(PATH, "t.deltas", COLUMNS, Commit(files, metadata={"operation": "first"}))
    return lake.store().open(PATH)


def commit(lake: Lake, *commits: Commit) -> Any:
    """The table after some commits, one after the other."""
    for each in commits:
        table = lake.store().open(PATH)
        assert table is not None
        assert table.append(each)
    return lake.store().open(PATH)


def test_a_table_is_created_once(lake: Lake, store: TableStore) -> None:
    assert store.open(PATH) is None
    table = made(lake, "a")
    assert not store.create(PATH, "t.deltas", COLUMNS, Commit())
    assert table.schema().names == COLUMNS.names
    [file] = table.files()
    assert (file.path, file.rows, file.min_row_id, file.max_row_id, file.min_hlc) == ("a.parquet", 1, "a", "a", 0)
    assert file.size > 0
    assert file.committed_ms > 0


def test_a_commit_adds_and_removes_files(lake: Lake, store: TableStore) -> None:
    table = made(lake, "a", "b")
    before = table.version()
    assert table.append(Commit([written(lake, "c", "c", "d")], ["a.parquet"]))
    now, then = store.open(PATH), store.open(PATH, before)
    assert now is not None
    assert then is not None
    assert sorted(file.path for file in now.files()) == ["b.parquet", "c.parquet"]
    assert sorted(file.path for file in then.files()) == ["a.parquet", "b.parquet"]
    assert now.version() > before
    assert store.open(PATH, now.version() + 10_000) is None


def test_an_overwriting_commit_brings_its_schema(lake: Lake, store: TableStore) -> None:
    table = made(lake, "a")
    assert table.append(Commit(overwrite=True, transactions={"generation": 2}), pa.schema([*COLUMNS, TYPED]))
    now = store.open(PATH)
    assert now is not None
    assert now.files() == []
    assert now.schema().names == ["_row_id", "_hlc", "v"]


def test_transactions_and_properties(lake: Lake, store: TableStore) -> None:
    table = made(lake)
    assert (table.transaction("x"), table.property("driftline.p")) == (None, None)
    opened = commit(lake, Commit(transactions={"x": 3, "y": 1}), Commit(transactions={"x": 4}))
    assert (opened.transaction("x"), opened.transaction("y")) == (4, 1)
    for name, value in (("driftline.p", "é"), ("driftline.q", "1")):
        assert opened.set_properties({name: value}, {"operation": "retention"})
        opened = store.open(PATH)
        assert opened is not None
    again = opened
    assert (again.property("driftline.p"), again.property("driftline.q"), again.transaction("x")) == ("é", "1", 4)


def test_columns_are_added_with_their_metadata(lake: Lake, store: TableStore) -> None:
    table = made(lake, "a")
    assert table.add_columns([TYPED, pa.field("w", pa.decimal128(38, 2))], {"operation": "schema"})
    opened = store.open(PATH)
    assert opened is not None
    field = opened.schema().field("v")
    assert (field.type, field.metadata[b"driftline.type"]) == (pa.float64(), b"number")
    assert opened.schema().field("w").type == pa.decimal128(38, 2)
    assert len(opened.files()) == 1


def test_of_two_commits_with_one_transaction_the_second_is_refused(lake: Lake, store: TableStore) -> None:
    made(lake)
    one, other = store.open(PATH), store.open(PATH)
    assert one is not None
    assert other is not None
    assert one.append(Commit([written(lake, "a", "a")], transactions={"flush": 1}))
    assert not other.append(Commit([written(lake, "b", "b")], transactions={"flush": 1}))
    opened = store.open(PATH)
    assert opened is not None
    assert [file.path for file in opened.files()] == ["a.parquet"]


def test_of_two_commits_that_remove_one_file_the_second_is_refused(lake: Lake, store: TableStore) -> None:
    made(lake, "a")
    one, other = store.open(PATH), store.open(PATH)
    assert one is not None
    assert other is not None
    assert one.append(Commit([written(lake, "b", "b")], ["a.parquet"]))
    assert not other.append(Commit([written(lake, "c", "c")], ["a.parquet"]))


def test_additions_at_once_are_all_kept(lake: Lake, store: TableStore) -> None:
    made(lake)
    tables = [store.open(PATH) for _ in range(3)]
    assert all(table and table.append(Commit([written(lake, n, n)])) for n, table in zip("abc", tables, strict=True))
    opened = store.open(PATH)
    assert opened is not None
    assert sorted(file.path for file in opened.files()) == ["a.parquet", "b.parquet", "c.parquet"]


def test_a_merge_makes_the_rows_those_that_it_is_given(lake: Lake, store: TableStore) -> None:
    made(lake, "a", "b", "c")
    one, other = store.open(PATH), store.open(PATH)
    assert one is not None
    assert other is not None
    wanted = pa.table({"_row_id": ["a", "c", "d"], "_hlc": [0, 5, 6]}, COLUMNS)
    assert one.merge(wanted.to_reader(), Commit(transactions={"x": 4}, metadata={"operation": "state"}))
    now = store.open(PATH)
    assert now is not None
    files = [read_file(lake, f"{PATH}/{file.path}", COLUMNS) for file in now.files()]
    assert pa.concat_tables(files).sort_by("_row_id").to_pylist() == wanted.to_pylist()
    newest = next(store.commits(PATH, now.version()))
    assert newest is not None
    assert (now.transaction("x"), newest.operation) == (4, "state")
    assert not other.merge(wanted.to_reader(), Commit(transactions={"x": 5})), "it was merged meanwhile"


def test_the_log_is_read_newest_first(lake: Lake, store: TableStore) -> None:
    table = made(lake, "a")
    began = time.time() * 1000 - 60_000
    first = table.version()
    table = commit(
        lake,
        Commit([written(lake, "b", "b")], transactions={"x": 9}, metadata={"operation": "load", "n": [1]}),
        Commit([written(lake, "c", "c")], ["a.parquet", "b.parquet"], data_change=False),
    )
    newest, middle, oldest = store.commits(PATH, table.version())
    assert newest is not None
    assert middle is not None
    assert oldest is not None
    assert (oldest.version, oldest.operation, oldest.adds) == (first, "first", ["a.parquet"])
    assert (middle.operation, middle.details["n"], middle.transactions) == ("load", [1], {"x": 9})
    assert (middle.new_data, middle.removed) == (["b.parquet"], 0)
    assert (newest.adds, newest.new_data, newest.removed) == (["c.parquet"], [], 2)
    assert newest.timestamp >= middle.timestamp >= began
    assert [entry.version for entry in store.commits(PATH, middle.version) if entry] == [middle.version, first]
    assert set(table.versions_since(began)) == {newest.version, middle.version, first}
    assert table.versions_since(time.time() * 1000 + 60_000) == []


def test_a_log_that_was_cut_says_so(lake: Lake, store: TableStore) -> None:
    table = made(lake, "a")
    first = table.version()
    table = commit(lake, Commit([written(lake, "b", "b")]))
    if isinstance(store, MemoryStore):
        del store.logs[PATH][first]
    else:
        os.remove(f"{lake.root}/{PATH}/_delta_log/{first:020d}.json")
    entries = list(store.commits(PATH, table.version()))
    assert [entry and entry.version for entry in entries] == [table.version(), None]


def test_cutting_a_log_keeps_what_is_asked_for(lake: Lake, store: TableStore) -> None:
    """A store may keep more than it is asked to, never less."""
    first = made(lake, "a").version()
    second = commit(lake, Commit([written(lake, "b", "b")], transactions={"x": 7})).version()
    commit(lake, *(Commit([written(lake, f"c{number}", "c")]) for number in range(3)))
    assert store.cut_log(PATH, second, 0) == 0  # nothing is as old as that
    assert store.open(PATH, first) is not None
    store.cut_log(PATH, second, time.time() * 1000 + 60_000)
    then, now = store.open(PATH, second), store.open(PATH)
    assert then is not None
    assert now is not None
    assert {file.path for file in then.files()} == {"a.parquet", "b.parquet"}
    assert (len(now.files()), now.transaction("x")) == (5, 7)
    store.cut_log(PATH, None, time.time() * 1000 + 60_000)
    now = store.open(PATH)
    assert now is not None
    assert (len(now.files()), now.transaction("x")) == (5, 7)


def test_vacuum_removes_what_no_kept_version_has(lake: Lake, store: TableStore) -> None:
    table = made(lake, "a", "b")
    first = table.version()
    middle = commit(lake, Commit(removes=["a.parquet"])).version()
    table = commit(lake, Commit([written(lake, "c", "c")], ["b.parquet"]))
    assert table.vacuum([first, table.version()], 0, dry_run=True) == []
    assert table.vacuum([middle, table.version()], 0, dry_run=True) == ["a.parquet"]
    assert sorted(table.vacuum([], 24, dry_run=False)) == []
    assert sorted(table.vacuum([], 0, dry_run=False)) == ["a.parquet", "b.parquet"]
    assert sorted(path.name for path in Path(lake.root, PATH).glob("*.parquet")) == ["c.parquet"]


def test_a_lake_runs_on_either_store(lake: Lake, tmp_path: Path) -> None:
    """Loads, compactions, generations, retention and vacuum: the same rows and the same log."""
    first = [delta("INSERT", f"r{n}", n + 1, title=f"t{n}") for n in range(5)]
    second = [delta("UPDATE", "r1", 20, title="new"), delta("DELETE", "r2", 21)]
    load_lake(lake, [first, second], {0})
    assert compact(lake, "todos").is_new
    assert verify(lake, "todos").is_proved
    merge_small_files(lake, "todos", min_files=2)
    assert compact(lake, "todos", feed=True).notice is not None
    flush(lake, "todos", [delta("UPDATE", "r3", 30, title="t3")], gateway_id="gw", sequence=9)
    set_horizon(lake, "todos", 15)
    vacuum(lake, "todos", hours=0)
    materialize(lake, "todos", tmp_path / "rows.jsonl")
    rows = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert {row["_row_id"]: row["title"] for row in rows} == {"r0": "t0", "r1": "new", "r3": "t3", "r4": "t4"}
    operations = [entry.operation for entry in lake_log(lake, "todos")]
    assert {"schema", "compact", "retention", "feed on"} <= set(operations)
    assert isinstance(lake.store(), DeltaStore | MemoryStore)
    assert SCHEMA.table in lake.tables()

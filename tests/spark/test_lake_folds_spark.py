"""The lake's folds on Spark: one state, equal to plain replay and to the local engine."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from driftline.core._parts import line_ranges
from driftline.deltas import ColumnDelta, RowDelta
from driftline.errors import DriftlineError, LakeError
from driftline.lake import Lake, changes, compact, flush, materialize, register, replay, verify
from driftline.lake._load.ingest import commit_ingested, plan_ingest
from driftline.lake._load.load import extract_snapshots
from driftline.lake._read.state import all_deltas
from driftline.lake._store.rows import decode_state
from driftline.lake._store.tables import load
from driftline.spark._lake import ingest_on_spark, lake_engine, load_schedulers
from support.lakes import SCHEMA, VALUES, delta, load_lake, snapshot_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SAMPLES: dict[str, list[Any]] = {
    "title": ["", "a", "é\n", None],
    "Unit Price": [0, -1.5, 1e300, None],
    "done": [True, False, None],
    "tags (all)": [[], {"b": 1, "a": [None]}, "x", None],
}


def random_delta(chance: random.Random, rows: int) -> RowDelta:
    op: Any = chance.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"])
    names = [] if op == "DELETE" else chance.sample(list(VALUES), chance.randint(0, 4))
    return RowDelta.make(
        op=op,
        table="todos",
        row_id=f"row {chance.randrange(rows)}",
        client_id=chance.choice(["a", "\U0001f602", "\ufb33"]),
        columns=[ColumnDelta(name, chance.choice(SAMPLES[name])) for name in names],
        hlc=chance.randrange(400),
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_shuffled_deltas_split_files_and_generations_give_the_replay(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    everything = [random_delta(chance, 60) for _ in range(1200)]
    lake = Lake(str(tmp_path))
    register(lake, SCHEMA)
    engine = lake_engine(spark)
    for sequence in range(1, 5):
        batch = everything[(sequence - 1) * 300 : sequence * 300]
        flush(lake, "todos", batch, gateway_id="gw", sequence=sequence)
        if sequence != 2:
            assert compact(lake, "todos", engine=engine, rows_per_range=80).is_new
    assert dict(decode_state(snapshot_table(lake, "todos"), SCHEMA.columns)) == replay(everything)
    assert verify(lake, "todos", engine=engine, oracle=True).is_proved
    assert_same_bytes_as_locally(lake, engine, as_of=200)


def assert_same_bytes_as_locally(lake: Lake, engine: Any, as_of: int) -> None:
    for format_name in ("jsonl", "csv"):
        local, remote = io.BytesIO(), io.BytesIO()
        materialize(lake, "todos", local, format=format_name, as_of=as_of)
        materialize(lake, "todos", remote, format=format_name, as_of=as_of, engine=engine)
        assert local.getvalue() == remote.getvalue()
    for kind in ("events", "deltas"):
        local, remote = io.BytesIO(), io.BytesIO()
        changes(lake, "todos", local, since=100, until=as_of, kind=kind)
        changes(lake, "todos", remote, since=100, until=as_of, kind=kind, engine=engine)
        assert local.getvalue() == remote.getvalue()
        assert len(local.getvalue().splitlines()) > 10


def test_only_touched_ranges_are_rewritten(spark: SparkSession, tmp_path: Path) -> None:
    rows = [delta("INSERT", f"r{number:04d}", number, title="x") for number in range(400)]
    lake = load_lake(tmp_path, [rows])
    engine = lake_engine(spark)
    compact(lake, "todos", engine=engine, rows_per_range=100, target_file_bytes=1000)
    before = {file.path for file in load(lake, "todos", "base").files()}
    flush(lake, "todos", [delta("UPDATE", "r0007", 500, title="y")], gateway_id="gw", sequence=2)
    compact(lake, "todos", engine=engine, rows_per_range=100, target_file_bytes=1000)
    after = {file.path for file in load(lake, "todos", "base").files()}
    assert len(before) > 3
    assert 0 < len(before - after) < len(before) / 2
    assert verify(lake, "todos", engine=engine).is_proved


def test_a_damaged_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    lake = load_lake(tmp_path, [[delta("INSERT", "r1", 1)], [delta("INSERT", "r2", 2)]])
    victim = sorted((tmp_path / "tables/todos/deltas").rglob("*.parquet"))[1]
    victim.write_bytes(victim.read_bytes()[:-20])
    with pytest.raises(LakeError, match=victim.name) as caught:
        compact(lake, "todos", engine=lake_engine(spark))
    assert caught.value.code == "corrupt_file"
    assert load(lake, "todos", "base") is None
    assert json.loads(json.dumps(caught.value.to_dict()))["path"].endswith(victim.name)


def test_extraction_in_tasks_makes_the_same_deltas(spark: SparkSession, tmp_path: Path) -> None:
    header = "id,name\n"
    (tmp_path / "a.csv").write_text(header + "".join(f"k{n:04d},name {n}\n" for n in range(500)))
    (tmp_path / "b.csv").write_text(header + "".join(f"k{n:04d},name {n % 400}\n" for n in range(100, 600)))
    rows = {f"k{n:04d}": f"name {n}" for n in range(500) if n % 100 != 3} | {"k0005": "changed", "new": "é"}
    (tmp_path / "c.csv").write_text(header + "".join(f"{key},{name}\n" for key, name in rows.items()))
    lakes = [Lake(str(tmp_path / name)) for name in ("local", "spark")]
    ways: list[dict[str, Any]] = [
        {},
        {"schedulers": load_schedulers(spark)},
    ]
    for lake, way in zip(lakes, ways, strict=True):
        given = {"key": ["id"], "table": "people", "client_id": "c", "start": 5 << 16, "load_base": True}
        result = extract_snapshots(lake, tmp_path / "a.csv", tmp_path / "b.csv", **given, **way)
        assert (result.base_deltas, result.deltas) == (500, 300)
        again = extract_snapshots(lake, tmp_path / "b.csv", tmp_path / "a.csv", **{**given, "start": 9 << 16}, **way)
        assert again.deltas == 300
        back = extract_snapshots(lake, tmp_path / "b.csv", tmp_path / "a.csv", **{**given, "start": 11 << 16}, **way)
        assert back.was_done_before
        # The lake holds A and no ledger knows C: C is compared with the lake itself, where folds run.
        compared = extract_snapshots(
            lake, tmp_path / "c.csv", tmp_path / "a.csv", **{**given, "start": 13 << 16}, **way
        )
        assert (compared.base_deltas, compared.deltas) == (7, 7)
    local, remote = (sorted(all_deltas(lake, "people"), key=lambda each: each.hlc) for lake in lakes)
    assert local == remote
    assert [each.hlc - (5 << 16) for each in remote[:800]] == list(range(800))
    assert [each.row_id for each in remote[500:800]] == sorted(each.row_id for each in remote[500:800])


def test_a_stream_of_deltas_is_flushed_in_tasks(spark: SparkSession, tmp_path: Path) -> None:
    deltas = [delta("UPDATE", f"r{n % 7}", n + 1, title=f"é{n}") for n in range(200)]
    lines = [json.dumps(each.to_wire()) for each in deltas]
    (tmp_path / "d.jsonl").write_text("\n".join(lines))
    lake = Lake(str(tmp_path / "lake"))
    register(lake, SCHEMA)
    plan = plan_ingest(lake, ["todos"], "gw")
    work = [(each, 0) for each in line_ranges(tmp_path / "d.jsonl", 5000)]
    assert len(work) > 3
    [result] = commit_ingested(plan, ingest_on_spark(spark, plan, work), "file:x")
    assert result.deltas == 200
    assert sorted(all_deltas(lake, "todos"), key=lambda each: each.hlc) == deltas
    (tmp_path / "d.jsonl").write_text("\n".join([*lines, "{"]))
    work = [(each, 0) for each in line_ranges(tmp_path / "d.jsonl", 5000)]
    with pytest.raises(DriftlineError, match=r"d\.jsonl"):
        commit_ingested(plan, ingest_on_spark(spark, plan, work), "file:y")


def test_spark_reads_the_state_and_writes_the_same(spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    chance = random.Random(11)
    lake = load_lake(tmp_path / "lake", [[random_delta(chance, 30) for _ in range(60)] for _ in range(3)])
    compact(lake, "todos", rows_per_range=20, target_file_bytes=2000, engine=lake_engine(spark))
    state = DeltaTable(lake.part("todos", "state"))
    by_spark = spark.read.parquet(*state.file_uris()).orderBy("_row_id").collect()
    by_deltalake = state.to_pyarrow_table().sort_by("_row_id").to_pylist()
    assert [row.asDict() for row in by_spark] == by_deltalake
    assert len(by_deltalake) > 5
    assert set(by_deltalake[0]) == {"_row_id", *VALUES}


def test_any_spark_reads_the_state_by_its_files(spark, tmp_path: Path) -> None:
    """The guide's line for a Spark without the Delta jars."""
    rows = [delta("INSERT", f"r{number}", number + 1, title=f"t{number}", **{"Unit Price": 0.5}) for number in range(9)]
    lake = load_lake(tmp_path, [rows, [delta("DELETE", "r3", 50), delta("UPDATE", "r4", 51, title=None)]], {0})
    compact(lake, "todos")
    state = DeltaTable(lake.part("todos", "state"))
    found = spark.read.parquet(*state.file_uris()).orderBy("_row_id").collect()
    assert [row.asDict() for row in found] == state.to_pyarrow_table().sort_by("_row_id").to_pylist()
    assert len(found) == 8

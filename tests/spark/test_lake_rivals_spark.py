"""Compaction on Spark: convergence, damage, kills and rivals; nothing is lost and nothing is folded twice."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

from driftline.deltas import RowDelta, TableSchema, merge
from driftline.errors import LakeError
from driftline.lake import Lake, compact, flush, register, replay, verify
from driftline.lake._read.state import all_deltas, state_rows
from driftline.lake._store.rows import decode_state, escape_name
from driftline.lake._store.tables import load
from driftline.spark._lake import lake_engine
from support.lake_damage import DAMAGES, delta_files, forge
from support.lakes import BATCHES, SCHEMA, delta, lives_and_deaths, load_lake, problems_at_once, snapshot_table
from support.processes import start_process
from support.spark import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STAGES = ["planned", "folded", "deletes committed", "base committed"]


class KilledError(Exception):
    """Stands for a kill at a stage boundary."""


def together(batches: list[list[RowDelta]]) -> list[RowDelta]:
    return [each for batch in batches for each in batch]


def snapshot(lake: Lake) -> dict[str, Any]:
    return dict(decode_state(snapshot_table(lake, "todos"), SCHEMA.columns))


@settings(max_examples=6)
@given(batches=BATCHES, data=st.data())
def test_one_state_whatever_the_order_and_the_generations(
    spark: SparkSession, batches: list[list[RowDelta]], data: st.DataObject
) -> None:
    generations = data.draw(st.sets(st.integers(0, len(batches) - 1), max_size=2))
    moment = data.draw(st.integers(0, 7))
    engine = lake_engine(spark)
    with tempfile.TemporaryDirectory() as root:
        lake = Lake(root)
        register(lake, SCHEMA)
        for number, batch in enumerate(batches):
            flush(lake, "todos", batch, gateway_id="gw", sequence=number + 1)
            if number in generations:
                compact(lake, "todos", engine=engine, rows_per_range=2)
        compact(lake, "todos", engine=engine)
        closed = {key[1]: state.columns for key, state in merge(together(batches)).items() if state.live}
        assert snapshot(lake) == replay(together(batches)) == closed
        assert dict(state_rows(lake, "todos", as_of=moment)) == replay(together(batches), as_of=moment)
        assert verify(lake, "todos", engine=engine, oracle=True).is_proved


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_delta_file_is_named(spark: SparkSession, tmp_path: Path, damage: Any) -> None:
    batches = lives_and_deaths(2)
    lake = load_lake(tmp_path, batches[:1], {0})
    flush(lake, "todos", batches[1], gateway_id="gw", sequence=2)
    versions = [load(lake, "todos", part).version() for part in ("base", "deletes")]
    files = {path for part in ("base", "deletes") for path in tmp_path.joinpath("tables/todos", part).glob("*.parquet")}
    victim = next(path for path in delta_files(lake) if path.name.startswith("100-"))
    whole = victim.read_bytes()
    damage(victim)
    with pytest.raises(LakeError, match=victim.name):
        compact(lake, "todos", engine=lake_engine(spark))
    assert [load(lake, "todos", part).version() for part in ("base", "deletes")] == versions
    assert all(path.exists() for path in files)
    victim.write_bytes(whole)
    compact(lake, "todos", engine=lake_engine(spark))
    assert snapshot(lake) == replay(together(batches))


def test_verify_names_forged_deltas_and_lists_differing_rows(spark: SparkSession, tmp_path: Path) -> None:
    lake = load_lake(tmp_path, [[delta("INSERT", "r1", 1, title="a"), delta("INSERT", "r2", 2, done=True)]], {0})
    engine = lake_engine(spark)
    base = next(tmp_path.joinpath("tables/todos/base").glob("*.parquet"))
    whole = base.read_bytes()
    forge(base)
    proof = verify(lake, "todos", engine=engine)
    assert (proof.is_proved, proof.differing_rows) == (False, ("r1", "r2"))
    assert proof == verify(lake, "todos")
    base.write_bytes(whole)
    [victim] = delta_files(lake)
    forge(victim)
    with pytest.raises(LakeError, match=victim.name) as caught:
        verify(lake, "todos", engine=engine)
    assert caught.value.code == "bad_delta_id"


@pytest.mark.parametrize("stage", STAGES)
def test_a_stop_at_a_stage_boundary_leaves_a_readable_lake(spark: SparkSession, tmp_path: Path, stage: str) -> None:
    batches = lives_and_deaths(3)
    lake = load_lake(tmp_path, batches[:2], {0})
    engine = lake_engine(spark)

    def die(reached: str) -> None:
        if reached == stage:
            raise KilledError

    with pytest.raises(KilledError):
        compact(lake, "todos", engine=engine, at_stage=die)
    assert dict(state_rows(lake, "todos")) == replay(together(batches[:2]))
    flush(lake, "todos", batches[2], gateway_id="gw", sequence=3)
    assert compact(lake, "todos", engine=engine).is_new
    assert snapshot(lake) == replay(together(batches))
    assert verify(lake, "todos", engine=engine, oracle=True).is_proved


COMPACTOR = textwrap.dedent(
    """
    import sys
    from driftline.lake import Lake, compact
    from driftline.spark import lake_engine, open_session

    def tell(stage):
        print(stage, flush=True)
        if stage == sys.argv[2]:
            sys.stdin.readline()  # the kill comes while it waits here

    with open_session("local[2]") as session:
        while True:
            compact(Lake(sys.argv[1]), "todos", full=True, rows_per_range=3, engine=lake_engine(session), at_stage=tell)
    """
)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("stage", "seconds"), [("folded", 0), ("deletes committed", 0), ("never", 0.2), ("never", 1.1)]
)
def test_a_killed_compactor_leaves_a_readable_lake(tmp_path: Path, stage: str, seconds: float) -> None:
    batches = lives_and_deaths(3)
    lake = load_lake(tmp_path, batches, {0})
    process = start_process(
        [sys.executable, "-c", COMPACTOR, str(tmp_path), stage],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == ("planned" if stage == "never" else stage):
            break
    time.sleep(seconds)  # with no stage to wait at, this ends anywhere in the folds that follow
    process.kill()
    process.communicate()
    assert dict(state_rows(lake, "todos")) == replay(together(batches))
    assert verify(lake, "todos", oracle=True).is_proved
    compact(lake, "todos", full=True)
    assert snapshot(lake) == replay(together(batches))
    assert verify(lake, "todos", oracle=True).deltas == 90


def test_schemas_change_between_files(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    engine = lake_engine(spark)
    steps = [["a"], ["a", "b c"], ["b c"], ["b c", "a"]]
    for number, names in enumerate(steps):
        register(lake, TableSchema("todos", [{"name": name, "type": "string"} for name in names]))
        written = dict.fromkeys(names, f"v{number}")
        some = [delta("UPDATE", f"r{number % 2}", number, **written), delta("INSERT", f"n{number}", number, **written)]
        flush(lake, "todos", some, gateway_id="gw", sequence=number + 1)
        assert compact(lake, "todos", engine=engine, rows_per_range=2).is_new
        expected = {
            row: {name: value for name, value in columns.items() if name in names}
            for row, columns in replay(all_deltas(lake, "todos")).items()
        }
        assert dict(state_rows(lake, "todos")) == expected
        assert set(pl.read_delta(lake.part("todos", "base")).columns) == {
            "_row_id", "_stamps", *map(escape_name, names)
        }  # fmt: skip
        assert verify(lake, "todos", engine=engine).is_proved


def test_compactors_and_flushes_at_once(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    register(lake, SCHEMA)
    made = [
        [delta("UPDATE", f"r{n % 7}", g * 1000 + n, client=f"g{g}", title=str(n)) for n in range(8)] for g in (1, 2)
    ]

    def flusher(gateway: int) -> None:
        for number, each in enumerate(made[gateway - 1]):
            flush(lake, "todos", [each], gateway_id=f"g{gateway}", sequence=number + 1)
            time.sleep(0.1)

    def compactor() -> None:
        for _ in range(3):
            compact(lake, "todos", rows_per_range=3, engine=lake_engine(spark))

    problems = problems_at_once(partial(flusher, 1), partial(flusher, 2), compactor, compactor)
    # A loser either folded again or said that others kept committing.
    assert [problem for problem in problems if getattr(problem, "code", "") != "commit_conflict"] == []
    compact(lake, "todos", engine=lake_engine(spark))
    proof = verify(lake, "todos", engine=lake_engine(spark), oracle=True)
    assert (proof.is_proved, proof.deltas) == (True, 16)
    assert snapshot(lake) == replay(together(made))


def test_the_losing_compactor_folds_again(spark: SparkSession, tmp_path: Path) -> None:
    batches = lives_and_deaths(4)
    lake = load_lake(tmp_path, batches[:2], {0})
    engine = lake_engine(spark)
    seen: list[str] = []

    def rival(stage: str) -> None:
        seen.append(stage)
        if stage == "folded" and seen.count("folded") == 1:
            flush(lake, "todos", batches[2], gateway_id="gw", sequence=3)
            compact(lake, "todos", engine=engine)
            flush(lake, "todos", batches[3], gateway_id="gw", sequence=4)

    assert compact(lake, "todos", engine=engine, at_stage=rival).is_new
    assert seen.count("folded") == 2
    assert snapshot(lake) == replay(together(batches))
    assert verify(lake, "todos", engine=engine, oracle=True).deltas == 120

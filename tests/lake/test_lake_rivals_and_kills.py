"""Compactors that are killed, compactors and flushes at once: nothing is lost, nothing is folded twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from driftline.lake import Lake, compact, flush, register, replay, verify
from driftline.lake._fold.local import run_locally
from driftline.lake._fold.plan import bounded_rows
from driftline.lake._read.state import state_rows
from driftline.lake._store.parquet import DataFile
from driftline.lake._store.rows import decode_state
from driftline.lake._store.tables import load, transaction_version
from support.lakes import SCHEMA, delta, lives_and_deaths, load_lake, problems_at_once, snapshot_table
from support.processes import start_process

pytestmark = pytest.mark.kills

STAGES = ["planned", "folded", "deletes committed", "base committed"]


class KilledError(Exception):
    """Stands for a kill at a stage boundary."""


@pytest.mark.parametrize("stage", STAGES)
def test_a_kill_at_a_stage_boundary_leaves_a_readable_lake(tmp_path: Path, stage: str) -> None:
    everything = lives_and_deaths(4)
    lake = load_lake(tmp_path, everything[:2], {0})
    expected = replay([each for batch in everything[:2] for each in batch])

    def die(reached: str) -> None:
        if reached == stage:
            raise KilledError

    with pytest.raises(KilledError):
        compact(lake, "todos", at_stage=die)
    assert dict(state_rows(lake, "todos")) == expected
    assert verify(lake, "todos", oracle=True).is_proved
    flush(lake, "todos", everything[2], gateway_id="gw", sequence=3)
    compact(lake, "todos")
    expected = replay([each for batch in everything[:3] for each in batch])
    assert dict(decode_state(snapshot_table(lake, "todos"), SCHEMA.columns)) == expected
    assert verify(lake, "todos", oracle=True).is_proved


def test_kills_at_random_moments(tmp_path: Path) -> None:
    everything = lives_and_deaths(4)
    lake = load_lake(tmp_path, everything)
    script = textwrap.dedent(
        """
        import sys
        from driftline.lake import Lake, compact
        print("ready", flush=True)
        compact(Lake(sys.argv[1]), "todos", full=True, rows_per_range=3)
        """
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    chance = random.Random(11)
    for _ in range(6):
        process = start_process([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, env=environment)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0, 0.12))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert dict(state_rows(lake, "todos")) == replay([each for batch in everything for each in batch])
    compact(lake, "todos", full=True)
    assert verify(lake, "todos", oracle=True).is_proved


def test_compactors_and_flushes_at_once(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    register(lake, SCHEMA)
    made = [
        [delta("UPDATE", f"r{n % 7}", g * 1000 + n, client=f"g{g}", title=str(n)) for n in range(12)] for g in (1, 2)
    ]

    def flusher(gateway: int) -> None:
        for number, each in enumerate(made[gateway - 1]):
            flush(lake, "todos", [each], gateway_id=f"g{gateway}", sequence=number + 1)

    def compactor() -> None:
        for _ in range(5):
            compact(lake, "todos", rows_per_range=3)

    assert problems_at_once(partial(flusher, 1), partial(flusher, 2), compactor, compactor) == []
    compact(lake, "todos")
    proof = verify(lake, "todos", oracle=True)
    assert proof.is_proved
    assert proof.deltas == 24
    assert dict(state_rows(lake, "todos")) == replay([each for batch in made for each in batch])


def test_the_losing_compactor_folds_again(tmp_path: Path) -> None:
    everything = lives_and_deaths(4)
    lake = load_lake(tmp_path, everything[:2], {0})
    seen: list[str] = []

    def rival(stage: str) -> None:
        seen.append(stage)
        if stage == "folded" and seen.count("folded") == 1:
            flush(lake, "todos", everything[2], gateway_id="gw", sequence=3)
            compact(lake, "todos")
            flush(lake, "todos", everything[3], gateway_id="gw", sequence=4)

    assert compact(lake, "todos", at_stage=rival).is_new
    assert seen.count("folded") == 2
    assert dict(state_rows(lake, "todos")) == replay([each for batch in everything for each in batch])
    assert verify(lake, "todos", oracle=True).deltas == 120


def test_a_rival_that_did_all_the_work_is_believed(tmp_path: Path) -> None:
    lake = load_lake(tmp_path, lives_and_deaths(4)[:1])
    calls: list[str] = []

    def rival(stage: str) -> None:
        calls.append(stage)
        if calls == ["planned", "folded"]:
            compact(lake, "todos")

    assert not compact(lake, "todos", at_stage=rival).is_new
    assert verify(lake, "todos", oracle=True).is_proved


def test_concurrent_flushes_of_one_sequence_write_once(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    register(lake, SCHEMA)
    batch = [delta("INSERT", "r", 1, title="x")]
    results: list[int] = []

    def work() -> None:
        results.append(flush(lake, "todos", batch, gateway_id="gw", sequence=1).deltas)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 0, 0, 0, 0, 1]
    assert sum(file.rows for file in load(lake, "todos", "deltas").files()) == 1
    assert transaction_version(load(lake, "todos", "deltas"), "flush:gw") == 1


def test_deltas_beyond_the_memory_limit_wait_on_disk(tmp_path: Path) -> None:
    everything = lives_and_deaths(4)
    lake = load_lake(tmp_path, everything)
    compact(lake, "todos", rows_per_range=3, engine=partial(run_locally, memory_bytes=1))
    assert dict(state_rows(lake, "todos")) == replay([each for batch in everything for each in batch])
    assert verify(lake, "todos", oracle=True).is_proved


def test_large_cells_make_smaller_pieces() -> None:
    files = [DataFile("x", size=10_000 << 20, rows=1_000_000)]
    assert bounded_rows(150_000, files) == 6_400
    assert bounded_rows(150_000, [DataFile("x", size=1 << 20, rows=1_000_000)]) == 150_000

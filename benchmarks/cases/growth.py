"""How a table diff grows with its input, in parts that each take minutes: `python -m benchmarks full growth:50M`.

Parts are sizes (1M, 10M, 50M, 100M; Spark `local[2]` up to 50M), `executors` (10M rows on a cluster whose executors
have 1 GB) and `replaced` (a snapshot of 1M rows that was corrected after it was loaded, against its first load).
Generated tables are deleted with the part. `quick` takes a twentieth of the rows.

Bars: local memory below 1.5 GB at every size, CPU linear within 25 % from 10M on, CPU on Spark at most 1.6 x local at
10M, 1M on Spark within 5 s, a replaced snapshot at most 1.5 x a first load.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scripts.local_cluster import StandaloneCluster

from benchmarks.contest import DATA, ROOT, Contender, Row, driftline_command, hold
from benchmarks.data_pipeline import NIGHTS, first_night, make_rows, next_night, write_tables
from benchmarks.measure import measure, shuffled_bytes

SIZES = {"1M": 1_000_000, "10M": 10_000_000, "50M": 50_000_000, "100M": 100_000_000}
LARGEST_ON_SPARK = 50_000_000
QUICK_SHARE = 20
BLOCK_ROWS = 2_500_000  # generated at once
FOLDER = DATA / "growth"
LOAD = """\
[pipeline]
name = "replaced"
[lake]
path = "lake"
[tables.t]
snapshots = "t-{date}.csv"
key = "id"
events = "out/{to}.jsonl"
deltas = true
"""


def run(full: bool, part: str) -> list[Row]:
    share = 1 if full else QUICK_SHARE
    try:
        return PARTS[part](share)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


def grown(rows: int) -> list[Row]:
    """One size, local and on Spark."""
    pair = write_pair(rows)
    contenders = [Contender("local", call=lambda: compared(pair, "--engine", "local"))]
    if rows <= LARGEST_ON_SPARK:
        contenders.append(Contender("Spark local[2]", call=lambda: on_spark(pair, "local[2]")))
    return hold(f"diff of 2 x {rows:,} rows", contenders, rounds=3 if rows <= SIZES["1M"] else 1)


def with_small_executors(share: int) -> list[Row]:
    """Two workers of one core, each executor with 1 GB."""
    pair = write_pair(SIZES["10M"] // share)
    with StandaloneCluster(workers=2, cores=1) as cluster:
        small = ["--spark-conf", "spark.executor.memory=1g"]
        contender = Contender("cluster, 2 x 1 core, 1 GB", call=lambda: on_spark(pair, cluster.url, *small))
        return hold(f"diff of 2 x {SIZES['10M'] // share:,} rows", [contender], rounds=1)


def replaced(share: int) -> list[Row]:
    """The first load of a snapshot, and the load of a corrected one: both with their comparison."""
    rows = SIZES["1M"] // share
    write_tables(FOLDER / "tables", {"t": rows})
    nights = [FOLDER / "tables" / f"t-{night}.csv" for night in NIGHTS]

    def loaded(night: Path, name: str) -> dict[str, float]:
        (FOLDER / "work").mkdir(parents=True, exist_ok=True)
        (FOLDER / "work/p.toml").write_text(LOAD)
        shutil.copy(night, FOLDER / "work" / name)
        command = driftline_command("pipeline", "run", str(FOLDER / "work/p.toml"), "--engine", "local")
        taken = measure(command, cwd=ROOT)
        return {"wall_s": taken.wall, "cpu_s": taken.cpu, "peak_mb": taken.peak_mb}

    def first() -> dict[str, float]:
        shutil.rmtree(FOLDER / "work", ignore_errors=True)
        return loaded(nights[0], f"t-{NIGHTS[0]}.csv")

    def corrected() -> dict[str, float]:
        loaded(nights[1], f"t-{NIGHTS[1]}.csv")
        return loaded(nights[2], f"t-{NIGHTS[1]}.csv")

    return hold(
        f"snapshot of {rows:,} rows",
        [Contender("first load", call=first), Contender("replaced", call=corrected)],
        rounds=2,
    )


def compared(pair: list[Path], *options: str) -> dict[str, float]:
    """One cold diff."""
    out = str(FOLDER / "events.jsonl")
    taken = measure([*driftline_command("diff"), *map(str, pair), "--key", "id", "--output", out, *options], cwd=ROOT)
    size = sum(path.stat().st_size for path in pair)
    return {"wall_s": taken.wall, "cpu_s": taken.cpu, "peak_mb": taken.peak_mb, "input_mb": size / 1e6}


def on_spark(pair: list[Path], master: str, *options: str) -> dict[str, float]:
    """The same on Spark; a second run writes Spark's own log of events, which has the bytes of the shuffles.

    Its times do not count: with a setting of the user's all jars are on the class path, and with them another class
    archive, which the first runs do not have yet.
    """
    log = FOLDER / "log"
    shutil.rmtree(log, ignore_errors=True)
    log.mkdir(parents=True)
    shared = f"DRIFTLINE_SHARED_DIR={FOLDER}"
    settings = ["spark.eventLog.enabled=true", f"spark.eventLog.dir=file://{log}", "spark.eventLog.compress=false"]
    given = [part for setting in settings for part in ("--spark-conf", setting)]
    out = str(FOLDER / "spark.jsonl")
    diff = driftline_command("diff", *map(str, pair), "--key", "id", "--output", out, "--master", master)
    taken = measure(["env", shared, *diff, *options], cwd=ROOT)
    measure(["env", shared, *diff, *given, *options], cwd=ROOT)
    size = sum(path.stat().st_size for path in pair)
    figures = {"wall_s": taken.wall, "cpu_s": taken.cpu, "peak_mb": taken.peak_mb, "input_mb": size / 1e6}
    return {**figures, "shuffle_mb": shuffled_bytes(log) / 1e6}


def write_pair(rows: int) -> list[Path]:
    """Two nights of a table, in blocks that fit the memory; the blocks of the second are in another order."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    pair = [FOLDER / "a.csv", FOLDER / "b.csv"]
    chance = np.random.default_rng(5)
    starts = list(range(0, rows, BLOCK_ROWS))
    for path, order in zip(pair, (starts, chance.permutation(starts)), strict=True):
        with path.open("wb") as out:
            for number, start in enumerate(order):
                own = np.random.default_rng(int(start))  # both nights make the block from the same seed
                count = min(BLOCK_ROWS, rows - start)
                block = make_rows(own, np.arange(start, start + count)) if start else first_night(own, count)
                if path is pair[1]:
                    block = changed(own, block, rows + int(start))
                block.sample(fraction=1.0, shuffle=True, seed=7).write_csv(out, include_header=not number)
    return pair


def changed(chance: np.random.Generator, block, first_new: int):
    """The next night of a block; its new rows have ids that no block has."""
    after = next_night(chance, block)
    new = after.height - after.filter(after["id"].is_in(block["id"].implode())).height
    return after.head(after.height - new).vstack(make_rows(chance, np.arange(first_new, first_new + new)))


PARTS: dict[str, Callable[[int], list[Row]]] = {
    **{name: (lambda share, rows=rows: grown(rows // share)) for name, rows in SIZES.items()},
    "executors": with_small_executors,
    "replaced": replaced,
}

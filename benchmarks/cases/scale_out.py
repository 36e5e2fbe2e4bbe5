"""Scale-out: a table diff on a standalone cluster with 1 and 2 workers of one core, beside `local[2]`.

Master, workers and driver share this machine, so on two cores the second worker finds only what the others leave; the
start of the session is part of each run, that of the cluster is not. CPU and memory are the driver's.
"""

from __future__ import annotations

from pathlib import Path

from scripts.local_cluster import StandaloneCluster

from benchmarks.contest import DATA, Contender, Row, driftline_command, hold
from benchmarks.data_tables import make_pair


def run(full: bool) -> list[Row]:
    count = 10_000_000 if full else 100_000
    pair = make_pair(DATA / "tables" / str(count), count)
    case = f"{count:,} rows"
    rows = hold(case, [_diff("local[2]", pair, "local[2]")], rounds=1)
    for workers in (1, 2):
        with StandaloneCluster(workers=workers, cores=1) as cluster:
            rows += hold(case, [_diff(f"cluster, {workers} x 1 core", pair, cluster.url)], rounds=1)
    for row in rows:  # `hold` saw them one by one
        row.ratio = row.figures["wall_s"] / rows[0].figures["wall_s"]
    return rows


def _diff(name: str, pair: tuple[Path, Path], master: str) -> Contender:
    shared, out = f"DRIFTLINE_SHARED_DIR={pair[0].parent}", str(pair[0].with_name("scale-out.jsonl"))
    diff = driftline_command("diff", *map(str, pair), "--key", "id", "-o", out)
    return Contender(name, ["env", shared, *diff, "--engine", "spark", "--master", master])

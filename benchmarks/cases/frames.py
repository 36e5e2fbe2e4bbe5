"""`driftline.spark.diff` in a program's own session against Spark's own full outer join of the same DataFrames.

Bars: at most 1.2 x its CPU and 1.5 x its shuffled bytes. The keys are checked by a job of their own, which reads them
once more: `read_mb` shows it.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import polars as pl

from benchmarks.contest import DATA, ROOT, Contender, Row, hold
from benchmarks.data_tables import make_pair
from benchmarks.measure import measure, shuffled_bytes, task_metrics

SCRIPT = ROOT / "benchmarks" / "peers" / "frames_jobs.py"


def run(full: bool) -> list[Row]:
    rows = 1_000_000 if full else 100_000
    pair = [_as_parquet(path) for path in make_pair(DATA / "tables" / str(rows), rows)]
    contenders = [Contender(name, call=lambda name=name: _one(name, pair)) for name in ("driftline", "join")]
    found = hold(f"DataFrames of {rows:,} rows, local[2]", contenders, rounds=3)
    for row in found:
        row.figures["cpu_ratio"] = row.figures["cpu_s"] / found[-1].figures["cpu_s"]
        row.figures["shuffle_ratio"] = row.figures["shuffle_mb"] / found[-1].figures["shuffle_mb"]
    return found


def _as_parquet(path: Path) -> Path:
    target = path.with_suffix(".parquet")
    if not target.exists():
        pl.scan_csv(path, infer_schema=False).sink_parquet(target)
    return target


def _one(name: str, pair: list[Path]) -> dict[str, float]:
    log = DATA / "frames-log"
    shutil.rmtree(log, ignore_errors=True)
    log.mkdir(parents=True)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src")}
    try:
        command = [sys.executable, str(SCRIPT), name, *map(str, pair), str(log)]
        taken = measure(command, cwd=ROOT, env=environment)
        read = sum(task["Input Metrics"]["Bytes Read"] for task in task_metrics(log))
        sizes = {"shuffle_mb": shuffled_bytes(log) / 1e6, "read_mb": read / 1e6}
    finally:
        shutil.rmtree(log, ignore_errors=True)
    return {"wall_s": taken.wall, "cpu_s": taken.cpu, "peak_mb": taken.peak_mb, **sizes}

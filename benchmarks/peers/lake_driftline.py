"""driftline's side of the lake benchmarks: one job with the session already up; prints the figures as JSON.

`python lake_driftline.py compact|as-of|incremental LAKE [--engine local|spark] [--as-of HLC] [--fresh]`

The session is up when its Python workers are: like the peers, they have imported what they need before the clock
starts. With `--fresh` nothing but the JVM has been started.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from driftline.lake import Lake, compact, materialize, run_locally

TABLE = "orders"


def job(given: argparse.Namespace, engine: Any) -> int:
    lake = Lake(given.lake)
    if given.job == "as-of":
        with tempfile.TemporaryDirectory() as folder:
            return materialize(
                lake, TABLE, f"{folder}/state.parquet", format="parquet", as_of=given.as_of, engine=engine
            )
    return compact(lake, TABLE, full=given.job == "compact", engine=engine).deltas_folded


def start_worker(batches: Iterator[Any]) -> Iterator[Any]:
    """A task that only makes its worker import what folds need."""
    import driftline.spark._lake  # noqa: F401

    yield from batches


def peak_mb() -> float:
    """The peak of this process alone; `getrusage` would count what its parent was before the exec."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=["compact", "incremental", "as-of"])
    parser.add_argument("lake")
    parser.add_argument("--engine", choices=["local", "spark"], default="spark")
    parser.add_argument("--as-of", type=int)
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()
    with ExitStack() as stack:
        engine: Any = run_locally
        if given.engine == "spark":
            from driftline.spark import lake_engine, open_session

            config = {"spark.driver.maxResultSize": "64m"}
            session = stack.enter_context(open_session("local[2]", config=config))
            session.range(1).count()
            if not given.fresh:
                session.range(0, 2, 1, 2).mapInArrow(start_worker, "id long").count()
            engine = lake_engine(session)
        start = time.perf_counter()
        count = job(given, engine)
        wall = time.perf_counter() - start
        driver_mb = peak_mb()
    print(json.dumps({"wall_s": wall, "per_s": count / wall, "driver_mb": driver_mb}))


if __name__ == "__main__":
    main()

"""The jobs of a nightly run one after the other in one warm Spark session: `pipeline_jobs.py DIR`; prints seconds.

Each table: diff, deltas into the lake, compaction, patchset. What the session's start and its first job take is not
counted, so the sum is that of warm jobs.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from driftline.pipeline import load, running
from driftline.pipeline.engine import RunEngine
from driftline.pipeline.graph import build
from driftline.progress import Tracker


def main(file: Path) -> None:
    declared = load(file)
    engine = RunEngine("spark", "local[2]", memory=None, parallel=1)
    try:
        warm_up(engine, declared.directory)
        run = running.PipelineRun(declared, build(declared), engine, Tracker())
        started = time.monotonic()
        run.run()
        print(time.monotonic() - started)
    finally:
        engine.close()


def warm_up(engine: RunEngine, directory: Path) -> None:
    """A small diff in the session: Python workers are up and the JVM has seen the code."""
    from driftline.tables.engines import DiffJob, find_engine
    from driftline.tables.options import check_options

    engine.session()
    for side in ("a", "b"):
        lines = [f"{number},{side}{number}" for number in range(1000)]
        (directory / f"warm-{side}.csv").write_text("id,x\n" + "\n".join(lines) + "\n")
    job = DiffJob(directory / "warm-a.csv", directory / "warm-b.csv", check_options(key_columns=["id"]))
    find_engine("spark")(job, lambda data: None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

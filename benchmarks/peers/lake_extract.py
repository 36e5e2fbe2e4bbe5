"""`python lake_extract.py diff|extract A B`: one job on Spark local[2], session up; prints the figures as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import driftline
from driftline.lake import Lake
from driftline.lake.extracting import extract_snapshots
from driftline.spark.lake_ingest import ingest_on_spark, survey_on_spark
from driftline.spark.runtime.session import open_session


def main() -> None:
    job, a, b = sys.argv[1:]
    with open_session("local[2]") as session, tempfile.TemporaryDirectory() as folder:
        session.range(1).count()
        start = time.perf_counter()
        if job == "diff":
            driftline.diff(a, b, key=["id"], engine="spark").write(Path(folder, "events.jsonl"))
        else:
            schedulers = {
                "scheduler": partial(ingest_on_spark, session),
                "surveyor": partial(survey_on_spark, session),
            }
            extract_snapshots(
                Lake(folder), a, b, key=["id"], table="orders", client_id="c", diff_engine="spark", **schedulers
            )
        print(json.dumps({"wall_s": time.perf_counter() - start}))


if __name__ == "__main__":
    main()

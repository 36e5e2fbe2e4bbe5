"""`python lake_extract.py diff|extract A B`: one job on Spark local[2], session up; prints the figures as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import driftline
from driftline.lake import Lake, extract_snapshots
from driftline.spark import load_schedulers, open_session


def main() -> None:
    job, a, b = sys.argv[1:]
    with open_session("local[2]") as session, tempfile.TemporaryDirectory() as folder:
        session.range(1).count()
        start = time.perf_counter()
        if job == "diff":
            driftline.diff(a, b, key=["id"], engine="spark").write(Path(folder, "events.jsonl"))
        else:
            options = {"key": ["id"], "table": "orders", "client_id": "c", "diff_engine": "spark"}
            options["schedulers"] = load_schedulers(session)
            extract_snapshots(Lake(folder), a, a, load_base=True, **options)
            start = time.perf_counter()  # the lake holds A before the clock runs
            extract_snapshots(Lake(folder), a, b, **options)
        print(json.dumps({"wall_s": time.perf_counter() - start}))


if __name__ == "__main__":
    main()

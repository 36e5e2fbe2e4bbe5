"""Runs pipelines one after the other in one Spark session: `cluster_runs.py MASTER FILE…`.

Says `begin` before each, and the exit code of its run behind it; each run but the first waits for a line on stdin.
"""

from __future__ import annotations

import sys

from driftline.pipeline import load, run_pipeline
from driftline.spark._runtime.session import open_session

if __name__ == "__main__":
    master, *files = sys.argv[1:]
    with open_session(master):
        for number, file in enumerate(files):
            if number:
                sys.stdin.readline()
            print("begin", flush=True)
            print(run_pipeline(load(file), engine="spark", master=master).exit_code, flush=True)

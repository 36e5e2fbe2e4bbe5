"""Run a command against a Spark standalone cluster on loopback: a master and some workers, from the installed pyspark.

    python scripts/local_cluster.py --workers 2 -- driftline pipeline run nightly.toml --engine spark

The command finds the cluster through SPARK_MASTER; the cluster ends with it. Without a command the cluster runs until
Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys

from driftline.spark._runtime.standalone import StandaloneCluster


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1, help="of each worker")
    parser.add_argument("--memory", default="1g", help="of each worker")
    parser.add_argument("command", nargs="*")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    with StandaloneCluster(given.workers, cores=given.cores, memory=given.memory) as cluster:
        print(f"cluster: {cluster.url}, {given.workers} workers", file=sys.stderr)
        if not given.command:
            print("Ctrl-C ends it", file=sys.stderr)
            try:
                signal.pause()
            except KeyboardInterrupt:
                return 0
        return subprocess.run(given.command, env={**os.environ, "SPARK_MASTER": cluster.url}, check=False).returncode


def _leave(signal_number: int, frame: object) -> None:
    """End as after an error, so that nothing of the cluster stays behind."""
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    sys.exit(main())

"""A nightly pipeline in Airflow: plan, run, make the page; what follows is done only after a good night.

driftline lives in an environment of its own (DRIFTLINE names the command), so that it and Airflow do not have to agree
about packages. Run it by hand with `python driftline_nightly.py`.
"""

from __future__ import annotations

import os
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException

DRIFTLINE = os.environ.get("DRIFTLINE", "driftline")
PIPELINE = Path(os.environ.get("DRIFTLINE_PIPELINE", "/srv/shop/retail.toml"))
LIMIT_EXCEEDED = 1


def driftline(*arguments: str) -> int:
    return subprocess.run([DRIFTLINE, "pipeline", *arguments], check=False).returncode


@dag(
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=10)},
)
def driftline_nightly():
    @task
    def plan() -> None:
        driftline("plan", str(PIPELINE))

    @task
    def run() -> None:
        """Trying again goes on where it stopped; it does not help where a limit was exceeded, which is for people."""
        code = driftline("run", str(PIPELINE), "--wait", "600")
        if code == LIMIT_EXCEEDED:
            raise AirflowFailException("a limit was exceeded: look at the page, then correct the data or accept them")
        if code:
            raise RuntimeError(f"driftline ended with {code}")

    @task(trigger_rule="all_done")
    def page() -> None:
        driftline("report", str(PIPELINE), "-o", str(PIPELINE.with_name("report.html")))

    @task
    def deliver() -> None:
        print(f"the results of {PIPELINE} are in place")

    ran = run()
    plan() >> ran >> [page(), deliver()]


nightly = driftline_nightly()

if __name__ == "__main__":
    nightly.test()

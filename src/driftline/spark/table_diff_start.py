"""The door to table diffs on Spark: the JVM starts before Polars, Arrow and pyspark are imported."""

from __future__ import annotations

from driftline.spark.runtime.session import begin_session
from driftline.tables._engines import DiffJob, Write
from driftline.tables._events import Stats


def run(job: DiffJob, write: Write) -> Stats:
    """Diff on Spark."""
    begin_session(job.master)
    from driftline.spark.table_diff import run as run_on_spark

    return run_on_spark(job, write)

"""Payload batches on Spark: a task for each split and each range of ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from driftline.core import Tracker
from driftline.payloads import Scheduler
from driftline.spark._runtime.session import open_session
from driftline.spark._tasks import TaskPool

_RANGES = 8  # enough for the cores of a small cluster; large input has more by its size


class _SparkScheduler(TaskPool):
    """A pool with enough ranges to keep Spark busy."""

    workers = _RANGES


@contextmanager
def payload_scheduler(master: str | None, tracker: Tracker) -> Iterator[Scheduler]:
    """A scheduler that runs Spark tasks; input and output must be visible to all workers."""
    with open_session(master, app_name="driftline compare-batch") as spark:
        yield _SparkScheduler(spark, tracker, "compare on Spark")

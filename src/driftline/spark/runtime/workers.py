"""Spark's Python workers: what a task may do for the process that it shares with the tasks before and after it."""

from __future__ import annotations

import gc
import sys

import pyarrow as pa


def settle_worker() -> None:
    """Prepare a worker for tasks over large Arrow tables; done once for each process.

    Spark collects garbage after every task, which walks through all that the imported modules made, a twentieth of
    a second each time; and Arrow's own pools give large buffers back so eagerly that a fold spends a tenth of its
    time on fresh pages.
    """
    if "pyspark.worker" in sys.modules and gc.get_freeze_count() == 0:
        gc.freeze()
        pa.set_memory_pool(pa.system_memory_pool())

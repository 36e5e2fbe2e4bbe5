"""Spark's Python workers: started early, and prepared for driftline's tasks."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from driftline.core import skip_pandas

if TYPE_CHECKING:
    from pyspark import SparkContext

OWN_WORKERS = "DRIFTLINE_OWN_WORKERS"  # set where the workers run only driftline's tasks

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of glibc's mallopt
_KEPT_BYTES = 1 << 30
_EARLY = 4  # workers started in advance; the others start with their tasks, and a small job needs none of them
_EARLY_MODULES = ("pyspark.sql.pandas.serializers", "driftline.spark._table_tasks")  # what takes long to import


def start_workers(context: SparkContext) -> None:
    """Start workers of a local session and their imports, in the background."""
    threading.Thread(target=_start_workers, args=(context,), daemon=True, name="driftline-workers").start()


def _start_workers(context: SparkContext) -> None:
    count = min(_EARLY, context.defaultParallelism)
    with contextlib.suppress(Exception):  # the first job will report what is wrong with them
        context.parallelize(range(count), count).foreachPartition(_import_modules)


def _import_modules(_: Iterable[int]) -> None:
    for name in _EARLY_MODULES:
        importlib.import_module(name)


def prepare_worker() -> None:
    """Prepare a worker of driftline's own session for tasks over large Arrow tables; done once for each process.

    Spark collects garbage after every task, which visits all objects of the imported modules, a twentieth of a second
    each time; and Arrow's own pools release large buffers so early that a fold spends a tenth of its time on new pages.
    """
    if OWN_WORKERS in os.environ and "pyspark.worker" in sys.modules and gc.get_freeze_count() == 0:
        gc.freeze()
        pa.set_memory_pool(pa.system_memory_pool())
        _keep_pages()
        skip_pandas(pa)


def _keep_pages() -> None:
    """Let the C library retain the pages of freed buffers: to map and clear them again is a third of a parse."""
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        library = ctypes.CDLL(None)
        for setting in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            library.mallopt(setting, _KEPT_BYTES)

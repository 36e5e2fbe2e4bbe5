"""Spark's Python workers: started while the session opens, and prepared for driftline's tasks."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark import SparkContext

OWN_WORKERS = "DRIFTLINE_OWN_WORKERS"  # set where nobody but driftline has work for the workers

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of glibc's mallopt
_KEPT_BYTES = 1 << 30
_EARLY = 4  # workers started beforehand; the others start with their tasks, and a small job never asks for them
_EARLY_MODULES = ("pyspark.sql.pandas.serializers", "driftline.spark._table_tasks")  # what takes long to import


def start_workers(context: SparkContext) -> None:
    """Let workers of a local session start and import, beside whatever the caller does next."""
    threading.Thread(target=_start_workers, args=(context,), daemon=True, name="driftline-workers").start()


def _start_workers(context: SparkContext) -> None:
    count = min(_EARLY, context.defaultParallelism)
    with contextlib.suppress(Exception):  # the first job will say what is wrong with them
        context.parallelize(range(count), count).foreachPartition(_import_modules)


def _import_modules(_: Iterable[int]) -> None:
    for name in _EARLY_MODULES:
        importlib.import_module(name)


def settle_worker() -> None:
    """Prepare a worker for tasks over large Arrow tables; done once for each process.

    Spark collects garbage after every task, which walks through all that the imported modules made, a twentieth of
    a second each time; and Arrow's own pools give large buffers back so eagerly that a fold spends a tenth of its
    time on fresh pages.
    """
    if "pyspark.worker" in sys.modules and gc.get_freeze_count() == 0:
        gc.freeze()
        pa.set_memory_pool(pa.system_memory_pool())
        _keep_pages()
        if OWN_WORKERS in os.environ:
            _spare_pandas()


def _keep_pages() -> None:
    """Let the C library keep the pages of freed buffers: to map and clear them anew is a third of a parse."""
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        library = ctypes.CDLL(None)
        for setting in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            library.mallopt(setting, _KEPT_BYTES)


def _spare_pandas() -> None:
    """Arrow imports pandas, for half a second and more, to see whether a list of ours is a series of pandas.

    It looks once. Where a worker also runs functions of others, which may hand series to Arrow, it must find pandas.
    """
    if "pandas" not in sys.modules:
        absence = _NoPandas()
        sys.meta_path.insert(0, absence)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(absence)


class _NoPandas:
    """A finder of modules that knows of one only, and that it is not there."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ImportError("pandas is not needed here", name=name)

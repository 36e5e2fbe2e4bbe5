"""Spark's Python workers: what a task may do for the process that it shares with the tasks before and after it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

import pyarrow as pa

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of glibc's mallopt
_KEPT_BYTES = 1 << 30


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


def _keep_pages() -> None:
    """Let the C library keep the pages of freed buffers: to map and clear them anew is a third of a parse."""
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        library = ctypes.CDLL(None)
        for setting in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            library.mallopt(setting, _KEPT_BYTES)

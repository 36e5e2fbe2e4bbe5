"""Quick start of driftline's own processes; inside another program nothing of this is done."""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of glibc's mallopt
_KEPT_BYTES = 1 << 30


def keep_pages() -> None:
    """Let the C library retain the pages of freed buffers: to map and clear them again is a third of a parse."""
    import ctypes

    with contextlib.suppress(AttributeError, OSError):  # not glibc
        library = ctypes.CDLL(None)
        for setting in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            library.mallopt(setting, _KEPT_BYTES)


def block_pandas() -> None:
    """Keep pyarrow from importing pandas with its first array, which takes a third of a short command's time.

    pyarrow looks for pandas once; if it finds none, it looks again only for a conversion to pandas, which nothing here
    does.
    """
    if "pyarrow" not in sys.modules and not any(isinstance(finder, _ArrowFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ArrowFinder())


class _ArrowFinder:
    """Acts at the import of pyarrow, which most commands do without; Polars only looks for its spec."""

    _searching = False

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of pyarrow from the other finders, with one more step after its execution."""
        if fullname != "pyarrow" or self._searching:
            return None
        self._searching = True
        self._searching, spec = False, find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                sys.meta_path.remove(self)
                execute(module)
                skip_pandas(module)
                if "jemalloc" in module.supported_memory_backends() and "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
                    # The default takes huge pages, and to clear those for small tables takes longer than to parse them.
                    module.set_memory_pool(module.jemalloc_memory_pool())

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def skip_pandas(pyarrow: ModuleType) -> None:
    """Let pyarrow search for pandas now, and find none; a pandas that is imported already stays."""
    if "pandas" in sys.modules:
        return
    nothing = _NoPandas()
    sys.meta_path.insert(0, nothing)
    try:
        pyarrow.array([])
    finally:
        sys.meta_path.remove(nothing)


class _NoPandas:
    """Finds no pandas, whether it is installed or not."""

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        """Raise for pandas, pass on everything else."""
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return None

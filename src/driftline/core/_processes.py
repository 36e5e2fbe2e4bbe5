"""What a process that is driftline's alone does to start quickly; a library leaves its host as it is."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def block_pandas() -> None:
    """Keep pyarrow from importing pandas with the first array that it makes, a third of a short command's time.

    It looks for pandas once. Told that there is none it looks again only where somebody converts to pandas, which
    nothing here does.
    """
    if "pyarrow" not in sys.modules and not any(isinstance(finder, _ArrowFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ArrowFinder())


class _ArrowFinder:
    """Waits for the import of pyarrow: most commands do without it."""

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of pyarrow as others find it, with a last step behind its execution."""
        if fullname != "pyarrow":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _look_in_vain(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class _NoPandas:
    """Finds no pandas, whether it is installed or not."""

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        """An error that says what is not there."""
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return None


def _look_in_vain(pyarrow: ModuleType) -> None:
    if "pandas" in sys.modules:
        return
    nothing = _NoPandas()
    sys.meta_path.insert(0, nothing)
    try:
        pyarrow.array([])
    finally:
        sys.meta_path.remove(nothing)

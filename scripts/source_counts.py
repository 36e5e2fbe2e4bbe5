"""Counts of the source tree that `make gate` and the tests hold: sizes, importers, surfaces, files passed.

A package below `driftline` has one public surface, its `__init__.py`; `kernels.py` is a second one, for the Spark
engine alone. Everything with a leading underscore is private to its package.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "driftline"
SMALL_LINES = 60
# One rule, one format a file: their registries name them.
REGISTRIES = ("sources/_formats", "sinks/_formats")
ENTRY_POINTS = ("__main__.py", "version.py", "pytest_plugin.py", "cli/main.py")


def source_files() -> list[Path]:
    """All files of the package, in order."""
    return sorted(PACKAGE.rglob("*.py"))


def line_count(path: Path) -> int:
    """The lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def dotted(path: Path) -> str:
    """`src/driftline/a/b.py` -> `driftline.a.b`."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def packages() -> list[str]:
    """The packages directly below `driftline`."""
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def is_surface(module: str) -> bool:
    """Whether a module is the public surface of a package, or the one for schedulers."""
    return module.count(".") == 1 or module.endswith(".kernels")


def importers() -> dict[str, set[str]]:
    """Module -> the modules that import it, at any level of their code."""
    modules = {dotted(path): path for path in source_files()}
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in modules.items():
        for name in _imported(path):
            while name not in modules and "." in name:
                name = name.rpartition(".")[0]
            if name in modules and name != module:
                found[name].add(module)
    return found


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def fragments() -> list[str]:
    """Files below 60 lines with a single importer: each belongs to that importer.

    Entries of a registry, surfaces and entry points may be small, and so may a module whose names a surface lists.
    """
    importers_of = importers()
    found = []
    for path in source_files():
        name = path.relative_to(PACKAGE).as_posix()
        if path.name == "__init__.py" or name in ENTRY_POINTS or name.startswith(REGISTRIES):
            continue
        users = importers_of[dotted(path)]
        listed = is_surface(dotted(path)) or any(is_surface(each) for each in users)
        if line_count(path) < SMALL_LINES and len(users) < 2 and not listed:
            found.append(name)
    return found


def crossings() -> list[tuple[str, str]]:
    """Imports that enter another package past its surface: (importer, private module)."""
    found = set()
    for module, users in importers().items():
        private = any(part.startswith("_") for part in module.split(".")[2:])
        found |= {(user, module) for user in users if private and user.split(".")[1:2] != module.split(".")[1:2]}
    return sorted(found)


def exports(surface: Path) -> dict[str, str]:
    """Public name -> the module that defines it, from the `if TYPE_CHECKING:` block of a surface."""
    for statement in ast.parse(surface.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name):
            lines = [line for line in statement.body if isinstance(line, ast.ImportFrom)]
            return {alias.asname or alias.name: line.module or "" for line in lines for alias in line.names}
    return {}


def trace(*arguments: str, folder: Path) -> list[str]:
    """The files of the package that a command passes, in order (`trace_files.py`)."""
    command = [sys.executable, str(ROOT / "scripts/trace_files.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    files: list[str] = json.loads(done.stderr.splitlines()[-1])
    return files


def small_diff(folder: Path) -> list[str]:
    """The files that a diff of three rows passes."""
    (folder / "before.csv").write_text("id,name\n1,Ada\n2,Grace\n3,Edsger\n", encoding="utf-8")
    (folder / "after.csv").write_text("id,name\n1,Ada\n2,Grace Hopper\n4,Barbara\n", encoding="utf-8")
    return trace("diff", "before.csv", "after.csv", "--key", "id", folder=folder)


def pipeline_run(folder: Path) -> list[str]:
    """The files that the retail example passes, 3,000 rows a day, from an empty lake on this machine."""
    example = ROOT / "examples/retail"
    subprocess.run([sys.executable, example / "make_data.py", folder, "--rows", "3000"], check=True)
    shutil.copy(example / "retail.toml", folder)
    shutil.copy(example / "api/schema.yaml", folder / "api")
    return trace("pipeline", "run", "retail.toml", "--engine", "local", folder=folder)

"""Writes the table of packages in docs/architecture.md from their public surfaces; `--check` compares it.

What a package is for is the first line of its docstring, and its names are those that its `__init__.py` lists.
"""

from __future__ import annotations

import ast
import tomllib

import source_counts
from generated import with_part, write_or_check

PAGE = source_counts.ROOT / "docs/architecture.md"


def table() -> str:
    """A row and a list of public names a package, in the order of the layers: each imports only those below it."""
    rows = ["| package | what it is for | files | public names |", "|---|---|--:|--:|"]
    lists = [line for package in _layers() for line in _names(package)]
    return "\n".join([*rows, *map(_row, _layers()), "", *lists])


def _layers() -> list[str]:
    settings = tomllib.loads((source_counts.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    names = [name.strip().removeprefix("driftline.") for layer in layers for name in layer.split("|")]
    return [name for name in names if (source_counts.PACKAGE / name).is_dir()]


def _row(package: str) -> str:
    folder = source_counts.PACKAGE / package
    purpose = (ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or "").split("\n")[0]
    count = len(source_counts.exports(folder / "__init__.py"))
    return f"| `{package}` | {purpose} | {len(list(folder.rglob('*.py')))} | {count or '–'} |"


def _names(package: str) -> list[str]:
    surfaces = ((f"driftline.{package}", "__init__.py"), (f"driftline.{package}.kernels", "kernels.py"))
    found = {name: source_counts.PACKAGE / package / file for name, file in surfaces}
    names = {name: sorted(source_counts.exports(path)) for name, path in found.items() if path.exists()}
    return [f"- `{name}`: {', '.join(f'`{each}`' for each in listed)}" for name, listed in names.items() if listed]


def main() -> None:
    write_or_check({PAGE: with_part(PAGE, "packages", table())})


if __name__ == "__main__":
    main()

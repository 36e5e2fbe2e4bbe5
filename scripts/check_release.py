"""`make release`: version, changelog and tag must agree; then the wheel and the sdist are built into dist/."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    problems = list(find_problems(_version(), (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), _tag()))
    if problems:
        sys.exit("\n".join(f"not ready: {problem}" for problem in problems))
    subprocess.run([sys.executable, "-m", "hatchling", "build"], cwd=ROOT, check=True)


def find_problems(version: str, changelog: str, tag: str | None) -> list[str]:
    problems = []
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        problems.append(f"the version {version} is not of the form 1.2.3")
    heading = re.search(r"^## (\S+) \(([^)]*)\)", changelog, re.MULTILINE)
    if heading is None or heading.group(1) != version:
        problems.append(f"the changelog's newest entry is not {version}")
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", heading.group(2)):
        problems.append(f"the changelog's entry of {version} has no date")
    if tag is not None and tag != f"v{version}":
        problems.append(f"this commit is tagged {tag}, but the version is {version}")
    return problems


def _version() -> str:
    found = re.search(r'__version__ = "([^"]+)"', (ROOT / "src/driftline/version.py").read_text(encoding="utf-8"))
    return found.group(1) if found else "missing"


def _tag() -> str | None:
    """The tag of this very commit, if it has one: an untagged commit may be tried out."""
    command = ["git", "describe", "--tags", "--exact-match"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    main()

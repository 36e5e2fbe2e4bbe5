from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_no_drawer_names() -> None:
    drawers = {"utils", "helpers", "misc", "common"}
    assert [path.name for path in SOURCES if path.stem in drawers or path.parent.name in drawers] == []


def test_decisions_are_numbered_dated_and_unique() -> None:
    decisions = sorted(path for path in (ROOT / "docs/decisions").glob("*.md") if path.name != "README.md")
    numbers = [re.match(r"(\d{4})-[a-z0-9-]+\.md$", path.name) for path in decisions]
    assert all(numbers)
    assert len({match.group(1) for match in numbers if match}) == len(decisions)
    for path in decisions:
        assert re.search(r"20\d\d-\d\d-\d\d", path.read_text()), f"{path.name} has no date"


def test_every_command_is_in_the_reference() -> None:
    from driftline.cli.commands import COMMANDS

    reference = (ROOT / "docs/cli-reference.md").read_text()
    for name in COMMANDS:
        assert f"driftline {name}" in reference


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_tracked_files_hold_no_paths_of_one_machine() -> None:
    pattern = "/(" + "|".join(["work", "root", "home/[a-z]+"]) + ")/"
    found = subprocess.run(
        ["git", "grep", "-nIE", pattern, "--", ".", ":!*.lock", ":!tests/docs/test_house_rules.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert [line for line in found if "example" not in line] == []


def test_the_walks_name_files_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"\[([a-z_]+/[a-z_/]+)(?: or ([a-z_]+/[a-z_/]+))?\]", text))
    files = [name for pair in named for name in pair if name]
    assert len(files) > 30
    assert [name for name in files if not (ROOT / "src/driftline" / f"{name}.py").exists()] == []

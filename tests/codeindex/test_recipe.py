"""The recipe for GitHub: its commands as a runner would run them, on two changes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from support.processes import run_process
from support.repositories import git, make_repository

pytest.importorskip("tree_sitter")
RECIPE = Path(__file__).parents[2] / "examples/recipes/github/review.yml"
BEFORE = (
    "def total(prices, tax=0.2):\n    return sum(prices) * (1 + tax)\n\n\ndef shown(price):\n    return str(price)\n"
)


def steps() -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load(RECIPE.read_text())["jobs"]["review"]["steps"])


def run_recipe(folder: Path, after: str) -> tuple[dict[str, tuple[int, str]], str]:
    """Exit code and output of each named step, and the summary."""
    repo = make_repository(folder / "repo", {"cart.py": BEFORE}, {"cart.py": after})
    git(repo, "checkout", "-q", "v2")
    summary = folder / "summary.md"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        "PATH": path,
        "BASE": git(repo, "rev-parse", "v1"),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    told = {}
    for step in (step for step in steps() if "name" in step):
        done = run_process(["bash", "-e", "-c", step["run"]], cwd=repo, env=environment, capture_output=True, text=True)
        told[step["name"]] = done.returncode, done.stdout
    assert (repo / "review.html").stat().st_size > 1000
    return told, summary.read_text()


def test_a_change_that_breaks_callers(tmp_path: Path) -> None:
    told, summary = run_recipe(tmp_path, BEFORE.replace("prices, tax=0.2", "prices").replace(" * (1 + tax)", ""))
    assert [code for code, _ in told.values()] == [0, 0, 0, 0, 1]
    assert "cart.py" in told["notes"][1]
    assert told["API"][1].startswith("::error file=cart.py,line=1")
    assert "parameter-removed" in told["API"][1]
    assert "parameter-removed" in summary
    assert "`total`" in summary


def test_a_change_inside(tmp_path: Path) -> None:
    told, summary = run_recipe(tmp_path, BEFORE.replace("str(price)", 'f"{price:.2f}"'))
    assert [code for code, _ in told.values()] == [0, 0, 0, 0, 0]
    assert told["notes"][1] == "::notice title=Code changes::verdict: behaviour (1 behaviour in 1 file)\n"
    assert "::error" not in told["API"][1]
    assert "`shown`" in summary


def test_the_steps_are_those_of_the_guide() -> None:
    """What is not run here needs GitHub: the checkout, the installation and the upload."""
    others = [step.get("uses", step.get("run")) for step in steps() if "name" not in step]
    assert others == ["actions/checkout@v4", "pip install 'driftline[index]'", "actions/upload-artifact@v4"]

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]


def _load():
    spec = importlib.util.spec_from_file_location("check_release", ROOT / "scripts/check_release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("version", "changelog", "tag", "problems"),
    [
        ("0.2.0", "# Changelog\n\n## 0.2.0 (2026-11-15)\n", None, 0),
        ("0.2.0", "# Changelog\n\n## 0.2.0 (2026-11-15)\n", "v0.2.0", 0),
        ("0.2.0", "# Changelog\n\n## 0.2.0 (2026-11-15)\n", "v0.2.1", 1),
        ("0.2.0", "# Changelog\n\n## 0.2.0 (unreleased)\n\n## 0.1.0 (2026-01-01)\n", None, 1),
        ("0.2.0", "# Changelog\n\n## 0.1.0 (2026-11-15)\n", None, 1),
        ("0.2", "# Changelog\n", "v0.2", 2),
    ],
)
def test_a_release_needs_one_version_everywhere(version: str, changelog: str, tag: str | None, problems: int) -> None:
    assert len(_load().find_problems(version, changelog, tag)) == problems


def test_the_workflow_calls_what_is_tried_here() -> None:
    workflow = YAML(typ="safe").load((ROOT / ".github/workflows/checks.yml").read_text())
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    assert "bash .ci/run" in steps
    assert "make release" in steps

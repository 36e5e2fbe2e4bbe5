"""The public cases of semantic-v2: chunk events of two versions of a repository, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driftline import codeindex
from driftline.codeindex._registry.contracts import complaint_about
from support.repositories import make_repository

pytest.importorskip("tree_sitter")
CASES = json.loads((Path(__file__).parents[1] / "vectors/index-v2.json").read_text())["cases"]


def told(event: dict[str, Any]) -> dict[str, Any]:
    """An event in the words of the cases."""
    sides = {side: f"{event[side]['file']}:{event[side]['name']}" for side in ("before", "after") if side in event}
    changed = {"changes": event["changes"]} if len(sides) == 2 else {}
    return {"kind": event["kind"], **sides, **changed}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(tmp_path: Path, case: dict[str, Any]) -> None:
    repo = make_repository(tmp_path / "repo", case["before"], case["after"])
    result = codeindex.diff("git:v1", "git:v2", repo=repo, modes=["code", "prose"])
    events = [told(event) for event in result.events if event["kind"].startswith("chunk.")]
    key = lambda event: json.dumps(event, sort_keys=True)  # noqa: E731
    assert sorted(events, key=key) == sorted(case["events"], key=key)
    assert all(complaint_about("diff_event_v2", event) is None for event in result.events)

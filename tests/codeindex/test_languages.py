"""Small changes in every language, all in one repository: a folder a case."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from driftline import codeindex
from driftline.codeindex._build.languages import LANGUAGES, language_of
from support.repositories import make_repository

pytest.importorskip("tree_sitter")
CASES = json.loads(Path(__file__).with_name("language_cases.json").read_text())["cases"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    versions = [{f"{case['id']}/m.{case['ending']}": case[side] for case in CASES} for side in ("before", "after")]
    repo = make_repository(tmp_path_factory.mktemp("languages") / "repo", *versions)
    events: dict[str, list[Any]] = defaultdict(list)
    for event in codeindex.diff("git:v1", "git:v2", repo=repo, modes="code,prose", detect_renames=False).events:
        if event["kind"].startswith("chunk."):
            events[event["file"].partition("/")[0]].append([event["kind"][6:], event["name"], event["changes"]])
    return events


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(told: dict[str, list[Any]], case: dict[str, Any]) -> None:
    assert told.get(case["id"], []) == case["events"]


def test_every_language_has_a_case() -> None:
    found = {language_of(f"m.{case['ending']}") for case in CASES}
    assert {language.name for language in found if language} == {
        name for name, item in LANGUAGES.items() if item.grammar
    }

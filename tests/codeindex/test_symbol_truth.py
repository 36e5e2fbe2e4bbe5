"""semantic-v2 against outside judges, Python's own parser and Babel, on code bases made by a script."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from driftline import codeindex
from support.made_code import CodeBase, evolve, make
from support.processes import run_process
from support.python_truth import Key, Truth, definitions, judge, scored
from support.repositories import make_repository

pytest.importorskip("tree_sitter")
BABEL = Path(__file__).parents[1] / "support" / "babel_truth.mjs"
# Where Babel may be installed; scripts look for it from their working directory upwards.
BABEL_HOME = Path(os.environ.get("DRIFTLINE_BABEL_HOME", Path(__file__).parents[2]))


def events_between(folder: Path, before: Mapping[str, str], after: Mapping[str, str]) -> list[dict[str, Any]]:
    repo = make_repository(folder / "repo", before, after)
    return list(codeindex.diff("git:v1", "git:v2", repo=repo).events)


def check_scores(scores: Mapping[str, Any]) -> None:
    assert all(len(score.right) > 5 for score in scores.values()), "the script made too few changes"
    for what, score in scores.items():
        assert min(score.precision, score.recall) >= 0.97, (what, score.wrong, score.missed)


def check_moves(events: list[dict[str, Any]], after: CodeBase, path: str) -> None:
    for kind, true in (("renamed", after.renamed), ("moved", after.moved)):
        told = {
            (event["before"]["file"], event["before"]["name"], event["after"]["file"], event["after"]["name"])
            for event in events
            if event["kind"] == f"chunk.{kind}"
        }
        truth = {(path.format(a), b, path.format(c), d) for (a, b), (c, d) in true.items()}
        score = scored(told, truth)
        assert len(score.right) > 2
        assert min(score.precision, score.recall) >= 0.9, (kind, score.wrong, score.missed)


@pytest.mark.parametrize("seed", range(3))
def test_python_as_its_own_parser_sees_it(tmp_path: Path, seed: int) -> None:
    before = make(seed)
    after = evolve(before, seed)
    old, new = before.python(), after.python()
    events = events_between(tmp_path, old, new)
    check_scores(judge(definitions(old), definitions(new), events))
    check_moves(events, after, "pkg/{}.py")


def babel(files: Mapping[str, str]) -> dict[Key, Truth]:
    done = run_process(
        ["node", str(BABEL)], input=json.dumps(files), capture_output=True, text=True, cwd=BABEL_HOME, check=True
    )
    found = json.loads(done.stdout)
    return {(path, name): Truth(kind, head, body) for path, items in found.items() for name, kind, head, body in items}


@pytest.mark.babel
@pytest.mark.parametrize("seed", range(2))
def test_javascript_as_babel_sees_it(tmp_path: Path, seed: int) -> None:
    before = make(seed)
    after = evolve(before, seed)
    old, new = before.javascript(), after.javascript()
    events = events_between(tmp_path, old, new)
    check_scores(judge(babel(old), babel(new), events))
    check_moves(events, after, "src/{}.js")

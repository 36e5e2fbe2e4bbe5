"""semantic-v2 against outside judges, Python's own parser and Babel, on code bases made by a script."""

from __future__ import annotations

import ast
import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from driftline import codeindex
from driftline.codeindex._build.extract import extract
from support.api_judges import python_release
from support.made_code import CodeBase, evolve, make
from support.processes import run_process
from support.python_truth import Key, Truth, definitions, judge, moved_bodies, scored
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


def expression(dice: random.Random, depth: int) -> str:
    """An expression of few names, so that many are alike, with parentheses where they may stand."""
    if depth == 0:
        return dice.choice(("a", "b"))
    first, second, third = (expression(dice, depth - 1) for _ in range(3))
    form = dice.choice((
        "({0})", "({0})", "{0} + {1}", "{0} * {1}", "not {0}", "{0} if {1} else {2}", "lambda: {0}", "f({0}, {1})",
        "f(k={0})", "({0},)", "[{0}, {1}]", "[{0} for a in b]", "{{{0}: {1}}}", "a[{0}]", "{0} == {1}", "f(*{0})",
        "({0}).x", "(a := {0})", "f({0} for a in b)",
    ))  # fmt: skip
    return form.format(first, second, third)


STATEMENTS = (
    "x = {}", "x += {}", "return {}", "if {}: a", "while {}: a", "assert {}", "x: a = {}", "{}", "for a in {}: b",
    "def g(a={}): b", "with {} as a: b", "raise {}", "x = y = {}",
)  # fmt: skip


def without_a_pair(source: str) -> Iterator[str]:
    """The source without one of its pairs of parentheses, for each of them."""
    opened = []
    for place, sign in enumerate(source):
        if sign == "(":
            opened.append(place)
        elif sign == ")":
            start = opened.pop()
            yield f"{source[:start]} {source[start + 1 : place]} {source[place + 1 :]}"


def seen(source: str) -> tuple[str, str] | None:
    """A body to Python's parser, and its hash here; None where it is no Python."""
    whole = f"def f():\n    {source}\n"
    try:
        meaning = ast.dump(ast.parse(whole))
    except SyntaxError:
        return None
    found = extract("python", whole.encode())
    return None if found.parse_error else (meaning, found.rows[0].metaV2.bodyHash)


@pytest.mark.parametrize("seed", range(2))
def test_parentheses_are_layout_only_where_python_says_so(seed: int) -> None:
    dice = random.Random(seed)
    counts = Counter[tuple[bool, bool]]()
    for _ in range(300):
        source = dice.choice(STATEMENTS).format(expression(dice, dice.randrange(4)))
        for other in without_a_pair(source):
            one, two = seen(source), seen(other)
            if one is not None and two is not None:
                same = one[0] == two[0], one[1] == two[1]
                counts[same] += 1
                assert same != (False, True), (source, other)
    assert min(counts[False, False], counts[True, True]) > 20, counts


RELEASES = [
    ("django", "5.0.9", "5.1.4", "django"), ("django", "4.2.16", "5.0.9", "django"),
    ("sqlalchemy", "2.0.30", "2.0.41", "sqlalchemy"),
]  # fmt: skip


@pytest.mark.faults
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: "-".join(release[:3]))
def test_bodies_of_a_release_as_pythons_parser_sees_them(tmp_path: Path, release: tuple[str, ...]) -> None:
    project, *versions, top = release
    sides = [python_sources(python_release(project, version, tmp_path, "any"), top) for version in versions]
    events = events_between(tmp_path, *sides)
    truths = [definitions(side) for side in sides]
    score = judge(truths[0], truths[1], events)["body"]
    moved = moved_bodies(truths[0], truths[1], events)
    for what, found in (("bodies in place", score), ("bodies of what moved", moved)):
        counts = len(found.right), len(found.wrong), len(found.missed)
        figures = f"precision {found.precision:.3f}, recall {found.recall:.3f}"
        print(project, *versions, what, "right {}, wrong {}, missed {};".format(*counts), figures)
    assert len(score.right) > 100
    both = scored(
        score.right | moved.right | score.wrong | moved.wrong, score.right | moved.right | score.missed | moved.missed
    )
    assert min(both.precision, both.recall) >= 0.97, (both.wrong, both.missed)


def python_sources(folder: Path, top: str) -> dict[str, str]:
    """The modules of a release; templates, which are no Python before they are filled in, have another ending."""
    return {str(path.relative_to(folder)): path.read_text() for path in sorted((folder / top).rglob("*.py"))}


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

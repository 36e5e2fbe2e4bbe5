"""Reviews: one verdict, files by weight, callers, and pages that stay small."""

# ruff: noqa: E501 - small files of source read best on one line

from __future__ import annotations

import base64
import json
import re
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from driftline import codeindex
from driftline.cli._outcome import run
from driftline.cli.main import driftline as cli
from support.repositories import make_repository

pytest.importorskip("tree_sitter")

LONG = "    total = 0\n    for item in items:\n        if item.price > limit:\n            total += item.price\n    return total\n"
BEFORE = {
    "a.py": f"def f(items, limit):\n{LONG}\n\ndef _g(a):\n    return a\n",
    "b.py": "from a import f\n\n\ndef user():\n    return f([], 1)\n",
    "tests/test_a.py": "def test_f():\n    assert True\n",
    "uv.lock": "a\n",
    ".github/workflows/x.yml": "on: push\n",
    "docs/a.md": "# A\n",
}
VERDICTS: list[tuple[str, dict[str, str], str]] = [
    ("API", {"a.py": BEFORE["a.py"].replace("limit):", "limit, tax):")}, "API"),
    ("behaviour", {"a.py": BEFORE["a.py"].replace("return a", "return a + 1")}, "behaviour"),
    (
        "moved",
        {"a.py": BEFORE["a.py"].partition("\n\ndef _g")[0] + "\n", "c.py": "def _g(a):\n    return a\n"},
        "only moved",
    ),
    ("docs", {"docs/a.md": "# B\n", "a.py": BEFORE["a.py"].replace("def f", "# Sums.\ndef f")}, "only docs"),
    ("layout", {"a.py": BEFORE["a.py"].replace("= 0", "=  0")}, "only layout"),
    ("tests", {"tests/test_a.py": "def test_f():\n    assert 1\n"}, "only tests"),
    ("upkeep", {"uv.lock": "b\n", ".github/workflows/x.yml": "on: pull\n"}, "only CI and lock files"),
    ("nothing", {}, "nothing changed"),
    (
        "all",
        {"a.py": BEFORE["a.py"].replace("limit):", "limit, tax):"), "tests/test_a.py": "", "uv.lock": "b\n"},
        "API",
    ),
]


@pytest.mark.parametrize("case", VERDICTS, ids=lambda case: case[0])
def test_verdicts(tmp_path: Path, case: Any) -> None:
    _, changed, verdict = case
    repo = make_repository(tmp_path / "repo", BEFORE, {**BEFORE, **changed})
    judged = codeindex.review(codeindex.diff("git:v1", "git:v2", repo=repo, modes="code,prose").events)
    assert judged.verdict == verdict
    assert judged.line.startswith(f"verdict: {verdict}")
    groups = [file.group for file in judged.files]
    assert groups == sorted(groups, key=("code", "docs", "tests", "upkeep").index)


def test_every_form_begins_with_the_verdict(tmp_path: Path, capfd: Any) -> None:
    _, changed, _ = VERDICTS[-1]
    repo = make_repository(tmp_path / "repo", BEFORE, {**BEFORE, **changed})
    words = ["index", "diff", "v1", "v2", "--repo", str(repo)]
    line = "verdict: API (1 API, 1 tests, 1 upkeep in 3 files)"
    assert run(cli, words) == 0
    assert capfd.readouterr().err.startswith(line)
    assert run(cli, [*words, "--format", "markdown"]) == 0
    text = capfd.readouterr().out
    assert text.splitlines()[2] == f"**{line}**"
    assert "  - called by `user` in `b.py`" in text
    assert text.index("`a.py` (modified)") < text.index("`tests/test_a.py`") < text.index("`uv.lock`")
    assert run(cli, [*words, "--format", "html"]) == 0
    page = capfd.readouterr().out
    assert f'<p class="verdict">{line}</p>' in page
    assert '<a href="#f0">a.py</a>' in page
    assert "called by <code>user</code>" in page
    assert run(cli, [*words, "--format", "github"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("::notice file=a.py,line=1,title=API::changed signature of function f")
    assert lines[-1].endswith(line)
    assert run(cli, [*words, "--format", "json"]) == 0
    assert [file["path"] for file in json.loads(capfd.readouterr().out)["review"]["files"]] == [
        "a.py",
        "tests/test_a.py",
        "uv.lock",
    ]


def test_a_large_page_keeps_its_parts_compressed(tmp_path: Path) -> None:
    sides = [
        {f"m{n}.py": f"def f{n}(a):\n" + "".join(f"    x{k} = a + {k + extra}\n" for k in range(40)) for n in range(60)}
        for extra in (0, 1)
    ]
    repo = make_repository(tmp_path / "repo", *sides)
    result = codeindex.diff("git:v1", "git:v2", repo=repo)
    page = codeindex.diff_page(result, "html", str(repo))
    packed = re.search(r'id="parts">([^<]+)<', page)
    assert packed is not None
    parts = json.loads(zlib.decompress(base64.b64decode(packed[1])))
    assert len(parts) == page.count("data-part=") == 60
    assert sum(map(len, parts)) > 200_000 > len(page)


def test_escape_sequences_of_source_do_not_reach_the_terminal(tmp_path: Path) -> None:
    sides = [{"m.py": f"def f():\n    return '\x1b]0;x\x07{n}'\n"} for n in (1, 2)]
    repo = make_repository(tmp_path / "repo", *sides)
    text = codeindex.diff_page(codeindex.diff("git:v1", "git:v2", repo=repo), "markdown", str(repo))
    assert "]0;x" in text
    assert "\x1b" not in text
    assert "\x07" not in text


@st.composite
def _module(draw: st.DrawFn) -> str:
    """A module of functions, classes, constants and remarks, some of them twice."""
    pieces = []
    for number in draw(st.lists(st.integers(0, 5), max_size=8)):
        value = draw(st.sampled_from(["1", "2", "'a\\n'"]))
        body = draw(st.sampled_from([f"    return {value}\n", f"    # why\n    x = {value}\n\n    return x\n"]))
        inner = "".join(
            f"    {line}" if line.strip() else line for line in f"def m{number}(self):\n{body}".splitlines(True)
        )
        kinds = (
            f"def f{number}(a):\n{body}",
            f"class C{number}:\n    size = {value}\n\n{inner}",
            f"V{number} = {value}\n",
        )
        pieces.append(draw(st.sampled_from((*kinds, f"# remark {value}\n"))))
    return draw(st.sampled_from(["\n", "\n\n\n", "\r\n"])).join(pieces)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_module(), _module())
def test_every_changed_line_is_shown_with_its_number(tmp_path_factory: Any, old: str, new: str) -> None:
    """Without the lines that are shown as changed, both versions are the same lines."""
    repo = make_repository(tmp_path_factory.mktemp("repo"), {"m.py": old}, {"m.py": new})
    events = list(codeindex.diff("git:v1", "git:v2", repo=repo).events)
    source = codeindex.ReviewSource(events, codeindex.GitRepository(repo), complete=True)
    left = [Counter(enumerate((side.removesuffix("\n").split("\n") if side else []), 1)) for side in (old, new)]
    for row in (row for event in events if not event["kind"].startswith("relation.") for row in source.rows(event)):
        for lines, side in zip(left, (row.before, row.after), strict=True):
            if side is not None:
                number, text = side[0], "".join(part for part, _ in side[1])
                found = next(line for at, line in lines if at == number)
                assert found.rstrip("\r") == text
                lines[number, found] -= row.changed
    assert all(count >= 0 for lines in left for count in lines.values()), "no line is shown twice as changed"
    same = [Counter(line.rstrip("\r") for _, line in lines.elements()) for lines in left]
    assert same[0] == same[1]

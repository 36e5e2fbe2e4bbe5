"""Documents and code use the words of data engineering; code is no person that asks, answers, knows, tells or wants."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Decisions are dated records; the reference of the command line has all help texts.
WRITTEN = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "decisions"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *WRITTEN]
# A word that no page uses -> the word of the field.
REFUSED = {
    r"rooms?|house": "package, project",
    r"(front )?doors?": "public API, entry point",
    r"asks|asked|asking": "requests, needs, requires",
    r"answers|answered|answering": "responds, returns, has",
    r"lies|lay about": "is located in, is stored in",
    r"knows|knew": "contains, recognises, has",
    r"tells|telling|told": "reports, states, reveals",
    r"wants|wanted|wishes": "needs, requested, selected",
    r"remembers?|forgets?|thinks?|speaks?|believes?": "stores, removes, computes, uses",
    r"somebody|nobody|anybody|whoever": "the user, the caller, no caller",
    r"deeds?": "action",
    r"moments?": "point in time, timestamp",
    r"mends?|mended|remedy|remedies": "fixes, fix, hint",
    r"holdings|studies|publicity|checkup|likest": "existing ids, batch result, visibility, health check, most similar",
    r"settles?|settled": "resolves, resolved",
}
# Names that stay: public ones, which code of users has, and words of HTTP and of layout.
STAYING = {
    "WantedSnapshot", "forget_rejected", "remedies", "remedy", "Remedy", "remedy_of", "_remedy", "moment",
    "answers", "answers_without_body", "studies", "Studies",
}  # fmt: skip
MODULES = sorted((ROOT / "src/driftline").rglob("*.py"))
CODE = re.compile(r"```.*?```|<!--.*?-->|`[^`]*`|<code>.*?</code>|\]\([^)]*\)|<a id=[^>]*>", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_the_words_of_the_field(page: Path) -> None:
    prose = CODE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text(encoding="utf-8"))
    assert list(refused(enumerate(prose.splitlines(), 1))) == []


def refused(lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    for number, line in lines:
        for words, better in REFUSED.items():
            for match in re.finditer(rf"\b(?:{words})\b", line, re.IGNORECASE):
                yield f"line {number}: {match[0]!r}: {better}"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT / "src/driftline")))
def test_code_uses_the_words_of_the_field(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    found = [*docstrings(ast.parse(text)), *comments_and_names(text)]
    assert list(refused((number, CODE.sub("", line)) for number, line in found)) == []


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines of all docstrings, those of commands included, which are their help."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            yield from enumerate(str(first.value.value).splitlines(), first.lineno)


def comments_and_names(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        elif token.type == tokenize.NAME and token.string not in STAYING:
            yield token.start[0], re.sub("_|(?<=[a-z])(?=[A-Z])", " ", token.string)

"""Documents use the words of data engineering; code is no person that asks, answers, knows, tells or wants."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Help texts keep their bytes, and decisions are dated records.
WRITTEN = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name not in ("cli", "decisions")]
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
CODE = re.compile(r"```.*?```|<!--.*?-->|`[^`]*`|<code>.*?</code>|\]\([^)]*\)|<a id=[^>]*>", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_the_words_of_the_field(page: Path) -> None:
    prose = CODE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text(encoding="utf-8"))
    found = [
        f"line {number}: {match[0]!r}: {better}"
        for number, line in enumerate(prose.splitlines(), 1)
        for words, better in REFUSED.items()
        for match in re.finditer(rf"\b(?:{words})\b", line, re.IGNORECASE)
    ]
    assert found == []

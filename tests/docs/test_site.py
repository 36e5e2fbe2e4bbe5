"""The site as `make docs` builds it; where that has not been run there is nothing to look at."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import build_site  # noqa: E402 - scripts are not a package

INDEX = build_site.SITE / "search.json"
PAGES = [ROOT / "mkdocs.yml", *(ROOT / "docs").rglob("*.md")]
IS_BUILT = INDEX.exists() and INDEX.stat().st_mtime >= max(page.stat().st_mtime for page in PAGES)
built = pytest.mark.skipif(not IS_BUILT, reason="`make docs` has not been run since a page changed")


@built
@pytest.mark.node
@pytest.mark.parametrize(("words", "page"), build_site.SEARCHES.items())
def test_a_search_finds_the_page_of_the_word_first(words: str, page: str) -> None:
    assert build_site.search(words)[0].partition("#")[0] == page


@built
def test_the_home_page_has_the_picture_of_a_diff() -> None:
    home = (build_site.SITE / "index.html").read_text(encoding="utf-8")
    picture = re.search(r'<img[^>]+src="([^"]+\.svg)"', home)
    assert picture
    assert (build_site.SITE / picture[1]).exists()


def test_every_word_that_is_searched_is_in_the_page_that_must_be_found() -> None:
    """What can be seen without the site: the source of the page has the words in a heading."""
    for words, page in build_site.SEARCHES.items():
        source = (ROOT / "docs" / page).with_suffix(".md").read_text(encoding="utf-8")
        assert re.search(rf"^#+ .*{words}", source, re.MULTILINE | re.IGNORECASE), page


def test_the_menu_has_a_page_for_every_command_and_no_crowd_beside_them() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = re.findall(r"([\w/-]+\.md)\s*$", menu, re.MULTILINE)
    others = [page for page in pages if not page.startswith(("cli/driftline-", "decisions/"))]
    assert len(others) <= 38

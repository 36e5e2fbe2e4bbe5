from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target for target in LINK.findall(text) if not target.startswith(("http:", "https:", "mailto:"))]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_site_lists_every_page_once() -> None:
    listed = re.findall(r"([\w/-]+\.md)\s*$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(pages)


def test_links_to_decisions_lead_to_their_anchors() -> None:
    linked = {
        (page, (page.parent / target).resolve(), anchor)
        for page in PAGES
        for target, anchor in re.findall(r"\]\(([\w./-]*)#(\d{4})\)", page.read_text(encoding="utf-8"))
    }
    assert len(linked) > 80
    for page, target, anchor in linked:
        text = (page if target == page.parent.resolve() else target).read_text(encoding="utf-8")
        assert f'<a id="{anchor}"></a>' in text, f"{page.name} links to {target.name}#{anchor}"

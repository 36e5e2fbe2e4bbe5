"""What the scripts that write documents share: a part of a page between two marks, and `--check`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def with_part(page: Path, name: str, text: str) -> str:
    """The page with `text` between its marks of that name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        sys.exit(f"{page.relative_to(ROOT)} has no marks {begin} and {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def write_or_check(pages: dict[Path, str]) -> None:
    """Write pages that differ; with `--check` name the first one instead, and exit with 1."""
    for page, text in pages.items():
        if page.exists() and page.read_text(encoding="utf-8") == text:
            continue
        if "--check" in sys.argv[1:]:
            sys.exit(f"{page.relative_to(ROOT)} is not current: run `make references`")
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace("| --- ", "|---").replace("--- |", "---|")


def plain(text: str) -> str:
    """Text as Markdown shows it, also in a cell of a table."""
    for mark in ("\\", "*", "_", "<", "["):
        text = text.replace(mark, f"\\{mark}")
    return text.replace("|", "&#124;")


def prose(text: str) -> str:
    """Plain text on one line, its code apart."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if at % 2 else plain(part) for at, part in enumerate(parts))


def code(text: str) -> str:
    """Code that may contain bars, also in a cell of a table."""
    if "|" not in text:
        return f"`{text}`"
    return f"<code>{text.replace('&', '&amp;').replace('<', '&lt;').replace('|', '&#124;')}</code>"

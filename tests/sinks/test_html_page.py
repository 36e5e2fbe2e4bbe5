from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from driftline.sinks._formats import Title, html, write_events
from support.browser import shown_page

EVENTS = [
    {"type": "schema", "columns_a": ["id", "n"], "columns_b": ["id", "n"]},
    {
        "type": "changed",
        "key": {"id": "1"},
        "changed": ["n"],
        "before": {"id": "1", "n": "<script>alert(1)</script>"},
        "after": {"id": "1", "n": "müller & co"},
        "delta": {"n": {"from": "<script>alert(1)</script>", "to": "müller & co"}},
    },
    {"type": "added", "key": {"id": "2"}, "row": {"id": "2", "n": "two\nlines"}},
    {"type": "removed", "key": {"id": "3"}, "row": {"id": "3", "n": ""}},
    {
        "type": "stats",
        "rows_total_compared": 1,
        "rows_added": 1,
        "rows_removed": 1,
        "rows_changed": 1,
        "rows_unchanged": 0,
    },
]


def lines(events: list[dict]) -> list[bytes]:
    return [json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in events]


def page_of(events: list[dict], **options) -> str:
    out = io.BytesIO()
    write_events(lines(events), out, "html", **options)
    return out.getvalue().decode()


class Tags(HTMLParser):
    """Collects what a page would load from elsewhere, and its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.loaded += [value or "" for name, value in attrs if name in {"src", "href"}]


def test_the_page_stands_alone_and_values_stay_values() -> None:
    page = page_of(EVENTS)
    tags = Tags()
    tags.feed(page)
    assert tags.loaded == []
    assert tags.scripts == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "müller &amp; co" in page
    assert page == page_of(EVENTS)


def test_long_lists_are_cut_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "3 of 3 listed" in page_of(EVENTS)
    monkeypatch.setitem(html.FIRST, "html", {"added": 1, "removed": 1, "changed": 1})
    stats = {**EVENTS[-1], "rows_added": 2}
    more = [*EVENTS[:-1], {"type": "added", "key": {"id": "4"}, "row": {"id": "4", "n": "x"}}, stats]
    page = page_of(more)
    assert page.count('data-kind="added"') == 1
    assert "3 of 4 listed" in page


def test_no_difference_is_said() -> None:
    assert "Nothing changed." in page_of([EVENTS[0], {**EVENTS[-1], "rows_changed": 0}])


@pytest.mark.browser
@pytest.mark.parametrize(
    ("address", "visible"),
    [
        ("", {"1", "2", "3"}),
        ("#q=LINES", {"2"}),
        ("#kind=removed&kind=changed", {"1", "3"}),
        ("#column=n", {"1"}),
        ("#q=nothing", set()),
    ],
)
def test_searching_in_a_real_browser(tmp_path: Path, address: str, visible: set[str]) -> None:
    page = tmp_path / "report.html"
    page.write_text(page_of(EVENTS), encoding="utf-8")
    shown = shown_page(page, address)
    rows = re.findall(
        r'<tr [^>]*data-kind="\w+"[^>]*?( hidden="")?><td.*?<th scope="row" class="key">(\w+)</th>', shown, re.S
    )
    assert {key for hidden, key in rows if not hidden} == visible
    assert len(rows) == 3
    assert f"{len(visible)} of 3 listed" in shown


def test_a_heading_says_what_was_compared_and_how() -> None:
    page = page_of(EVENTS, heading=Title("monday.csv → <b>", "key id · local, 0.2 s", "ignore <i>", "2026-01-01"))
    assert "<h1>monday.csv → &lt;b&gt;</h1>" in page
    assert "key id · local, 0.2 s · 2026-01-01 · 2 and 2 rows · 2 columns" in page
    assert "Rules: ignore &lt;i&gt;" in page


def test_a_column_that_was_not_compared_has_no_match_rate() -> None:
    wide = [{"type": "schema", "columns_a": ["id", "n", "old"], "columns_b": ["id", "n", "new"]}, *EVENTS[1:]]
    assert "not compared" not in page_of(wide, judged=frozenset(["id", "n", "old", "new"]))
    assert page_of(wide, judged=frozenset(["id", "n"])).count("not compared") == 2
    renamed = [{**wide[0], "renamed": {"old": "new"}}, *EVENTS[1:]]
    assert "not compared" not in page_of(renamed, judged=frozenset(["id", "n", "old"]))


def test_cells_show_what_changed_and_what_is_missing() -> None:
    page = page_of(EVENTS)
    assert '<i class="none">empty</i>' in page
    assert "100.0 %" not in page
    assert "0.0 %" in page

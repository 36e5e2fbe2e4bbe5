"""The page of a batch: complete counts, values that stay values, and a search that works in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from browser import needs_browser, shown_page
from driftline.cli.main import driftline
from driftline.cli.outcome import run
from driftline.payloads import batch_page

SCHEMA = {
    "properties": {
        "n": {"type": "number", "x-migration-precision": 0.5},
        "list": {"type": "array", "x-migration-ignore-extra-items": True},
        "never": {"x-migration-strategy": "ignore"},
    }
}
PAIRS = [
    {"id": "a", "old": {"n": 1}, "new": {"n": 1}},
    {"id": "b", "old": {"n": 1}, "new": {"n": 2}},
    {"id": "<b>", "old": {"n": 1, "s": "<script>alert(1)</script>"}, "new": {"n": 1, "s": "müller & co"}},
    {"id": "d", "old": {"n": 1, "list": [1]}, "new": {"n": 1, "list": [1, 2]}},
    {"id": "e", "old": {"n": 1}},
]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    schema, pairs = tmp_path / "schema.json", tmp_path / "pairs.jsonl"
    schema.write_text(json.dumps(SCHEMA))
    pairs.write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    assert run(driftline, ["compare-batch", str(pairs), "--schema", str(schema), "-o", str(tmp_path / "out")]) == 1
    return tmp_path / "out" / "report.html"


def test_counts_places_and_unused_rules(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"<div><b class=\"\w+\">(\d+)</b>(\w+)", text) == [
        ("5", "pairs"),
        ("2", "match"),
        ("2", "differ"),
        ("1", "could"),
    ]
    assert len(re.findall(r'<tr data-kind="error">', text)) == 2
    assert len(re.findall(r'<tr data-kind="warning">', text)) == 1
    unused = text[text.index("Rules that no pair has used") :]
    assert "x-migration-strategy: ignore" in unused
    assert "x-migration-precision" not in unused


def test_values_stay_values_and_nothing_is_loaded(page: Path) -> None:
    text = page.read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert text.count("<script") == 1
    assert "<b>" not in text.replace("<div><b ", "")
    assert not re.findall(r"(?:src|href)=", text)


def test_a_lone_surrogate_and_a_long_value_do_not_break_the_page() -> None:
    sample = {"id": "\ud800", "path": "$.a", "old_value": "x" * 1000, "new_value": None, "message": "m"}
    row = {"endpoint": "/a", "path": "$.a", "type": "VALUE_MISMATCH", "severity": "ERROR", "rule": None, "pairs": 1}
    row |= {"count": 1, "rate": 1.0, "first_id": "\ud800", "last_id": 2, "sample": [sample]}
    summary = {"pairs": 1, "matched": 0, "mismatched": 1, "failed": 0}
    text = b"".join(batch_page.batch_page(summary, [row], [])).decode()
    assert "\\ud800" in text
    assert "x" * 199 + "…" in text
    assert "<ins>null</ins>" in text


def test_no_difference_is_said() -> None:
    summary = {"pairs": 1, "matched": 1, "mismatched": 0, "failed": 0}
    assert b"No pair differs." in b"".join(batch_page.batch_page(summary, [], []))


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize(("address", "visible"), [("", 3), ("#q=PRECISION", 1), ("#kind=warning", 1), ("#q=zzz", 0)])
def test_searching_in_a_real_browser(page: Path, address: str, visible: int) -> None:
    shown = shown_page(page, address)
    rows = re.findall(r'<tr data-kind="\w+"( hidden="")?>', shown)
    assert sum(not hidden for hidden in rows) == visible
    assert f"{visible} of 3 listed" in shown


def test_failed_pairs_and_endpoints_are_told(tmp_path):
    lines = [
        {"id": "p1", "endpoint": "/a", "old": {"n": 1}, "new": {"n": 2}},
        {"id": "p2", "endpoint": "/b", "old": {"n": 1}, "new": {"n": 1}},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"id": "p3", "endpoint": "/b", "old": <oops>}\n'
    (tmp_path / "pairs.jsonl").write_text(text)
    arguments = ["payloads", "batch", str(tmp_path / "pairs.jsonl"), "-o", str(tmp_path / "out")]
    assert run(driftline, arguments) == 1
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Pairs that could not be compared" in page
    assert '<td class="path">p3</td><td class="path">/b</td><td class="number">3</td><td>VALIDATION_ERROR: ' in page
    assert "<oops>" not in page
    assert '<td class="path">/b</td><td class="number">1</td><td class="number">0</td><td class="number">1</td>' in page
    assert "--ignore &#39;$.n&#39;" in page

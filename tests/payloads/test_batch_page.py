"""The page of a batch: complete counts, values that stay values, and a search that works in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.payloads import BatchView, compare
from driftline.payloads._batch.view import find_reports, remedy_of, view_page
from driftline.payloads._suggest.write import apply_rules
from support.browser import shown_page

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
    text = b"".join(view_page(BatchView(summary, [row], []))).decode()
    assert "\\ud800" in text
    assert "x" * 199 + "…" in text
    assert "<ins>null</ins>" in text


def test_no_difference_is_said() -> None:
    summary = {"pairs": 1, "matched": 1, "mismatched": 0, "failed": 0}
    assert b"No pair differs." in b"".join(view_page(BatchView(summary, [], [])))


@pytest.mark.browser
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


ENDPOINT_PAIRS = [
    {"id": "p1", "endpoint": "/a", "old": {"n": 1.0, "s": "x"}, "new": {"n": 1.8, "s": "y"}},
    {"id": "p2", "endpoint": "/b", "old": {"n": 1, "at": [1]}, "new": {"n": 1, "at": [1, 2, 3]}},
    {"id": "p3", "endpoint": "/b", "old": {"n": 5, "s": "it's"}, "new": {"n": 1, "s": "it"}},
    {"id": "p4", "endpoint": "/b", "old": {"n": 5, "x": [[[[1]]]]}, "new": {"n": 1, "x": [[[[1]]]]}},
]


@pytest.fixture(scope="module")
def batch_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "engine.json").write_text('{"max_depth": 4}')
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in ENDPOINT_PAIRS))
    files = [str(folder / "pairs.jsonl"), "--schema", str(folder / "schema.json")]
    arguments = ["payloads", "batch", *files, "--config", str(folder / "engine.json"), "-o", str(folder / "out")]
    assert run(driftline, arguments) == 1
    return folder / "out"


def test_the_view_of_a_batch_has_places_by_frequency_and_remedies(batch_folder: Path) -> None:
    files = ("summary", "aggregate", "coverage")
    view = BatchView(*(json.loads((batch_folder / f"{name}.json").read_text()) for name in files))
    assert [view.summary[name] for name in ("pairs", "matched", "mismatched", "failed")] == [4, 0, 3, 1]
    assert view.summary["endpoints"] == {
        "/a": {"matched": 0, "different": 1, "failed": 0, "missing": 0},
        "/b": {"matched": 0, "different": 2, "failed": 1, "missing": 0},
    }
    remedies = {(place["endpoint"], place["path"]): remedy_of(place) for place in view.places}
    rules = {place: remedy and remedy.rule for place, remedy in remedies.items()}
    assert rules == {
        ("/a", "$.n"): {"precision": 1},
        ("/a", "$.s"): {"strategy": "ignore"},
        ("/b", "$.n"): {"precision": 5},
        ("/b", "$.s"): {"strategy": "ignore"},
        ("/b", "$.at"): {"ignore-extra-items": True},
    }
    remedy = remedies["/b", "$.s"]
    assert remedy is not None
    pair = ENDPOINT_PAIRS[2]
    accepted = apply_rules(json.dumps(SCHEMA).replace("0.5", "5"), [remedy]).after
    assert compare(pair["old"], pair["new"], accepted).is_match


def test_the_page_names_its_inputs_and_links_single_reports(batch_folder: Path) -> None:
    text = (batch_folder / "report.html").read_text()
    assert '<p class="meta">pairs.jsonl · schema.json</p>' in text
    assert str(batch_folder.parent) not in text
    links = {int(number) for number in re.findall(r'data-report="(\d+)"', text)}
    reports = re.findall(r'id="report-(\d+)"><summary>(p\d) · (/\w)</summary>', text)
    assert sorted(identity for _, identity, _ in reports) == ["p1", "p2", "p3", "p4"]
    assert links == {int(number) for number, _, _ in reports}
    assert "x-migration-precision: 5" in text
    assert "what was found" in text  # of the pair that was nested too deep


def test_single_reports_are_found_by_their_ids(batch_folder: Path) -> None:
    found = find_reports(batch_folder, ["p2", "p4", "nobody"])
    assert found['"p2"']["report"]["diffs"][0]["path"] == "$.at"
    assert found['"p4"']["error"]["code"] == "MAX_DEPTH_EXCEEDED"
    assert len(found) == 2


@pytest.mark.browser
def test_order_endpoints_and_reports_in_a_real_browser(batch_folder: Path, tmp_path: Path) -> None:
    text = (batch_folder / "report.html").read_text()
    clicks = (
        "for (const one of document.querySelectorAll('.places .sort')) if (one.textContent == 'place') one.click();"
    )
    clicks += "document.querySelector('[data-column=\"/b\"]').click(); document.querySelector('[data-report]').click();"
    page = tmp_path / "clicked.html"
    page.write_text(text.replace("</body>", f"<script>{clicks}</script></body>"))
    shown = shown_page(page)
    rows = re.findall(r'<tr data-kind="\w+"( hidden="")?>.*?data-sort="([^"]*)"', shown)
    assert [place for hidden, place in rows if not hidden] == ["/b $.at", "/b $.n", "/b $.s"]
    assert [place for _, place in rows] == sorted(place for _, place in rows)
    assert len(re.findall(r'<details class="report" id="report-\d+" open="">', shown)) == 1


def test_two_clicks_from_an_endpoint_to_a_pair(tmp_path: Path) -> None:
    lines = [
        {
            "id": f"{endpoint}{number}",
            "endpoint": endpoint,
            "old": {"n": number, "m": 1},
            "new": {"n": 9, "m": number % 3},
        }
        for endpoint in ("/a", "/b")
        for number in range(6)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(driftline, ["payloads", "batch", str(tmp_path / "pairs.jsonl"), "-o", str(tmp_path / "out")]) == 1
    text = (tmp_path / "out" / "report.html").read_text()
    body = text[text.index('<tbody id="listed">') :]
    counts = [int(count) for count in re.findall(r'<td class="number">([0-9]+)</td>', body[: body.index("</tbody>")])]
    assert counts == sorted(counts, reverse=True) == [6, 6, 4, 4]
    # The button of an endpoint leaves its places; the first pair of each has its button beside it, not folded away.
    assert 'data-column="/b"' in text
    for row in body[: body.index("</tbody>")].split("<tr ")[1:]:
        first = re.search(r'data-report="([0-9]+)"', row[: row.index("<details>")])
        assert first is not None
        assert f'id="report-{first[1]}"' in text
        assert "x-migration-" in row[row.index("<details>") :]

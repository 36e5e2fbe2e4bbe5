"""A batch in CI: conditions, JUnit, SARIF, annotations, a summary, masked values."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import PayloadError
from driftline.payloads._batch.totals import BatchView, fails, parse_conditions
from driftline.payloads._batch.view import SUMMARY_CHARACTERS, annotation_lines, summary_markdown

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "payload-beyond.json").read_text())
CASES = [case for case in VECTORS if case["area"] == "fail-if"]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_vectors(case):
    totals = {"matched": 0, "missing": 0, **case["totals"]}
    try:
        found = int(bool(fails(totals, parse_conditions(case["fail_if"]))))
    except PayloadError:
        found = 2
    assert found == case["expect"]["exit"]


@pytest.mark.parametrize(
    "text", ["different", "different > x", "nothing > 1", "different == 1", "> 1", "different > 1 %%"]
)
def test_bad_conditions_are_refused(text):
    with pytest.raises(PayloadError, match="--fail-if"):
        parse_conditions([text])


@pytest.fixture
def batch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "api.yaml").write_text("properties:\n  n: {x-migration-precision: 0.5}\n  email: {type: string}\n")
    lines = [
        {"id": f"k{n}", "endpoint": "/a" if n % 2 else "/b", "old": {"n": 1, "email": f"u{n}@x"},
         "new": {"n": 1 + n % 3, "email": f"v{n}@x"}}
        for n in range(12)
    ]  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "pairs.jsonl").write_text(text + '{"id": "bad", "endpoint": "/a", "old": NaN, "new": 1}\n')

    def call(*flags):
        return run(driftline, ["compare-batch", "pairs.jsonl", "--schema", "api.yaml", "-o", "out", *flags])

    return call


def test_files_for_build_servers(batch, tmp_path, capfd):
    assert batch("--junit", "j.xml", "--sarif", "s.json", "--summary", "s.md", "--annotations") == 1
    suites = ElementTree.fromstring((tmp_path / "j.xml").read_bytes())
    assert [(suite.get("name"), suite.get("failures"), suite.get("errors")) for suite in suites] == [
        ("/a", "2", "1"), ("/b", "2", "0"),
    ]  # fmt: skip
    (one,) = json.loads((tmp_path / "s.json").read_text())["runs"]
    places = {
        result["ruleId"]: result["locations"][0]["physicalLocation"]["region"]["startLine"] for result in one["results"]
    }
    assert places == {"PRECISION_EXCEEDED": 2, "VALUE_MISMATCH": 1}
    uris = {result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in one["results"]}
    assert uris == {"api.yaml"}
    assert "13 pairs: 0 match, 12 differ, 1 could not be compared. Gate failed" in (tmp_path / "s.md").read_text()
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("::error ")]
    assert len(lines) == 4
    assert lines[0].startswith("::error file=api.yaml,title=$.email VALUE_MISMATCH::")


def test_conditions_decide_about_the_exit_code(batch, capfd):
    assert batch("--fail-if", "different > 95%", "--fail-if", "failed > 1") == 0
    assert batch("--fail-if", "different > 95%") == 1
    assert "gate: failed > 0 (measured 1)" in capfd.readouterr().err
    assert batch("--fail-if", "matched < 1", "--fail-if", "failed > 5") == 1
    assert batch("--fail-if", "different is bad") == 2


def test_no_pairs_and_a_condition_is_an_error(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none.jsonl").write_text("")
    assert run(driftline, ["payloads", "batch", "none.jsonl", "-o", "out", "--fail-if", "different > 1%"]) == 2
    assert "there are no pairs to compare" in capfd.readouterr().err


def test_masked_values_are_in_no_file(batch, tmp_path, capfd):
    (tmp_path / "key").write_bytes(b"secret")
    flags = ["--junit", "j.xml", "--sarif", "s.json", "--summary", "s.md", "--annotations", "--mask", "$.email"]
    assert batch(*flags, "--mask-key-file", "key") == 1
    out, err = capfd.readouterr()
    files = [path for path in [*(tmp_path / "out").rglob("*"), *tmp_path.glob("[js].*")] if path.is_file()]
    assert len(files) >= 8
    for content in [out.encode(), err.encode(), *(path.read_bytes() for path in files)]:
        assert b"u3@x" not in content
        assert b"v3@x" not in content
    first = (tmp_path / "out" / "reports.jsonl").read_bytes()
    assert b"masked:" in first
    assert batch(*flags, "--mask-key-file", "key") == 1
    assert (tmp_path / "out" / "reports.jsonl").read_bytes() == first
    assert batch(*flags) == 1
    assert (tmp_path / "out" / "reports.jsonl").read_bytes() != first


def test_summaries_and_annotations_are_short():
    rows = [
        {"endpoint": None, "path": f"$.a{n}", "type": "VALUE_MISMATCH", "severity": "ERROR", "rule": None, "count": 1,
         "pairs": 1, "rate": 0.5, "first_id": 1, "last_id": 1, "sample": [{"id": 1, "message": "x|\n" * 200}]}
        for n in range(3000)
    ]  # fmt: skip
    summary = {"pairs": 2, "matched": 0, "mismatched": 2, "failed": 0, "endpoints": {}}
    result = BatchView(summary, rows)
    text = summary_markdown(result)
    assert len(text) <= SUMMARY_CHARACTERS
    assert text.rstrip().endswith("more: see aggregate.json")
    from driftline.payloads._batch.job import BatchJob

    lines = list(annotation_lines(BatchJob((), {}), result))
    assert len(lines) == 11
    assert lines[-1].startswith("::error title=driftline::2990 more kinds of differences")

"""Many pairs from one file: verdicts, one report in every form, exit codes (pipeline §9)."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from driftline.cli._outcome import run as run_command
from driftline.cli.main import driftline
from driftline.errors import PipelineError
from driftline.pipeline._check import check_pairs, read_pairs

PAIRS = """\
[check]
name = "move"
parallel = 3
events = "out/{pair}.jsonl"

[defaults]
key = "id"
fail_if = ["different > 10%"]
warn_if = ["changed(price) > 0"]

[pairs.same]
old = "a.csv"
new = "a.csv"

[pairs.near]
old = "a.csv"
new = "b.csv"

[pairs.far]
old = "a.csv"
new = "c.csv"
warn_if = []

[pairs.tolerant]
old = "a.csv"
new = "b.csv"
tolerance = { price = "0.5" }
fail_if = "different > 0"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "a.csv").write_text("id,price\n" + "".join(f"{n},1\n" for n in range(20)))
    (tmp_path / "b.csv").write_text("id,price\n" + "".join(f"{n},{1.25 if n == 3 else 1}\n" for n in range(20)))
    (tmp_path / "c.csv").write_text("id,price\n" + "".join(f"{n},1\n" for n in range(5, 21)))
    (tmp_path / "pairs.toml").write_text(PAIRS)
    return tmp_path / "pairs.toml"


def check(*arguments: str) -> int:
    return run_command(driftline, ["check", *arguments])


def test_each_pair_is_judged_by_its_own_rules(file: Path) -> None:
    report = check_pairs(read_pairs(file))
    assert [(result.pair, result.verdict) for result in report.results] == [
        ("same", "passed"),
        ("near", "warned"),
        ("far", "failed"),
        ("tolerant", "passed"),
    ]
    near, far = report.results[1:3]
    assert near.warnings == ("changed(price) > 0 (measured 1)",)
    assert near.columns == {"price": 1}
    assert far.exceeded == ("different > 10% (measured 30.00%)",)
    assert (far.counts["removed"], far.counts["added"]) == (5, 1)
    lines = (file.parent / "out/far.jsonl").read_text().splitlines()
    assert [json.loads(line)["type"] for line in lines] == [
        "schema",
        *["removed"] * 3,
        "added",
        "removed",
        "removed",
        "stats",
    ]
    assert sorted(path.name for path in (file.parent / "out").iterdir()) == [
        f"{name}.jsonl" for name in ("far", "near", "same", "tolerant")
    ]


def test_a_pair_that_cannot_be_compared_does_not_stop_the_others(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text(
        PAIRS + '[pairs.gone]\nold = "a.csv"\nnew = "nowhere.csv"\n[pairs.last]\nold="a.csv"\nnew="a.csv"\n'
    )
    assert check(str(file), "--format", "json") == 2
    told = json.loads(capfd.readouterr().out)
    assert told["totals"] == {"passed": 3, "warned": 1, "failed": 1, "error": 1}
    assert [pair["verdict"] for pair in told["pairs"][-2:]] == ["error", "passed"]
    assert told["pairs"][-2]["code"] == "not_found"


def test_without_limits_any_difference_fails(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text('[pairs.x]\nold = "a.csv"\nnew = "b.csv"\nkey = "id"\n')
    assert check(str(file)) == 1
    told = capfd.readouterr().out
    assert "failed: x: any difference fails" in told
    assert told.endswith(" s: 1 failed\n")


def test_the_report_for_build_servers(file: Path) -> None:
    target = file.parent / "report.xml"
    file.write_text(PAIRS + '[pairs.gone]\nold = "a.csv"\nnew = "<&\\u0001>.csv"\n')
    assert check(str(file), "-o", str(target), "--select", "f*", "--select", "gone", "--select", "near") == 2
    suite = ElementTree.parse(target).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    near, far, gone = suite.findall("testcase")
    assert near.findtext("system-out") == "changed(price) > 0 (measured 1)"
    failure, error = far.find("failure"), gone.find("error")
    assert failure is not None
    assert failure.get("message") == "different > 10% (measured 30.00%)"
    assert error is not None
    assert "<&>.csv" in (error.get("message") or "")


def test_a_password_is_not_shown(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file.write_text('[pairs.x]\nold = "postgresql://me:secret@127.0.0.1:1/db::t"\nnew = "a.csv"\nkey = "id"\n')
    assert check(str(file), "--format", "json") == 2
    told = capfd.readouterr()
    assert "password_in_address" in told.out
    assert "secret" not in told.out + told.err


def test_the_page_stands_alone(file: Path) -> None:
    target = file.parent / "report.html"
    (file.parent / "c.csv").write_text("id,price\n1,<script>\n")
    assert check(str(file), "-o", str(target)) == 1
    page = target.read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "different &gt; 10% (measured" in page


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[pairs.same]", "[pair.same]"), "unknown key 'pair'"),
        (("warn_if = []", "warm_if = []"), "unknown key 'warm_if' in [pairs.far]"),
        (('old = "a.csv"\nnew = "c.csv"', 'new = "c.csv"'), "[pairs.far] has no 'old'"),
        (("different > 10%", "different > ten"), "is not a threshold"),
        (("different > 10%", "different > 3 x usual"), "only the runs of a pipeline tell"),
        (("{pair}.jsonl", "all.jsonl"), "put {pair} into its name"),
        (('tolerance = { price = "0.5" }', 'tolerance = { price = "much" }'), "is no tolerance"),
    ],
)
def test_mistakes_are_told_with_their_line(file: Path, change: tuple[str, str], words: str) -> None:
    file.write_text(PAIRS.replace(*change))
    with pytest.raises(PipelineError, match=r"pairs\.toml:\d+: ") as caught:
        read_pairs(file)
    assert words in caught.value.message


def test_addresses_of_tables_stay_as_they_are(tmp_path: Path) -> None:
    given = {
        "iceberg:c/n.t": "iceberg:c/n.t",
        "spark:c.n.t@3": "spark:c.n.t@3",
        "delta:lake/t@1": f"delta:{tmp_path}/lake/t@1",
        "delta:s3://b/t": "delta:s3://b/t",
        "postgresql://h/d::t": "postgresql://h/d::t",
        "file:///x/a.csv": "/x/a.csv",
        "a.csv": f"{tmp_path}/a.csv",
    }
    pairs = "".join(f'[pairs.p{at}]\nold = "{one}"\nnew = "b.csv"\nkey = "id"\n' for at, one in enumerate(given))
    (tmp_path / "pairs.toml").write_text(pairs)
    assert [pair.old for pair in read_pairs(tmp_path / "pairs.toml").pairs] == list(given.values())

"""The report of a run: the graph of its stages, limits, trends; as data and as a page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from driftline.cli._outcome import run as run_command
from driftline.cli.main import driftline
from driftline.errors import PipelineError
from driftline.pipeline import load
from driftline.pipeline._run.report import report_of, report_page, run_report
from support.browser import shown_page
from support.shop import make_shop, next_day, read_snapshot, run, write_snapshot

LIMITS = 'fail_if = ["changed > 50%"]\nwarn_if = ["changed(price) > 2"]\ndeltas = true\n'


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import random

    folder = tmp_path_factory.mktemp("report")
    file = make_shop(folder, rows=40)
    file.write_text(file.read_text().replace("deltas = true\n", LIMITS, 1))
    run(file)
    state = read_snapshot(folder / "data/customers-2026-03-03.csv")
    write_snapshot(folder / "data/customers-2026-03-04.csv", next_day(state, random.Random(5)))
    run(file)
    return file


def test_a_report_is_the_run_with_places_limits_and_trends(shop: Path) -> None:
    report = run_report(load(shop))
    assert (report.pipeline, report.result, report.file) == ("shop", "done", "shop.toml")
    stages = {stage.name: stage for stage in report.stages}
    assert stages["customers/2026-03-04/diff"].counts["changed"] > 2
    assert stages["customers/2026-03-04/diff"].events == "out/customers-2026-03-04.jsonl"
    assert stages["orders/2026-03-03/diff"].result == "kept"
    for stage in report.stages:  # arrows go right, and no box lies on another one
        assert all(stages[need].column < stage.column for need in stage.needs)
    places = [(stage.column, stage.row) for stage in report.stages]
    assert len(set(places)) == len(places)
    assert {stage.flow for stage in report.stages if stage.row == 0} == {"customers"}
    newest = [limit for limit in report.limits if limit.stage == "customers/2026-03-04/diff"]
    assert [(limit.level, limit.exceeded) for limit in newest] == [("fail", False), ("warn", True)]
    assert newest[1].words.startswith("changed(price) > 2 (measured ")
    first, second = report.runs
    assert set(first.changes) == {"customers", "orders"}
    assert set(second.changes) == {"customers"}
    assert second.changes["customers"]["changed"] == stages["customers/2026-03-04/diff"].counts["changed"]
    json.dumps(report.to_dict())


def test_an_earlier_run_is_reported_with_what_was_known_then(shop: Path) -> None:
    newest = run_report(load(shop))
    earlier = run_report(load(shop), newest.runs[0].run_id)
    assert earlier.run_id == newest.runs[0].run_id
    assert [past.run_id for past in earlier.runs] == [earlier.run_id]
    with pytest.raises(PipelineError, match="remembers no run 'x'"):
        run_report(load(shop), "x")


def test_the_page_of_a_run(shop: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = shop.parent / "pages/run.html"
    target.parent.mkdir()
    assert run_command(driftline, ["pipeline", "report", str(shop), "-o", str(target)]) == 0
    page = target.read_text()
    assert "http" not in page  # one file, no network
    boxes = re.findall(r'<g class="step (\w+)">', page)
    assert boxes.count("kept") + boxes.count("done") == len(run_report(load(shop)).stages)
    assert '<a href="../out/customers-2026-03-04.jsonl">' in page
    assert (target.parent / "../out/customers-2026-03-04.jsonl").exists()
    assert "changed(price) &gt; 2 (measured " in page
    assert run_command(driftline, ["pipeline", "report", str(shop), "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["result"] == "done"


def test_old_snapshots_are_folded_away_where_nothing_happened(tmp_path: Path) -> None:
    def stage(day: int, result: str) -> dict:
        name = f"t/2026-03-{day:02d}/diff"
        plain = dict.fromkeys(("counts", "problem", "why"))
        return {"stage": name, "result": result, "seconds": 1.0, "notes": [], "inputs": [], "outputs": [], **plain}

    head = dict.fromkeys(("pipeline", "run_id", "started_at", "seconds", "engine", "result", "versions"), "")
    stages = [stage(1, "failed"), *(stage(day, "kept") for day in range(2, 20))]
    report = report_of(load(make_shop(tmp_path, rows=30)), {**head, "stages": stages})
    shown = [each.label for each in report.stages if each.column >= 0]
    assert shown == ["2026-03-01", *(f"2026-03-{day}" for day in range(14, 20))]


def test_history_is_pruned_as_declared(tmp_path: Path) -> None:
    from driftline.pipeline._declare.declaration import state_directory
    from driftline.pipeline._run.records import RecordStore, new_run_id

    file = make_shop(tmp_path, rows=30)
    file.write_text(file.read_text() + "[history]\nruns = 3\ndays = 10\n")
    record = run(file)
    store = RecordStore(state_directory(load(file)))
    old = replace(record, run_id=new_run_id(datetime.now(UTC) - timedelta(days=11)))
    store.keep_run(old)
    assert len(list(store.runs())) == 2
    for expected in (2, 3, 3):  # the old one goes by its age, then the oldest by number
        run(file)
        assert len(list(store.runs())) == expected
    assert old.run_id not in [name for name, _ in store.runs()]


def test_a_pipeline_that_has_not_run(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="has not run yet"):
        run_report(load(make_shop(tmp_path, rows=30)))


MEASURE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll(".step")].map((step) => {
    const box = step.querySelector("rect").getBBox(), texts = [...step.querySelectorAll("text")]
    return Math.max(...texts.map((text) => text.getBBox().x + text.getBBox().width)) - box.x - box.width
  })
  document.title = `boxes ${wide.length}, over ${wide.filter((each) => each > 0).length}`
})</script>"""


@pytest.mark.browser
def test_words_stay_inside_their_boxes(shop: Path, tmp_path: Path) -> None:
    record = run_report(load(shop))
    changes = "1,234,567 changed, 2,345,678 added, 345,678 removed of 12,345,678"
    names = ("mmmmWWWW", "iiii", "customers_of_the_whole_world")
    stages = [replace(stage, flow=names[place % 3], words=changes) for place, stage in enumerate(record.stages)]
    page = tmp_path / "page.html"
    content = b"".join(report_page(load(shop), replace(record, stages=tuple(stages)), page)).decode()
    page.write_text(content.replace("</body>", f"{MEASURE}</body>"))
    assert f"<title>boxes {len(record.shown_stages)}, over 0</title>" in shown_page(page)

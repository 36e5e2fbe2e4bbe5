"""A plan says what would run and why; a run can do a part, and never rests on what is not fresh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftline.cli._outcome import run as run_command
from driftline.cli.main import driftline
from driftline.errors import OptionError
from driftline.pipeline import load
from driftline.pipeline._run.run import Selection, dry_run
from support.shop import DAYS, PIPELINE, assert_lake_is_the_snapshots, change_snapshot, make_shop, results, run

pytestmark = pytest.mark.histories


def planned(file: Path, **options) -> dict[str, tuple[str, str]]:
    return {stage.stage: (stage.plan, stage.why) for stage in dry_run(load(file), **options)}


def test_a_plan_says_what_would_run_and_why(tmp_path: Path) -> None:
    file = make_shop(tmp_path, rows=40)
    fresh = planned(file)
    assert {verdict for verdict, _ in fresh.values()} == {"run"}
    assert fresh[f"orders/{DAYS[1]}/diff"] == ("run", "first run")
    run(file)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert set(planned(file).values()) == {("keep", "nothing changed")}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before

    change_snapshot(tmp_path / f"data/orders-{DAYS[2]}.csv", lambda rows: rows.pop("3", None))
    (tmp_path / "out/customers-now.csv").unlink()
    file.write_text(PIPELINE.replace('key = "id"', 'key = "id"\nheader_mode = "sorted"', 1))
    found = planned(file)
    assert found[f"customers/{DAYS[2]}/diff"] == ("keep", "nothing changed")
    assert found["customers/lake/state-2"] == ("run", "out/customers-now.csv is missing or was changed")
    assert found[f"orders/{DAYS[1]}/diff"] == ("run", "option 'rules' changed")
    assert found[f"orders/{DAYS[2]}/diff"] == ("run", f"data/orders-{DAYS[2]}.csv changed, option 'rules' changed")
    assert found["orders/lake/compact"] == ("run", f"orders/{DAYS[2]}/deltas comes before it")
    record = run(file)
    ran = {stage.stage for stage in record.stages if stage.result == "done"}
    assert ran <= {stage for stage, (verdict, _) in found.items() if verdict == "run"}
    assert (
        next(stage.why for stage in record.stages if stage.stage == f"orders/{DAYS[1]}/diff")
        == "option 'rules' changed"
    )


def test_the_plan_as_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = make_shop(tmp_path, rows=40)
    run(file)
    (tmp_path / f"data/orders-{DAYS[2]}.csv").write_text("id,name,price\n")
    assert run_command(driftline, ["pipeline", "plan", str(file), "--format", "json"]) == 0
    entries = {entry["stage"]: entry for entry in json.loads(capfd.readouterr().out)}
    entry = entries[f"orders/{DAYS[2]}/diff"]
    assert (entry["plan"], entry["why"]) == ("run", f"data/orders-{DAYS[2]}.csv changed")
    assert entry["bytes"] > 0
    assert entry["expectedSeconds"] > 0
    assert entries[f"orders/{DAYS[1]}/diff"]["expectedSeconds"] is None


def test_a_part_is_run_and_the_rest_is_done_later(tmp_path: Path) -> None:
    file = make_shop(tmp_path, rows=40)
    first = results(run(file, selection=Selection(("orders/*",), last=DAYS[1])))
    assert first[f"orders/{DAYS[1]}/deltas"] == "done"
    assert first[f"orders/{DAYS[2]}/diff"] == "skipped"
    assert first["orders/lake/compact"] == "blocked", "it needs the last load, which is not selected"
    assert first[f"customers/{DAYS[1]}/diff"] == "skipped"
    assert run(file).exit_code == 0
    assert_lake_is_the_snapshots(tmp_path)


def test_nothing_rests_on_what_is_not_selected_and_not_fresh(tmp_path: Path) -> None:
    file = make_shop(tmp_path, rows=40)
    run(file)
    change_snapshot(tmp_path / f"data/orders-{DAYS[2]}.csv", lambda rows: rows.pop("3", None))
    record = run(file, selection=Selection(("*/deltas", "*/compact")))
    assert record.exit_code == 2
    problem = next(stage.problem for stage in record.stages if stage.stage == f"orders/{DAYS[2]}/deltas")
    assert problem == f"needs orders/{DAYS[2]}/diff, which is not selected and not fresh"


def test_only_what_failed_is_tried_again(tmp_path: Path) -> None:
    file = make_shop(tmp_path, rows=40)
    broken = tmp_path / f"data/orders-{DAYS[2]}.csv"
    good = broken.read_text()
    broken.write_text(good + "1,twice,1\n")
    assert run(file).exit_code == 2
    broken.write_text(good)
    (tmp_path / "out/customers-now.csv").unlink()
    assert run_command(driftline, ["pipeline", "run", str(file), "--retry-failed"]) == 0
    assert not (tmp_path / "out/customers-now.csv").exists(), "it had not failed"
    assert run(file).exit_code == 0
    assert_lake_is_the_snapshots(tmp_path)


def test_selections_that_make_no_sense(tmp_path: Path) -> None:
    file = make_shop(tmp_path, rows=40)
    with pytest.raises(OptionError, match="names no stage: try one of customers/\\*, orders/\\*"):
        run(file, selection=Selection(("oders/*",)))
    with pytest.raises(OptionError, match="takes whole tables"):
        run(file, selection=Selection(first=DAYS[1]), full_refresh=True)
    with pytest.raises(OptionError, match="are days, hours or numbers"):
        run(file, selection=Selection(first="yesterday"))
    assert run(file, selection=Selection(("orders/*",)), full_refresh=True).exit_code == 0

"""Warnings beside failures, limits against what is usual, and the list of runs."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from driftline.cli._outcome import run as run_command
from driftline.cli.main import driftline
from driftline.errors import PipelineError
from driftline.pipeline import load
from support.shop import run

HEAD = '[pipeline]\nname = "p"\n[tables.t]\nsnapshots = "t-{date}.csv"\nkey = "id"\nevents = "{to}.jsonl"\n'


def add_day(folder: Path, day: int, rows: int) -> None:
    text = "id\n" + "".join(f"{number}\n" for number in range(rows))
    (folder / f"t-2026-03-{day:02d}.csv").write_text(text)


def test_a_warning_is_told_and_changes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.toml"
    file.write_text(HEAD + 'warn_if = ["added > 2"]\n')
    add_day(tmp_path, 1, 10)
    add_day(tmp_path, 2, 15)
    assert run_command(driftline, ["pipeline", "run", str(file)]) == 0
    assert "warning: t/2026-03-02/diff: added > 2 (measured 5)" in capfd.readouterr().err


def test_a_diff_alone_knows_nothing_that_is_usual(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    add_day(tmp_path, 1, 3)
    day = str(tmp_path / "t-2026-03-01.csv")
    assert run_command(driftline, ["diff", day, day, "--key", "id", "--fail-if", "added > 3 x usual"]) == 2
    assert "only the runs of a pipeline tell" in capfd.readouterr().err


def test_limits_against_what_is_usual(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.toml"
    file.write_text(HEAD + 'fail_if = ["added > 3 x usual"]\n')
    total = 10
    add_day(tmp_path, 1, total)
    for day, more in ((2, 4), (3, 5), (4, 40), (5, 6)):  # three runs are needed before anything is usual
        total += more
        add_day(tmp_path, day, total)
        assert run(file).exit_code == 0, day
    add_day(tmp_path, 6, total + 100)
    record = run(file)
    assert record.exit_code == 1
    assert record.exceeded == ("t/2026-03-06/diff: added > 3 x usual (measured 100, limit 16.5, usual 5.5)",)
    [newest] = sorted((tmp_path / ".driftline/p/runs").glob("*.json"))[-1:]
    newest.write_text("{")
    assert run_command(driftline, ["pipeline", "history", str(file)]) == 0
    told = capfd.readouterr().out.splitlines()
    assert len(told) == 5
    assert told[0].endswith("damaged")
    assert all("  done " in line for line in told[1:])
    assert run_command(driftline, ["pipeline", "history", str(file), "--format", "json"]) == 0
    assert len(json.loads(capfd.readouterr().out)) == 4


def two_days(folder: Path, limits: str) -> Path:
    file = folder / "p.toml"
    file.write_text(HEAD + limits)
    (folder / "t-2026-03-01.csv").write_text("id,price,name\n" + "".join(f"{n},1,a\n" for n in range(200)))
    (folder / "t-2026-03-02.csv").write_text(
        "id,price,name\n" + "".join(f"{n},{2 if n < 3 else 1},{'b' if n < 90 else 'a'}\n" for n in range(200))
    )
    return file


def test_limits_on_columns(tmp_path: Path) -> None:
    file = two_days(
        tmp_path, 'fail_if = ["changed(price) > 1%"]\nwarn_if = ["changed(name) > 89", "changed(price) > 3"]\n'
    )
    record = run(file)
    assert record.exceeded == ("t/2026-03-02/diff: changed(price) > 1% (measured 1.50%)",)
    assert record.warnings == ("t/2026-03-02/diff: changed(name) > 89 (measured 90)",)
    assert run(file).exceeded == record.exceeded  # what is kept is judged as it was


def test_a_limit_on_a_column_that_is_not_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = two_days(tmp_path, 'fail_if = ["changed(prize) > 1%"]\n')
    [stage] = run(file).stages
    assert stage.result == "failed"
    assert "unknown_column: 'changed(prize) > 1%' is about the column 'prize'" in (stage.problem or "")
    days = [str(tmp_path / f"t-2026-03-0{day}.csv") for day in (1, 2)]
    assert run_command(driftline, ["diff", *days, "--key", "id", "--fail-if", "changed(prize) > 1%"]) == 2
    told = capfd.readouterr()
    assert "error[unknown_column]" in told.err
    assert told.out == ""


def test_a_diff_fails_by_a_column(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    two_days(tmp_path, "")
    days = [str(tmp_path / f"t-2026-03-0{day}.csv") for day in (1, 2)]
    assert run_command(driftline, ["diff", *days, "--key", "id", "--fail-if", "changed(price) > 2%"]) == 0
    assert run_command(driftline, ["diff", *days, "--key", "id", "--fail-if", "changed(price) > 1%"]) == 1
    assert "failed: changed(price) > 1% (measured 1.50%)" in capfd.readouterr().err


def test_old_data_are_told_every_night_and_hold_nothing_back(tmp_path: Path) -> None:
    limits = 'fail_if = ["age > 26h"]\nwarn_if = ["age > 100000d"]\ndeltas = true\n[lake]\npath = "lake"\n'
    file = two_days(tmp_path, limits)
    for expected in ("done", "kept"):  # also where nothing is new: that is when it matters
        record = run(file)
        assert {stage.result for stage in record.stages} == {expected}
        [told] = record.exceeded
        assert told.startswith("t/2026-03-02/diff: age > 26h (measured ")
        assert (record.exit_code, record.warnings) == (1, ())


def test_the_age_of_files_without_a_day(tmp_path: Path) -> None:
    file = two_days(tmp_path, 'warn_if = ["age > 2h", "age > 4h"]\n')
    file.write_text(file.read_text().replace('snapshots = "t-{date}.csv"', 'before = "a.csv"\nafter = "b.csv"'))
    for name, day in (("a", 1), ("b", 2)):
        (tmp_path / f"t-2026-03-0{day}.csv").rename(tmp_path / f"{name}.csv")
    long_ago = time.time() - 3 * 3600
    os.utime(tmp_path / "b.csv", (long_ago, long_ago))
    assert run(file).warnings == ("t/after/diff: age > 2h (measured 3.0h)",)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("age > 5", "an age has a unit"),
        ("changed > 5h", "an age has a unit"),
        ("added(price) > 1", "only changed(COLUMN)"),
        ("age > 3 x usual", "an age has a unit"),
    ],
)
def test_limits_that_mean_nothing(tmp_path: Path, limit: str, words: str) -> None:
    file = two_days(tmp_path, f'fail_if = ["{limit}"]\n')
    with pytest.raises(PipelineError, match=re.escape(words)):
        load(file)

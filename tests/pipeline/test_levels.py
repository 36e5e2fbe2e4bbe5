"""Warnings beside failures, limits against what is usual, and the list of runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftline.cli.main import driftline
from driftline.cli.outcome import run as run_command
from pipeline.shop import run

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
    assert record.exceeded == ("t/2026-03-06/diff: added > 3 x usual, which is 6 (measured 100)",)
    [newest] = sorted((tmp_path / ".driftline/p/runs").glob("*.json"))[-1:]
    newest.write_text("{")
    assert run_command(driftline, ["pipeline", "history", str(file)]) == 0
    told = capfd.readouterr().out.splitlines()
    assert len(told) == 5
    assert told[0].endswith("damaged")
    assert all("  done " in line for line in told[1:])
    assert run_command(driftline, ["pipeline", "history", str(file), "--format", "json"]) == 0
    assert len(json.loads(capfd.readouterr().out)) == 4

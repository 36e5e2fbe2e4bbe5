"""What a person sees of a pipeline's run."""

from __future__ import annotations

import pytest

from driftline.cli import _terminal
from driftline.cli._views import StageBoard, stage_board
from driftline.core._progress import Progress
from driftline.pipeline import StageRun
from driftline.pipeline._run.report import counts_text


def progress(stage: str, step: str, done: int) -> Progress:
    return Progress(f"{stage}: {step}", done, 10, "items", 1.0, 2.0, 4.0)


def test_bars_for_stages_under_way_and_lines_for_those_that_ended(capsys, monkeypatch) -> None:
    monkeypatch.setattr(_terminal, "QUIET_SECONDS", 0)
    monkeypatch.setenv("COLUMNS", "120")
    board = StageBoard(stages=3)
    board.update(progress("orders/2026-03-02/diff", "read", 4))
    bars = [(task.description, task.completed, task.total) for task in board._bar.tasks]
    assert bars == [("[bold]stages[/bold]", 0, 3), ("orders/2026-03-02/diff [dim]read[/dim]", 4, 10)]
    assert board._bar.tasks[1].fields == {"rate": "2 items/s", "eta": "0:04 left"}
    board.end_stage(StageRun("orders/2026-03-01/deltas", "kept", 0.1, {"deltas": 7}))
    board.end_stage(
        StageRun("orders/2026-03-02/diff", "done", 1.5, {"added": 1, "removed": 0, "changed": 2, "total": 9})
    )
    board.update(progress("orders/2026-03-02/deltas", "deltas", 5))
    board.end_stage(StageRun("orders/2026-03-02/deltas", "failed", 0.2, problem="disk_full: [the disk] is full"))
    board.stop()
    shown = capsys.readouterr().err
    assert "failed orders/2026-03-02/deltas: disk_full: [the disk] is full\n" in shown
    assert "orders/2026-03-01/deltas" not in shown, "what went well is told by the table"


def test_a_run_that_is_over_at_once_draws_nothing(capsys) -> None:
    with stage_board(show=True) as (tracker, _, on_stage):
        with tracker.branch("orders/lake/compact").phase("fold", total=3):
            pass
        on_stage(StageRun("orders/lake/compact", "done", 0.1, {"deltas": 3}))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({}, ""),
        ({"rows": 12}, "12 rows"),
        ({"added": 0, "removed": 0, "changed": 0, "unchanged": 5, "different": 0, "total": 5}, "nothing of 5"),
        ({"matching": 4, "different": 1, "errors": 0, "total": 5}, "4 matching, 1 different of 5"),
    ],
)
def test_counts_as_people_say_them(counts: dict[str, int], words: str) -> None:
    assert counts_text(counts) == words

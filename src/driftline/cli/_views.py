"""How runs of a pipeline look: bars while it works, a table at the end, and what to do next."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from driftline.cli.terminal import eta_text, make_bar, rate_text, stderr_console, stdout_console
from driftline.core._progress import Progress, Tracker

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from driftline.pipeline import Pipeline, RunRecord, StageRun
    from driftline.pipeline._run.dry_run import PlannedStage

_QUIET_SECONDS = 2.0  # a run that is over by then draws nothing
_COLOURS = {
    "done": "green",
    "kept": "dim",
    "failed": "bold red",
    "blocked": "red",
    "gated": "yellow",
    "cancelled": "yellow",
    "skipped": "dim",
}
_RUN_COLOURS = {"done": "green", "exceeded": "yellow", "failed": "bold red", "cancelled": "yellow"}
_WIDE = 110  # columns of a terminal that has room for names of files
_SCREEN_ROWS = 20  # with more stages, those that were done before are counted and not listed


class StageBoard:
    """A bar for each stage under way, one for the whole run, and a line for each stage that did not end well."""

    def __init__(self, stages: int) -> None:
        self._stages = stages
        self._ended = 0
        self._started = time.monotonic()
        self._bar: Bar | None = None
        self._whole: TaskID | None = None
        self._tasks: dict[str, TaskID] = {}
        self._lines: list[str] = []

    def update(self, record: Progress) -> None:
        """Draw how far a stage has come; its phase is `stage: step`."""
        bar = self._drawn()
        if bar is None:
            return
        stage, _, step = record.phase.rpartition(": ")
        if stage not in self._tasks:
            self._tasks[stage] = bar.add_task(stage, total=record.total, rate="", eta="")
        words = f"{stage} [dim]{step}[/dim]"
        bar.update(
            self._tasks[stage],
            description=words,
            completed=record.done,
            total=record.total,
            rate=rate_text(record),
            eta=eta_text(record),
        )

    def end_stage(self, run: StageRun) -> None:
        """A stage has ended: its bar goes; what went wrong is told at once, the rest in the table at the end."""
        self._ended += 1
        if run.result not in ("done", "kept"):
            self._lines.append(_line(run))
        bar = self._drawn()
        if bar is None:
            return
        if run.stage in self._tasks:
            bar.remove_task(self._tasks.pop(run.stage))
        if self._whole is not None:
            bar.update(self._whole, completed=self._ended)

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()

    def _drawn(self) -> Bar | None:
        """The bars, once the run has lasted long enough to be worth them."""
        if self._bar is None:
            if time.monotonic() - self._started < _QUIET_SECONDS:
                return None
            self._bar = make_bar()
            self._bar.start()
            self._whole = self._bar.add_task(
                "[bold]stages[/bold]", total=self._stages, completed=self._ended, rate="", eta=""
            )
        while self._lines:
            self._bar.console.print(self._lines.pop(0))
        return self._bar


@contextmanager
def stage_board(stages: int, show: bool | None) -> Iterator[tuple[Tracker, Any]]:
    """A tracker and a listener for stages; they draw on a terminal, or where it is asked for."""
    if not (sys.stderr.isatty() if show is None else show):
        yield Tracker(), lambda run: None
        return
    board = StageBoard(stages)
    try:
        yield Tracker(board.update), board.end_stage
    finally:
        board.stop()


def _line(run: StageRun) -> str:
    from rich.markup import escape

    words = escape(run.problem or "")
    colour = _COLOURS[run.result]
    return f"[{colour}]{run.result}[/] {run.stage}: {words}"


def show_run(record: RunRecord) -> None:
    """The summary of a run that has just ended."""
    print(f"{record.pipeline}: {record.result} in {record.seconds:.1f} s ({record.engine}){_tally(record)}")
    show_table([(_as_row(stage), stage.counts) for stage in record.stages])


def _tally(record: RunRecord) -> str:
    kept = sum(stage.result == "kept" for stage in record.stages)
    if kept == len(record.stages):
        return ", nothing to do"
    return f", {kept} of {len(record.stages)} stages were done before" if kept else ""


def _as_row(stage: StageRun) -> dict[str, Any]:
    return {"stage": stage.stage, "result": stage.result, "seconds": stage.seconds, "problem": stage.problem}


def show_table(rows: list[tuple[dict[str, Any], Any]]) -> None:
    """Stages with their results, seconds and counts, on stdout."""
    from rich.table import Table

    from driftline.pipeline._run.report import counts_text

    table = Table(box=None, pad_edge=False)
    table.add_column("stage", no_wrap=True)
    table.add_column("result")
    table.add_column("seconds", justify="right")
    table.add_column("counts", overflow="fold")
    shown = _without_kept(rows) if sys.stdout.isatty() else rows
    for row, counts in shown:
        colour = _COLOURS[row["result"]]
        words = counts_text(counts or {}) or (row["problem"] or "")
        table.add_row(row["stage"], f"[{colour}]{row['result']}[/]", f"{row['seconds']:.1f}", words)
    console = stdout_console()
    if not sys.stdout.isatty():
        console.width = 160
    console.print(table)
    if len(shown) < len(rows):
        console.print(f"and {len(rows) - len(shown)} stages that were done before (in a pipe all of them)", style="dim")


def _without_kept(rows: list[tuple[dict[str, Any], Any]]) -> list[tuple[dict[str, Any], Any]]:
    """What happened, where a screen would be full of what did not."""
    happened = [row for row in rows if row[0]["result"] not in ("kept", "skipped")]
    return rows if len(rows) <= _SCREEN_ROWS else happened


def show_plan(planned: list[PlannedStage]) -> None:
    """The plan: on a terminal a table in which what is kept takes one line, else a line a stage."""
    from driftline.pipeline._run.dry_run import plan_lines

    lines = list(plan_lines(planned))
    if not sys.stdout.isatty():
        print("\n".join(lines))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    console = stdout_console()
    names = ("plan", "stage", "why", "writes") if console.width >= _WIDE else ("plan", "stage", "why")
    for name in names:
        table.add_column(name, overflow="fold", no_wrap=name in ("plan", "stage"))
    folds = len(planned) > _SCREEN_ROWS
    for stage in planned:
        if stage.plan != "keep" or not folds:
            style = {"run": "green", "fail": "bold red"}.get(stage.plan, "dim")
            cells = (stage.stage, stage.why, ", ".join(stage.delivers))[: len(names) - 1]
            table.add_row(Text(stage.plan, style), *map(Text, cells))
    console.print(table)
    kept = sum(stage.plan == "keep" for stage in planned)
    if folds and kept:
        console.print(f"keep {kept} stages, of which nothing changed", style="dim")
    console.print(lines[-1], style="bold")


def show_history(runs: list[tuple[str, dict[str, Any] | None]]) -> None:
    """The runs, newest first, a line for each; coloured on a terminal."""
    from rich.text import Text

    console = stdout_console()
    if not sys.stdout.isatty():
        console.width = 160
    for name, record in runs:
        if record is None:
            console.print(Text(f"{name}  damaged", "red"))
            continue
        results = Counter(stage["result"] for stage in record["stages"])
        words = ", ".join(f"{count} {result}" for result, count in results.items())
        line = Text(f"{record['started_at']}  ")
        line.append(f"{record['result']:<9}", _RUN_COLOURS.get(record["result"], ""))
        console.print(line.append(f" {record['seconds']:8.1f} s  {words}"), soft_wrap=True)


def tell_notes(record: RunRecord) -> None:
    """What the stages want to be read: limits to be warned of, columns that came or went, generations that began."""
    for words in record.warnings:
        stderr_console().print(f"warning: {words}", markup=False, highlight=False)
    for stage in record.stages:
        for note in stage.notes:
            stderr_console().print(f"note: {stage.stage}: {note}", markup=False, highlight=False)


def explain(declared: Pipeline, record: RunRecord) -> None:
    """What went wrong and how to go on, on stderr; on a terminal also where the results are."""
    console = stderr_console()

    def tell(words: str, style: str | None = None) -> None:
        console.print(words, style=style, markup=False, soft_wrap=True)

    for stage in record.stages:
        if stage.result == "failed":
            tell(f"error: {stage.stage}: {stage.problem}", "red")
    for text in record.exceeded:
        tell(f"threshold exceeded: {text}", "yellow")
    again = f"driftline pipeline run {declared.file.name}"
    if record.result == "failed":
        tell(f"the other results are in place; mend the cause and run again: {again} (only what is missing is done)")
    if record.result == "cancelled":
        done = sum(stage.result in ("done", "kept") for stage in record.stages)
        tell(f"stopped: {done} of {len(record.stages)} stages are done and stay done; go on with: {again}")
    if any(stage.result == "gated" for stage in record.stages):
        tell("held back: look at the events, then correct the data or run again with --ignore-thresholds")
    if record.result == "done" and sys.stderr.isatty():
        tell(_results(declared, record), "dim")


def _results(declared: Pipeline, record: RunRecord) -> str:
    """Where to look after a run that went well."""
    places = {output.path.partition("/")[0] for stage in record.stages for output in _outputs(stage)}
    visible = sorted(places - {declared.state.partition("/")[0]})
    lake = [f"{declared.lake.path} (the lake)"] if declared.lake is not None else []
    return (
        f"results are in {', '.join([*visible, *lake])} beside {declared.file.name}; "
        f"this table again: driftline pipeline status {declared.file.name}"
    )


def _outputs(stage: StageRun) -> Any:
    return stage.record.outputs if stage.record is not None else ()

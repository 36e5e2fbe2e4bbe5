"""What commands print on a terminal about changesets, lakes, payload batches and pipeline runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from driftline.cli._terminal import Bars, plain_table, stderr_console, stdout_console, wide_console
from driftline.core import Progress, Tracker

if TYPE_CHECKING:
    from rich.console import Console
    from rich.padding import Padding
    from rich.progress import Progress as Bar, TaskID
    from rich.text import Text

    from driftline.changesets import Applied
    from driftline.lake import CompactionResult, FlushResult, HistoryEntry, LogEntry, TableStatus, Verification
    from driftline.payloads import BatchView, Finding, Suggestion
    from driftline.pipeline import PastRun, Pipeline, PlannedStage, ReportStage, RunReport, StageRun

_MOST_PLACES = 10
_MOST_FAILURES = 5
_LONGEST_VALUE = 40
_LEVELS = {"sure": "green", "review": "yellow", "finding": "red"}
_COLOURS = {
    "done": "green",
    "kept": "dim",
    "failed": "bold red",
    "blocked": "red",
    "gated": "yellow",
    "cancelled": "yellow",
    "skipped": "dim",
    "exceeded": "yellow",
}
_WIDE = 110  # columns of a terminal that is wide enough for names of files
_SCREEN_ROWS = 20  # with more stages, those that were done before are counted and not listed


def show_applied(applied: Applied) -> None:
    """A row a table: its records by kind, and what became of them; columns without a number are left out."""
    rows = [(name, *(f"{count:,}" for count in counts)) for name, counts in applied.rows]
    names = ["table", *applied.kinds]
    stderr_console().print(plain_table(names, rows, right=names[1:]) if rows else "nothing to apply")


# The lake and the gateway: text and tables on a terminal, the same as data in a pipe.
def on_terminal() -> bool:
    return sys.stdout.isatty()


def print_result(record: Mapping[str, Any], words: str) -> None:
    """One result: a sentence on a terminal, one JSON object in a pipe."""
    if on_terminal():
        stdout_console().print(words, markup=False, highlight=False)
    else:
        click.echo(json_text(record))


json_text = partial(json.dumps, ensure_ascii=False)


def counted(count: int, what: str) -> str:
    """A number and its noun.

    >>> counted(1, "delta"), counted(1200, "delta")
    ('1 delta', '1,200 deltas')
    """
    return f"{count:,} {what if count == 1 else what + 's'}"


def flush_text(result: FlushResult) -> str:
    """What a flush did to a table."""
    parts = [f"{result.table}: {counted(result.deltas, 'delta')} added"]
    parts += [f"{result.known:,} known already"] if result.known else []
    parts += [f"{result.waiting:,} waiting for a schema"] if result.waiting else []
    parts += [f"{result.set_aside:,} set aside, below the horizon"] if result.set_aside else []
    return ", ".join(parts)


def compaction_text(result: CompactionResult) -> str:
    """What a compaction did to a table."""
    if not result.is_new:
        return f"{result.table}: nothing new to fold"
    files = f"{counted(result.files_written, 'file')} written, {result.files_replaced:,} replaced"
    return f"{result.table}: {counted(result.deltas_folded, 'delta')} folded, {files}"


def verification_text(proof: Verification) -> str:
    """What was proved, or which rows differ."""
    counts = f"{counted(proof.deltas, 'delta')} replayed, {counted(proof.rows_in_base, 'row')} compared"
    waiting = f"; {counted(proof.waiting, 'delta')} wait for a schema" if proof.waiting else ""
    if proof.is_proved:
        return f"{proof.table}: proved ({counts}{waiting})"
    named = ", ".join(map(str, proof.differing_rows[:10])) or "none by name"
    return f"{proof.table}: NOT proved ({counts}{waiting}); rows that differ: {named}"


def show_tables(found: Iterable[TableStatus]) -> None:
    """The tables of a lake, and what their state lacks."""
    names = ["table", "rows", "unfolded", "waiting", "set aside", "state", "columns"]
    shown = []
    for status in found:
        rows = "–" if status.rows is None else f"{status.rows:,}"
        counts = (f"{count:,}" if count else "" for count in (status.unfolded, status.waiting, status.set_aside))
        shown.append((status.table, rows, *counts, status.state_text, status.columns_text))
    stdout_console().print(plain_table(names, shown, right=names[1:5]))


def show_log(entries: Iterable[LogEntry]) -> None:
    rows = []
    for entry in entries:
        deltas = "" if entry.deltas is None else f"{entry.deltas:,}"
        files = f"+{entry.files_added} −{entry.files_removed}"
        rows.append((entry.commit, entry.operation, deltas, entry.gateway or "", files, entry.time_range))
    names = ["commit", "operation", "deltas", "gateway", "files", "timestamps"]
    stdout_console().print(plain_table(names, rows, right=["deltas"]))


def show_row_history(entries: Iterable[HistoryEntry]) -> None:
    """The deltas of a row; what a delta won and still holds is bold."""
    from rich.text import Text

    rows = []
    for entry in entries:
        parts = [Text(f"{name}={json_text(value)}", "bold" if won else "dim") for name, value, won, _ in entry.values]
        rows.append((entry.timestamp, entry.delta.client_id, entry.delta.op, Text(", ").join(parts)))
    stdout_console().print(plain_table(["timestamp", "client", "operation", "columns"], rows))


# Payload batches, suggested rules and findings of lint.
def print_batch(view: BatchView, folder: str, console: Console) -> None:
    """Counts, endpoints, the most frequent places with an example, failed pairs, and where the rest is."""
    from rich.text import Text

    from driftline.payloads import spelled

    pairs, matched, different, failed = (view.summary[name] for name in ("pairs", "matched", "mismatched", "failed"))
    share = "–" if (matching := view.share(view.summary)) is None else f"{matching:.1%}"
    head = Text.assemble((f"{pairs:,} pairs", "bold"), "  ", (f"{matched:,} match", "green"), f" ({share})  ")
    head.append(f"{different:,} differ", style="red" if different else "dim")
    head.append(f"  {failed:,} failed", style="yellow" if failed else "dim")
    console.print(head)
    if len(view.summary["endpoints"]) > 1:
        console.print(_endpoints(view))
    if view.aggregate:
        console.print(_places(view))
    for failure in view.failures[:_MOST_FAILURES]:
        line = f"line {failure['line']}" if failure["line"] else "no line"
        about = f"failed {spelled(failure['id'])} ({line}): {failure['message']}"
        console.print(Text(about, style="yellow"))
    places = len(view.aggregate)
    left = [f"{places - _MOST_PLACES} more places"] if places > _MOST_PLACES else []
    left += [f"{failed - _MOST_FAILURES} more failed pairs"] if failed > _MOST_FAILURES else []
    words = f"{', '.join(left)}: " if left else ""
    console.print(Text(f"{words}look at {folder}/report.html", style="dim"), soft_wrap=True)


def _endpoints(view: BatchView) -> Padding:
    from rich.padding import Padding

    counts = ["match", "differ", "failed"]
    found = view.summary["endpoints"].items()
    rows = [(name or "–", *(f"{row[what]:,}" for what in ("matched", "different", "failed"))) for name, row in found]
    return Padding(plain_table(["endpoint", *counts], rows, right=counts), (1, 0, 0, 0))


def _places(view: BatchView) -> Padding:
    from rich.padding import Padding
    from rich.text import Text

    rows = []
    several = len(view.summary["endpoints"]) > 1
    for place in view.places[:_MOST_PLACES]:
        where = Text(place["path"], style="bold")
        where.append(f"\n{place['endpoint']}" if several and place["endpoint"] else "", style="not bold dim")
        kind = Text(place["type"], style="red" if place["severity"] == "ERROR" else "yellow")
        rows.append((f"{place['pairs']:,}", f"{place['rate']:.1%}", where, kind, _example(place)))
    names = ["pairs", "share", "where", "what", "for example"]
    return Padding(plain_table(names, rows, right=names[:2]), (1, 0, 1, 0))


def _example(place: Mapping[str, Any]) -> Text:
    from rich.text import Text

    if not place["sample"]:
        return Text("")
    one = place["sample"][0]
    old, new = (_short(one[name]) if name in one else None for name in ("old_value", "new_value"))
    if place["severity"] != "ERROR" or old is new is None:
        return Text(one.get("message", ""))
    if old is None or new is None:
        return Text(f"{new} is new" if old is None else f"{old} is gone")
    return Text(f"{old} → {new}")


def _short(value: object) -> str:
    from driftline.payloads import spelled

    text = spelled(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def print_suggestions(found: list[Suggestion], chosen: list[Suggestion], pairs: str, console: Console) -> None:
    """Each suggestion with its evidence and what it would hide; those in force are marked."""
    from rich.padding import Padding
    from rich.text import Text

    from driftline.payloads import shown, spelled

    taken = {id(one) for one in chosen}
    for one in found:
        head = Text.assemble((f"{one.level:<8}", _LEVELS[one.level]), (one.path, "bold"))
        head.append("  in force" if id(one) in taken else "", style="green")
        console.print(head, soft_wrap=True)
        for name, value in one.extensions.items():
            console.print(Text(f"        {name}: {spelled(value)}", style="cyan"), soft_wrap=True)
        console.print(Padding(Text(f"explains {one.explained} of {one.differing} differing; {one.why}"), (0, 0, 0, 8)))
        for old, new in one.examples[:1]:
            console.print(
                Padding(Text(f"for example {_short(shown(old))} → {_short(shown(new))}", style="dim"), (0, 0, 0, 8))
            )
        if one.hides and id(one) not in taken:
            console.print(Padding(Text(f"would hide {one.hides}", style="yellow"), (0, 0, 0, 8)))
    if found:
        hint = f"driftline payloads suggest {pairs} --accept ID --apply rules.yaml"
        console.print(Text(f"\nAn ID is a path and its rule, such as {found[0].id}: {hint}", style="dim"))
    else:
        console.print("The pairs do not differ: there is nothing to suggest.")


def print_lint(schema: str, findings: list[Finding], console: Console) -> None:
    """A line for each finding with its place, and a verdict."""
    from rich.text import Text

    for one in findings:
        line = Text.assemble((f"{schema}:{one.line}:{one.column}", "bold"), f": {one.message} ", (one.pointer, "dim"))
        console.print(line, soft_wrap=True)
    if findings:
        console.print(Text(counted(len(findings), "finding"), style="bold red"))
    else:
        console.print(Text(f"{schema}: nothing to mend", style="green"), soft_wrap=True)


# Runs of a pipeline: bars while it works, a table at the end, and what to do next.
class StageBoard(Bars):
    """A bar for each stage under way, one for the whole run, and a line for each stage that did not end well."""

    def __init__(self, stages: int = 0) -> None:
        super().__init__()
        self.stages = stages
        self._ended = 0
        self._whole: TaskID | None = None
        self._lines: list[str] = []

    def update(self, record: Progress) -> None:
        """Draw how far a stage has come; its phase is `stage: step`."""
        stage, _, step = record.phase.rpartition(": ")
        self._draw(stage, f"{stage} [dim]{step}[/dim]", record)

    def begin(self, stages: int) -> None:
        """Take the number of stages, which is known once the tables are found."""
        self.stages = stages

    def end_stage(self, run: StageRun) -> None:
        """Remove the bar of a stage; what went wrong is printed at once, the rest in the table at the end."""
        self._ended += 1
        if run.result not in ("done", "kept"):
            self._lines.append(_line(run))
        with self._lock:
            bar = self._drawn()
            if bar is None or self._whole is None:
                return
            if run.stage in self._tasks:
                bar.remove_task(self._tasks.pop(run.stage))
            bar.update(self._whole, completed=self._ended)

    def _drawn(self) -> Bar | None:
        bar = super()._drawn()
        if bar is not None and self._whole is None:
            words = "[bold]stages[/bold]"
            self._whole = bar.add_task(words, total=self.stages, completed=self._ended, rate="", eta="")
        while bar is not None and self._lines:
            bar.console.print(self._lines.pop(0))
        return bar


@contextmanager
def stage_board(show: bool | None) -> Iterator[tuple[Tracker, Any, Any]]:
    """A tracker, and listeners for the start and for stages; they draw on a terminal, or where `show` is set."""
    if not (sys.stderr.isatty() if show is None else show):
        yield Tracker(), lambda count: None, lambda run: None
        return
    board = StageBoard()
    try:
        yield Tracker(board.update), board.begin, board.end_stage
    finally:
        board.stop()


def _line(run: StageRun) -> str:
    from rich.markup import escape

    words = escape(run.problem or "")
    colour = _COLOURS[run.result]
    return f"[{colour}]{run.result}[/] {run.stage}: {words}"


def show_run(report: RunReport) -> None:
    print(f"{report.pipeline}: {report.result} in {report.seconds:.1f} s ({report.engine}){report.summary}")
    show_stages(report, report.active_stages)


def show_stages(report: RunReport, stages: Sequence[ReportStage]) -> None:
    """Stages with their results, seconds and counts, and the number of those that are left out."""
    from rich.text import Text

    rows = [
        (each.name, Text(each.result, _COLOURS[each.result]), f"{each.seconds:.1f}", each.words or each.problem or "")
        for each in stages
    ]
    console = wide_console()
    if rows:
        names = ("stage", "result", "seconds", "counts")
        console.print(plain_table(names, rows, right=["seconds"], whole=["stage", "result"]))
    if len(stages) < len(report.stages):
        console.print(f"and {len(report.stages) - len(stages)} stages that were done before", style="dim")


def show_plan(planned: list[PlannedStage]) -> None:
    """The plan: on a terminal a table in which what is kept takes one line, else a line a stage."""
    from driftline.pipeline import plan_lines

    lines = list(plan_lines(planned))
    if not sys.stdout.isatty():
        print("\n".join(lines))
        return
    from rich.text import Text

    console = stdout_console()
    names = ("plan", "stage", "why", "writes") if console.width >= _WIDE else ("plan", "stage", "why")
    rows = []
    folds = len(planned) > _SCREEN_ROWS
    for stage in planned:
        if stage.plan != "keep" or not folds:
            style = {"run": "green", "fail": "bold red"}.get(stage.plan, "dim")
            cells = (stage.stage, stage.why, ", ".join(stage.delivers))[: len(names) - 1]
            rows.append((Text(stage.plan, style), *cells))
    console.print(plain_table(names, rows, whole=("plan", "stage")))
    kept = sum(stage.plan == "keep" for stage in planned)
    if folds and kept:
        console.print(f"keep {kept} stages, of which nothing changed", style="dim")
    console.print(lines[-1], style="bold")


def show_runs(runs: Iterable[PastRun]) -> None:
    """The runs, newest first, a line for each; coloured on a terminal."""
    from rich.text import Text

    console = wide_console()
    for run in runs:
        if run.result == "damaged":
            console.print(Text(f"{run.run_id}  {run.result}", "red"))
            continue
        words = ", ".join(f"{count} {result}" for result, count in run.stages.items())
        line = Text(f"{run.started_at}  ")
        line.append(f"{run.result:<9}", _COLOURS.get(run.result, ""))
        console.print(line.append(f" {run.seconds:8.1f} s  {words}"), soft_wrap=True)


def explain(declared: Pipeline, report: RunReport) -> None:
    """Warnings, notes, what went wrong and how to go on, on stderr; on a terminal also where the results are."""
    console = stderr_console()
    for limit in report.exceeded("warn"):
        console.print(f"warning: {limit.stage}: {limit.words}", markup=False, highlight=False)
    for stage in report.stages:
        for note in stage.notes:
            console.print(f"note: {stage.name}: {note}", markup=False, highlight=False)
    lines = [(f"error: {stage.name}: {stage.problem}", "red") for stage in report.failed_stages]
    lines += [(f"threshold exceeded: {limit.stage}: {limit.words}", "yellow") for limit in report.exceeded("fail")]
    lines += [(words, "none") for words in report.advice]
    if report.result == "done" and sys.stderr.isatty():
        again = f"this table again: driftline pipeline status {report.file}"
        lines.append((f"results are in {', '.join(report.locations(declared))} beside {report.file}; {again}", "dim"))
    for words, style in lines:
        console.print(words, style=style, markup=False, soft_wrap=True)

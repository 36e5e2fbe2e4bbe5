"""`driftline pipeline`: run a declared pipeline, see what it would do and what it did."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftline.cli.outcome import CANCELLED, ERROR
from driftline.cli.terminal import progress_bar, stderr_console, stdout_console

if TYPE_CHECKING:
    from driftline.pipeline import Pipeline, RunRecord, StageRun

_FILE = click.argument("file", metavar="FILE")
_FORMAT = click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="A table for people, or JSON.",
)
_COLOURS = {
    "done": "green",
    "kept": "dim",
    "failed": "bold red",
    "blocked": "red",
    "held": "yellow",
    "cancelled": "yellow",
}
_SHOWN_COUNTS = ("total", "added", "removed", "changed", "deltas", "rows", "changes", "matching", "different", "errors")

_EPILOG = """\b
Examples:
  driftline pipeline init nightly.toml
  driftline pipeline plan nightly.toml
  driftline pipeline run nightly.toml
  driftline pipeline run nightly.toml --master local[2]
  driftline pipeline status nightly.toml

Exit codes of run: 0 done, 1 a fail_if threshold was exceeded, 2 error, 130 cancelled.
"""


@click.group(epilog=_EPILOG)
def pipeline() -> None:
    """Run a declared pipeline: compare, load the lake, compact, deliver."""


_PLAN_EPILOG = """\b
Examples:
  driftline pipeline plan nightly.toml
  driftline pipeline plan nightly.toml --format json
"""
_STATUS_EPILOG = """\b
Examples:
  driftline pipeline status nightly.toml
  driftline pipeline status nightly.toml --format json
"""
_INIT_EPILOG = """\b
Examples:
  driftline pipeline init
  driftline pipeline init nightly.toml
"""
_RUN_EPILOG = """\b
Examples:
  driftline pipeline run nightly.toml
  driftline pipeline run nightly.toml --master spark://host:7077
  driftline pipeline run nightly.toml --wait 600 --format json

A run does what is not done yet or no longer true, and skips the rest. Run it again after a failure or a kill: it goes
on where it stopped.

Exit codes: 0 done, 1 a fail_if threshold was exceeded, 2 error, 130 cancelled.
"""


@pipeline.command(epilog=_RUN_EPILOG)
@_FILE
@click.option("--engine", type=click.Choice(["auto", "local", "spark"]), help="Default: what the file says.")
@click.option("--master", metavar="URL", help="Spark master or sc:// address; implies --engine spark.")
@click.option("--wait", "wait_seconds", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
              help="Wait that long for another run of this pipeline. Default: refuse at once.")  # fmt: skip
@click.option("--ignore-thresholds", is_flag=True, help="Go on although a fail_if threshold is exceeded.")
@click.option("--check-outputs", is_flag=True, help="Read every output again to see whether it is still right.")
@_FORMAT
@click.option("--progress/--no-progress", default=None, help="Draw progress bars. Default: on a terminal.")
def run(
    file: str,
    engine: str | None,
    master: str | None,
    wait_seconds: float,
    ignore_thresholds: bool,
    check_outputs: bool,
    format_name: str,
    progress: bool | None,
) -> int:
    """Run the pipeline in FILE."""
    from driftline.pipeline import load, run_pipeline
    from driftline.pipeline.finishing import call_hooks
    from driftline.pipeline.metrics import write_metrics

    declared = load(file)
    with progress_bar(show=progress) as tracker, _telling_a_false_start(declared):
        record = run_pipeline(
            declared,
            engine=engine or ("spark" if master else None),
            master=master,
            tracker=tracker,
            wait_seconds=wait_seconds,
            ignore_thresholds=ignore_thresholds,
            thorough=check_outputs,
        )
    write_metrics(declared, record)
    if format_name == "json":
        print(json.dumps(record.to_dict(), ensure_ascii=False, indent=1))
    else:
        _show_run(record)
    _explain(declared, record)
    for problem in call_hooks(declared, record):
        click.echo(f"warning: {problem}", err=True)
    return record.exit_code


@pipeline.command(epilog=_PLAN_EPILOG)
@_FILE
@_FORMAT
def plan(file: str, format_name: str) -> int:
    """Show the stages of the pipeline in FILE in their order, and run nothing."""
    from driftline.pipeline import load
    from driftline.pipeline.graph import build

    declared = load(file)
    stages = build(declared)
    rows = [
        {
            "stage": stage.name,
            "needs": list(stage.needs),
            "reads": [declared.shown(path) for path in stage.sources],
            "writes": [declared.shown(path) for path in stage.outputs.values()],
        }
        for stage in stages
    ]
    if format_name == "json":
        print(json.dumps(rows, ensure_ascii=False, indent=1))
        return 0
    for row in rows:
        writes = ", ".join(row["writes"]) or ("the lake" if "/deltas" in row["stage"] else "")
        print(f"{row['stage']}" + (f" -> {writes}" if writes else ""))
    return 0


@pipeline.command(epilog=_STATUS_EPILOG)
@_FILE
@_FORMAT
def status(file: str, format_name: str) -> int:
    """Show the last run of the pipeline in FILE; the exit code is that run's."""
    from driftline.pipeline import load
    from driftline.pipeline.graph import state_directory
    from driftline.pipeline.records import RecordStore

    declared = load(file)
    last = RecordStore(state_directory(declared)).last_run()
    if last is None:
        click.echo(f"{declared.name} has not run yet", err=True)
        return 0
    if format_name == "json":
        print(json.dumps(last, ensure_ascii=False, indent=1))
    else:
        print(f"{last['pipeline']}: {last['result']} in {last['seconds']:.1f} s, started {last['started_at']}")
        _print_table([(stage, stage["counts"]) for stage in last["stages"]])
    return {"done": 0, "exceeded": 1, "failed": ERROR, "cancelled": CANCELLED}.get(last["result"], ERROR)


@pipeline.command(epilog=_INIT_EPILOG)
@click.argument("file", metavar="FILE", default="pipeline.toml")
def init(file: str) -> int:
    """Write a commented template to FILE (pipeline.toml); an existing file is left alone."""
    from driftline.errors import OptionError
    from driftline.files import write_atomically
    from driftline.pipeline.template import template_for

    target = Path(file)
    if target.exists():
        raise OptionError(f"{file} is already there: name another file", code="already_exists")
    write_atomically(target, template_for(target.name).encode())
    click.echo(f"wrote {file}: edit it, then run: driftline pipeline plan {file}", err=True)
    return 0


@contextmanager
def _telling_a_false_start(declared: Pipeline) -> Iterator[None]:
    """A run that cannot begin (no snapshots, a lake that is away) is told to metrics and hooks like one that failed."""
    from driftline.errors import Cancelled, DriftlineError, LockedError
    from driftline.pipeline.finishing import call_hooks
    from driftline.pipeline.metrics import write_metrics
    from driftline.pipeline.running import failed_before_start

    try:
        yield
    except (Cancelled, LockedError):
        raise
    except DriftlineError:
        record = failed_before_start(declared)
        write_metrics(declared, record)
        for problem in call_hooks(declared, record):
            click.echo(f"warning: {problem}", err=True)
        raise


def _show_run(record: RunRecord) -> None:
    print(f"{record.pipeline}: {record.result} in {record.seconds:.1f} s ({record.engine})")
    _print_table([(_as_row(stage), stage.counts) for stage in record.stages])


def _as_row(stage: StageRun) -> dict[str, Any]:
    return {"stage": stage.stage, "result": stage.result, "seconds": stage.seconds, "problem": stage.problem}


def _print_table(rows: list[tuple[dict[str, Any], Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("stage", no_wrap=True)
    table.add_column("result")
    table.add_column("seconds", justify="right")
    table.add_column("counts")
    for row, counts in rows:
        colour = _COLOURS[row["result"]]
        shown = _counts_text(counts or {}) or (row["problem"] or "")
        table.add_row(row["stage"], f"[{colour}]{row['result']}[/]", f"{row['seconds']:.1f}", shown)
    console = stdout_console()
    if not sys.stdout.isatty():
        console.width = 160
    console.print(table)


def _counts_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {counts[name]:,}" for name in _SHOWN_COUNTS if name in counts)


def _explain(declared: Pipeline, record: RunRecord) -> None:
    """What went wrong and how to go on, on stderr."""
    console = stderr_console()
    for stage in record.stages:
        if stage.result == "failed":
            console.print(f"error: {stage.stage}: {stage.problem}", style="red", markup=False, soft_wrap=True)
    for text in record.exceeded:
        console.print(f"threshold exceeded: {text}", style="yellow", markup=False, soft_wrap=True)
    if record.result == "failed":
        console.print(
            f"the other results are in place; mend the cause and run again: driftline pipeline run {declared.file.name}"
            " (only what is missing is done)",
            markup=False,
            soft_wrap=True,
        )
    if record.result == "cancelled":
        done = sum(stage.result in ("done", "kept") for stage in record.stages)
        console.print(
            f"stopped: {done} of {len(record.stages)} stages are done and stay done; go on with: "
            f"driftline pipeline run {declared.file.name}",
            markup=False,
            soft_wrap=True,
        )
    if any(stage.result == "held" for stage in record.stages):
        console.print(
            "held back: look at the events, then correct the data or run again with --ignore-thresholds",
            markup=False,
            soft_wrap=True,
        )

"""`driftline pipeline`: run a declared pipeline, see what it would do and what it did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from driftline.cli.engine_options import spark_conf
from driftline.cli.outcome import CANCELLED, ERROR

if TYPE_CHECKING:
    from driftline.pipeline import Pipeline

_FILE = click.argument("file", metavar="FILE")
_FORMAT = click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="A table for people, or JSON.",
)
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
@spark_conf
@click.option("--wait", "wait_seconds", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
              help="Wait that long for another run of this pipeline. Default: refuse at once.")  # fmt: skip
@click.option("--ignore-thresholds", is_flag=True, help="Go on although a fail_if threshold is exceeded.")
@click.option("--check-outputs", is_flag=True, help="Read every output again to see whether it is still right.")
@click.option("--full-refresh", is_flag=True,
              help="Forget what was loaded: do every stage again, in a new generation of each lake table.")  # fmt: skip
@_FORMAT
@click.option("--progress/--no-progress", default=None, help="Draw progress bars. Default: on a terminal.")
def run(
    file: str,
    engine: str | None,
    master: str | None,
    wait_seconds: float,
    ignore_thresholds: bool,
    check_outputs: bool,
    full_refresh: bool,
    format_name: str,
    progress: bool | None,
) -> int:
    """Run the pipeline in FILE."""
    from driftline.cli.pipeline_views import explain, show_run, stage_board
    from driftline.pipeline import load, run_pipeline
    from driftline.pipeline.finishing import call_hooks
    from driftline.pipeline.graph import build
    from driftline.pipeline.metrics import write_metrics

    declared = load(file)
    with _telling_a_false_start(declared), stage_board(len(build(declared)), progress) as (tracker, on_stage):
        record = run_pipeline(
            declared,
            engine=engine or ("spark" if master else None),
            master=master,
            tracker=tracker,
            wait_seconds=wait_seconds,
            ignore_thresholds=ignore_thresholds,
            thorough=check_outputs,
            full_refresh=full_refresh,
            on_stage=on_stage,
        )
    write_metrics(declared, record)
    if format_name == "json":
        print(json.dumps(record.to_dict(), ensure_ascii=False, indent=1))
    else:
        show_run(record)
    explain(declared, record)
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
    from driftline.cli.pipeline_views import show_table
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
        show_table([(stage, stage["counts"]) for stage in last["stages"]])
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

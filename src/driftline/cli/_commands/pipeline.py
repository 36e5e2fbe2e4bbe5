"""`driftline pipeline`: run a declared pipeline, see what it would do and what it did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftline.cli.commands import Function
from driftline.cli.engine_options import spark_conf
from driftline.cli.outcome import CANCELLED, ERROR

if TYPE_CHECKING:
    from driftline.pipeline import Pipeline
    from driftline.pipeline._run.run import Selection

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


def _selecting(command: Function) -> Function:
    """`--select`, `--from`, `--to` and `--retry-failed`, given to the command as `selection`."""

    @wraps(command)
    def with_selection(
        file: str, patterns: tuple[str, ...], first: str | None, last: str | None, retry_failed: bool, **given: object
    ) -> Any:
        from driftline.pipeline import load
        from driftline.pipeline._run.records import RecordStore
        from driftline.pipeline._run.run import Selection, failed_stages
        from driftline.pipeline._stages.graph import state_directory

        failed = None
        if retry_failed:
            failed = failed_stages(RecordStore(state_directory(load(file))).last_run())
        return command(file=file, selection=Selection(patterns, first, last, failed), **given)

    for option in (
        click.option("--retry-failed", is_flag=True, help="Only stages that the last run did not finish."),
        click.option("--to", "last", metavar="LABEL", help="No snapshots after this day or number."),
        click.option("--from", "first", metavar="LABEL", help="No snapshots before this day or number."),
        click.option("--select", "patterns", multiple=True, metavar="STAGE", help="Only these stages, as orders/*."),
    ):
        with_selection = option(with_selection)
    return with_selection


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
_HISTORY_EPILOG = """\b
Examples:
  driftline pipeline history nightly.toml
  driftline pipeline history nightly.toml --format json
"""
_REPORT_EPILOG = """\b
Examples:
  driftline pipeline report nightly.toml -o run.html
  driftline pipeline report nightly.toml --run 20260302T030001000000-4711 -o run.html
  driftline pipeline report nightly.toml --format json
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
  driftline pipeline run nightly.toml --select 'orders/*' --from 2026-03-01 --to 2026-03-07
  driftline pipeline run nightly.toml --retry-failed

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
@_selecting
@click.option("--ignore-thresholds", is_flag=True, help="Go on although a fail_if threshold is exceeded.")
@click.option("--check-outputs", is_flag=True, help="Read every output again to see whether it is still right.")
@click.option("--full-refresh", is_flag=True,
              help="Forget what was loaded: do every stage again, in a new generation of each lake table.")  # fmt: skip
@_FORMAT
@click.option("--progress/--no-progress", default=None, help="Draw progress bars. Default: on a terminal.")
def run(
    *,
    file: str,
    engine: str | None,
    master: str | None,
    wait_seconds: float,
    ignore_thresholds: bool,
    check_outputs: bool,
    full_refresh: bool,
    selection: Selection,
    format_name: str,
    progress: bool | None,
) -> int:
    """Run the pipeline in FILE."""
    from driftline.cli.pipeline_views import explain, show_run, stage_board, tell_notes
    from driftline.pipeline import load, run_pipeline
    from driftline.pipeline._run.notify import tell
    from driftline.pipeline._stages.graph import build

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
            selection=selection,
            on_stage=on_stage,
        )
    if format_name == "json":
        print(json.dumps(record.to_dict(), ensure_ascii=False, indent=1))
    else:
        show_run(record)
    tell_notes(record)
    explain(declared, record)
    for problem in tell(declared, record):
        click.echo(f"warning: {problem}", err=True)
    return record.exit_code


@pipeline.command(epilog=_PLAN_EPILOG)
@_FILE
@_selecting
@click.option("--full-refresh", is_flag=True, help="As if everything had to be done again.")
@_FORMAT
def plan(file: str, selection: Selection, full_refresh: bool, format_name: str) -> int:
    """Say for every stage of the pipeline in FILE whether it would run, and why; run nothing."""
    from driftline.cli.pipeline_views import show_plan
    from driftline.pipeline import load
    from driftline.pipeline._run.dry_run import make_plan

    planned = make_plan(load(file), selection, full_refresh=full_refresh)
    if format_name == "json":
        print(json.dumps([stage.to_dict() for stage in planned], ensure_ascii=False, indent=1))
        return 0
    show_plan(planned)
    return 0


@pipeline.command(epilog=_STATUS_EPILOG)
@_FILE
@_FORMAT
def status(file: str, format_name: str) -> int:
    """Show the last run of the pipeline in FILE; the exit code is that run's."""
    from driftline.cli.pipeline_views import show_table
    from driftline.pipeline import load
    from driftline.pipeline._run.records import RecordStore
    from driftline.pipeline._stages.graph import state_directory

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


@pipeline.command(epilog=_HISTORY_EPILOG)
@_FILE
@_FORMAT
def history(file: str, format_name: str) -> int:
    """List the runs of the pipeline in FILE, newest first."""
    from driftline.cli.pipeline_views import show_history
    from driftline.pipeline import load
    from driftline.pipeline._run.records import RecordStore
    from driftline.pipeline._stages.graph import state_directory

    runs = list(RecordStore(state_directory(load(file))).runs())
    if format_name == "json":
        print(json.dumps([record for _, record in runs if record is not None], ensure_ascii=False, indent=1))
        return 0
    show_history(runs)
    return 0


@pipeline.command(epilog=_REPORT_EPILOG)
@_FILE
@click.option("-o", "--output", metavar="PAGE", help="Write to PAGE instead of stdout.")
@click.option(
    "--run", "run_id", metavar="ID", help="An earlier run, as `pipeline history` names it. Default: the newest."
)
@click.option(
    "--format", "format_name", type=click.Choice(["html", "json"]), help="Default: json for -o FILE.json, else html."
)
def report(file: str, output: str | None, run_id: str | None, format_name: str | None) -> int:
    """Show a run of the pipeline in FILE as one page: stages, limits, trends."""
    from driftline.core._files import open_output
    from driftline.pipeline import load
    from driftline.pipeline._run.report import report_page, run_report

    declared = load(file)
    found = run_report(declared, run_id)
    with open_output(output, (file,)) as out:
        if (format_name or ("json" if (output or "").endswith(".json") else "html")) == "json":
            out.write(json.dumps(found.to_dict(), ensure_ascii=False, indent=1).encode() + b"\n")
        else:
            out.writelines(report_page(declared, found, Path(output or "page.html")))
    return 0


@pipeline.command(epilog=_INIT_EPILOG)
@click.argument("file", metavar="FILE", default="pipeline.toml")
def init(file: str) -> int:
    """Write a commented template to FILE (pipeline.toml); an existing file is left alone."""
    from driftline.core._files import write_atomically
    from driftline.errors import OptionError
    from driftline.pipeline._declare.declaration import template_for

    target = Path(file)
    if target.exists():
        raise OptionError(f"{file} is already there: name another file", code="already_exists")
    write_atomically(target, template_for(target.name).encode())
    click.echo(f"wrote {file}: edit it, then run: driftline pipeline plan {file}", err=True)
    return 0


@contextmanager
def _telling_a_false_start(declared: Pipeline) -> Iterator[None]:
    """A run that cannot begin (locked, no snapshots, a lake that is away) is told like one that failed."""
    from driftline.errors import Cancelled, DriftlineError
    from driftline.pipeline._run.notify import tell
    from driftline.pipeline._run.run import failed_before_start

    try:
        yield
    except Cancelled:
        raise
    except DriftlineError as error:
        for problem in tell(declared, failed_before_start(declared, error)):
            click.echo(f"warning: {problem}", err=True)
        raise

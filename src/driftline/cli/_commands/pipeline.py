"""`driftline pipeline`: run a declared pipeline, see its plan and its past runs; `driftline check`: many pairs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftline.cli._group import Command, Function, LazyGroup, format_option, several, spark_conf
from driftline.cli._terminal import plain_table, progress_bar, wide_console
from driftline.core import format_of, open_output, write_atomically

if TYPE_CHECKING:
    from driftline.pipeline import CheckReport, PairResult, Pipeline, Selection

_indented = partial(json.dumps, ensure_ascii=False, indent=1)


_selection = several(
    click.option("--select", "patterns", multiple=True, metavar="STAGE", help="Only these stages, as orders/*."),
    click.option("--from", "first", metavar="LABEL", help="No snapshots before this day or number."),
    click.option("--to", "last", metavar="LABEL", help="No snapshots after this day or number."),
    click.option("--retry-failed", is_flag=True, help="Only stages that the last run did not finish."),
)
_engine_options = several(
    click.option("--engine", type=click.Choice(["auto", "local", "spark"]), help="Default: what the file says."),
    click.option("--master", metavar="URL", help="Spark master or sc:// address; implies --engine spark."),
    spark_conf,
)
_text_or_json = format_option(["text", "json"], "A table for people, or JSON.", is_first_default=True)
_pipeline_file = click.argument("file", metavar="FILE")


def selecting(command: Function) -> Function:
    """`--select`, `--from`, `--to` and `--retry-failed`, given to the command as `selection`."""

    @wraps(command)
    def with_selection(
        file: str, patterns: tuple[str, ...], first: str | None, last: str | None, retry_failed: bool, **given: object
    ) -> Any:
        from driftline.pipeline import RecordStore, Selection, failed_stages, load, state_directory

        failed = failed_stages(RecordStore(state_directory(load(file))).last_run()) if retry_failed else None
        return command(file=file, selection=Selection(patterns, first, last, failed), **given)

    return _selection(with_selection)


@click.group(cls=LazyGroup)
def pipeline() -> None:
    """Run a declared pipeline: compare, load the lake, compact, deliver."""


@pipeline.command()
@_pipeline_file
@_text_or_json
def history(file: str, format_name: str) -> int:
    """List the runs of the pipeline in FILE, newest first."""
    from driftline.cli._views import show_runs
    from driftline.pipeline import RecordStore, load, run_history, state_directory

    declared = load(file)
    if format_name == "json":
        runs = RecordStore(state_directory(declared)).runs()
        print(_indented([record for _, record in runs if record is not None]))
    else:
        show_runs(run_history(declared))
    return 0


@pipeline.command()
@click.argument("file", metavar="FILE", default="pipeline.toml")
def init(file: str) -> int:
    """Write a commented template to FILE (pipeline.toml); an existing file is left alone."""
    from driftline.errors import OptionError
    from driftline.pipeline import template_for

    target = Path(file)
    if target.exists():
        raise OptionError(f"{file} is already there: name another file", code="already_exists")
    write_atomically(target, template_for(target.name).encode())
    click.echo(f"wrote {file}: edit it, then run: driftline pipeline plan {file}", err=True)
    return 0


@pipeline.command()
@_pipeline_file
@selecting
@click.option("--full-refresh", is_flag=True, help="As if everything had to be done again.")
@_text_or_json
def plan(file: str, selection: Selection, full_refresh: bool, format_name: str) -> int:
    """Say for every stage of the pipeline in FILE whether it would run, and why; run nothing."""
    from driftline.cli._views import show_plan
    from driftline.pipeline import dry_run, load

    planned = dry_run(load(file), selection, full_refresh=full_refresh)
    if format_name == "json":
        print(_indented([stage.to_dict() for stage in planned]))
    else:
        show_plan(planned)
    return 0


@pipeline.command()
@_pipeline_file
@click.option("-o", "--output", metavar="PAGE", help="Write to PAGE instead of stdout.")
@click.option(
    "--run", "run_id", metavar="ID", help="An earlier run, as `pipeline history` names it. Default: the newest."
)
@format_option(["html", "json"], "Default: json for -o FILE.json, else html.")
def report(file: str, output: str | None, run_id: str | None, format_name: str | None) -> int:
    """Show a run of the pipeline in FILE as one page: stages, limits, trends."""
    from driftline.pipeline import load, report_page, run_report

    declared = load(file)
    found = run_report(declared, run_id)
    with open_output(output, (file,)) as out:
        if (format_name or ("json" if (output or "").endswith(".json") else "html")) == "json":
            out.write(_indented(found.to_dict()).encode() + b"\n")
        else:
            out.writelines(report_page(declared, found, Path(output or "page.html")))
    return 0


@pipeline.command()
@_pipeline_file
@_engine_options
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SECONDS",
    help="Wait that long for another run of this pipeline. Default: refuse at once.",
)
@selecting
@click.option("--ignore-thresholds", is_flag=True, help="Go on although a fail_if threshold is exceeded.")
@click.option(
    "--check-outputs", "thorough", is_flag=True, help="Read every output again to see whether it is still right."
)
@click.option(
    "--full-refresh",
    is_flag=True,
    help="Ignore what was loaded: do every stage again, in a new generation of each lake table.",
)
@_text_or_json
@click.option("--progress/--no-progress", default=None, help="Draw progress bars. Default: on a terminal.")
def run(file: str, master: str | None, format_name: str, progress: bool | None, **options: Any) -> int:
    """Run the pipeline in FILE."""
    from driftline.cli._views import explain, show_run, stage_board
    from driftline.pipeline import load, notify, report_of, run_pipeline

    declared = load(file)
    engine = options.pop("engine") or ("spark" if master else None)
    with _reporting_false_start(declared), stage_board(progress) as (tracker, *listeners):
        options |= dict(zip(("on_start", "on_stage"), listeners, strict=True))
        record = run_pipeline(declared, engine=engine, master=master, tracker=tracker, **options)
    plain = record.to_dict()
    shown = report_of(declared, plain)
    if format_name == "json":
        print(_indented(plain))
    else:
        show_run(shown)
    explain(declared, shown)
    for problem in notify(declared, record):
        click.echo(f"warning: {problem}", err=True)
    return record.exit_code


@pipeline.command()
@_pipeline_file
@_text_or_json
def status(file: str, format_name: str) -> int:
    """Show the last run of the pipeline in FILE; the exit code is that run's."""
    from driftline.cli._views import on_terminal, show_stages
    from driftline.pipeline import RecordStore, load, report_of, state_directory

    declared = load(file)
    last = RecordStore(state_directory(declared)).last_run()
    if last is None:
        click.echo(f"{declared.name} has not run yet", err=True)
        return 0
    shown = report_of(declared, last)
    if format_name == "json":
        print(_indented(last))
    else:
        print(f"{shown.pipeline}: {shown.result} in {shown.seconds:.1f} s, started {shown.started_at}")
        show_stages(shown, shown.active_stages if on_terminal() else shown.stages)
    return shown.exit_code


@contextmanager
def _reporting_false_start(declared: Pipeline) -> Iterator[None]:
    """Notify of a run that cannot start (locked, no snapshots, no lake) as of one that failed."""
    from driftline.errors import Cancelled, DriftlineError
    from driftline.pipeline import failed_before_start, notify

    try:
        yield
    except Cancelled:
        raise
    except DriftlineError as error:
        for problem in notify(declared, failed_before_start(declared, error)):
            click.echo(f"warning: {problem}", err=True)
        raise


# `driftline check`: many pairs of tables at once, from one file.
_FORMATS = {".txt": "text", ".json": "json", ".xml": "junit", ".html": "html"}
_COLOURS = {"passed": "green", "warned": "yellow", "failed": "bold red", "error": "bold red"}


@click.command(cls=Command)
@click.argument("file", metavar="PAIRS")
@click.option("--select", multiple=True, metavar="NAME", help="Only these pairs, as sales_*. May be repeated.")
@click.option("--parallel", type=click.IntRange(1), metavar="N", help="So many at once. Default: what the file says.")
@_engine_options
@format_option(["text", "json", "junit", "html"], "Default: by the ending of -o FILE, else a table for people.")
@click.option("-o", "--output", metavar="FILE", help="Write the report to FILE instead of stdout.")
@click.option("--progress/--no-progress", default=None, help="Draw progress bars. Default: on a terminal.")
def check(
    file: str, master: str | None, format_name: str | None, output: str | None, progress: bool | None, **options: Any
) -> int:
    """Compare the pairs of tables that the file PAIRS names, and report on all of them."""
    from driftline.pipeline import check_html, check_json, check_junit, check_pairs, read_pairs

    declared = read_pairs(file)
    shape = format_name or format_of(output or "", _FORMATS)
    engine = options.pop("engine") or ("spark" if master else None)
    with progress_bar(show=progress) as tracker:
        report = check_pairs(declared, engine=engine, master=master, tracker=tracker, **options)
    if shape == "text" and output is None:
        _show(report)
        return report.exit_code
    rendered: Any = {"json": check_json, "junit": check_junit, "html": check_html, "text": _text}[shape]
    with open_output(output, ()) as out:
        out.write(rendered(report))
    if output is not None:
        click.echo(_closing(report), err=True)
    return report.exit_code


def _show(report: CheckReport) -> None:
    """A table, then what was exceeded or went wrong, then the sum."""
    from rich.text import Text

    rows = [
        (each.pair, Text(each.verdict, _COLOURS[each.verdict]), f"{each.seconds:.1f}", _counts(each))
        for each in report.results
    ]
    console = wide_console()
    console.print(plain_table(["pair", "result", "seconds", "counts"], rows, right=["seconds"]))
    for line in _details(report):
        console.print(line, markup=False, soft_wrap=True)
    console.print(_closing(report), markup=False)


def _text(report: CheckReport) -> bytes:
    rows = [f"{result.verdict:<7} {result.pair}  {_counts(result)}".rstrip() for result in report.results]
    return "".join(f"{line}\n" for line in [*rows, *_details(report), _closing(report)]).encode()


def _counts(result: PairResult) -> str:
    from driftline.pipeline import counts_text

    return counts_text(result.counts) if result.counts else result.code or ""


def _details(report: CheckReport) -> list[str]:
    found = []
    for result in report.results:
        if result.problem is not None:
            found.append(f"error: {result.pair}: {result.code}: {result.problem}")
        found += [f"failed: {result.pair}: {words}" for words in result.exceeded]
        found += [f"warning: {result.pair}: {words}" for words in result.warnings]
    return found


def _closing(report: CheckReport) -> str:
    totals = report.to_dict()["totals"]
    words = ", ".join(f"{count} {name}" for name, count in totals.items() if count)
    return f"{report.name}: {len(report.results)} pairs in {report.seconds:.1f} s: {words}"

"""`driftline diff`: what changed between two tables."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from driftline.cli.completion import Words
from driftline.cli.engine_options import engine_options, tell_choice
from driftline.cli.outcome import DIFFERENT, SAME
from driftline.cli.table_options import given_options, naming_remedies, table_options
from driftline.cli.terminal import progress_bar, say, size_text
from driftline.errors import OptionError
from driftline.sinks._formats import FORMATS, find_format, format_for, write_events
from driftline.tables._engines import DiffJob, choose_engine, find_engine
from driftline.tables._events import Stats
from driftline.tables._options import DiffOptions, check_options

if TYPE_CHECKING:
    from driftline.sinks._formats import Heading

_SHORT_SWITCH = 0.001  # seconds: threads that parse need the interpreter often, and only for moments
_EPILOG = """\b
Examples:
  driftline diff old.csv new.csv --key id
  driftline diff old.csv new.csv --key country --key city -o changes.jsonl
  driftline diff old.parquet new.parquet --key id --format summary
  driftline diff old.csv new.csv --key id --format html -o report.html
  driftline diff s3://shop/old.csv s3://shop/new.csv --key id -o s3://shop/changes/
  driftline diff old.csv new.csv --key id --ignore "*_at" --tolerance price=0.01 --as qty=number
  driftline diff old.db::users new.db::users --key id --format markdown --limit 20
  driftline diff old.csv new.csv --key id --format changeset --table users -o changes.bin
  zcat new.csv.gz | driftline diff old.csv - --ignore-row-order

A side is a CSV, TSV, Parquet, Arrow or JSONL file (CSV, TSV and JSONL also as .gz or .zst), a folder or a quoted glob
of such files, FILE.db::TABLE for a table of a SQLite database, or - for standard input.

Exit codes: 0 no difference, 1 differences (with --fail-if: one holds), 2 error.
"""


@click.command(epilog=_EPILOG)
@click.argument("a")
@click.argument("b")
@table_options
@engine_options
@click.option(
    "--format",
    "format_name",
    type=Words(lambda: FORMATS),
    metavar="NAME",
    help="jsonl, json, csv, markdown, summary or html (one self-contained page); parquet or delta, a table of events; "
    "changeset or patchset for SQLite. "
    "Default: by the ending of -o FILE, else jsonl.",
)
@click.option("--table", metavar="NAME", help="Name of the table in a changeset or patchset.")
@click.option(
    "--column-type",
    "column_types",
    multiple=True,
    metavar="COL=TYPE",
    help="Declared SQLite type of a column in a changeset; others are inferred and shown. May be repeated.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to FILE (whole or not at all) instead of stdout: a path or s3://…; with / at the end a folder of "
    "ordered parts.",
)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most N events of each kind.")
@click.option("--memory", metavar="SIZE", help="Memory to stay within, such as 500MB or 2GB. Default: half of it.")
@click.option("--explain", is_flag=True, help="Say what would be compared and how, without doing it.")
@click.option("--progress/--no-progress", default=None, help="Draw a progress bar. Default: on a terminal.")
def diff(
    a: str,
    b: str,
    *,
    format_name: str | None,
    table: str | None,
    column_types: tuple[str, ...],
    output: str | None,
    limit: int | None,
    memory: str | None,
    progress: bool | None,
    explain: bool,
    engine: str,
    master: str | None,
    **rules: Any,
) -> int:
    """Find what changed between the tables A and B."""
    from driftline.tables._engines import memory_limit

    sys.setswitchinterval(_SHORT_SWITCH)
    options = check_options(**given_options(**rules))
    if output is None and format_name is None and sys.stdout.isatty():
        format_name = "terminal"
    format_name = format_for(output, format_name)
    find_format(format_name)
    settings = _changeset_settings(format_name, table, column_types, limit)
    is_folder = _is_folder(output, format_name, limit)
    began = time.monotonic()
    with naming_remedies(options), progress_bar(show=progress) as tracker:
        job = DiffJob(a, b, options, memory=memory_limit(memory), master=master, tracker=tracker)
        if explain:
            return _explain(job, engine)
        name = tell_choice(engine, choose_engine(engine, job))
        if is_folder and output is not None:
            stats = _write_folder(name, job, output, format_name)
        else:
            heading = partial(_heading, job, name, began)
            stats = _write_file(name, job, output, format_name, limit, settings, heading)
    if output is not None:
        say(_closing_line(output, stats, began))
    _hint_at_keys(job, stats)
    if options.fail_if:
        return _say_exceeded(options, stats)
    return DIFFERENT if stats.any_difference else SAME


def _explain(job: DiffJob, engine: str) -> int:
    from driftline.tables._explain import explain

    name, reason = choose_engine(engine, job)
    for line in explain(job, f"{name} ({reason})"):
        click.echo(line)
    return SAME


def _say_exceeded(options: DiffOptions, stats: Stats) -> int:
    exceeded = stats.exceeded(options.fail_if)
    for words in exceeded:
        click.echo(f"failed: {words}", err=True)
    return DIFFERENT if exceeded else SAME


def _changeset_settings(
    format_name: str, table: str | None, column_types: tuple[str, ...], limit: int | None
) -> dict[str, Any]:
    """What the formats for SQLite need to know; refused for the others."""
    if format_name not in ("changeset", "patchset"):
        if table or column_types:
            raise OptionError("--table and --column-type belong to --format changeset or patchset")
        return {}
    if not table or limit is not None:
        raise OptionError(f"--format {format_name} needs --table NAME and takes no --limit")
    types = dict(pair.rpartition("=")[::2] for pair in column_types)
    if "" in types or "" in types.values():
        raise OptionError("--column-type is COL=TYPE, such as age=INTEGER")
    return {"table": table, "types": types, "notice": lambda line: click.echo(line, err=True)}


def _is_folder(output: str | None, format_name: str, limit: int | None) -> bool:
    """Whether the events go into a folder: of ordered parts (`/` at the end), or a Delta table."""
    if format_name == "delta" and output is None:
        raise OptionError("a Delta table needs a place: name it with -o")
    if output is None or not (output.endswith("/") or format_name == "delta"):
        return False
    from driftline.tables._engines import check_folder

    check_folder(output, format_name, limit)
    return True


def _write_folder(engine: str, job: DiffJob, output: str, format_name: str) -> Stats:
    from driftline.tables._engines import diff_to_folder, diff_to_table

    run = find_engine(engine)
    if format_name == "jsonl":
        return diff_to_folder(run, job, output)
    if engine == "spark":
        from driftline.spark._table_diff import diff_to_table_on_spark

        return diff_to_table_on_spark(run, job, output, format_name)
    return diff_to_table(run, job, output, format_name)


def _write_file(
    engine: str,
    job: DiffJob,
    output: str | None,
    format_name: str,
    limit: int | None,
    settings: dict[str, Any],
    heading: Callable[[], Heading],
) -> Stats:
    from driftline.core._files import open_output

    run = find_engine(engine)
    with open_output(output, (job.a, job.b)) as out:
        if format_name == "jsonl" and limit is None:
            return run(job, out.write)
        if settings and engine == "spark":
            from driftline.spark._changesets import diff_to_changeset

            return diff_to_changeset(run, job, out, format_name, **settings)
        return _run_and_format(run, job, out, format_name, limit, settings, heading)


def _run_and_format(
    run: Any,
    job: DiffJob,
    out: BinaryIO,
    format_name: str,
    limit: int | None,
    settings: dict[str, Any],
    heading: Callable[[], Heading],
) -> Stats:
    import tempfile

    with tempfile.TemporaryFile() as stream:
        stats: Stats = run(job, stream.write)
        stream.seek(0)
        settings = settings or {
            "positional": job.options.has_row_numbers,
            "changed_only": job.options.changed_columns_only,
            "heading": heading(),
            "judged": frozenset(stats.columns),
        }
        write_events(stream, out, format_name, limit=limit, **settings)
    return stats


def _heading(job: DiffJob, engine: str, began: float) -> Heading:
    from driftline.tables._explain import heading_of

    return heading_of(job, engine, time.monotonic() - began)


def _closing_line(output: str, stats: Stats, began: float) -> str:
    counts = f"+{stats.added:,} −{stats.removed:,} ~{stats.changed:,}"
    total = stats.added + stats.removed + stats.changed
    size = size_text(os.path.getsize(output)) if os.path.isfile(output) else "written"
    return f"{output}: {total:,} changes ({counts}), {size}, {time.monotonic() - began:.1f} s"


def _hint_at_keys(job: DiffJob, stats: Stats) -> None:
    """A positional diff that finds most rows changed was perhaps meant to be keyed."""
    if job.options.mode == "keyed" or stats.changed * 2 <= stats.compared:
        return
    from driftline.tables._explain import key_candidates

    names = key_candidates(job)
    which = f" (candidates: {', '.join(names)})" if names else ""
    click.echo(f"hint: more than half of the rows changed; if rows have an identity, give --key COL{which}", err=True)

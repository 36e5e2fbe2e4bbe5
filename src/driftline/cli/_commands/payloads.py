"""`driftline payloads batch`: many pairs of payloads, on this machine or on Spark."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftline.cli.compare import read_config
from driftline.cli.engine_options import chosen_engine, engine_options
from driftline.cli.outcome import DIFFERENT, SAME
from driftline.cli.payload_options import (
    flags_of,
    mask_options,
    masker_of,
    path_options,
    read_mask_key,
    schema_options,
)
from driftline.cli.terminal import progress_bar

if TYPE_CHECKING:
    from driftline.core._progress import Tracker
    from driftline.payloads._batch.run import BatchJob, BatchTotals, Scheduler
    from driftline.payloads._schema.documents import Bundle


_EPILOG = """\b
Examples:
  driftline payloads batch pairs.jsonl --schema api.yaml -o out
  driftline payloads batch pairs.parquet --schema /orders=orders.yaml --schema /users=users.yaml -o out
  driftline payloads batch old.jsonl new.jsonl --id orderId --schema api.yaml -o out --engine spark
  driftline payloads batch captured.jsonl --records full --header content-type -o out --fail-if "different > 1%"

PAIRS is JSONL (plain, .gz or .zst) or Parquet with id, endpoint (optional), old and new; with --records full both sides
are {"status", "headers", "body"}, as "driftline payloads pairs" writes them. With two inputs, records are payloads and
joined by their id; one without a partner is a MISSING_PARTNER difference. DIR gets reports.jsonl and reports.parquet
(ordered by id), aggregate.json, coverage.json, summary.json, and report.html to look at.

CONDITION is NAME OP NUMBER[%], such as "different > 1%": pairs, matched, different, failed, missing; > >= < <=. A pair
that cannot be compared fails the batch unless a condition names failed.

Exit codes: 0 all match (or no condition holds), 1 differences or failed pairs, 2 error.
"""


@click.command(epilog=_EPILOG)
@click.argument("inputs", nargs=-1, required=True, metavar="PAIRS | OLD NEW")
@click.option("--schema", "schemas", multiple=True, metavar="[ENDPOINT=]FILE", help="A schema; can be repeated.")
@click.option("-o", "--output", required=True, metavar="DIR", help="The folder for reports and aggregates.")
@click.option("--id", "id_name", default="id", show_default=True, help="The member that joins two inputs.")
@click.option(
    "--records", type=click.Choice(["payload", "full"]), default="payload", show_default=True, help="What a side is."
)
@click.option("--header", "headers", multiple=True, metavar="NAME", help="A header to compare in full records.")
@schema_options
@path_options
@mask_options
@click.option("--fail-if", "conditions", multiple=True, metavar="CONDITION", help="Exit 1 only if one holds.")
@click.option("--junit", metavar="FILE", help="Also write JUnit XML, a suite for each endpoint.")
@click.option("--sarif", metavar="FILE", help="Also write SARIF, a result for each kind of difference.")
@click.option("--summary", metavar="FILE", help="Also write a Markdown summary, such as $GITHUB_STEP_SUMMARY.")
@click.option("--annotations", is_flag=True, help="Print the most frequent differences as GitHub annotations.")
@engine_options
@click.option("--workers", type=click.IntRange(1), help="Processes of the local engine.  [default: all cores]")
@click.option("--progress/--no-progress", default=None, help="Draw a progress bar. Default: on a terminal.")
def batch(
    inputs: tuple[str, ...],
    schemas: tuple[str, ...],
    output: str,
    *,
    conditions: tuple[str, ...],
    engine: str,
    master: str | None,
    workers: int | None,
    progress: bool | None,
    annotations: bool,
    junit: str | None,
    sarif: str | None,
    summary: str | None,
    **options: Any,
) -> int:
    """Compare many pairs of payloads and add up what differs."""
    from driftline.payloads._batch.ci import annotation_lines, write_for_ci
    from driftline.payloads._batch.run import run_batch
    from driftline.payloads._batch.totals import parse_conditions

    wanted = parse_conditions(conditions)
    job = _job(inputs, schemas, **options)
    name = chosen_engine("payloads", engine, master, lambda: job.size)
    with progress_bar(show=progress) as tracker, _scheduler(name, job, master, workers, tracker) as scheduler:
        totals = run_batch(job, output, scheduler, tracker)
    _tell(totals, output)
    reasons = totals.reasons(wanted)
    write_for_ci(job, totals.result(), reasons, junit, sarif, summary)
    for line in annotation_lines(job, totals.result()) if annotations else ():
        click.echo(line)
    for reason in reasons if wanted else ():
        click.echo(f"gate: {reason}", err=True)
    return DIFFERENT if reasons else SAME


def _tell(totals: BatchTotals, output: str) -> None:
    """The batch in tables where a person looks, else in a line."""
    if not sys.stdout.isatty():
        line = f"{totals.matched} matched, {totals.mismatched} differ, {totals.failed} failed: see {output}"
        click.echo(line, err=True)
        return
    from driftline.cli.payload_views import print_batch
    from driftline.cli.terminal import stdout_console
    from driftline.payloads._batch.view import batch_view

    result = totals.result()
    print_batch(batch_view(result.summary, result.aggregate, (), result.failures), output, stdout_console())


def _scheduler(
    engine: str, job: BatchJob, master: str | None, workers: int | None, tracker: Tracker
) -> AbstractContextManager[Scheduler]:
    if engine == "spark":
        from driftline.spark._payloads import spark_scheduler

        return spark_scheduler(master, tracker)
    from driftline.payloads._batch.run import local_scheduler

    return local_scheduler(job, workers)


def _job(
    inputs: tuple[str, ...],
    schemas: tuple[str, ...],
    *,
    id_name: str,
    records: str,
    headers: tuple[str, ...],
    root: str | None,
    config: str | None,
    masked: tuple[str, ...],
    mask_key_file: str | None,
    **flags: Any,
) -> BatchJob:
    import secrets

    from driftline.core._objects import is_url
    from driftline.payloads._batch.job import BatchJob, Role, open_source

    if len(inputs) > 2:
        raise click.UsageError("give one file of pairs, or two files to join")
    if headers and records != "full":
        raise click.UsageError("--header needs --records full")
    # Tasks may run elsewhere: they get absolute paths.
    paths = [given if is_url(given) else str(Path(given).resolve()) for given in inputs]
    roles: tuple[Role, ...] = ("pairs",) if len(paths) == 1 else ("old", "new")
    named = dict(map(_schema, schemas))
    masker_of(masked, mask_key_file)  # a bad path is said at once
    return BatchJob(
        tuple(map(open_source, paths, roles)),
        {endpoint: _bundle(path, root) for endpoint, path in named.items()} or {None: b"{}"},
        read_config(config) or {},
        root,
        id_name,
        flags_of(**flags),
        masked,
        (read_mask_key(mask_key_file) or secrets.token_bytes(32)) if masked else None,
        tuple(name.lower() for name in headers) if records == "full" else None,
        named,
    )


def _schema(given: str) -> tuple[str | None, str]:
    endpoint, separator, path = given.rpartition("=")
    if not separator or Path(given).exists():
        endpoint, path = "", given
    return endpoint or None, path


def _bundle(path: str, root: str | None) -> bytes | Bundle:
    from driftline.payloads._compare.compare import bundle_of

    bundle = bundle_of(Path(path), root)
    return bundle if bundle.files else bundle.main

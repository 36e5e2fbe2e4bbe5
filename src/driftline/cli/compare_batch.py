"""`driftline compare-batch`: many pairs of payloads, on this machine or on Spark."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftline.cli.compare import read_config
from driftline.cli.engine_options import chosen_engine, engine_options
from driftline.cli.outcome import DIFFERENT, SAME
from driftline.cli.terminal import progress_bar

if TYPE_CHECKING:
    from driftline.payloads.batch import BatchJob, Scheduler
    from driftline.progress import Tracker


_EPILOG = """\b
Examples:
  driftline compare-batch pairs.jsonl --schema api.yaml -o out
  driftline compare-batch pairs.parquet --schema /orders=orders.yaml --schema /users=users.yaml -o out
  driftline compare-batch old.jsonl new.jsonl --id orderId --schema api.yaml -o out --engine spark

PAIRS is JSONL (plain, .gz or .zst) or Parquet with id, endpoint (optional), old and new. With two inputs, records
are payloads and joined by their id; one without a partner is a MISSING_PARTNER difference. DIR gets reports.jsonl and
reports.parquet (ordered by id), aggregate.json, coverage.json, summary.json, and report.html to look at.

Exit codes: 0 all match, 1 differences or failed pairs, 2 error.
"""


@click.command(epilog=_EPILOG)
@click.argument("inputs", nargs=-1, required=True, metavar="PAIRS | OLD NEW")
@click.option(
    "--schema", "schemas", multiple=True, required=True, metavar="[ENDPOINT=]FILE", help="A schema; can be repeated."
)
@click.option("-o", "--output", required=True, metavar="DIR", help="The folder for reports and aggregates.")
@click.option("--id", "id_name", default="id", show_default=True, help="The member that joins two inputs.")
@click.option("--root", metavar="NAME", help="The root schema: a component's name or a JSON Pointer.")
@click.option("--config", metavar="FILE", help="Limits and switches of the engine, YAML or JSON.")
@engine_options
@click.option("--workers", type=click.IntRange(1), help="Processes of the local engine.  [default: all cores]")
@click.option("--progress/--no-progress", default=None, help="Draw a progress bar. Default: on a terminal.")
def compare_batch(
    inputs: tuple[str, ...],
    schemas: tuple[str, ...],
    output: str,
    engine: str,
    master: str | None,
    workers: int | None,
    progress: bool | None,
    **options: Any,
) -> int:
    """Compare many pairs of payloads and add up what differs."""
    from driftline.payloads.batch import run_batch

    job = _job(inputs, schemas, **options)
    name = chosen_engine("payloads", engine, master, lambda: job.size)
    with progress_bar(show=progress) as tracker, _scheduler(name, job, master, workers, tracker) as scheduler:
        totals = run_batch(job, output, scheduler, tracker)
    click.echo(f"{totals.matched} matched, {totals.mismatched} differ, {totals.failed} failed: see {output}", err=True)
    return DIFFERENT if totals.mismatched or totals.failed else SAME


def _scheduler(
    engine: str, job: BatchJob, master: str | None, workers: int | None, tracker: Tracker
) -> AbstractContextManager[Scheduler]:
    if engine == "spark":
        from driftline.spark.payload_batches import spark_scheduler

        return spark_scheduler(master, tracker)
    from driftline.payloads.batch import local_scheduler

    return local_scheduler(job, workers)


def _job(
    inputs: tuple[str, ...], schemas: tuple[str, ...], *, id_name: str, root: str | None, config: str | None
) -> BatchJob:
    from driftline.payloads.batch_job import BatchJob, Role, open_source

    if len(inputs) > 2:
        raise click.UsageError("give one file of pairs, or two files to join")
    # Tasks may run elsewhere: they get absolute paths.
    paths = [Path(given).resolve() for given in inputs]
    roles: tuple[Role, ...] = ("pairs",) if len(paths) == 1 else ("old", "new")
    sources = tuple(map(open_source, paths, roles))
    return BatchJob(sources, dict(map(_schema, schemas)), read_config(config) or {}, root, id_name)


def _schema(given: str) -> tuple[str | None, bytes]:
    from driftline.files import naming_the_file

    endpoint, separator, path = given.rpartition("=")
    if not separator or Path(given).exists():
        endpoint, path = "", given
    with naming_the_file(path):
        return endpoint or None, Path(path).read_bytes()

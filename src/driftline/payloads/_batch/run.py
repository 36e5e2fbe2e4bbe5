"""Batches of comparisons: scatter by id, compare range by range, join what the ranges give.

A scheduler only maps functions over pieces: in this process, over processes of this machine, or on Spark. The bytes
of the output do not depend on it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from driftline.core import (
    AnyPath,
    Location,
    ObjectPath,
    Tracker,
    WorkerContext,
    atomic_write,
    copy_object,
    io_errors,
    no_progress,
    open_to_read,
    output_place,
    remove,
    write_atomically,
)
from driftline.payloads._batch.job import BatchJob, SortKey, Split, splits_of
from driftline.payloads._batch.kernels import RangeResult, Spool, compare_range, sample_keys, scatter
from driftline.payloads._batch.totals import BatchTotals, rule_places
from driftline.payloads._batch.view import MOST_REPORTS, Made, batch_view, find_reports, view_page
from driftline.payloads._compare.report import indented
from driftline.payloads._values.text import to_json_bytes
from driftline.payloads._values.values import Json

RANGE_BYTES = 64 << 20
PROCESSES_FROM_BYTES = 64 << 20
_SAMPLED_SPLITS = 64


class Scheduler(Protocol):
    """Where pieces of a batch run: results come in the order of the pieces."""

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
        """Apply a function to each piece."""


def run_batch(
    job: BatchJob,
    output: AnyPath,
    scheduler: Scheduler,
    tracker: Tracker | None = None,
) -> BatchTotals:
    """Compare all pairs and write reports (JSONL, Parquet), aggregate, coverage and summary (JSON), and pages."""
    tracker = tracker or no_progress()
    target = output_place(output)
    with io_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    for endpoint in job.schemas:
        job.plan(endpoint)  # a schema that cannot be used is said before any work
    with _workshop(target) as folder:
        results = _run_ranges(job, folder, scheduler, tracker)
        return _write_output(job, target, results)


def _run_ranges(job: BatchJob, folder: str, scheduler: Scheduler, tracker: Tracker) -> list[RangeResult]:
    splits = splits_of(job)
    bounds = _bounds(job, scheduler)
    spools: dict[int, list[Spool]] = {}
    with tracker.phase("read", total=len(splits), unit="items"):
        count = len(splits)
        counts: list[int] = []
        for found in scheduler.map(scatter, [job] * count, splits, [bounds] * count, [folder] * count):
            tracker.advance()
            counts.append(found.lines)
            for spool in found.spools:
                spools.setdefault(spool.range, []).append(spool)
    before = _lines_before(splits, counts)
    numbers = sorted(spools)
    results: list[RangeResult] = []
    with tracker.phase("compare", total=len(numbers), unit="items"):
        lists = [spools[number] for number in numbers]
        count = len(numbers)
        for result in scheduler.map(compare_range, [job] * count, numbers, lists, [before] * count, [folder] * count):
            tracker.advance()
            results.append(result)
    return results


def _lines_before(splits: list[Split], counts: list[int]) -> list[int]:
    """How many lines of its file come before each split."""
    before: list[int] = []
    for number, split in enumerate(splits):
        is_first = number == 0 or splits[number - 1].source is not split.source
        before.append(0 if is_first else before[-1] + counts[number - 1])
    return before


def _bounds(job: BatchJob, scheduler: Scheduler) -> list[SortKey]:
    """Keys that cut the ids into ranges of about equal size; few enough for memory, many enough for all workers."""
    wanted = max(job.size // RANGE_BYTES, getattr(scheduler, "workers", 1) if job.size > PROCESSES_FROM_BYTES else 1)
    if wanted <= 1:
        return []
    splits = splits_of(job, max(job.size // _SAMPLED_SPLITS, 1 << 16))
    keys = sorted(key for split in splits for key in sample_keys(job, split))
    return [keys[len(keys) * number // wanted] for number in range(1, wanted)] if keys else []


def _write_output(job: BatchJob, target: Location, results: list[RangeResult]) -> BatchTotals:
    totals = BatchTotals()
    for result in results:
        totals.merge(result.totals)
    with atomic_write(target / "reports.jsonl") as out:
        for result in results:
            with open_to_read(result.lines) as lines:
                shutil.copyfileobj(lines, out, 4 << 20)
    _place_tables(target / "reports.parquet", [result.table for result in results])
    summary, aggregate, coverage = totals.summary(), totals.aggregate(), _coverage(job, totals)
    write_atomically(target / "aggregate.json", _pretty(aggregate))
    write_atomically(target / "coverage.json", _pretty(coverage))
    view = batch_view(summary, aggregate, coverage, [row for _, row in totals.failures])
    reports = find_reports(target, islice(view.ids(), MOST_REPORTS))
    write_atomically(target / "report.html", b"".join(view_page(view, _made(job), reports)))
    write_atomically(target / "summary.json", _pretty(summary))
    return totals


def _made(job: BatchJob) -> Made:
    """What the batch was made of, without the folders of this machine."""
    schemas = [f"{endpoint or ''} {Path(name).name}".strip() for endpoint, name in job.schema_names.items()]
    return Made([Path(source.path).name for source in job.sources], schemas)


def _place_tables(folder: Location, tables: list[str]) -> None:
    """Put the ranges' tables side by side; an earlier run's folder goes as a whole."""
    if isinstance(folder, ObjectPath):
        _store_tables(folder, tables)
        return
    fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".reports-"))
    for number, table in enumerate(tables):
        shutil.move(table, fresh / f"part-{number:05d}.parquet")
    fresh.chmod(0o755)
    if folder.exists():
        shutil.rmtree(folder)
    fresh.rename(folder)


def _store_tables(folder: ObjectPath, tables: list[str]) -> None:
    names = [f"{folder}/part-{number:05d}.parquet" for number in range(len(tables))]
    for table, name in zip(tables, names, strict=True):
        copy_object(table, name)
    for left in folder.below():
        if left.url not in names:
            left.unlink()


def _coverage(job: BatchJob, totals: BatchTotals) -> list[dict[str, Json]]:
    """Every rule of every schema, and the first id whose payloads have its field."""
    rows = []
    for endpoint in sorted(job.schemas, key=lambda name: name or ""):
        for place in rule_places(job.schemas[endpoint], job.root):
            seen = totals.met.get((endpoint or "", place.pointer))
            rows.append(
                {
                    "endpoint": endpoint,
                    "pointer": place.pointer,
                    "rule": place.rule,
                    "used": seen is not None,
                    "first_id": seen[1] if seen is not None else None,
                }
            )
    return rows


def _pretty(value: object) -> bytes:
    return indented(to_json_bytes(value), 1) + b"\n"


@contextmanager
def _workshop(target: Location) -> Iterator[str]:
    """A folder for files in between, beside the output so that all workers see it."""
    if isinstance(target, ObjectPath):
        place = target / f".work-{secrets.token_hex(8)}"
        try:
            yield place.url
        finally:
            remove(place)
        return
    with io_errors(target):
        folder = tempfile.mkdtemp(dir=target, prefix=".work-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _InProcess:
    """Runs pieces one after the other."""

    workers = 1

    def map(self, function: Callable[..., Any], *iterables: Iterable[Json]) -> Iterator[Json]:
        return map(function, *iterables)


class _Processes:
    """Runs pieces in processes of this machine."""

    def __init__(self, pool: ProcessPoolExecutor, workers: int) -> None:
        self._pool = pool
        self.workers = workers

    def map(self, function: Callable[..., Any], *iterables: Iterable[Json]) -> Iterator[Json]:
        return self._pool.map(function, *iterables)


@contextmanager
def local_scheduler(job: BatchJob, workers: int | None = None) -> Iterator[Scheduler]:
    """This process for small input, all cores for more."""
    count = workers or len(os.sched_getaffinity(0))
    if count == 1 or job.size < PROCESSES_FROM_BYTES:
        yield _InProcess()
        return
    with ProcessPoolExecutor(count, mp_context=WorkerContext()) as pool:
        yield _Processes(pool, count)

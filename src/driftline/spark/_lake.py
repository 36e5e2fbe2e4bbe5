"""The lake on Spark: compaction by range of row ids, and ingestion of byte ranges of lines.

The kernels are those of the local engine. Tasks read and split deltas, a shuffle of Arrow streams brings each range of
row ids into one partition, and the second stage does the job for each range. Tasks return small records, never data.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from driftline.core import LineRange, Tracker, no_progress
from driftline.errors import DriftlineError
from driftline.lake import Schedulers, kernels
from driftline.spark import _tasks as tasks
from driftline.spark._jobs import is_connect_session, watched
from driftline.spark._runtime.pyspark_internals import to_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Large tasks: each costs a tenth of a second, and the more deltas meet in one, the more are folded before they travel.
ROWS_PER_TASK = 2_500_000
_BYTES_PER_TASK = 160 << 20  # of delta files
_LEAST_ROWS_PER_TASK = 250_000  # where cores would be idle otherwise
_ROWS_PER_PARTITION = 1_000_000
_NEEDED_PARTITIONS = 8  # where there are as many ranges: so many cores have something to do

_DELTAS, _MARKER, _ERROR = "deltas", "marker", "error"

Batches = Iterator[pa.RecordBatch]
Kernel = Callable[[int], Any]


def lake_engine(
    session: SparkSession,
) -> Callable[[kernels.FoldPlan, kernels.RangeJob, Tracker | None], Iterator[kernels.Result]]:
    """The scheduler as the lake's functions take it (`compact(…, engine=lake_engine(session))`)."""
    return partial(run_on_spark, session)


def run_on_spark(
    session: SparkSession, plan: kernels.FoldPlan, job: kernels.RangeJob, tracker: Tracker | None = None
) -> Iterator[kernels.Result]:
    """Run a job over every range of a plan; its results in the order of the ranges."""

    rows_per_task = kernels.bounded_rows(ROWS_PER_TASK, plan.deltas, _BYTES_PER_TASK)
    rows_per_task = min(rows_per_task, max(_LEAST_ROWS_PER_TASK, -(-plan.delta_count // _cores(session))))
    work = bundles(kernels.delta_work(plan, rows_per_task), rows_per_task)
    count = partition_count(plan, job)
    numbers = session.range(0, len(work), 1, len(work))
    blocks = numbers.mapInArrow(partial(_split_task, plan, job, work, count), tasks.frame_schema(tasks.BLOCK_SCHEMA))
    by_range = to_partitions(blocks, count, "target")
    results = by_range.mapInArrow(partial(_range_task, plan, job), tasks.frame_schema(tasks.RESULTS))
    rows = watched(session, tracker or no_progress(), "fold", len(work) + count, results.collect)
    for found in tasks.results_of(rows):
        yield from found


def _cores(session: SparkSession) -> int:
    """About how many tasks run at once; a Connect client reads it only from the setting."""
    if is_connect_session(session):
        return int(session.conf.get("spark.default.parallelism", "8") or 8)
    return max(1, session.sparkContext.defaultParallelism)


def bundles(work: Sequence[kernels.DeltaWork], needed_rows: int) -> list[list[kernels.DeltaWork]]:
    """Reads combined into tasks of about equal size, so that small files share one; there is at least one task."""
    count = max(1, round(sum(piece.rows for piece in work) / needed_rows))
    found: list[list[kernels.DeltaWork]] = [[] for _ in range(count)]
    filled = [(0, number) for number in range(count)]
    for piece in sorted(work, key=lambda piece: -piece.rows):
        rows, number = heapq.heappop(filled)
        found[number].append(piece)
        heapq.heappush(filled, (rows + piece.rows, number))
    return found


def partition_count(plan: kernels.FoldPlan, job: kernels.RangeJob) -> int:
    """Enough partitions that none has too many rows by the sample of each range; at most one for each range."""
    touched = [each for each in plan.ranges if job.every_range or each.is_piece or each.deltas]
    rows = sum(each.rows + each.deltas for each in touched)
    enough = max(-(-rows // _ROWS_PER_PARTITION), min(len(touched), _NEEDED_PARTITIONS))
    return max(1, min(enough, len(plan.ranges)))


def _split_task(
    plan: kernels.FoldPlan,
    job: kernels.RangeJob,
    work: Sequence[Sequence[kernels.DeltaWork]],
    count: int,
    batches: Batches,
) -> Batches:
    """First stage: read one bundle, split it by range, send Arrow streams."""
    tasks.prepare_worker()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from tasks.pack(_blocks(plan, job, work[number], count, with_markers=number == 0))


def _blocks(
    plan: kernels.FoldPlan, job: kernels.RangeJob, work: Sequence[kernels.DeltaWork], count: int, with_markers: bool
) -> Iterator[tasks.ShuffleBlock]:
    for each in plan.ranges if with_markers else ():
        if each.is_piece or job.every_range:
            yield tasks.ShuffleBlock(each.index % count, _MARKER, "", each.index, b"")
    try:
        for index, deltas in kernels.split_work(plan, work, job, kernels.lower_bounds(plan.ranges)):
            for blob in tasks.table_blobs(deltas):
                yield tasks.ShuffleBlock(index % count, _DELTAS, "", index, blob)
    except DriftlineError as error:
        yield tasks.ShuffleBlock(0, _ERROR, "", 0, pickle.dumps(error))


def _range_task(plan: kernels.FoldPlan, job: kernels.RangeJob, batches: Batches) -> Batches:
    """Second stage: the deltas of a range, folded with the files of the range."""
    tasks.prepare_worker()
    pieces: dict[int, list[Any]] = {}
    for block in tasks.unpack(batches):
        if block.kind == _ERROR:
            yield tasks.result_batch(block.number, pickle.loads, block.blob)
            return
        of_range = pieces.setdefault(block.number, [])
        if block.kind == _DELTAS:
            of_range.append(pa.ipc.open_stream(block.blob).read_all())
    for index in sorted(pieces):
        loaded = partial(kernels.load_range, plan, plan.ranges[index], pieces.pop(index), job.needs_originals)
        yield tasks.result_batch(index, lambda load: list(job(plan, load())), loaded)


# Ingestion.


def load_schedulers(session: SparkSession) -> Schedulers:
    """The schedulers of a load, in tasks of a session."""
    return Schedulers(partial(ingest_on_spark, session), partial(survey_on_spark, session), lake_engine(session))


def survey_on_spark(session: SparkSession, ranges: Sequence[LineRange]) -> Iterator[kernels.Survey]:
    """Survey every range, one task each."""
    return tasks.TaskPool(session, no_progress(), "survey").map(kernels.survey, ranges)


def ingest_on_spark(
    session: SparkSession, plan: kernels.IngestPlan, work: Sequence[tuple[LineRange, int]]
) -> Iterator[kernels.IngestedFile]:
    """Write every range, one task each; only files that tasks report are committed."""
    pool = tasks.TaskPool(session, no_progress(), "ingest")
    for written in pool.map(lambda each: list(kernels.write_range(plan, *each)), work):
        yield from written


def run_in_tasks(session: SparkSession, count: int, kernel: Kernel) -> Iterator[Any]:
    """The results of a kernel for the numbers below `count`, one task each, in their order."""
    return tasks.TaskPool(session, no_progress(), "run").map(kernel, range(count))

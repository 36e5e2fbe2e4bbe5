"""The Spark scheduler of the lake's folds: read and split deltas in tasks, shuffle by range, do the job per range.

The kernels are the same functions that run locally (`driftline.lake.kernels`). Deltas travel as Arrow IPC blobs;
all of a range of row ids meet in one partition of the second stage. Tasks give back small records, never data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from driftline.errors import DriftlineError
from driftline.lake.kernels import RangeJob, Result, fold_early, load_range, read_work, split_by_range
from driftline.lake.layout import relative
from driftline.lake.planning import DeltaWork, FoldPlan, bounded_rows, delta_work
from driftline.lake.ranges import ROWS_PER_RANGE, lower_bounds
from driftline.progress import Tracker, silent
from driftline.spark.session import chosen_master, is_local
from driftline.spark.task_errors import error_text, raise_task_error
from driftline.spark.watching import watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_TASK = 400_000
# Partitions are planned by range, so there is nothing to adapt; on one machine compression only costs time.
SESSION_CONFIG = {"spark.sql.adaptive.enabled": "false"}
LOCAL_SESSION_CONFIG = {**SESSION_CONFIG, "spark.shuffle.compress": "false"}
_LEAST_PARTITIONS = 16
_BLOB_BYTES = 16 << 20  # far below what one shuffled row may hold

_PIECES = "range int, blob binary, error string"
_RESULTS = "range int, result string, error string"

Batches = Iterator[pa.RecordBatch]


def fold_engine(session: SparkSession) -> Callable[[FoldPlan, RangeJob, Tracker | None], Iterator[Result]]:
    """The scheduler as the lake's functions take it (`compact(…, engine=fold_engine(session))`)."""
    return partial(run_on_spark, session)


def session_config(master: str | None) -> dict[str, str]:
    """The settings that folds want in a session of their own."""
    return LOCAL_SESSION_CONFIG if is_local(chosen_master(master)) else SESSION_CONFIG


def run_on_spark(
    session: SparkSession, plan: FoldPlan, job: RangeJob, tracker: Tracker | None = None
) -> Iterator[Result]:
    """Run a job over every range of a plan; its results in the order of the ranges."""
    from pyspark.sql import functions as sf

    work = bundles(delta_work(plan, ROWS_PER_TASK), plan)
    pieces = session.range(0, len(work), 1, len(work)).mapInArrow(partial(_split_task, plan, job, work), _PIECES)
    count = _partition_count(plan, job)
    by_range = pieces.repartitionById(count, sf.col("range") % count)
    results = by_range.mapInArrow(partial(_range_task, plan, job), _RESULTS)
    tasks = len(work) + count
    rows = watched(session, tracker or silent(), "fold", tasks, results.collect)
    for row in sorted(rows, key=lambda row: (row["error"] is None, row["range"])):
        raise_task_error(row["error"])
        yield from json.loads(row["result"])


def bundles(work: Sequence[DeltaWork], plan: FoldPlan) -> list[list[DeltaWork]]:
    """Readings put together so that small files share a task; there is always one task."""
    rows = {relative(plan.table, "deltas", file.path): file.rows for file in plan.deltas}
    wanted = bounded_rows(ROWS_PER_TASK, plan.deltas)
    found: list[list[DeltaWork]] = [[]]
    filled = 0
    for piece in work:
        size = wanted if piece.row_groups else rows[piece.path]
        if found[-1] and filled + size > wanted * 3 // 2:
            found.append([])
            filled = 0
        found[-1].append(piece)
        filled += size
    return found


def _partition_count(plan: FoldPlan, job: RangeJob) -> int:
    """A partition for each range; where few deltas meet many ranges, fewer, because most ranges will be empty."""
    if job.every_range:
        return len(plan.ranges)
    by_deltas = 2 * -(-plan.delta_count // ROWS_PER_RANGE)
    return min(len(plan.ranges), max(_LEAST_PARTITIONS, by_deltas))


def _split_task(plan: FoldPlan, job: RangeJob, work: Sequence[Sequence[DeltaWork]], batches: Batches) -> Batches:
    """First stage: read one bundle, split it by range, send Arrow blobs."""
    bounds = lower_bounds(plan.ranges)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            if number == 0:
                yield from _markers(plan, job)
            try:
                tables = [read_work(plan, piece, job) for piece in work[number]]
                stamped = pa.concat_tables(tables) if tables else None
                if stamped is None:
                    continue
                if not job.needs_originals:
                    stamped = fold_early(plan, stamped)
                for index, piece in split_by_range(stamped, bounds):
                    yield from _blobs(index, piece)
            except DriftlineError as error:
                yield _piece(0, None, error_text(error))


def _range_task(plan: FoldPlan, job: RangeJob, batches: Batches) -> Batches:
    """Second stage: all blobs of a range, folded with the files that the range covers."""
    pieces: dict[int, list[Any]] = {}
    for batch in batches:
        for record in batch.to_pylist():
            if record["error"] is not None:
                yield _result(record["range"], None, record["error"])
                return
            of_range = pieces.setdefault(record["range"], [])
            if record["blob"] is not None:
                of_range.append(pa.ipc.open_stream(record["blob"]).read_all())
    for index in sorted(pieces):
        try:
            given = load_range(plan, plan.ranges[index], pieces.pop(index), job.needs_originals)
            yield _result(index, json.dumps(job(plan, given)), None)
        except DriftlineError as error:
            yield _result(index, None, error_text(error))


def _markers(plan: FoldPlan, job: RangeJob) -> Batches:
    for each in plan.ranges:
        if each.is_piece or job.every_range:
            yield _piece(each.index, None, None)


def _blobs(index: int, piece: Any) -> Batches:
    count = max(1, -(-piece.nbytes // _BLOB_BYTES))
    size = -(-piece.num_rows // count)
    for start in range(0, piece.num_rows, size):
        part = piece.slice(start, size).unify_dictionaries().combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
        yield _piece(index, sink.getvalue(), None)


def _piece(index: int, blob: Any, error: str | None) -> pa.RecordBatch:
    arrays = [
        pa.array([index], pa.int32()),
        pa.array([None if blob is None else blob.to_pybytes()], pa.binary()),
        pa.array([error], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=["range", "blob", "error"])


def _result(index: int, result: str | None, error: str | None) -> pa.RecordBatch:
    arrays = [pa.array([index], pa.int32()), pa.array([result], pa.string()), pa.array([error], pa.string())]
    return pa.RecordBatch.from_arrays(arrays, names=["range", "result", "error"])

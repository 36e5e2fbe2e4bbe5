"""The Spark scheduler of ingestion: byte ranges of lines become delta files, in tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from driftline.core._parts import LineRange
from driftline.errors import DriftlineError
from driftline.lake._load.ingest import IngestedFile, IngestPlan, Survey, survey, write_range
from driftline.lake._load.load import Schedulers
from driftline.lake._store.parquet import DataFile
from driftline.spark.column_types import frame_schema
from driftline.spark.lake_folds import fold_engine
from driftline.spark.task_errors import error_text, raise_task_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RESULTS = "number int, result string, error string"

Kernel = Callable[[int], Any]


def load_schedulers(session: SparkSession) -> Schedulers:
    """Everything that a load runs, in tasks of a session."""
    return Schedulers(partial(ingest_on_spark, session), partial(survey_on_spark, session), fold_engine(session))


def survey_on_spark(session: SparkSession, ranges: Sequence[LineRange]) -> Iterator[Survey]:
    """Survey every range in a task of its own."""
    for result in in_tasks(session, len(ranges), partial(_survey_task, list(ranges))):
        events, columns, types = result
        yield Survey(events, columns, {name: set(kinds) for name, kinds in types.items()})


def ingest_on_spark(
    session: SparkSession, plan: IngestPlan, work: Sequence[tuple[LineRange, int]]
) -> Iterator[IngestedFile]:
    """Write every range in a task of its own; only files that tasks report are committed."""
    for result in in_tasks(session, len(work), partial(_write_task, plan, list(work))):
        for table, file, deltas, known in result:
            yield IngestedFile(table, None if file is None else DataFile(*file), deltas, known)


def in_tasks(session: SparkSession, count: int, kernel: Kernel) -> Iterator[Any]:
    """The results of a kernel for the numbers up to `count`, each in a task of its own, in their order."""
    if count == 0:
        return
    rows = session.range(0, count, 1, count).mapInArrow(partial(_run, kernel), frame_schema(_RESULTS)).collect()
    for row in sorted(rows, key=lambda row: (row["error"] is None, row["number"])):
        raise_task_error(row["error"])
        yield json.loads(row["result"])


def _run(kernel: Kernel, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            result, problem = None, None
            try:
                result = json.dumps(kernel(number))
            except DriftlineError as error:
                problem = error_text(error)
            arrays = [pa.array([number], pa.int32()), pa.array([result], pa.string()), pa.array([problem], pa.string())]
            yield pa.RecordBatch.from_arrays(arrays, names=["number", "result", "error"])


def _survey_task(ranges: list[LineRange], number: int) -> Any:
    found = survey(ranges[number])
    return [found.events, found.columns, {name: sorted(kinds) for name, kinds in found.types.items()}]


def _write_task(plan: IngestPlan, work: list[tuple[LineRange, int]], number: int) -> Any:
    lines, first = work[number]
    written = write_range(plan, lines, first)
    return [[each.table, each.file and astuple(each.file), each.deltas, each.known] for each in written]

"""`map` on Spark: one task for each item, results in order; for work whose results are small."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from driftline.core._progress import Tracker
from driftline.errors import DriftlineError
from driftline.spark.column_types import frame_schema
from driftline.spark.runtime.workers import settle_worker
from driftline.spark.shuffle_blocks import bytes_column, integer_column
from driftline.spark.watching import watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TaskPool:
    """Runs functions on Spark's workers; an error of ours comes back as the same error."""

    def __init__(self, spark: SparkSession, tracker: Tracker, phase: str) -> None:
        self._spark = spark
        self._tracker = tracker
        self._phase = phase

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
        """Results in the order of the items; raises the error of the first item that has one."""
        items = list(zip(*iterables, strict=False))
        if not items:
            return
        frame = self._spark.range(0, len(items), 1, len(items)).mapInArrow(
            _task(function, items), frame_schema(_SCHEMA)
        )
        rows = watched(self._spark, self._tracker, self._phase, len(items), frame.collect)
        for _, result in sorted((row["number"], bytes(row["result"])) for row in rows):
            value = pickle.loads(result)  # noqa: S301 - made by our own task
            if isinstance(value, DriftlineError):
                raise value
            yield value


_SCHEMA = "number int, result binary"


def _task(function: Callable[..., Any], items: list[tuple[Any, ...]]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle_worker()
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            results = [pickle.dumps(_result(function, items[number])) for number in numbers]
            columns = [integer_column(numbers), bytes_column(pa.binary(), results)]
            yield pa.RecordBatch.from_arrays(columns, names=["number", "result"])

    return run


def _result(function: Callable[..., Any], item: tuple[Any, ...]) -> Any:
    try:
        return function(*item)
    except DriftlineError as error:
        return error

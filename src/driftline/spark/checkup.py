"""A small job that shows whether Spark and its Python workers do what driftline needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from driftline.errors import EngineError
from driftline.spark.runtime.session import open_session

_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Checkup:
    """What the small job found out."""

    version: str
    worker_python: str


def run_small_job(master: str | None = None) -> Checkup:
    """Start a session, send rows through Python workers and count them again."""
    with open_session(master) as spark:
        frame = spark.range(_ROWS, numPartitions=2).mapInArrow(_name_python, "python string")
        rows = frame.groupBy("python").count().collect()
        if sum(row["count"] for row in rows) != _ROWS:
            raise EngineError("Spark lost rows of a small job", code="spark_failed")
        return Checkup(spark.version, rows[0]["python"])


def _name_python(batches: Iterator[Any]) -> Iterator[Any]:
    import sys

    import pyarrow as pa

    name = f"{sys.version_info.major}.{sys.version_info.minor}"
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([name] * batch.num_rows, pa.string())], names=["python"])

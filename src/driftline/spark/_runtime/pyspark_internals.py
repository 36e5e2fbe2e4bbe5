"""The only module that uses pyspark's private parts; a new Spark version is checked here first.

pyspark finds a JVM that it did not start through environment variables, keeps its gateway in class attributes, and
takes over Ctrl-C and some loggers.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftline.errors import EngineError
from driftline.spark._runtime.jvm import Jvm

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def gateway_variables(jvm: Jvm) -> Iterator[None]:
    """pyspark finds a running JVM, and the Python for its workers, through these variables."""
    needed = {
        "PYSPARK_GATEWAY_PORT": str(jvm.port),
        "PYSPARK_GATEWAY_SECRET": jvm.secret,
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "SPARK_REMOTE": None,
    }
    saved = {name: os.environ.get(name) for name in needed}
    _set_variables(needed)
    try:
        yield
    finally:
        _set_variables(saved)


@contextmanager
def own_interrupt_handler() -> Iterator[None]:
    """Keep Ctrl-C as it was: pyspark's handler would talk to the JVM in the middle of another call."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _set_variables(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def quieten_accumulators(session: SparkSession) -> None:
    """pyspark's server for accumulators would print a stack trace when the JVM is gone."""
    server: Any = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def drop_gateway() -> None:
    """After the JVM was killed: let pyspark start a new one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def spare_pandas() -> None:
    """Without this pyspark imports pandas, for more than a second, only to check its version.

    It does so when it first talks to the JVM, and again before any function over Arrow data.
    """
    from pyspark.sql.pandas import functions, utils

    modules: list[Any] = [functions, utils]
    for module in modules:
        module.require_minimum_pandas_version = lambda: None


def silence_pandas_warnings() -> None:
    """pyspark warns about pandas 3, which driftline does not use."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\..*")


def silence_py4j() -> None:
    """py4j logs a stack trace, on its own and the root logger, when a call is interrupted or the JVM is gone."""
    own = logging.getLogger("py4j")
    own.addHandler(logging.NullHandler())
    own.propagate = False
    root = logging.getLogger()
    if _is_not_from_py4j not in root.filters:
        root.addFilter(_is_not_from_py4j)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def worker_python(session: SparkSession) -> str:
    """The interpreter of a classic session's workers, as Spark looks it up."""
    return str(session.sparkContext.pythonExec)


def with_row_numbers(frame: DataFrame, name: str, *, dense: bool = False) -> DataFrame:
    """The rows with numbers in their order; `dense` ones have no gaps.

    Spark has this since 4.2. Before that, numbers with gaps are cheap, and those without need one task for all rows.
    """
    if hasattr(type(frame), "zipWithIndex"):
        return frame.zipWithIndex(name)
    from pyspark.sql import Window, functions as f

    numbered = frame.select("*", f.monotonically_increasing_id().alias(name))
    if not dense:
        return numbered
    place = f.row_number().over(Window.orderBy(name)).cast("long") - 1
    return numbered.select(*(f.col(f"`{each.replace('`', '``')}`") for each in frame.columns), place.alias(name))


def arrow_udf() -> Any:
    """The maker of column functions over Arrow arrays, which Spark has since 4.1."""
    from pyspark.sql import functions

    found = vars(functions).get("arrow_udf")  # public, but left out of pyspark's annotations
    if found is None:
        raise EngineError(
            "rules for cells, duplicates=match and fail_if on DataFrames need Spark 4.1 or newer: update pyspark, or "
            "compare files with --engine spark",
            code="spark_too_old",
        )
    return found


def to_partitions(frame: DataFrame, count: int, column: str) -> DataFrame:
    """The rows in `count` partitions, each in the one whose number is in a column.

    Spark has this since 4.1. Before that it places rows by a hash, so each number is replaced by one whose hash is it.
    """
    if hasattr(type(frame), "repartitionById"):
        return frame.repartitionById(count, column)
    from pyspark.sql import functions as f

    slots: dict[int, int] = {}
    for value in range(1 << 31):
        if len(slots) == count:
            break
        slots.setdefault(_hash(value) % count, value)
    chosen = f.array(*(f.lit(slots[number]) for number in range(count)))
    return frame.repartition(count, f.element_at(chosen, f.col(column) + 1))


def _hash(value: int) -> int:
    """Spark's hash of an int: Murmur3 of its four bytes with the seed 42, signed."""
    mask = 0xFFFFFFFF
    mixed = value * 0xCC9E2D51 & mask
    mixed = (mixed << 15 | mixed >> 17) * 0x1B873593 & mask
    found = 42 ^ mixed
    found = ((found << 13 | found >> 19) & mask) * 5 + 0xE6546B64 & mask
    found ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        found = (found ^ found >> shift) * factor & mask
    return found - (1 << 32) if found >> 31 else found


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a frame as tasks get them, with times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    options: Any = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(frame.schema, **options)


def newer_type(name: str) -> Any:
    """A type of columns that not every Spark has; no value is of it where there is none."""
    from pyspark.sql import types

    return getattr(types, name, ())


def tag_jobs(session: SparkSession, tag: str) -> None:
    """Give the jobs of this thread a tag to cancel them by; before Spark 4 a classic session's context does it."""
    if _tags_sessions(session):
        session.addTag(tag)
    else:
        session.sparkContext.addJobTag(tag)


def cancel_jobs(session: SparkSession, tag: str) -> None:
    """Cancel the jobs with a tag."""
    if _tags_sessions(session):
        session.interruptTag(tag)
    else:
        session.sparkContext.cancelJobsWithTag(tag)


def _tags_sessions(session: SparkSession) -> bool:
    import pyspark

    is_classic = type(session).__module__ == "pyspark.sql.session"
    return not is_classic or int(pyspark.__version__.partition(".")[0]) >= 4

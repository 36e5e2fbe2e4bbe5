"""What Spark tasks have in common: a pool that maps a function, errors as data, blocks of a shuffle, and workers."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from driftline.core import Tracker, keep_pages, skip_pandas
from driftline.errors import DriftlineError
from driftline.spark._jobs import watched

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import Column, SparkSession

    from driftline.payloads import Scheduler

BLOCK_SCHEMA = "target int, kind string, side string, number int, blob binary"
BLOCK_BYTES = 16 << 20  # larger contents are cut: the JVM builds a complete batch in memory

RESULTS = "number int, result binary"
OWN_WORKERS = "DRIFTLINE_OWN_WORKERS"  # set where the workers run only driftline's tasks
_EARLY = 4  # workers started in advance; the others start with their tasks, and a small job needs none of them
_EARLY_MODULES = ("pyspark.sql.pandas.serializers", "driftline.spark._table_tasks")  # what takes long to import
_TYPES: dict[str, type[DataType]]
_TYPES = {"int": IntegerType, "bigint": LongType, "string": StringType, "binary": BinaryType}


def arrow_function(kind: str, function: Callable[..., Any]) -> Callable[..., Column]:
    """`function` of Arrow arrays as a function of columns; its annotations must be `pa.Array`."""
    from driftline.spark._runtime.pyspark_internals import arrow_udf

    made: Callable[..., Column] = arrow_udf()(function, kind)
    return made


@cache
def frame_schema(text: str) -> StructType:
    """A schema of plain types as an object: Spark's own parser takes long to start.

    >>> frame_schema("number int, result binary").simpleString()
    'struct<number:int,result:binary>'
    """
    columns = (column.split() for column in text.split(","))
    return StructType([StructField(name, _TYPES[kind]()) for name, kind in columns])


class TaskPool:
    """`map` on Spark, for small results: one task for each item; an error of a task is raised on the driver."""

    workers = 8  # ranges that keep the cores of a small cluster busy; large input has more

    def __init__(self, spark: SparkSession, tracker: Tracker, phase: str) -> None:
        self._spark = spark
        self._tracker = tracker
        self._phase = phase

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any]) -> Iterator[Any]:
        """Results in the order of the items; raises the error of the first item that has one."""
        items = list(zip(*iterables, strict=False))
        if items:
            tasks = self._spark.range(0, len(items), 1, len(items))
            frame = tasks.mapInArrow(partial(_run_items, function, items), frame_schema(RESULTS))
            yield from results_of(watched(self._spark, self._tracker, self._phase, len(items), frame.collect))


@contextlib.contextmanager
def payload_scheduler(master: str | None, tracker: Tracker) -> Iterator[Scheduler]:
    """A scheduler that runs Spark tasks; input and output must be visible to all workers."""
    from driftline.spark._runtime.session import open_session

    with open_session(master, app_name="driftline compare-batch") as spark:
        yield TaskPool(spark, tracker, "compare on Spark")


def _run_items(
    function: Callable[..., Any], items: list[tuple[Any, ...]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    prepare_worker()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield result_batch(number, function, *items[number])


def result_batch(number: int, function: Callable[..., Any], *arguments: Any) -> pa.RecordBatch:
    """The result of a function, or its error, as a row for the driver, so that the user sees one clear line."""
    try:
        result = function(*arguments)
    except DriftlineError as error:
        result = error
    columns = [integer_column([number]), bytes_column(pa.binary(), [pickle.dumps(result)])]
    return pa.RecordBatch.from_arrays(columns, names=["number", "result"])


def results_of(rows: Iterable[Any]) -> list[Any]:
    """The results in the order of their numbers; raises the first error among them."""
    numbered = sorted(((row["number"], bytes(row["result"])) for row in rows), key=lambda one: one[0])
    found = [pickle.loads(result) for _, result in numbered]  # noqa: S301 - made by our own tasks
    for value in found:
        if isinstance(value, DriftlineError):
            raise value
    return found


# Blocks of bytes for a shuffle, in Arrow batches of bounded size.


class ShuffleBlock(NamedTuple):
    """Bytes for the task that works on `target`."""

    target: int
    kind: str
    side: str
    number: int
    blob: Any


def pack(blocks: Iterable[ShuffleBlock]) -> Iterator[pa.RecordBatch]:
    """Blocks as record batches.

    >>> batches = pack([ShuffleBlock(3, "rows", "A", 0, b"abc")])
    >>> [bytes(block.blob) for block in unpack(batches)]
    [b'abc']
    """
    prepare_worker()
    held: list[ShuffleBlock] = []
    size = 0
    for block in blocks:
        held.append(block)
        size += len(block.blob)
        if size >= BLOCK_BYTES:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[ShuffleBlock]:
    """The blocks of record batches; blobs are views into the batches."""
    for batch in batches:
        targets, kinds, sides, numbers = (column.to_pylist() for column in batch.columns[:4])
        blobs = batch.column(4)
        for index, target in enumerate(targets):
            yield ShuffleBlock(target, kinds[index], sides[index], numbers[index], memoryview(blobs[index].as_buffer()))


def _batch(blocks: list[ShuffleBlock]) -> pa.RecordBatch:
    targets, kinds, sides, numbers, blobs = zip(*blocks, strict=True)
    address = [integer_column(targets), _texts(kinds), _texts(sides), integer_column(numbers)]
    return pa.RecordBatch.from_arrays([*address, bytes_column(pa.binary(), blobs)], names=ShuffleBlock._fields)


def table_blob(table: pa.Table) -> memoryview:
    """A table as the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    return memoryview(sink.getvalue())


def table_blobs(table: pa.Table) -> Iterator[memoryview]:
    """A table as Arrow streams, none of them much larger than a block."""
    step = max(1, table.num_rows * BLOCK_BYTES // max(1, table.nbytes))
    for start in range(0, table.num_rows, step):
        yield table_blob(table.slice(start, step).unify_dictionaries().combine_chunks())


# Built from buffers: `pa.array` imports pandas, which takes every worker more than a second.
def integer_column(values: Sequence[int]) -> pa.Array:
    """A column of 32-bit integers."""
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(np.array(values, np.int32))])


def _texts(values: Sequence[str]) -> pa.Array:
    return bytes_column(pa.string(), [value.encode() for value in values])


def bytes_column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """A column of texts or blobs."""
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))])


# Spark's Python workers: started early, and prepared for driftline's tasks.


def start_workers(context: SparkContext) -> None:
    """Start workers of a local session and their imports, in the background."""
    threading.Thread(target=_start_workers, args=(context,), daemon=True, name="driftline-workers").start()


def _start_workers(context: SparkContext) -> None:
    count = min(_EARLY, context.defaultParallelism)
    with contextlib.suppress(Exception):  # the first job will report what is wrong with them
        context.parallelize(range(count), count).foreachPartition(_import_modules)


def _import_modules(_: Iterable[int]) -> None:
    for name in _EARLY_MODULES:
        importlib.import_module(name)


def prepare_worker() -> None:
    """Prepare a worker of driftline's own session for tasks over large Arrow tables; done once for each process.

    Spark collects garbage after every task, which visits all objects of the imported modules, a twentieth of a second
    each time; and Arrow's own pools release large buffers so early that a fold spends a tenth of its time on new pages.
    """
    if OWN_WORKERS in os.environ and "pyspark.worker" in sys.modules and gc.get_freeze_count() == 0:
        gc.freeze()
        pa.set_memory_pool(pa.system_memory_pool())
        keep_pages()
        skip_pandas(pa)

"""What tasks send each other through a shuffle: blobs with an address, in Arrow batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from driftline.spark.runtime.workers import settle_worker

SCHEMA = "target int, kind string, side string, number int, blob binary"
BLOCK_BYTES = 16 << 20  # larger contents are cut: the JVM builds a whole batch in memory

_ARROW_SCHEMA = pa.schema(
    [
        ("target", pa.int32()),
        ("kind", pa.string()),
        ("side", pa.string()),
        ("number", pa.int32()),
        ("blob", pa.binary()),
    ]
)


class ShuffleBlock(NamedTuple):
    """Some bytes for the task that works on `target`."""

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
    settle_worker()
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
    return pa.RecordBatch.from_arrays([*address, bytes_column(pa.binary(), blobs)], schema=_ARROW_SCHEMA)


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

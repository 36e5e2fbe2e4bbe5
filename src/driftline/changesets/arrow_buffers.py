"""NumPy arrays as Arrow arrays and back, over the same memory.

`pa.array`, `pa.scalar` and `np.asarray` of an Arrow array all import pandas where it is installed, which takes longer
than the whole diff of a small database, and once more in each of Spark's workers. Buffers do not.

>>> as_numbers(of_numbers(np.array([3, 1]))).tolist(), as_mask(of_mask(np.array([True, False]))).tolist()
([3, 1], [True, False])
>>> import pyarrow.compute as pc
>>> as_mask(pc.equal(of_bytes([b"a", b""]), of_bytes([b"", b""]))).tolist()
[False, True]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]
Indexes = npt.NDArray[np.int64]


def of_numbers(numbers: npt.NDArray[np.integer[Any]]) -> pa.Int64Array:
    """Integers, without nulls."""
    plain = np.ascontiguousarray(numbers, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(plain), [None, pa.py_buffer(plain)])


def as_numbers(array: pa.Array) -> Indexes:
    """Integers of Arrow, of any width, none of them null."""
    if not len(array):
        return np.empty(0, dtype=np.int64)
    wide = array if array.type == pa.int64() else array.cast(pa.int64())
    return np.frombuffer(wide.buffers()[1], np.int64)[wide.offset : wide.offset + len(wide)]


def of_mask(mask: Mask) -> pa.BooleanArray:
    """Truth values: one bit each in Arrow."""
    bits = np.packbits(mask, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)])


def as_mask(array: pa.BooleanArray) -> Mask:
    """Truth values of Arrow, none of them null."""
    if not len(array):
        return np.empty(0, dtype=bool)
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(bool)


def of_bytes(values: Sequence[bytes]) -> pa.LargeBinaryArray:
    """Byte strings, one value each."""
    offsets = np.fromiter(accumulate(map(len, values), initial=0), dtype=np.int64, count=len(values) + 1)
    return binary_array(offsets, b"".join(values))


def binary_array(offsets: Indexes, content: npt.NDArray[np.uint8] | bytes | memoryview) -> pa.LargeBinaryArray:
    """Byte strings that lie one after the other, by where they begin and end."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def empty_data(length: int) -> pa.LargeBinaryArray:
    """So many empty byte strings."""
    return binary_array(np.zeros(length + 1, dtype=np.int64), b"")

"""Change records of many rows at once, as one binary array, and their order in a session.

A record is glue (operation codes, type tags, numbers, lengths) around the bytes of texts and blobs. The glue of all
rows is laid out as a matrix of bytes; parts that a row does not have are cut out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.changesets._format.encoding import (
    FIRST_BUCKETS,
    HASH_MASK,
    TAG_BLOB,
    TAG_INTEGER,
    TAG_NULL,
    TAG_REAL,
    TAG_TEXT,
    TAG_UNDEFINED,
    bucket_count,
    hash_step,
)
from driftline.changesets._format.vectors import (
    Indexes,
    Mask,
    Numbers,
    Vector,
    as_numbers,
    binary_array,
    empty_data,
    of_mask,
)

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint32]

_THREE = np.uint32(3)
_HALF = np.uint32(16)
_LOW_HALF = np.uint32(0xFFFF)
_LONG = 64  # bytes; longer keys are hashed one by one


class RecordWriter:
    """Collects the fields of records, column by column, and joins them."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._glue: list[tuple[Bytes | int, Mask | None]] = []
        self._pieces: list[pa.LargeBinaryArray] = []

    def byte(self, value: Bytes | int) -> None:
        """One byte per record."""
        self._glue.append((value, None))

    def field(self, vector: Vector, present: Mask | None = None) -> None:
        """One field per record; `UNDEFINED` where it is not present."""
        tags = vector.tags
        if present is not None and not present.all():
            tags = np.where(present, tags, TAG_UNDEFINED).astype(np.uint8)
        self.byte(tags)
        for wanted, content, add in (
            ((TAG_INTEGER, TAG_REAL), vector.numbers, self._numbers),
            ((TAG_TEXT, TAG_BLOB), vector.data, self._data),
        ):
            rows: Any = tags in wanted if isinstance(tags, int) else (tags == wanted[0]) | (tags == wanted[1])
            if content is not None and np.any(rows):
                add(content, None if np.all(rows) else rows)

    def joined(self) -> pa.LargeBinaryArray:
        """All records."""
        self._flush()
        if len(self._pieces) == 1:
            return self._pieces[0]
        return pc.binary_join_element_wise(*self._pieces, empty_data(self._length))

    def _numbers(self, numbers: Numbers, rows: Mask | None) -> None:
        big_endian = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
        self._glue.append((big_endian, rows))

    def _data(self, data: pa.LargeBinaryArray, rows: Mask | None) -> None:
        if rows is not None:
            data = pc.if_else(of_mask(rows), data, empty_data(self._length))
        lengths = as_numbers(pc.binary_length(data))
        self._varint(lengths, rows)
        self._flush()
        self._pieces.append(data)

    def _varint(self, numbers: Numbers, rows: Mask | None) -> None:
        largest = int(numbers.max(initial=0))
        groups = max(1, -(-largest.bit_length() // 7))
        for group in range(groups - 1, 0, -1):
            has_group = numbers >> (7 * group) > 0
            self._glue.append((((numbers >> (7 * group)) & 0x7F | 0x80).astype(np.uint8), has_group))
        self._glue.append(((numbers & 0x7F).astype(np.uint8), rows))

    def _flush(self) -> None:
        if self._glue:
            self._pieces.append(_laid_out(self._length, self._glue))
            self._glue = []


def _laid_out(length: int, glue: Sequence[tuple[Bytes | int, Mask | None]]) -> pa.LargeBinaryArray:
    widths = [1 if isinstance(part, int) or part.ndim == 1 else part.shape[1] for part, _ in glue]
    matrix = np.empty((length, sum(widths)), dtype=np.uint8)
    kept = np.ones(matrix.shape, dtype=bool) if any(rows is not None for _, rows in glue) else None
    start = 0
    for (part, rows), width in zip(glue, widths, strict=True):
        end = start + width
        matrix[:, start:end] = part if isinstance(part, int) or part.ndim == 2 else part[:, None]
        if kept is not None and rows is not None:
            kept[:, start:end] = rows[:, None]
        start = end
    if kept is None:
        return binary_array(np.arange(length + 1, dtype=np.int64) * matrix.shape[1], matrix)
    lengths = np.count_nonzero(kept, axis=1)
    return binary_array(np.concatenate([[0], np.cumsum(lengths)]), matrix[kept])


def joined_fields(vectors: Iterable[Vector]) -> pa.LargeBinaryArray:
    """The encoded fields of each row, one after the other; equal bytes mean the same values of the same types."""
    columns = list(vectors)
    writer = RecordWriter(columns[0].length)
    for vector in columns:
        writer.field(vector)
    return writer.joined()


def content_of(records: pa.LargeBinaryArray) -> memoryview:
    """The bytes of all records in one piece."""
    _, offset_buffer, content_buffer = records.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)
    start, end = int(offsets[records.offset]), int(offsets[records.offset + len(records)])
    return memoryview(content_buffer)[start:end] if content_buffer is not None else memoryview(b"")


# The row order of a session (`encoding.py`), for arrays of keys.


def sequence_numbers(first_touch: Indexes, buckets: int) -> Indexes:
    """The place of keys within their chains, by their index in first-touch order.

    >>> sequence_numbers(np.arange(4), 256).tolist()
    [-1, -2, -3, -4]
    """
    # Stage k holds the keys from 64 << k to (128 << k) - 1; stage 0 also all earlier ones.
    stage_ends = np.array([FIRST_BUCKETS // 2 << stage for stage in range(63 - 7)], dtype=np.int64)
    stages = np.searchsorted(stage_ends, first_touch, side="right")
    last_stage = (buckets // FIRST_BUCKETS).bit_length() - 1
    is_young_first = (last_stage - stages) % 2 == 0
    return np.where(is_young_first, ~first_touch, first_touch)


def session_order(hashes: Hashes, *, event_after_last_key: bool) -> Indexes:
    """The order in which a session writes keys, given their hashes in first-touch order."""
    count = len(hashes)
    buckets = bucket_count(count, event_after_last_key=event_after_last_key)
    sequence = _chain_sequence(count, buckets)
    return sequence[stable_order(hashes[sequence] & np.uint32(buckets - 1))]


def stable_order(numbers: Hashes) -> Indexes:
    """The order that sorts 32-bit numbers and keeps equal ones as they are; two passes of NumPy's 16-bit radix sort."""
    order = np.argsort((numbers & _LOW_HALF).astype(np.uint16), kind="stable")
    high = (numbers >> _HALF).astype(np.uint16)
    return order if not high.any() else order[np.argsort(high[order], kind="stable")]


def _chain_sequence(count: int, buckets: int) -> Indexes:
    """All key indexes sorted by `sequence_numbers`, without sorting."""
    ends = []
    end = FIRST_BUCKETS // 2
    while end < buckets // 2:
        ends.append(end)
        end *= 2
    sequence = np.empty(0, dtype=np.int64)
    start = 0
    for end in [*ends, count]:
        sequence = np.concatenate([np.arange(end - 1, start - 1, -1, dtype=np.int64), sequence[::-1]])
        start = end
    return sequence


# Hashes of keys.


def hash_keys(key: Sequence[Vector]) -> Hashes:
    """The session's 32-bit hash of each row's key, columns in column order (changesets §2.1)."""
    hashes = np.zeros(key[0].length, dtype=np.uint32)
    for vector in key:
        hashes = _hash_column(hashes, vector)
    return hashes


def null_keys(key: Sequence[Vector]) -> Mask:
    """Where a key has a NULL in it; sessions do not record such rows."""
    found = np.zeros(key[0].length, dtype=bool)
    for vector in key:
        if vector.is_all(TAG_NULL) or not isinstance(vector.tags, int):
            found |= vector.has_tag(TAG_NULL)
    return found


def key_numbers(key: Sequence[Vector], hashes: Hashes) -> Indexes | None:
    """A number per distinct key in order of first appearance, or None when all keys are distinct.

    Different hashes prove different keys; only rows whose hashes meet are compared.
    """
    order = stable_order(hashes)
    meets_next = hashes[order[1:]] == hashes[order[:-1]]
    if not meets_next.any():
        return None
    is_suspect = np.zeros(len(hashes), dtype=bool)
    is_suspect[order[1:][meets_next]] = is_suspect[order[:-1][meets_next]] = True
    suspects = np.flatnonzero(is_suspect)
    texts = joined_fields([vector.take(suspects) for vector in key])
    codes = as_numbers(pc.dictionary_encode(texts).indices)
    _, first_of_code = np.unique(codes, return_index=True)
    if len(first_of_code) == len(codes):
        return None
    first_row = np.arange(len(hashes))
    first_row[suspects] = suspects[first_of_code[codes]]
    is_first = first_row == np.arange(len(hashes))
    return (np.cumsum(is_first) - 1)[first_row]


def _hash_column(hashes: Hashes, vector: Vector) -> Hashes:
    if isinstance(vector.tags, int):
        return _hash_tagged(hashes, vector, vector.tags)
    result = hashes.copy()
    for tag in np.unique(vector.tags).tolist():
        rows = np.flatnonzero(vector.tags == tag)
        result[rows] = _hash_tagged(hashes[rows], vector.take(rows), tag)
    return result


def _hash_tagged(hashes: Hashes, vector: Vector, tag: int) -> Hashes:
    hashes = _hash_step(hashes, np.uint32(tag))
    if tag in (TAG_INTEGER, TAG_REAL):
        assert vector.numbers is not None
        bits = vector.numbers.view(np.uint64)
        hashes = _hash_step(hashes, (bits & np.uint64(HASH_MASK)).astype(np.uint32))
        return _hash_step(hashes, (bits >> np.uint64(32)).astype(np.uint32))
    if tag in (TAG_TEXT, TAG_BLOB):
        return _hash_bytes(hashes, vector.data)
    return hashes


def _hash_step(hashes: Hashes, addend: Hashes | np.uint32) -> Hashes:
    return (hashes << _THREE) ^ hashes ^ addend


def _hash_bytes(hashes: Hashes, data: pa.LargeBinaryArray) -> Hashes:
    starts, lengths, content = byte_ranges(data)
    hashes = hashes.copy()
    for row in np.flatnonzero(lengths > _LONG).tolist():
        content_of_row = content[starts[row] : starts[row] + lengths[row]].tobytes()
        hashes[row] = reduce(hash_step, content_of_row, int(hashes[row]))
    lengths = np.where(lengths > _LONG, 0, lengths)
    shortest = int(lengths.min(initial=_LONG))
    for place in range(int(lengths.max(initial=0))):
        if place < shortest:
            hashes = _hash_step(hashes, content[starts + place].astype(np.uint32))
        else:
            rows = np.flatnonzero(lengths > place)
            hashes[rows] = _hash_step(hashes[rows], content[starts[rows] + place].astype(np.uint32))
    return hashes


def byte_ranges(data: pa.LargeBinaryArray) -> tuple[Indexes, Indexes, Bytes]:
    """Where each value's bytes start, how many they are, and the bytes of all."""
    _, offset_buffer, content_buffer = data.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[data.offset : data.offset + len(data) + 1]
    content = np.frombuffer(content_buffer, dtype=np.uint8) if content_buffer is not None else np.empty(0, np.uint8)
    return offsets[:-1], np.diff(offsets), content

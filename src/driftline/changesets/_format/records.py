"""The row order of a session: its hash table, in closed form.

SQLite keeps changed keys in a hash table and writes them bucket by bucket. The table starts with 256 buckets,
doubles before an event that finds it half full, and growth turns the chains around (changesets §2.1). Keys in
first-touch order fall into stages that end at 128, 256, 512, … keys; a chain holds the keys of the last stage, the last
but two, … from young to old, then the keys of the other stages from old to young. So a key's place is a sort key: its
bucket, then a signed sequence number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.changesets.arrow_buffers import Indexes, Mask, as_numbers
from driftline.changesets.format import FIRST_BUCKETS, HASH_MASK, TAG_BLOB, TAG_INTEGER, TAG_NULL, TAG_REAL, TAG_TEXT
from driftline.changesets.records import joined_fields
from driftline.changesets.vectors import Vector

Hashes = npt.NDArray[np.uint32]

_THREE = np.uint32(3)
_HALF = np.uint32(16)
_LOW_HALF = np.uint32(0xFFFF)


def hash_step(hashes: Hashes, addend: Hashes | np.uint32) -> Hashes:
    """One step of the session's hash, for many keys at once."""
    return (hashes << _THREE) ^ hashes ^ addend


def bucket_count(keys: int, *, event_after_last_key: bool) -> int:
    """How many buckets the table ends with, for a number of distinct keys.

    >>> bucket_count(128, event_after_last_key=False), bucket_count(128, event_after_last_key=True)
    (256, 512)
    >>> bucket_count(129, event_after_last_key=False)
    512
    """
    buckets = FIRST_BUCKETS
    while keys > buckets // 2 or (event_after_last_key and keys == buckets // 2):
        buckets *= 2
    return buckets


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


_LONG = 64  # bytes; longer keys are hashed one by one
_PERIOD = 16  # the hash's step, applied sixteen times, is the identity on 32 bits


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
    hashes = hash_step(hashes, np.uint32(tag))
    if tag in (TAG_INTEGER, TAG_REAL):
        assert vector.numbers is not None
        bits = vector.numbers.view(np.uint64)
        hashes = hash_step(hashes, (bits & np.uint64(HASH_MASK)).astype(np.uint32))
        return hash_step(hashes, (bits >> np.uint64(32)).astype(np.uint32))
    if tag in (TAG_TEXT, TAG_BLOB):
        return _hash_bytes(hashes, vector.data)
    return hashes


def _hash_bytes(hashes: Hashes, data: pa.LargeBinaryArray) -> Hashes:
    starts, lengths, content = byte_ranges(data)
    hashes = hashes.copy()
    for row in np.flatnonzero(lengths > _LONG).tolist():
        hashes[row] = _hash_long(int(hashes[row]), content[starts[row] : starts[row] + lengths[row]])
    lengths = np.where(lengths > _LONG, 0, lengths)
    shortest = int(lengths.min(initial=_LONG))
    for place in range(int(lengths.max(initial=0))):
        if place < shortest:
            hashes = hash_step(hashes, content[starts + place].astype(np.uint32))
        else:
            rows = np.flatnonzero(lengths > place)
            hashes[rows] = hash_step(hashes[rows], content[starts[rows] + place].astype(np.uint32))
    return hashes


def byte_ranges(data: pa.LargeBinaryArray) -> tuple[Indexes, Indexes, np.typing.NDArray[np.uint8]]:
    """Where each value's bytes start, how many they are, and the bytes of all."""
    _, offset_buffer, content_buffer = data.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[data.offset : data.offset + len(data) + 1]
    content = np.frombuffer(content_buffer, dtype=np.uint8) if content_buffer is not None else np.empty(0, np.uint8)
    return offsets[:-1], np.diff(offsets), content


def _hash_long(start: int, content: np.typing.NDArray[np.uint8]) -> int:
    """The hash of a long key: bytes that are sixteen steps apart meet the same step, so they are folded first."""
    padding = -len(content) % _PERIOD
    padded = np.concatenate([np.zeros(padding, dtype=np.uint8), content])
    folded = np.bitwise_xor.reduce(padded.reshape(-1, _PERIOD), axis=0)
    # The padding steps are undone by going on to a full period.
    value = start
    for _ in range(-padding % _PERIOD):
        value = ((value << 3) ^ value) & HASH_MASK
    for byte in folded.tolist():
        value = ((value << 3) ^ value ^ byte) & HASH_MASK
    return value

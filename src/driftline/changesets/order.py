"""The row order of a session: its hash table, in closed form.

SQLite keeps changed keys in a hash table and writes them bucket by bucket. The table starts with 256 buckets,
doubles before an event that finds it half full, and growth turns the chains around (rulings, "Row order of a
session"). Keys in first-touch order fall into stages that end at 128, 256, 512, … keys; a chain holds the keys of
the last stage, the last but two, … from young to old, then the keys of the other stages from old to young. So a
key's place is a sort key: its bucket, then a signed sequence number.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FIRST_BUCKETS = 256
HASH_MASK = 0xFFFFFFFF

Hashes = npt.NDArray[np.uint32]
Indexes = npt.NDArray[np.int64]

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

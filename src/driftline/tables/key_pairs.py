"""Kernel: which keys two sides share, by a hash table of plain arrays.

Keys are 64-bit hashes. In each round every row of B that is left writes its position into the slot that some bits of
its key name, and of several the last one stays; rows of A look into their slots. Rows of B that were overwritten, a few
in a hundred, come again with other bits, together with the rows of A that found nobody. That is a third of the work of
a general join, which also has to group, to grow and to gather.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

_SLOTS_PER_ROW = 4
_MOST_SLOT_BITS = 30
_BITS_PER_ROUND = 5  # how far the next round's bits are away; all 64 have been looked at after the last
_KEY_BITS = 64


def key_pairs(keys_a: Keys, keys_b: Keys) -> tuple[Positions, Positions] | None:
    """The positions in A and in B of every key that both have; None where a key repeats in B.

    >>> [part.tolist() for part in key_pairs(np.array([7, 8], np.uint64), np.array([9, 7], np.uint64))]
    [[0], [1]]
    """
    found_a, found_b = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    rows_a, rows_b = np.arange(len(keys_a)), np.arange(len(keys_b))
    for shift in range(0, _KEY_BITS, _BITS_PER_ROUND):
        if not len(keys_b):
            break
        bits = min((_SLOTS_PER_ROW * len(keys_b)).bit_length(), _MOST_SLOT_BITS)
        stored, lost = _store(keys_b, shift, bits)
        if lost is None:
            return None
        partner = stored.take(_slots(keys_a, shift, bits))
        meets = keys_b.take(partner) == keys_a
        met, alone = np.flatnonzero(meets), np.flatnonzero(~meets)
        found_a.append(rows_a.take(met))
        found_b.append(rows_b.take(partner.take(met)))
        rows_a, keys_a = rows_a.take(alone), keys_a.take(alone)
        rows_b, keys_b = rows_b.take(lost), keys_b.take(lost)
    # Equal keys share their slot in every round, so one of them stays in some round and the other sees it.
    assert not len(keys_b), "different keys differ in some bits"
    return np.concatenate(found_a), np.concatenate(found_b)


def _store(keys: Keys, shift: int, bits: int) -> tuple[Positions, Positions | None]:
    """A table of positions by slot (0 where nobody stands), and who was overwritten; None where a key repeats."""
    slots, positions = _slots(keys, shift, bits), np.arange(len(keys))
    table = np.zeros(1 << bits, np.int64)
    table[slots] = positions
    stayed = table.take(slots)
    lost = np.flatnonzero(stayed != positions)
    repeats = keys.take(stayed.take(lost)) == keys.take(lost)
    return table, None if repeats.any() else lost


def _slots(keys: Keys, shift: int, bits: int) -> Positions:
    """Some bits of each key; those beyond the last one come round to the first ones."""
    turned = (keys >> np.uint64(shift)) | (keys << np.uint64(_KEY_BITS - shift)) if shift else keys
    return (turned & np.uint64((1 << bits) - 1)).view(np.int64)

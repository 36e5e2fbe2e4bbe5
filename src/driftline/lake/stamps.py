"""Stamps as columns of integers: (hlc, client rank, mark), compared all at once.

Client ids order by UTF-16 code unit, so they are ranked once per fold and compared as integers. No stamp is hlc -1,
which is less than every stamp.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.canonical import utf16_sorted
from driftline.lake.columns import STAMP
from driftline.lake.stamped import as_dictionary

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NONE = -1


class ClientRanks:
    """All client ids of a fold in UTF-16 order; a rank stands for an id."""

    def __init__(self, arrays: Iterable[Any]) -> None:
        names: set[str] = set()
        for array in arrays:
            names.update(name for name in as_dictionary(array).dictionary.to_pylist() if name is not None)
        self.names = pa.array(utf16_sorted(names), pa.string())

    def ranks(self, clients: Any) -> npt.NDArray[np.int32]:
        """The ranks of a string or dictionary array; null is `NONE`."""
        encoded = as_dictionary(clients)
        places = pc.fill_null(pc.index_in(encoded.dictionary, value_set=self.names), NONE)
        indices = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
        ranked: npt.NDArray[np.int32] = np.append(places.to_numpy(zero_copy_only=False), np.int32(NONE))[indices]
        return np.where(_valid(clients), ranked, np.int32(NONE)) if clients.null_count else ranked

    def decode(self, ranks: Ints, absent: Bools) -> Any:
        """The client ids of ranks, null where there is no stamp."""
        indices = pa.array(ranks.astype(np.int32), mask=absent)
        return pa.DictionaryArray.from_arrays(indices, self.names).dictionary_decode()


@dataclass(slots=True)
class Stamps:
    """A column of stamps."""

    hlc: Ints
    client: npt.NDArray[Any]
    mark: Ints

    @classmethod
    def none(cls, count: int) -> Stamps:
        """`count` times no stamp."""
        return cls(np.full(count, NONE, np.int64), np.full(count, NONE, np.int32), np.zeros(count, np.int64))

    @classmethod
    def read(cls, array: Any, ranks: ClientRanks) -> Stamps:
        """A struct column of the files."""
        hlc, client, mark = (pc.struct_field(array, name) for name in ("hlc", "client", "mark"))
        return cls(_filled(hlc, NONE), ranks.ranks(client), _filled(mark, 0))

    def take(self, places: Ints) -> Stamps:
        """The stamps at `places`; none where a place is negative."""
        if len(self.hlc) == 0:
            return Stamps.none(len(places))
        safe = np.maximum(places, 0)
        hlc = np.where(places < 0, NONE, self.hlc[safe])
        return Stamps(hlc, self.client[safe], self.mark[safe])

    def where(self, chosen: Bools, other: Stamps) -> Stamps:
        """These stamps where `chosen`, the others elsewhere."""
        return Stamps(
            np.where(chosen, self.hlc, other.hlc),
            np.where(chosen, self.client, other.client),
            np.where(chosen, self.mark, other.mark),
        )

    def after(self, other: Stamps) -> Bools:
        """Where these stamps are greater."""
        greater: Bools = self.hlc > other.hlc
        ties = np.flatnonzero((self.hlc == other.hlc) & (self.hlc >= 0))
        if len(ties):
            mine, theirs = self.client[ties], other.client[ties]
            greater[ties] = (mine > theirs) | ((mine == theirs) & (self.mark[ties] > other.mark[ties]))
        return greater

    def latest(self, other: Stamps) -> Stamps:
        """The greater of two stamps, place by place."""
        return other.where(other.after(self), self)

    def order(self) -> Ints:
        """The places in ascending order of stamp."""
        if len(self.hlc) < 2 or bool((self.hlc[1:] > self.hlc[:-1]).all()):
            return np.arange(len(self.hlc))
        order = np.argsort(self.hlc, kind="stable")
        ordered = self.hlc[order]
        if bool((ordered[1:] != ordered[:-1]).all()):
            return order
        return np.lexsort((self.mark, self.client, self.hlc))

    def write(self, ranks: ClientRanks) -> Any:
        """The struct column for the files; no stamp is null."""
        absent = self.hlc < 0
        children = [
            pa.array(self.hlc, mask=absent),
            ranks.decode(self.client, absent),
            pa.array(self.mark, mask=absent),
        ]
        return pa.StructArray.from_arrays(children, fields=list(STAMP), mask=pa.array(absent))


def _filled(array: Any, value: int) -> Ints:
    filled: Ints = (pc.fill_null(array, value) if array.null_count else array).to_numpy(zero_copy_only=False)
    return filled


def _valid(array: Any) -> Bools:
    valid: Bools = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return valid

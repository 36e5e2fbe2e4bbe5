"""Stamps as columns of integers: (hlc, client rank, mark), compared all at once.

Client ids order by UTF-16 code unit, so they are ranked once per fold and compared as integers. No stamp is hlc -1,
which is less than every stamp.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core import utf16_sorted
from driftline.deltas import ColumnSchema
from driftline.errors import LakeError
from driftline.lake._store.rows import STAMP, escape_columns, one_array, string_texts, value_fields

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NONE = -1

_WORD_BITS = 64
_HEX_DIGITS = 16
_ID_DIGITS = 64
_SIGN = 1 << 63


class ClientRanks:
    """All client ids of a fold in UTF-16 order; a rank represents an id."""

    def __init__(self, arrays: Iterable[pa.Array]) -> None:
        names: set[str] = set()
        for array in arrays:
            names.update(name for name in as_dictionary(array).dictionary.to_pylist() if name is not None)
        self.names = pa.array(utf16_sorted(names), pa.string())

    def ranks(self, clients: pa.Array) -> npt.NDArray[np.int32]:
        """The ranks of a string or dictionary array; null is `NONE`."""
        encoded = as_dictionary(clients)
        positions = pc.fill_null(pc.index_in(encoded.dictionary, value_set=self.names), NONE)
        indices = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
        ranked: npt.NDArray[np.int32] = np.append(positions.to_numpy(zero_copy_only=False), np.int32(NONE))[indices]
        if clients.null_count:
            ranked = np.where(pc.is_valid(clients).to_numpy(zero_copy_only=False), ranked, np.int32(NONE))
        return ranked

    def decode(self, ranks: Ints, absent: Bools) -> pa.Array:
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
    def read(cls, array: pa.Array, ranks: ClientRanks) -> Stamps:
        """A struct column of the files."""
        hlc, client, mark = (pc.struct_field(array, name) for name in ("hlc", "client", "mark"))
        return cls(_filled(hlc, NONE), ranks.ranks(client), _filled(mark, 0))

    def take(self, positions: Ints) -> Stamps:
        """The stamps at `positions`; none where a position is negative."""
        if len(self.hlc) == 0:
            return Stamps.none(len(positions))
        safe = np.maximum(positions, 0)
        hlc = np.where(positions < 0, NONE, self.hlc[safe])
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
        """The greater of two stamps, one by one."""
        return other.where(other.after(self), self)

    def order(self) -> Ints:
        """The positions in ascending order of stamp."""
        if len(self.hlc) < 2 or bool((self.hlc[1:] > self.hlc[:-1]).all()):
            return np.arange(len(self.hlc))
        order = np.argsort(self.hlc, kind="stable")
        ordered = self.hlc[order]
        if bool((ordered[1:] != ordered[:-1]).all()):
            return order
        return np.lexsort((self.mark, self.client, self.hlc))

    def write(self, ranks: ClientRanks) -> pa.StructArray:
        """The struct column for the files; no stamp is null."""
        absent = self.hlc < 0
        children = [
            pa.array(self.hlc, mask=absent),
            ranks.decode(self.client, absent),
            pa.array(self.mark, mask=absent),
        ]
        return pa.StructArray.from_arrays(children, fields=list(STAMP), mask=pa.array(absent))


def ranked_stamps(columns: Sequence[pa.Array]) -> tuple[Ints, pa.Array]:
    """By column and row, the rank of a stamp among all of them (`NONE` where there is none); the JSON of each rank."""
    clients = ClientRanks(pc.struct_field(column, "client") for column in columns)
    read = [Stamps.read(column, clients) for column in columns]
    hlc, client, mark = (np.concatenate([getattr(each, name) for each in read]) for name in Stamps.__slots__)
    every = Stamps(hlc, client, mark)
    ordered = every.take(order := every.order())
    is_new = np.append(True, ordered.after(ordered.take(np.arange(len(order)) - 1))[1:])
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(is_new) - 1
    known = ordered.take(np.flatnonzero(is_new))
    marks = (known.mark.view(np.uint64) ^ np.uint64(_SIGN)).astype(">u8").tobytes().hex()
    digits = pa.array([marks[at : at + _HEX_DIGITS] for at in range(0, len(marks), _HEX_DIGITS)], pa.string())
    names = string_texts(clients.decode(known.client, known.hlc < 0))
    texts = pc.binary_join_element_wise(
        '["', pa.array(known.hlc).cast(pa.string()), '",', names, ',"', digits, '"]', ""
    )
    return np.where(hlc < 0, NONE, ranks).reshape(len(columns), -1), texts


def _filled(array: pa.Array, value: int) -> Ints:
    filled: Ints = (pc.fill_null(array, value) if array.null_count else array).to_numpy(zero_copy_only=False)
    return filled


def id_prefixes(delta_ids: pa.Array) -> Ints:
    """The first 8 bytes of delta ids (whole ones, a string array) as signed integers in the same order.

    >>> id_prefixes(pa.array(["8000000000000000" + "0" * 48])).tolist()
    [0]
    """
    offsets = np.frombuffer(delta_ids.buffers()[1], np.int32)[delta_ids.offset : delta_ids.offset + len(delta_ids) + 1]
    if len(delta_ids) == 0:
        return np.empty(0, np.int64)
    if delta_ids.null_count or bool((np.diff(offsets) != _ID_DIGITS).any()):
        raise LakeError("a delta id is not 64 hexadecimal digits long", code="bad_delta_id")
    text = np.frombuffer(delta_ids.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    raw = np.ascontiguousarray(text.reshape(-1, _ID_DIGITS)[:, :_HEX_DIGITS])
    try:
        marks = np.frombuffer(binascii.unhexlify(raw.data), dtype=">u8").astype(np.uint64)
    except binascii.Error as error:
        raise LakeError(f"a delta id is not hexadecimal: {error}", code="bad_delta_id") from error
    return (marks ^ np.uint64(_SIGN)).view(np.int64)


def stamped_schema(columns: Sequence[ColumnSchema]) -> pa.Schema:
    """The Arrow schema of stamped deltas."""
    count = -(-max(len(columns), 1) // _WORD_BITS)
    words = [pa.field(f"present_{word}", pa.int64()) for word in range(count)]
    client = pa.dictionary(pa.int32(), pa.string())
    fixed = [("row_id", pa.string()), ("is_delete", pa.bool_()), ("hlc", pa.int64()), ("client", client)]
    return pa.schema([*fixed, ("mark", pa.int64()), *words, *value_fields(columns)])


def stamp_deltas(deltas: pa.Table, columns: Sequence[ColumnSchema]) -> pa.Table:
    """Rows of delta files (with an explicit schema) as stamped deltas."""
    table = deltas.combine_chunks() if isinstance(deltas, pa.Table) else pa.Table.from_batches([deltas])
    ops = as_dictionary(one_array(table["_op"]))
    words = presence_words(one_array(table["_columns"]), [column.name for column in columns])
    arrays = [
        one_array(table["_row_id"]),
        pc.equal(ops.dictionary, "DELETE").take(ops.indices),
        one_array(table["_hlc"]),
        as_dictionary(one_array(table["_client_id"])),
        pa.array(id_prefixes(one_array(table["_delta_id"]))),
        *(pa.array(words[:, word].view(np.int64)) for word in range(words.shape[1])),
        *(one_array(table[name]) for name in escape_columns(columns)),
    ]
    return pa.Table.from_arrays(arrays, schema=stamped_schema(columns))


def presence_words(named: pa.Array, names: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Which of `names` each list contains, as bits; other names are skipped."""
    words = np.zeros((len(named), -(-max(len(names), 1) // _WORD_BITS)), dtype=np.uint64)
    if not names or len(named) == 0:
        return words
    found = pc.index_in(named.flatten(), value_set=pa.array(names, pa.string()))
    codes = pc.fill_null(found, len(names)).to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(named).to_numpy(zero_copy_only=False)
    filled = np.flatnonzero(lengths)
    starts = (np.cumsum(lengths) - lengths)[filled]
    for word in range(words.shape[1] if len(starts) else 0):
        bits = np.zeros(len(names) + 1, dtype=np.uint64)  # of each name in this word, one more for other names
        for position in range(word * _WORD_BITS, min(len(names), (word + 1) * _WORD_BITS)):
            bits[position] = np.uint64(1 << (position % _WORD_BITS))
        words[filled, word] = np.bitwise_or.reduceat(bits[codes], starts)
    return words


def present(stamped: pa.Table, position: int) -> npt.NDArray[np.bool_]:
    """Which stamped deltas set the column at `position`."""
    word = ints(stamped[f"present_{position // _WORD_BITS}"])
    return ((word >> np.int64(position % _WORD_BITS)) & 1).astype(bool)


def ints(column: pa.ChunkedArray) -> Ints:
    """An integer column without nulls as a numpy array."""
    array: Ints = one_array(column).to_numpy(zero_copy_only=False)
    return array


def as_dictionary(array: pa.Array) -> pa.DictionaryArray:
    """A string array as a dictionary with 32-bit indices."""
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()

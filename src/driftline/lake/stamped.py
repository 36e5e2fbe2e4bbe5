"""Deltas in the compact form that folds: integers instead of hex ids, bits instead of lists of names.

A stamped table has the columns `row_id, is_delete, hlc, client, mark, present_0…` and the values; `client` is
dictionary-encoded, `mark` is the first 8 bytes of the delta id, bit k of the `present_` words says that the delta
sets column k.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.deltas import ColumnSchema
from driftline.errors import LakeError
from driftline.lake.columns import escaped, value_fields

Ints = npt.NDArray[np.int64]

_WORD_BITS = 64
_HEX_DIGITS = 16
_ID_DIGITS = 64
_SIGN = 1 << 63


def mark_of(delta_id: str) -> int:
    """The first 8 bytes of a delta id as a signed integer in the same order.

    >>> mark_of("8000000000000000" + "0" * 48)
    0
    """
    return int(delta_id[:_HEX_DIGITS], 16) - _SIGN


def marks_of(delta_ids: Any) -> Ints:
    """`mark_of` for a string array of whole ids."""
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


def stamped_schema(columns: Sequence[ColumnSchema]) -> Any:
    """The Arrow schema of stamped deltas."""
    words = [pa.field(f"present_{word}", pa.int64()) for word in range(_word_count(columns))]
    return pa.schema(
        [
            pa.field("row_id", pa.string()),
            pa.field("is_delete", pa.bool_()),
            pa.field("hlc", pa.int64()),
            pa.field("client", pa.dictionary(pa.int32(), pa.string())),
            pa.field("mark", pa.int64()),
            *words,
            *value_fields(columns),
        ]
    )


def stamp_deltas(deltas: Any, columns: Sequence[ColumnSchema]) -> Any:
    """Rows of delta files (with an explicit schema) as stamped deltas."""
    table = deltas.combine_chunks() if isinstance(deltas, pa.Table) else pa.Table.from_batches([deltas])
    words = presence_words(_one(table["_columns"]), [column.name for column in columns])
    arrays = [
        _one(table["_row_id"]),
        _equals(_one(table["_op"]), "DELETE"),
        _one(table["_hlc"]),
        as_dictionary(_one(table["_client_id"])),
        pa.array(marks_of(_one(table["_delta_id"]))),
        *(pa.array(words[:, word].view(np.int64)) for word in range(words.shape[1])),
        *(_one(table[name]) for name in escaped(columns)),
    ]
    return pa.Table.from_arrays(arrays, schema=stamped_schema(columns))


def presence_words(named: Any, names: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Which of `names` each list holds, as bits; names that are not asked for are passed over."""
    words = np.zeros((len(named), -(-max(len(names), 1) // _WORD_BITS)), dtype=np.uint64)
    if not names or len(named) == 0:
        return words
    found = pc.index_in(named.flatten(), value_set=pa.array(names, pa.string()))
    codes = pc.fill_null(found, len(names)).to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(named).to_numpy(zero_copy_only=False)
    filled = np.flatnonzero(lengths)
    starts = (np.cumsum(lengths) - lengths)[filled]
    for word in range(words.shape[1]):
        if len(starts):
            words[filled, word] = np.bitwise_or.reduceat(_bits_of_word(len(names), word)[codes], starts)
    return words


def _bits_of_word(names: int, word: int) -> npt.NDArray[np.uint64]:
    """For each name its bit in a word, 0 if it has none there; one more for names that are not asked for."""
    bits = np.zeros(names + 1, dtype=np.uint64)
    for position in range(word * _WORD_BITS, min(names, (word + 1) * _WORD_BITS)):
        bits[position] = np.uint64(1 << (position % _WORD_BITS))
    return bits


def present(stamped: Any, position: int) -> npt.NDArray[np.bool_]:
    """Which stamped deltas set the column at `position`."""
    word = ints(stamped[f"present_{position // _WORD_BITS}"])
    return ((word >> np.int64(position % _WORD_BITS)) & 1).astype(bool)


def ints(column: Any) -> Ints:
    """An integer column without nulls as a numpy array."""
    array: Ints = _one(column).to_numpy(zero_copy_only=False)
    return array


def as_dictionary(array: Any) -> Any:
    """A string array as a dictionary with 32-bit indices."""
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def _one(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _equals(array: Any, text: str) -> Any:
    encoded = as_dictionary(array)
    return pc.equal(encoded.dictionary, text).take(encoded.indices)


def _word_count(columns: Sequence[ColumnSchema]) -> int:
    return -(-max(len(columns), 1) // _WORD_BITS)

"""Columns of SQLite values: a type tag per row, eight bytes for numbers, a binary array for texts and blobs. And
their records: change records of many rows at once, as one binary array, and their order in a session.

A record is glue (operation codes, type tags, numbers, lengths) around the bytes of texts and blobs. The glue of all
rows is laid out as a matrix of bytes; parts that a row does not have are cut out of it.

Affinities are applied to whole columns at once; only the values that need SQLite's rules are converted one by one.

>>> as_numbers(of_numbers(np.array([3, 1]))).tolist(), as_mask(of_mask(np.array([True, False]))).tolist()
([3, 1], [True, False])
>>> import pyarrow.compute as pc
>>> as_mask(pc.equal(of_bytes([b"a", b""]), of_bytes([b"", b""]))).tolist()
[False, True]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.changesets._format.table import (
    FIRST_BUCKETS,
    HASH_MASK,
    UNDEFINED,
    Affinity,
    Field,
    Tag,
    apply_affinity,
    bucket_count,
    decode_text,
    decode_varint,
    encode_text,
    hash_step,
    integer_too_large,
    refused,
)

Mask = npt.NDArray[np.bool_]
Indexes = npt.NDArray[np.int64]
Tags = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

_TAGS: dict[type, int] = {
    int: Tag.INTEGER,
    float: Tag.REAL,
    str: Tag.TEXT,
    bytes: Tag.BLOB,
    type(None): Tag.NULL,
    type(UNDEFINED): Tag.UNDEFINED,
}
_TEXT_TYPES = (pa.string(), pa.large_string(), pa.string_view())
_BLOB_TYPES = (pa.binary(), pa.large_binary(), pa.binary_view())
PLAIN_INTEGER = r"^(?:0|-?[1-9][0-9]{0,17})$"
_TWO_TO_63 = float(1 << 63)


# NumPy arrays as Arrow arrays and back, over the same memory. `pa.array`, `pa.scalar` and `np.asarray` of Arrow arrays
# import pandas where it is installed, which takes longer than the diff of a small database; buffers do not.


def of_numbers(numbers: npt.NDArray[np.integer[Any]]) -> pa.Int64Array:
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
    offsets = np.fromiter(accumulate(map(len, values), initial=0), dtype=np.int64, count=len(values) + 1)
    return binary_array(offsets, b"".join(values))


def binary_array(offsets: Indexes, content: npt.NDArray[np.uint8] | bytes | memoryview) -> pa.LargeBinaryArray:
    """Byte strings that lie one after the other, by where they begin and end."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def empty_data(length: int) -> pa.LargeBinaryArray:
    return binary_array(np.zeros(length + 1, dtype=np.int64), b"")


@dataclass(frozen=True, slots=True)
class Vector:
    """One column: `numbers` holds integers and the bits of reals, `data` texts and blobs (empty elsewhere).

    A column of one type keeps a single tag. `numbers` or `data` is None where no value needs it.
    """

    length: int
    tags: Tags | int
    numbers: Numbers | None = None
    data: pa.LargeBinaryArray | None = None

    def has_tag(self, tag: int) -> Mask:
        if isinstance(self.tags, int):
            return np.full(self.length, self.tags == tag)
        found: Mask = self.tags == tag
        return found

    def is_all(self, tag: int) -> bool:
        """Whether the column is known to hold this type only."""
        return isinstance(self.tags, int) and self.tags == tag

    def tag_array(self) -> Tags:
        return np.full(self.length, self.tags, dtype=np.uint8) if isinstance(self.tags, int) else self.tags

    def take(self, rows: npt.NDArray[np.int64]) -> Vector:
        return Vector(
            len(rows),
            self.tags if isinstance(self.tags, int) else self.tags[rows],
            None if self.numbers is None else self.numbers[rows],
            None if self.data is None else self.data.take(of_numbers(rows)),
        )

    def reals(self) -> npt.NDArray[np.float64]:
        assert self.numbers is not None
        return self.numbers.view(np.float64)

    def value(self, row: int) -> Field:
        tag = self.tags if isinstance(self.tags, int) else int(self.tags[row])
        if tag == Tag.INTEGER:
            assert self.numbers is not None
            return int(self.numbers[row])
        if tag == Tag.REAL:
            return float(self.reals()[row])
        if tag in (Tag.TEXT, Tag.BLOB):
            assert self.data is not None
            data: bytes = self.data[row].as_py()
            return decode_text(data) if tag == Tag.TEXT else data
        return None if tag == Tag.NULL else UNDEFINED


def differ(left: Vector, right: Vector, *, bitwise: bool = False) -> Mask:
    """Where two columns differ as SQLite sees it: by type, numerically, or by bytes (changesets §1.5).

    `bitwise` distinguishes 0.0 from -0.0, as the session does when it looks for a key.
    """
    if isinstance(left.tags, int) and isinstance(right.tags, int):
        if left.tags != right.tags:
            return np.ones(left.length, dtype=bool)
        changed = np.zeros(left.length, dtype=bool)
    else:
        changed = left.tag_array() != right.tag_array()
    if left.numbers is not None and right.numbers is not None:
        both_integer = left.has_tag(Tag.INTEGER) & right.has_tag(Tag.INTEGER)
        both_real = left.has_tag(Tag.REAL) & right.has_tag(Tag.REAL)
        other_bits = left.numbers != right.numbers
        # 0.0 and -0.0 have different bits and are the same number.
        other_real = other_bits if bitwise else left.reals() != right.reals()
        changed |= (both_integer & other_bits) | (both_real & other_real)
    if left.data is not None and right.data is not None:
        changed |= as_mask(pc.not_equal(left.data, right.data))
    return changed


def concatenated(vectors: Sequence[Vector]) -> Vector:
    if len(vectors) == 1:
        return vectors[0]
    tags = {vector.tags if isinstance(vector.tags, int) else -1 for vector in vectors}
    same = tags.pop() if len(tags) == 1 else -1
    numbers = data = None
    if any(vector.numbers is not None for vector in vectors):
        numbers = np.concatenate([np.zeros(v.length, np.int64) if v.numbers is None else v.numbers for v in vectors])
    if any(vector.data is not None for vector in vectors):
        data = pa.concat_arrays([empty_data(v.length) if v.data is None else v.data for v in vectors])
    all_tags = same if same >= 0 else np.concatenate([vector.tag_array() for vector in vectors])
    return Vector(sum(vector.length for vector in vectors), all_tags, numbers, data)


def from_values(values: Sequence[Field]) -> Vector:
    kinds = set(map(type, values))
    if kinds == {int}:
        return Vector(len(values), Tag.INTEGER, _integers(values))
    if kinds == {str}:
        return Vector(len(values), Tag.TEXT, None, of_bytes([_bytes_of(value) for value in values]))
    tags = np.fromiter((_TAGS[type(value)] for value in values), dtype=np.uint8, count=len(values))
    numbers = data = None
    if kinds & {int, float}:
        numbers = np.zeros(len(values), dtype=np.int64)
        numbers[tags == Tag.INTEGER] = _integers([value for value in values if type(value) is int])
        reals = np.array([value for value in values if type(value) is float], dtype=np.float64)
        numbers[tags == Tag.REAL] = reals.view(np.int64)
        # NaN is NULL (changesets §1.3).
        tags[np.flatnonzero(tags == Tag.REAL)[np.isnan(reals)]] = Tag.NULL
    if kinds & {str, bytes}:
        data = of_bytes([_bytes_of(value) for value in values])
    return compacted(tags, numbers, data)


def from_fields(fields: Sequence[bytes]) -> Vector:
    """A column from encoded fields, bit by bit as they are."""
    tags = np.frombuffer(bytes([field[0] for field in fields]), dtype=np.uint8)
    is_number = (tags == Tag.INTEGER) | (tags == Tag.REAL)
    numbers = np.zeros(len(fields), dtype=np.int64)
    content = b"".join(field[1:] for field, number in zip(fields, is_number.tolist(), strict=True) if number)
    numbers[is_number] = np.frombuffer(content, dtype=">i8")
    data = [field[decode_varint(field, 1)[1] :] if field[0] in (Tag.TEXT, Tag.BLOB) else b"" for field in fields]
    return compacted(tags, numbers, of_bytes(data))


def compacted(tags: Tags, numbers: Numbers | None, data: pa.LargeBinaryArray | None) -> Vector:
    """A vector that keeps a single tag where all rows agree."""
    one = int(tags[0]) if len(tags) and (tags == tags[0]).all() else None
    return Vector(len(tags), tags if one is None else one, numbers, data)


def _integers(values: Sequence[Any]) -> Numbers:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        raise integer_too_large(max(values, key=abs)) from None


def _bytes_of(value: Field) -> bytes:
    if isinstance(value, str):
        return encode_text(value)
    return value if isinstance(value, bytes) else b""


def from_arrow(column: pa.ChunkedArray | pa.Array, *, name: str = "column") -> Vector:
    """A column from Arrow data: integers, booleans, floats, strings and binaries, with nulls and dictionaries."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_null(kind):
        return Vector(len(array), Tag.NULL)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        try:
            return _with_nulls(array, Tag.INTEGER, numbers=as_numbers(_filled(array, 0)))
        except pa.ArrowInvalid:
            raise refused("integer_too_large", f'column "{name}" has integers beyond 64 bits') from None
    if pa.types.is_floating(kind):
        filled = _filled(array, float("nan")).cast(pa.float64())
        reals = np.frombuffer(filled.buffers()[1], np.float64)[filled.offset : filled.offset + len(filled)]
        tags = np.where(np.isnan(reals), Tag.NULL, Tag.REAL).astype(np.uint8)
        return compacted(tags, reals.view(np.int64), None)
    if kind in _TEXT_TYPES or kind in _BLOB_TYPES or pa.types.is_fixed_size_binary(kind):
        if kind in _TEXT_TYPES:
            array = array.cast(pa.large_string())
        data = array.cast(pa.large_binary())
        return _with_nulls(array, Tag.TEXT if kind in _TEXT_TYPES else Tag.BLOB, data=_filled(data, b""))
    raise refused(
        "invalid_value",
        f'column "{name}": SQLite has no type for {kind}, cast it to an integer, a float, a string or binary first',
    )


def _filled(array: pa.Array, value: object) -> pa.Array:
    return array.fill_null(value) if array.null_count else array


def _with_nulls(
    array: pa.Array, tag: int, *, numbers: Numbers | None = None, data: pa.LargeBinaryArray | None = None
) -> Vector:
    if not array.null_count:
        return Vector(len(array), tag, numbers, data)
    nulls = as_mask(array.is_null())
    return compacted(np.where(nulls, Tag.NULL, tag).astype(np.uint8), numbers, data)


# Affinities of whole columns.


def with_affinity(vector: Vector, affinity: Affinity) -> Vector:
    """The column as SQLite stores it."""
    if affinity is Affinity.BLOB or vector.length == 0:
        return vector
    if affinity is Affinity.TEXT:
        return _one_by_one(vector, vector.has_tag(Tag.INTEGER) | vector.has_tag(Tag.REAL), affinity)
    plain = matching(vector, PLAIN_INTEGER)
    if plain.any():
        assert vector.data is not None
        rows = np.flatnonzero(plain)
        numbers = as_numbers(vector.data.take(of_numbers(rows)).cast(pa.large_string()))
        vector = _replaced(vector, rows, Vector(len(rows), Tag.INTEGER, numbers))
    vector = _one_by_one(vector, vector.has_tag(Tag.TEXT), affinity)
    return _integers_to_reals(vector) if affinity is Affinity.REAL else _whole_reals_to_integers(vector)


def matching(vector: Vector, pattern: str) -> Mask:
    """Where a value is a text that matches; the pattern is ASCII, so that bytes that are not UTF-8 do not."""
    texts = vector.has_tag(Tag.TEXT)
    if vector.data is None or not texts.any():
        return texts
    return texts & as_mask(pc.match_substring_regex(vector.data, pattern))


def _one_by_one(vector: Vector, mask: Mask, affinity: Affinity) -> Vector:
    """Replace the values of some rows by what `apply_affinity` makes of them."""
    rows = np.flatnonzero(mask)
    values = [apply_affinity(vector.value(row), affinity) for row in rows.tolist()]
    return _replaced(vector, rows, from_values(values)) if values else vector


def _replaced(vector: Vector, rows: Indexes, values: Vector) -> Vector:
    if len(rows) == vector.length:
        return values
    sources = np.arange(vector.length)
    sources[rows] = vector.length + np.arange(len(rows))
    both = concatenated([vector, values]).take(sources)
    return compacted(both.tag_array(), both.numbers, both.data)


def _integers_to_reals(vector: Vector) -> Vector:
    integers = vector.has_tag(Tag.INTEGER)
    if vector.numbers is None:
        return vector
    # Adding 0.0 turns -0.0 into 0.0: SQLite stores it as integer 0.
    reals = np.where(integers, vector.numbers.astype(np.float64), vector.reals() + 0.0)
    tags = np.where(integers, Tag.REAL, vector.tag_array()).astype(np.uint8)
    return compacted(tags, reals.view(np.int64), vector.data)


def _whole_reals_to_integers(vector: Vector) -> Vector:
    if vector.numbers is None or vector.is_all(Tag.INTEGER):
        return vector
    reals = np.where(vector.has_tag(Tag.REAL), vector.reals(), 0.5)
    whole = (np.abs(reals) < _TWO_TO_63) & (np.floor(reals) == reals)
    numbers = np.where(whole, np.where(whole, reals, 0.0).astype(np.int64), vector.numbers)
    tags = np.where(whole, Tag.INTEGER, vector.tag_array()).astype(np.uint8)
    return compacted(tags, numbers, vector.data)


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
        self._glue.append((value, None))

    def field(self, vector: Vector, present: Mask | None = None) -> None:
        """One field per record; `UNDEFINED` where it is not present."""
        tags = vector.tags
        if present is not None and not present.all():
            tags = np.where(present, tags, Tag.UNDEFINED).astype(np.uint8)
        self.byte(tags)
        for selected, content, add in (
            ((Tag.INTEGER, Tag.REAL), vector.numbers, self._numbers),
            ((Tag.TEXT, Tag.BLOB), vector.data, self._data),
        ):
            rows: Any = tags in selected if isinstance(tags, int) else (tags == selected[0]) | (tags == selected[1])
            if content is not None and np.any(rows):
                add(content, None if np.all(rows) else rows)

    def joined(self) -> pa.LargeBinaryArray:
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
    starts, lengths, content = byte_ranges(records)
    return content[starts[0] : starts[-1] + lengths[-1]].data if len(starts) else memoryview(b"")


# The row order of a session (`table.py`), for arrays of keys.


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
    stages = (buckets // FIRST_BUCKETS).bit_length() - 1
    sequence = np.empty(0, dtype=np.int64)
    for end in [*(FIRST_BUCKETS // 2 << stage for stage in range(stages)), count]:
        sequence = np.concatenate([np.arange(end - 1, len(sequence) - 1, -1, dtype=np.int64), sequence[::-1]])
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
        if vector.is_all(Tag.NULL) or not isinstance(vector.tags, int):
            found |= vector.has_tag(Tag.NULL)
    return found


def key_numbers(key: Sequence[Vector], hashes: Hashes) -> Indexes | None:
    """A number per distinct key in order of first appearance, or None when all keys are distinct.

    Different hashes prove different keys; only rows whose hashes meet are compared.
    """
    suspects = rows_that_meet(hashes)
    if not len(suspects):
        return None
    texts = joined_fields([vector.take(suspects) for vector in key])
    codes = as_numbers(pc.dictionary_encode(texts).indices)
    _, first_of_code = np.unique(codes, return_index=True)
    if len(first_of_code) == len(codes):
        return None
    first_row = np.arange(len(hashes))
    first_row[suspects] = suspects[first_of_code[codes]]
    is_first = first_row == np.arange(len(hashes))
    return (np.cumsum(is_first) - 1)[first_row]


def rows_that_meet(hashes: Hashes) -> Indexes:
    """The rows that share their hash with another one, in their order."""
    order = stable_order(hashes)
    meets_next = hashes[order[1:]] == hashes[order[:-1]]
    return np.unique(np.concatenate([order[1:][meets_next], order[:-1][meets_next]]))


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
    if tag in (Tag.INTEGER, Tag.REAL):
        assert vector.numbers is not None
        bits = vector.numbers.view(np.uint64)
        hashes = _hash_step(hashes, (bits & np.uint64(HASH_MASK)).astype(np.uint32))
        return _hash_step(hashes, (bits >> np.uint64(32)).astype(np.uint32))
    if tag in (Tag.TEXT, Tag.BLOB):
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

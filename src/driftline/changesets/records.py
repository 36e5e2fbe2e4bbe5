"""Change records of many rows at once, as one binary array.

A record is glue (operation codes, type tags, numbers, lengths) around the bytes of texts and blobs. The glue of all
rows is laid out as a matrix of bytes; parts that a row does not have are cut out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.changesets.arrow_buffers import Mask, as_numbers, binary_array, empty_data, of_mask
from driftline.changesets.format import TAG_BLOB, TAG_INTEGER, TAG_REAL, TAG_TEXT, TAG_UNDEFINED
from driftline.changesets.vectors import Numbers, Vector

Bytes = npt.NDArray[np.uint8]


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
        if present is not None:
            tags = np.where(present, tags, TAG_UNDEFINED).astype(np.uint8)
        self.byte(tags)
        if vector.numbers is not None and _any_of(tags, TAG_INTEGER, TAG_REAL):
            self._numbers(vector.numbers, _rows_of(tags, TAG_INTEGER, TAG_REAL))
        if vector.data is not None and _any_of(tags, TAG_TEXT, TAG_BLOB):
            self._data(vector.data, _rows_of(tags, TAG_TEXT, TAG_BLOB))

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


def _rows_of(tags: Bytes | int, *wanted: int) -> Mask | None:
    """Where the tags are among the wanted ones; None for everywhere."""
    if isinstance(tags, int):
        return None
    mask = _is_among(tags, wanted)
    return None if mask.all() else mask


def _any_of(tags: Bytes | int, *wanted: int) -> bool:
    return tags in wanted if isinstance(tags, int) else bool(_is_among(tags, wanted).any())


def _is_among(tags: Bytes, wanted: tuple[int, ...]) -> Mask:
    mask: Mask = tags == wanted[0]
    for tag in wanted[1:]:
        mask |= tags == tag
    return mask


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

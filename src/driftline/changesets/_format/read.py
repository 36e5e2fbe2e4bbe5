"""Reading changeset bytes: sections, records and fields, every length checked against what is there.

A file in memory and a stream are read by the same loop (`walk`): it sees a window of the bytes, and where a record
runs over the window's end it reads more.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from driftline.changesets._format.table import (
    CHANGESET_MARKER,
    DELETE,
    INSERT,
    KIND_NAMES,
    MAX_COLUMNS,
    PATCHSET_MARKER,
    UNDEFINED,
    UPDATE,
    Field,
    Operation,
    Table,
    Tag,
    TruncatedChangesetError,
    decode_text,
    decode_varint,
    folded,
    refused,
)
from driftline.core import without_collection
from driftline.errors import CorruptChangesetError

MARKERS = (CHANGESET_MARKER, PATCHSET_MARKER)
_read_integer = struct.Struct(">q").unpack_from
_read_real = struct.Struct(">d").unpack_from
_BLOCK_BYTES = 1 << 20
_WIDTHS = (1, 9, 9, 0, 0, 1)  # bytes of a field by its tag; texts and blobs have a length

Read = Callable[[int], bytes]


class Header(NamedTuple):
    """A section's header: which format, which table, and the offset of its first record."""

    marker: int
    table: Table
    end: int


def read_next_header(data: bytes, offset: int, previous: Header | None) -> Header:
    """The header that must stand at `offset`, of the same format as the one before."""
    if data[offset] not in MARKERS:
        what = "a change before any table header" if data[offset] in KIND_NAMES else "not a changeset or patchset"
        raise CorruptChangesetError(what, offset=offset)
    columns, place = decode_varint(data, offset + 1)
    if not 0 < columns <= MAX_COLUMNS:
        raise CorruptChangesetError(f"a table of {columns} columns", offset=offset + 1)
    flags = data[place : place + columns]
    name_end = data.find(0, place + columns)
    if len(flags) < columns or name_end < 0:
        raise TruncatedChangesetError("the data ends inside a table header", offset=len(data))
    if previous is not None and previous.marker != data[offset]:
        raise CorruptChangesetError("changeset and patchset sections in one file", offset=offset)
    name = decode_text(data[place + columns : name_end])
    return Header(data[offset], Table.from_header(name, tuple(flags)), name_end + 1)


class Window:
    """The part of a stream that is being read: its bytes, and where they begin in the stream."""

    def __init__(self, data: bytes, read: Read | None = None, tables: Iterable[Table] = ()) -> None:
        self.data = data
        self.offset = 0
        self.base = 0
        self.named = {folded(table.name): table for table in tables}
        self._read = read

    def refill(self) -> bool:
        """Drop what was read and take more from the stream; False at its end."""
        rest = len(self.data) - self.offset
        # Blocks grow with a value that does not fit into one, so that large values are not copied again and again.
        block = b"" if self._read is None else self._read(max(_BLOCK_BYTES, rest))
        if not block:
            return False
        self.data = self.data[self.offset :] + block
        self.base += self.offset
        self.offset = 0
        return True


def walk(window: Window) -> Iterator[tuple[Header, list[int]]]:
    """All sections of a stream: where records begin in the window, some at a time, and where the last one ends."""
    header: Header | None = None
    while window.offset < len(window.data) or window.refill():
        try:
            if header is None or window.data[window.offset] in MARKERS:
                header = read_next_header(window.data, window.offset, header)
                window.offset = header.end
                header = header._replace(table=_known_table(header.table, window.named))
                continue
            places = _record_places(window.data, window.offset, header)
            window.offset = places[-1]
            yield header, places
        except TruncatedChangesetError as error:
            if not window.refill():
                raise _moved(error, window.base) from None
        except CorruptChangesetError as error:
            raise _moved(error, window.base) from None


def _record_places(data: bytes, start: int, header: Header) -> list[int]:
    """Where the records from `start` on begin, as far as they are whole, and where the last one ends.

    All fields are passed over in this one loop, without calls, because it is what reading spends its time on. Running
    over the end raises IndexError, or gives an offset beyond it.
    """
    fields = {kind: range(count(header.table)) for kind, (count, _) in _shapes(header).items()}
    widths = _WIDTHS
    places = [start]
    add = places.append
    size = len(data)
    with suppress(IndexError, CorruptChangesetError):
        while start < size and data[start] in fields:
            offset = start + 2
            for _ in fields[data[start]]:
                width = widths[data[offset]]
                if width:
                    offset += width
                else:
                    length = data[offset + 1]
                    offset += 2
                    if length >= 0x80:
                        length, offset = decode_varint(data, offset - 1)
                    offset += length
            if offset > size:
                break
            add(offset)
            start = offset
    if len(places) == 1:
        _raise_damage(data, start, header)
    return places


def _raise_damage(data: bytes, offset: int, header: Header) -> None:
    """Tell what is wrong with the record at `offset`."""
    kind = data[offset]
    if kind not in KIND_NAMES:
        raise CorruptChangesetError(f"unknown operation 0x{kind:02x}", offset=offset)
    offset += 2
    for _ in range(_shapes(header)[kind][0](header.table)):
        offset = _field_end(data, offset)


def _known_table(table: Table, named: Mapping[str, Table]) -> Table:
    known = named.get(folded(table.name))
    if known is None:
        return table
    if known.key_flags != table.key_flags:
        raise refused(
            "schema_mismatch",
            f"table {table.name} of the file has {table.width} columns and key {table.key_flags}, "
            f"the schema has {known.width} and {known.key_flags}",
        )
    return known


def _moved(error: CorruptChangesetError, base: int) -> CorruptChangesetError:
    """The error with its offset in the whole stream."""
    return CorruptChangesetError(error.message.rpartition(" (at byte")[0], offset=error.offset + base)


def operations_in(window: Window) -> Iterator[tuple[Header, list[Operation]]]:
    """The operations of a stream, some at a time."""
    for header, places in walk(window):
        with without_collection():  # operations refer to no containers that refer back
            operations = _operations(window.data, places, header)
        yield header, operations


def records_in(window: Window) -> Iterator[tuple[Header, list[bytes]]]:
    """The records of a stream as bytes with the headers they stand under, some at a time."""
    for header, places in walk(window):
        yield header, [window.data[start:end] for start, end in pairwise(places)]


def with_headers(records: Iterable[tuple[Header, bytes]]) -> Iterator[bytes]:
    """Records as they stand in a file: behind the header of their section where it begins."""
    current: Header | None = None
    for header, record in records:
        yield record if header is current else header.table.header(header.marker) + record
        current = header


def key_of(record: bytes, header: Header) -> bytes:
    """The encoded key of a record: all of a patchset's DELETE, and of the first row elsewhere."""
    if record[0] == DELETE and header.marker == PATCHSET_MARKER:
        return record[2:]
    key = b""
    offset = 2
    for index in range(header.table.key_indexes[-1] + 1):
        end = _field_end(record, offset)
        if header.table.key_flags[index]:
            key += record[offset:end]
        offset = end
    return key


def split_fields(data: bytes) -> list[bytes]:
    """Encoded fields that stand one behind the other."""
    fields = []
    offset = 0
    while offset < len(data):
        end = _field_end(data, offset)
        fields.append(data[offset:end])
        offset = end
    return fields


def _operations(data: bytes, places: list[int], header: Header) -> list[Operation]:
    """The operations of whole records; their values are read in one loop."""
    table = header.table
    shapes = _shapes(header)
    integer, real, text, undefined, with_length = Tag.INTEGER, Tag.REAL, Tag.TEXT, Tag.UNDEFINED, (Tag.TEXT, Tag.BLOB)
    operations: list[Operation] = []
    for start, end in pairwise(places):
        fields: list[Field] = []
        append = fields.append
        offset = start + 2
        while offset < end:
            tag = data[offset]
            if tag == integer:
                append(_read_integer(data, offset + 1)[0])
                offset += 9
            elif tag in with_length:
                length = data[offset + 1]
                offset += 2
                if length >= 0x80:
                    length, offset = decode_varint(data, offset - 1)
                content = data[offset : offset + length]
                append(decode_text(content) if tag == text else content)
                offset += length
            elif tag == real:
                # NaN reads as NULL, and -0.0 keeps its sign (changesets §1.3).
                number = _read_real(data, offset + 1)[0]
                append(number if number == number else None)
                offset += 9
            else:
                append(UNDEFINED if tag == undefined else None)
                offset += 1
        operations.append(shapes[data[start]][1](table, fields, data[start + 1]))
    return operations


def _shapes(header: Header) -> dict[int, tuple[_Count, _Build]]:
    return _PATCHSET_SHAPES if header.marker == PATCHSET_MARKER else _CHANGESET_SHAPES


def _patch_update(table: Table, fields: list[Field], indirect: int) -> Operation:
    flags = table.key_flags
    old = tuple(field if flag else UNDEFINED for field, flag in zip(fields, flags, strict=True))
    new = tuple(UNDEFINED if flag else field for field, flag in zip(fields, flags, strict=True))
    return Operation(table, "update", old, new, indirect, True)


def _patch_delete(table: Table, fields: list[Field], indirect: int) -> Operation:
    values = iter(fields)
    old = tuple(next(values) if flag else UNDEFINED for flag in table.key_flags)
    return Operation(table, "delete", old, None, indirect, True)


_Count = Callable[[Table], int]
_Build = Callable[[Table, list[Field], int], Operation]

# For each kind: how many fields a record has, and what is made of them.
_CHANGESET_SHAPES: dict[int, tuple[_Count, _Build]] = {
    INSERT: (lambda t: t.width, lambda t, fields, flag: Operation(t, "insert", None, tuple(fields), flag)),
    DELETE: (lambda t: t.width, lambda t, fields, flag: Operation(t, "delete", tuple(fields), None, flag)),
    UPDATE: (
        lambda t: 2 * t.width,
        lambda t, fields, flag: Operation(t, "update", tuple(fields[: t.width]), tuple(fields[t.width :]), flag),
    ),
}
_PATCHSET_SHAPES: dict[int, tuple[_Count, _Build]] = {
    INSERT: (lambda t: t.width, lambda t, fields, flag: Operation(t, "insert", None, tuple(fields), flag, True)),
    DELETE: (lambda t: len(t.key_indexes), _patch_delete),
    UPDATE: (lambda t: t.width, _patch_update),
}


def _field_end(data: bytes, offset: int) -> int:
    if offset >= len(data):
        raise TruncatedChangesetError("the data ends inside a change", offset=len(data))
    tag = data[offset]
    if tag >= len(_WIDTHS):
        raise CorruptChangesetError(f"unknown type 0x{tag:02x}", offset=offset)
    end = offset + _WIDTHS[tag]
    if not _WIDTHS[tag]:
        length, start = decode_varint(data, offset + 1)
        end = start + length
    if end > len(data):
        raise TruncatedChangesetError(
            f"a value of {end - offset} bytes where {len(data) - offset} are left", offset=offset
        )
    return end

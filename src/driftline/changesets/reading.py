"""Reading changeset bytes: sections, records and fields, every length checked against what is there."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from driftline.changesets.format import (
    CHANGESET_MARKER,
    DELETE,
    INSERT,
    KIND_NAMES,
    MAX_COLUMNS,
    PATCHSET_MARKER,
    TAG_BLOB,
    TAG_INTEGER,
    TAG_NULL,
    TAG_REAL,
    TAG_TEXT,
    TAG_UNDEFINED,
    UNDEFINED,
    UPDATE,
    Field,
    decode_text,
    decode_varint,
)
from driftline.changesets.operations import Operation
from driftline.changesets.table import Table
from driftline.errors import CorruptChangesetError

_MARKERS = (CHANGESET_MARKER, PATCHSET_MARKER)
_read_integer = struct.Struct(">q").unpack_from
_read_real = struct.Struct(">d").unpack_from


class Header(NamedTuple):
    """A section's header: which format, which table, and the offset of its first record."""

    marker: int
    table: Table
    end: int


class RawRecord(NamedTuple):
    """A record with its fields still encoded, for merging and inverting byte by byte."""

    kind: int
    indirect: int
    old: list[bytes] | None
    new: list[bytes] | None


def read_header(data: bytes, offset: int) -> Header:
    """The table header at `offset`."""
    columns, place = decode_varint(data, offset + 1)
    if not 0 < columns <= MAX_COLUMNS:
        raise CorruptChangesetError(f"a table of {columns} columns", offset=offset + 1)
    flags = data[place : place + columns]
    name_end = data.find(0, place + columns)
    if len(flags) < columns or name_end < 0:
        raise CorruptChangesetError("the data ends inside a table header", offset=len(data))
    name = decode_text(data[place + columns : name_end])
    return Header(data[offset], Table.from_header(name, tuple(flags)), name_end + 1)


def read_headers(data: bytes, offset: int, previous: Header | None) -> Header:
    """The header that must stand at `offset`, of the same format as the one before."""
    if data[offset] not in _MARKERS:
        what = "a change before any table header" if data[offset] in KIND_NAMES else "not a changeset or patchset"
        raise CorruptChangesetError(what, offset=offset)
    header = read_header(data, offset)
    if previous is not None and previous.marker != header.marker:
        raise CorruptChangesetError("changeset and patchset sections in one file", offset=offset)
    return header


def read_operations(data: bytes, header: Header) -> tuple[list[Operation], int]:
    """The operations of a section and the offset behind it."""
    operations: list[Operation] = []
    offset = header.end
    try:
        with _without_garbage_collection():
            offset = _read_quickly(data, header, operations)
    except (IndexError, struct.error, CorruptChangesetError, UnicodeDecodeError):
        # The careful reader starts again and finds out what is wrong, or that it is text that is not UTF-8.
        operations.clear()
    while offset < len(data) and data[offset] not in _MARKERS:
        record, offset = read_raw_record(data, offset, header)
        operations.append(_decoded(record, header))
    return operations, offset


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Operations refer to no containers that refer back, yet the collector would walk all of them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read_quickly(data: bytes, header: Header, operations: list[Operation]) -> int:
    """Append operations as long as all is well; the offset behind the last one.

    All fields are read in this one loop, without calls, because it is what parsing spends its time on. Running over
    the end raises IndexError or struct.error, or gives an offset beyond it.
    """
    table = header.table
    shapes = _PATCHSET_SHAPES if header.marker == PATCHSET_MARKER else _CHANGESET_SHAPES
    plans = {kind: (range(count(table)), build) for kind, (count, build) in shapes.items()}
    add = operations.append
    start = header.end
    size = len(data)
    while start < size and data[start] in plans:
        places, build = plans[data[start]]
        offset = start + 2
        fields: list[Field] = []
        append = fields.append
        for _ in places:
            tag = data[offset]
            if tag == TAG_INTEGER:
                append(_read_integer(data, offset + 1)[0])
                offset += 9
            elif tag == TAG_TEXT:
                length = data[offset + 1]
                offset += 2
                if length >= 0x80:
                    length, offset = decode_varint(data, offset - 1)
                end = offset + length
                append(data[offset:end].decode())
                offset = end
            elif tag == TAG_UNDEFINED:
                append(UNDEFINED)
                offset += 1
            else:
                field, offset = _read_field(data, offset)
                append(field)
        if offset > size:
            break
        if build is _insert:
            add(Operation(table, "insert", None, tuple(fields), data[start + 1]))
        else:
            add(build(table, fields, data[start + 1]))
        start = offset
    return start


def _read_field(data: bytes, offset: int) -> tuple[Field, int]:
    end = _field_end(data, offset)
    return decode_field(data[offset:end]), end


def decode_field(field: bytes) -> Field:
    """The value of an encoded field; NaN reads as NULL, and -0.0 keeps its sign (rulings, "Format")."""
    tag = field[0]
    if tag == TAG_INTEGER:
        return int(_read_integer(field, 1)[0])
    if tag == TAG_REAL:
        real: float = _read_real(field, 1)[0]
        return real if real == real else None
    if tag in (TAG_TEXT, TAG_BLOB):
        content = field[decode_varint(field, 1)[1] :]
        return decode_text(content) if tag == TAG_TEXT else content
    return None if tag == TAG_NULL else UNDEFINED


def _decoded(record: RawRecord, header: Header) -> Operation:
    shapes = _PATCHSET_SHAPES if header.marker == PATCHSET_MARKER else _CHANGESET_SHAPES
    fields = [decode_field(field) for field in (*(record.old or ()), *(record.new or ()))]
    return shapes[record.kind][1](header.table, fields, record.indirect)


def _insert(table: Table, fields: list[Field], indirect: int) -> Operation:
    return Operation(table, "insert", None, tuple(fields), indirect)


def _delete(table: Table, fields: list[Field], indirect: int) -> Operation:
    return Operation(table, "delete", tuple(fields), None, indirect)


def _update(table: Table, fields: list[Field], indirect: int) -> Operation:
    width = len(fields) // 2
    return Operation(table, "update", tuple(fields[:width]), tuple(fields[width:]), indirect)


def _patch_delete(table: Table, fields: list[Field], indirect: int) -> Operation:
    values = iter(fields)
    old = tuple(next(values) if flag else UNDEFINED for flag in table.key_flags)
    return Operation(table, "delete", old, None, indirect)


def _patch_update(table: Table, fields: list[Field], indirect: int) -> Operation:
    flags = table.key_flags
    old = tuple(field if flag else UNDEFINED for field, flag in zip(fields, flags, strict=True))
    new = tuple(UNDEFINED if flag else field for field, flag in zip(fields, flags, strict=True))
    return Operation(table, "update", old, new, indirect)


_Count = Callable[[Table], int]
_Build = Callable[[Table, list[Field], int], Operation]

# For each kind: how many fields a record has, and what is made of them.
_CHANGESET_SHAPES: dict[int, tuple[_Count, _Build]] = {
    INSERT: (lambda table: table.width, _insert),
    DELETE: (lambda table: table.width, _delete),
    UPDATE: (lambda table: 2 * table.width, _update),
}
_PATCHSET_SHAPES: dict[int, tuple[_Count, _Build]] = {
    INSERT: (lambda table: table.width, _insert),
    DELETE: (lambda table: len(table.key_indexes), _patch_delete),
    UPDATE: (lambda table: table.width, _patch_update),
}


def raw_records(data: bytes) -> Iterator[tuple[Header, RawRecord]]:
    """All records with the headers they stand under, fields still encoded."""
    offset = 0
    header: Header | None = None
    while offset < len(data):
        if header is None or data[offset] in _MARKERS:
            header = read_headers(data, offset, header)
            offset = header.end
            continue
        record, offset = read_raw_record(data, offset, header)
        yield header, record


def read_raw_record(data: bytes, offset: int, header: Header) -> tuple[RawRecord, int]:
    """The record at `offset`, and the offset behind it."""
    kind = data[offset]
    if kind not in KIND_NAMES:
        raise CorruptChangesetError(f"unknown operation 0x{kind:02x}", offset=offset)
    if offset + 1 >= len(data):
        raise CorruptChangesetError("the data ends inside a change", offset=len(data))
    width = header.table.width
    is_patchset = header.marker == PATCHSET_MARKER
    place = offset + 2
    old = new = None
    if kind == DELETE or (kind == UPDATE and not is_patchset):
        old, place = _raw_fields(data, place, len(header.table.key_indexes) if is_patchset else width)
    if kind != DELETE:
        new, place = _raw_fields(data, place, width)
    return RawRecord(kind, data[offset + 1], old, new), place


def _raw_fields(data: bytes, offset: int, width: int) -> tuple[list[bytes], int]:
    fields = []
    for _ in range(width):
        end = _field_end(data, offset)
        fields.append(data[offset:end])
        offset = end
    return fields, offset


def _field_end(data: bytes, offset: int) -> int:
    if offset >= len(data):
        raise CorruptChangesetError("the data ends inside a change", offset=len(data))
    tag = data[offset]
    if tag in (TAG_UNDEFINED, TAG_NULL):
        return offset + 1
    if tag in (TAG_INTEGER, TAG_REAL):
        end = offset + 9
    elif tag in (TAG_TEXT, TAG_BLOB):
        length, start = decode_varint(data, offset + 1)
        end = start + length
    else:
        raise CorruptChangesetError(f"unknown type 0x{tag:02x}", offset=offset)
    if end > len(data):
        raise CorruptChangesetError(
            f"a value of {end - offset} bytes where {len(data) - offset} are left", offset=offset
        )
    return end

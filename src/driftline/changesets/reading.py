"""Reading changeset bytes: sections, records and fields, every length checked against what is there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
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
    Row,
    decode_text,
    decode_varint,
)
from driftline.changesets.operations import Operation
from driftline.changesets.table import Table
from driftline.errors import CorruptChangesetError

_WITH_LENGTH = (TAG_TEXT, TAG_BLOB)
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
    offset = header.end
    operations: list[Operation] = []
    table = header.table
    width = table.width
    read_changes = _PATCHSET_READERS if header.marker == PATCHSET_MARKER else _CHANGESET_READERS
    size = len(data)
    while offset < size:
        reader = read_changes.get(data[offset])
        if reader is None:
            if data[offset] in _MARKERS:
                break
            raise CorruptChangesetError(f"unknown operation 0x{data[offset]:02x}", offset=offset)
        try:
            operation, end = reader(data, offset, table, width)
        except (IndexError, struct.error):
            end = size + 1
        if end > size:
            raise _damage(data, offset, header)
        operations.append(operation)
        offset = end
    return operations, offset


def _damage(data: bytes, offset: int, header: Header) -> CorruptChangesetError:
    """The precise error for a record that the quick reader could not read: read again with care."""
    try:
        read_raw_record(data, offset, header)
    except CorruptChangesetError as error:
        return error
    raise AssertionError("a record was refused and then read")


def _read_row(data: bytes, offset: int, width: int) -> tuple[Row, int]:
    """Quick reading: running over the end raises IndexError or struct.error, or gives an offset beyond it."""
    fields: list[Field] = []
    append = fields.append
    for _ in range(width):
        tag = data[offset]
        if tag == TAG_INTEGER:
            append(_read_integer(data, offset + 1)[0])
            offset += 9
        elif tag in _WITH_LENGTH:
            length = data[offset + 1]
            offset += 2
            if length >= 0x80:
                length, offset = decode_varint(data, offset - 1)
            end = offset + length
            append(decode_text(data[offset:end]) if tag == TAG_TEXT else data[offset:end])
            offset = end
        elif tag == TAG_UNDEFINED:
            append(UNDEFINED)
            offset += 1
        elif tag == TAG_REAL:
            real = _read_real(data, offset + 1)[0]
            append(real if real == real else None)
            offset += 9
        elif tag == TAG_NULL:
            append(None)
            offset += 1
        else:
            raise CorruptChangesetError(f"unknown type 0x{tag:02x}", offset=offset)
    return tuple(fields), offset


def _read_insert(data: bytes, offset: int, table: Table, width: int) -> tuple[Operation, int]:
    new, end = _read_row(data, offset + 2, width)
    return Operation(table, "insert", None, new, data[offset + 1]), end


def _read_delete(data: bytes, offset: int, table: Table, width: int) -> tuple[Operation, int]:
    old, end = _read_row(data, offset + 2, width)
    return Operation(table, "delete", old, None, data[offset + 1]), end


def _read_update(data: bytes, offset: int, table: Table, width: int) -> tuple[Operation, int]:
    old, middle = _read_row(data, offset + 2, width)
    new, end = _read_row(data, middle, width)
    return Operation(table, "update", old, new, data[offset + 1]), end


def _read_patch_delete(data: bytes, offset: int, table: Table, width: int) -> tuple[Operation, int]:
    key, end = _read_row(data, offset + 2, len(table.key_indexes))
    values = iter(key)
    old = tuple(next(values) if flag else UNDEFINED for flag in table.key_flags)
    return Operation(table, "delete", old, None, data[offset + 1]), end


def _read_patch_update(data: bytes, offset: int, table: Table, width: int) -> tuple[Operation, int]:
    row, end = _read_row(data, offset + 2, width)
    flags = table.key_flags
    old = tuple(field if flag else UNDEFINED for field, flag in zip(row, flags, strict=True))
    new = tuple(UNDEFINED if flag else field for field, flag in zip(row, flags, strict=True))
    return Operation(table, "update", old, new, data[offset + 1]), end


_CHANGESET_READERS = {INSERT: _read_insert, DELETE: _read_delete, UPDATE: _read_update}
_PATCHSET_READERS = {INSERT: _read_insert, DELETE: _read_patch_delete, UPDATE: _read_patch_update}


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

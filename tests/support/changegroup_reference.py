"""Whole files merged and inverted record by record: the reference for SQLite's streams, which driftline uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driftline.changesets._format.changegroup import Group
from driftline.changesets._format.encoding import (
    CHANGESET_MARKER,
    DELETE,
    ENCODED_UNDEFINED,
    INSERT,
    PATCHSET_MARKER,
    UPDATE,
)
from driftline.changesets._format.read import Header, RawRecord, raw_records
from driftline.changesets._format.table import patchset_not_invertible


def merged(files: Iterable[bytes]) -> bytes:
    """One file that does what these files do one after the other."""
    group = Group()
    for data in files:
        for header, record in raw_records(data):
            group.add(header, record)
    return bytes(group)


def inverted(data: bytes) -> bytes:
    """The changeset that undoes this one (changesets §3.3)."""
    return b"".join(_inverted_pieces(data))


def _inverted_pieces(data: bytes) -> Iterator[bytes]:
    current: Header | None = None
    for header, record in raw_records(data):
        if header.marker == PATCHSET_MARKER:
            raise patchset_not_invertible()
        if header is not current:
            current = header
            yield header.table.header(CHANGESET_MARKER)
        yield from _inverted_record(header, record)


def _inverted_record(header: Header, record: RawRecord) -> Iterator[bytes]:
    if record.kind != UPDATE:
        yield bytes([INSERT if record.kind == DELETE else DELETE, record.indirect])
        yield from record.old or record.new or ()
        return
    assert record.old is not None
    assert record.new is not None
    flags = header.table.key_flags
    yield bytes([UPDATE, record.indirect])
    yield from (old if flag else new for old, new, flag in zip(record.old, record.new, flags, strict=True))
    yield from (ENCODED_UNDEFINED if flag else old for old, flag in zip(record.old, flags, strict=True))

"""Undoing a changeset: the same rows in the same order, each change the other way round."""

from __future__ import annotations

from collections.abc import Iterator

from driftline.changesets.format import CHANGESET_MARKER, DELETE, ENCODED_UNDEFINED, INSERT, PATCHSET_MARKER, UPDATE
from driftline.changesets.reading import Header, RawRecord, raw_records
from driftline.errors import ChangesetError


def inverted(data: bytes) -> bytes:
    """The changeset that undoes this one (rulings, "Invert")."""
    return b"".join(_inverted_pieces(data))


def _inverted_pieces(data: bytes) -> Iterator[bytes]:
    current: Header | None = None
    for header, record in raw_records(data):
        if header.marker == PATCHSET_MARKER:
            raise ChangesetError(
                "a patchset cannot be inverted: it does not hold the old values", code="patchset_not_invertible"
            )
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

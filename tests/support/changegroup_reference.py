"""Whole files merged and inverted record by record: the reference for SQLite's streams, which driftline uses.

The hash table is the session's, but an existing entry is unlinked, merged with the new change and put at the head
of its chain again, or dropped (changesets §2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import NamedTuple

from driftline.changesets._format.read import Header, Window, records_in, split_fields
from driftline.changesets._format.streams import mixed_formats, other_shape
from driftline.changesets._format.table import (
    CHANGESET_MARKER,
    DELETE,
    ENCODED_UNDEFINED,
    FIRST_BUCKETS,
    INSERT,
    PATCHSET_MARKER,
    UPDATE,
    Table,
    Tag,
    decode_varint,
    folded,
    hash_step,
    patchset_not_invertible,
)


def hash_fields(fields: Iterable[bytes]) -> int:
    """The session's hash of the encoded fields of a key."""
    value = 0
    for part in fields:
        value = hash_step(value, part[0])
        if part[0] in (Tag.INTEGER, Tag.REAL):
            value = hash_step(hash_step(value, int.from_bytes(part[5:], "big")), int.from_bytes(part[1:5], "big"))
        elif part[0] in (Tag.TEXT, Tag.BLOB):
            value = reduce(hash_step, part[decode_varint(part, 1)[1] :], value)
    return value


class RawRecord(NamedTuple):
    """A record with its fields still encoded."""

    kind: int
    indirect: int
    old: list[bytes] | None
    new: list[bytes] | None


def raw_records(data: bytes) -> Iterator[tuple[Header, RawRecord]]:
    """All records with the headers they stand under."""
    for header, records in records_in(Window(data)):
        for record in records:
            fields, kind = split_fields(record[2:]), record[0]
            whole_update = kind == UPDATE and header.marker == CHANGESET_MARKER
            count = header.table.width if whole_update else len(fields) if kind == DELETE else 0
            yield header, RawRecord(kind, record[1], fields[:count] or None, fields[count:] or None)


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


Fields = list[bytes]
_Key = tuple[bytes, ...]


class Group:
    """The tables met so far, in first-touch order."""

    def __init__(self) -> None:
        self._marker: int | None = None
        self._tables: dict[str, Entries] = {}

    def add(self, header: Header, record: RawRecord) -> None:
        """Merge one change."""
        if self._marker not in (None, header.marker):
            raise mixed_formats()
        self._marker = header.marker
        name = folded(header.table.name)
        entries = self._tables.get(name)
        if entries is None:
            entries = self._tables[name] = Entries(header.table, header.marker == PATCHSET_MARKER)
        elif entries.table.key_flags != header.table.key_flags:
            raise other_shape(header.table)
        entries.add(record)

    def __bytes__(self) -> bytes:
        marker = self._marker or CHANGESET_MARKER
        return b"".join(piece for entries in self._tables.values() for piece in entries.pieces(marker))


class Entries:
    """The changes of one table in a simulated hash table; dictionaries keep insertion order, so chains are dicts."""

    def __init__(self, table: Table, is_patchset: bool) -> None:
        self.table = table
        self._merger = Merger(table, is_patchset)
        self._chains: list[dict[_Key, RawRecord]] = [{} for _ in range(FIRST_BUCKETS)]
        self._hashes: dict[_Key, int] = {}

    def add(self, record: RawRecord) -> None:
        """Take a change in, merged with the one of its row."""
        self.grow()
        key = self._merger.key(record)
        key_hash = self._hashes.get(key)
        if key_hash is None:
            key_hash = hash_fields(key)
        chain = self._chains[key_hash % len(self._chains)]
        existing = chain.pop(key, None)
        result: RawRecord | None = record
        if existing is not None:
            del self._hashes[key]
            result = self._merger.merge(existing, record)
        if result is not None:
            chain[key] = result
            self._hashes[key] = key_hash

    def pieces(self, marker: int) -> Iterator[bytes]:
        """The section, in the order of the hash table."""
        if self._hashes:
            yield self.table.header(marker)
        for chain in self._chains:
            for record in reversed(chain.values()):
                yield bytes([record.kind, record.indirect])
                yield from record.old or ()
                yield from record.new or ()

    def grow(self) -> None:
        """Double the hash table where it is half full, as every event does before it is looked at."""
        if len(self._hashes) < len(self._chains) // 2:
            return
        grown: list[dict[_Key, RawRecord]] = [{} for _ in range(2 * len(self._chains))]
        for chain in self._chains:
            for key in reversed(chain):
                grown[self._hashes[key] % len(grown)][key] = chain[key]
        self._chains = grown


class Merger:
    """What two changes of one row are together (changesets §3.1)."""

    def __init__(self, table: Table, is_patchset: bool) -> None:
        self.table = table
        self._is_patchset = is_patchset

    def key(self, record: RawRecord) -> _Key:
        """The encoded key of a change."""
        if self._is_patchset and record.old is not None:
            return tuple(record.old)
        fields = record.new if record.old is None else record.old
        assert fields is not None
        return tuple(fields[index] for index in self.table.key_indexes)

    def merge(self, existing: RawRecord, new: RawRecord) -> RawRecord | None:
        """One change that does what both do, or nothing."""
        merge = _MERGES.get((existing.kind, new.kind))
        if merge is None:
            return existing
        return merge(self, existing, new, int(bool(existing.indirect and new.indirect)))

    def _insert_update(self, existing: RawRecord, new: RawRecord, indirect: int) -> RawRecord | None:
        assert existing.new is not None
        assert new.new is not None
        return RawRecord(INSERT, indirect, None, _over(existing.new, new.new))

    def _insert_delete(self, existing: RawRecord, new: RawRecord, indirect: int) -> RawRecord | None:
        return None

    def _update_update(self, existing: RawRecord, new: RawRecord, indirect: int) -> RawRecord | None:
        assert existing.new is not None
        assert new.new is not None
        if self._is_patchset:
            return RawRecord(UPDATE, indirect, None, _over(existing.new, new.new))
        assert existing.old is not None
        assert new.old is not None
        return self._update(_over(new.old, existing.old), _over(existing.new, new.new), indirect)

    def _update_delete(self, existing: RawRecord, new: RawRecord, indirect: int) -> RawRecord | None:
        assert new.old is not None
        if self._is_patchset or existing.old is None:
            return RawRecord(DELETE, indirect, new.old, None)
        return RawRecord(DELETE, indirect, _over(new.old, existing.old), None)

    def _delete_insert(self, existing: RawRecord, new: RawRecord, indirect: int) -> RawRecord | None:
        assert existing.old is not None
        assert new.new is not None
        if self._is_patchset:
            return RawRecord(UPDATE, indirect, None, new.new)
        return self._update(existing.old, new.new, indirect)

    def _update(self, old: Fields, new: Fields, indirect: int) -> RawRecord | None:
        """An UPDATE of what differs, or nothing."""
        flags = self.table.key_flags
        changed = [not flag and before != after for before, after, flag in zip(old, new, flags, strict=True)]
        if not any(changed):
            return None
        kept = [b if flag or c else ENCODED_UNDEFINED for b, c, flag in zip(old, changed, flags, strict=True)]
        given = [a if c else ENCODED_UNDEFINED for a, c in zip(new, changed, strict=True)]
        return RawRecord(UPDATE, indirect, kept, given)


# All other pairs keep the existing change whole, with its own indirect flag.
_Merge = Callable[[Merger, RawRecord, RawRecord, int], RawRecord | None]
_MERGES: dict[tuple[int, int], _Merge] = {
    (INSERT, UPDATE): Merger._insert_update,
    (INSERT, DELETE): Merger._insert_delete,
    (UPDATE, UPDATE): Merger._update_update,
    (UPDATE, DELETE): Merger._update_delete,
    (DELETE, INSERT): Merger._delete_insert,
}


def _over(below: Fields, above: Fields) -> Fields:
    """Fields of `above` where it defines them, else of `below`."""
    return [lower if upper == ENCODED_UNDEFINED else upper for lower, upper in zip(below, above, strict=True)]

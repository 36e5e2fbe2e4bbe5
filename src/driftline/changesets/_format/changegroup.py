"""Merging as SQLite does: record by record, field by field, compared bytewise.

The hash table is the session's, but an existing entry is unlinked, merged with the new change and put at the head
of its chain again, or dropped (changesets §2.2). SQLite's own streams do the same for whole files (`streams.py`); this
is for single operations, and the reference for the streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from driftline.changesets._format.encoding import (
    CHANGESET_MARKER,
    DELETE,
    ENCODED_UNDEFINED,
    FIRST_BUCKETS,
    HASH_MASK,
    INSERT,
    PATCHSET_MARKER,
    TAG_BLOB,
    TAG_INTEGER,
    TAG_REAL,
    TAG_TEXT,
    UPDATE,
    decode_varint,
    folded,
)
from driftline.changesets._format.read import Header, RawRecord, decoded, read_raw_record
from driftline.changesets._format.table import Operation, Table
from driftline.errors import ChangesetError

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


def mixed_formats() -> ChangesetError:
    """The error for files of both formats."""
    return ChangesetError("changesets and patchsets cannot be combined", code="mixed_formats")


def other_shape(table: Table) -> ChangesetError:
    """The error for a table that files describe differently."""
    return ChangesetError(
        f"table {table.name} has other columns or another key in another file: where columns were added, "
        "give the newer tables (--schema or --database)",
        code="schema_mismatch",
    )


def summed(first: Operation, second: Operation) -> Operation | None:
    """One operation that does what two of the same row do one after the other."""
    marker = PATCHSET_MARKER if first.patchset else CHANGESET_MARKER
    header = Header(marker, first.table, 0)
    records = [read_raw_record(operation.encode(), 0, header)[0] for operation in (first, second)]
    result = Merger(first.table, first.patchset).merge(*records)
    return None if result is None else decoded(result, header)


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
            key_hash = _hash_key(key)
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


def _hash_key(key: _Key) -> int:
    """The session's hash of encoded key values."""
    value = 0
    for field in key:
        tag = field[0]
        value = _step(value, tag)
        if tag in (TAG_INTEGER, TAG_REAL):
            value = _step(value, int.from_bytes(field[5:9], "big"))
            value = _step(value, int.from_bytes(field[1:5], "big"))
        elif tag in (TAG_TEXT, TAG_BLOB):
            _, start = decode_varint(field, 1)
            for byte in field[start:]:
                value = _step(value, byte)
    return value


def _step(value: int, addend: int) -> int:
    return ((value << 3) ^ value ^ addend) & HASH_MASK

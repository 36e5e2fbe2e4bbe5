"""One table's section of a changeset or patchset, from its entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from driftline.changesets.events import NOWHERE
from driftline.changesets.format import CHANGESET_MARKER, DELETE, INSERT, UPDATE
from driftline.changesets.records import RecordWriter, content_of
from driftline.changesets.session import Entries
from driftline.changesets.table import Table
from driftline.changesets.vectors import Indexes, Mask, Vector, differ


def section_pieces(table: Table, entries: Entries, marker: int) -> Iterator[bytes | memoryview]:
    """The bytes of a section, piece by piece; nothing when no change survives."""
    records = encoded_records(table, entries, marker)
    if not len(records):
        return
    yield table.header(marker)
    yield content_of(records)


def encoded_records(table: Table, entries: Entries, marker: int) -> pa.LargeBinaryArray:
    """The records of the entries, in their order; updates that change nothing are left out."""
    return encoded_entries(table, entries, marker)[0]


def encoded_entries(table: Table, entries: Entries, marker: int) -> tuple[pa.LargeBinaryArray, Indexes]:
    """The records of the entries, in their order, and which entries they belong to."""
    has_before, has_after = entries.before != NOWHERE, entries.after != NOWHERE
    places = [np.flatnonzero(~has_before), np.flatnonzero(~has_after), np.flatnonzero(has_before & has_after)]
    arrays = []
    kept = []
    for encode, rows in zip((_inserts, _deletes, _updates), places, strict=True):
        if len(rows):
            records, surviving = encode(table, entries, rows, marker)
            arrays.append(records)
            kept.append(surviving)
    if not arrays:
        return pa.array([], pa.large_binary()), np.empty(0, dtype=np.int64)
    if len(arrays) == 1:
        return arrays[0], kept[0]
    # Each kind is in output order already; this interleaves them.
    owners = np.concatenate(kept)
    order = np.argsort(owners, kind="stable")
    return pa.concat_arrays(arrays).take(pa.array(order)), owners[order]


def _inserts(table: Table, entries: Entries, rows: Indexes, marker: int) -> tuple[pa.LargeBinaryArray, Indexes]:
    writer = _opened(INSERT, entries, rows)
    for vector in entries.images:
        writer.field(vector.take(entries.after[rows]))
    return writer.joined(), rows


def _deletes(table: Table, entries: Entries, rows: Indexes, marker: int) -> tuple[pa.LargeBinaryArray, Indexes]:
    writer = _opened(DELETE, entries, rows)
    for vector, flag in zip(entries.images, table.key_flags, strict=True):
        # A patchset holds the key only, and nothing for the other columns.
        if flag or marker == CHANGESET_MARKER:
            writer.field(vector.take(entries.before[rows]))
    return writer.joined(), rows


def _updates(table: Table, entries: Entries, rows: Indexes, marker: int) -> tuple[pa.LargeBinaryArray, Indexes]:
    pairs = [(v.take(entries.before[rows]), v.take(entries.after[rows])) for v in entries.images]
    changed = [_changed(*pair, bool(flag)) for pair, flag in zip(pairs, table.key_flags, strict=True)]
    any_change = np.logical_or.reduce(changed)
    if not any_change.all():
        # An update that changes nothing writes nothing.
        surviving = np.flatnonzero(any_change)
        pairs = [(before.take(surviving), after.take(surviving)) for before, after in pairs]
        changed = [mask[surviving] for mask in changed]
        rows = rows[surviving]
    writer = _opened(UPDATE, entries, rows)
    if marker == CHANGESET_MARKER:
        _changeset_update(writer, pairs, changed, table.key_flags)
    else:
        for (_, after), mask, flag in zip(pairs, changed, table.key_flags, strict=True):
            writer.field(after, None if flag else _unless_all(mask))
    return writer.joined(), rows


def _changeset_update(
    writer: RecordWriter, pairs: Sequence[tuple[Vector, Vector]], changed: Sequence[Mask], flags: Sequence[int]
) -> None:
    for (before, _), mask, flag in zip(pairs, changed, flags, strict=True):
        writer.field(before, None if flag else _unless_all(mask))
    for (_, after), mask, flag in zip(pairs, changed, flags, strict=True):
        if flag:
            writer.byte(0)
        else:
            writer.field(after, _unless_all(mask))


def _changed(before: Vector, after: Vector, is_key: bool) -> Mask:
    """Where the column counts as changed; unknown old values (patchsets by key) always do."""
    if is_key:
        return np.zeros(before.length, dtype=bool)
    return differ(before, after) & ~after.has_tag(0)


def _unless_all(mask: Mask) -> Mask | None:
    return None if mask.all() else mask


def _opened(kind: int, entries: Entries, rows: Indexes) -> RecordWriter:
    writer = RecordWriter(len(rows))
    writer.byte(kind)
    indirect = entries.indirect[rows]
    writer.byte(indirect.astype(np.uint8) if indirect.any() else 0)
    return writer

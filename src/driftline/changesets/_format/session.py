"""A session's view of a table's events: a log of row images, then one entry per touched key in SQLite's order.

An event visits the key before it and the key after it. A key's entry compares its first image with its final state
(changesets §3.2); keys that were visited keep their place in the hash table even if nothing is left to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, starmap
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.changesets._format import records as columnar
from driftline.changesets._format.records import Hashes, Indexes, Mask, Vector, concatenated, from_values
from driftline.changesets._format.table import (
    CHANGESET_MARKER,
    DELETE,
    INSERT,
    UNDEFINED,
    UPDATE,
    Field,
    Row,
    Table,
    Tag,
    plain_value,
    refused,
)

NOWHERE = -1  # a row image that does not exist: the one before an insert, the one after a delete


@dataclass(frozen=True, slots=True)
class Events:
    """Events as arrays: `before` and `after` point into the rows of `images`, or are `NOWHERE`.

    A section is made of what is left of them: one for each key, with its first image and the final one.
    """

    images: list[Vector]
    before: Indexes
    after: Indexes
    indirect: Mask

    def __len__(self) -> int:
        return len(self.before)


class EventLog:
    """The events of one table; cheap to append to, turned into columns at the end."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.partial = False  # whether some images leave fields out (patchsets by key)
        self.aliases: list[Table] = []  # equal tables under which events came in, kept so that their ids stay theirs
        self._parts: list[Events] = []
        self._images: list[Row | None] = []  # of the last single events, those before and after in turn
        self._indirect: list[int] = []

    def append(self, before: Row | None, after: Row | None, indirect: bool) -> None:
        if indirect:
            self._indirect.append(len(self._images) // 2)
        self._images += (before, after)

    def extend(self, events: Iterable[tuple[Row | None, Row | None]]) -> None:
        """Note events that are not indirect, as rows before and after."""
        self._images += chain.from_iterable(events)

    def append_columns(self, before: list[Vector] | None, after: list[Vector] | None, indirect: bool = False) -> None:
        """Note the events of whole columns, of one kind: images before and after, None for inserts and deletes."""
        self._close_rows()
        sides = [side for side in (before, after) if side is not None]
        rows = np.arange(sides[0][0].length)
        nowhere = np.full(len(rows), NOWHERE)
        if len(rows):
            self._parts.append(
                Events(
                    [concatenated(columns) for columns in zip(*sides, strict=True)],
                    nowhere if before is None else rows,
                    nowhere if after is None else rows + len(rows) * (len(sides) - 1),
                    np.full(len(rows), indirect),
                )
            )

    def _close_rows(self) -> None:
        if not self._images:
            return
        there = np.array([image is not None for image in self._images])
        places = np.where(there, np.cumsum(there) - 1, NOWHERE)
        indirect = np.zeros(len(places) // 2, dtype=bool)
        indirect[self._indirect] = True
        rows = zip(*(image for image in self._images if image is not None), strict=True)
        self._parts.append(Events([from_values(column) for column in rows], places[0::2], places[1::2], indirect))
        self._images, self._indirect = [], []

    def collected(self) -> Events:
        """All events as arrays, affinities applied."""
        self._close_rows()
        if not self._parts:
            nothing = np.empty(0, dtype=np.int64)
            return Events([Vector(0, Tag.NULL) for _ in self.table.columns], nothing, nothing, nothing.astype(bool))
        firsts = accumulate((part.images[0].length for part in self._parts[:-1]), initial=0)
        moved = [
            [np.where(rows == NOWHERE, rows, rows + first) for rows in (part.before, part.after)]
            for part, first in zip(self._parts, firsts, strict=True)
        ]
        before, after = map(np.concatenate, zip(*moved, strict=True))
        stacked = [concatenated(columns) for columns in zip(*(part.images for part in self._parts), strict=True)]
        images = list(starmap(columnar.with_affinity, zip(stacked, self.table.affinities, strict=True)))
        return Events(images, before, after, np.concatenate([part.indirect for part in self._parts]))


def image_columns(table: Table, data: object, *, whole: bool = True) -> list[Vector]:
    """The table's columns from `data`, by name; `whole` refuses data that leaves columns out."""
    given = {table.index_of(name): column for name, column in _named_columns(data) if not table.is_generated(name)}
    lengths = {len(column) for column in given.values()}
    if len(lengths) != 1:
        raise refused("row_width_mismatch", f"table {table.name}: columns of different lengths, or none")
    vectors = []
    for index, name in enumerate(table.column_names):
        if index in given:
            vectors.append(_as_vector(given[index], name))
        elif whole or table.key_flags[index]:
            raise refused("missing_column", f'table {table.name}: the data has no column "{name}"')
        else:
            vectors.append(Vector(max(lengths), Tag.UNDEFINED))
    return vectors


def _named_columns(data: Any) -> list[tuple[str, Any]]:
    if isinstance(data, Mapping):
        return list(data.items())
    if not isinstance(data, pa.Table | pa.RecordBatch):
        # Polars frames, and anything else that implements the Arrow C stream.
        data = data.to_arrow() if hasattr(data, "to_arrow") else pa.table(data)
    return list(zip(data.schema.names, data.columns, strict=True))


def _as_vector(column: Any, name: str) -> Vector:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return columnar.from_arrow(column, name=name)
    if hasattr(column, "to_arrow"):
        return columnar.from_arrow(column.to_arrow(), name=name)
    if hasattr(column, "dtype") and column.dtype.kind in "biuf":
        return columnar.from_arrow(pa.array(column), name=name)
    return from_values([plain_value(value) for value in column])


# Entries: what is left of the events of each key.


@dataclass(frozen=True, slots=True)
class _Visits:
    """Each visit of an event to a key; an update that keeps its key is one visit that removes and adds."""

    event: Indexes
    removes: Mask
    adds: Mask
    key: Indexes | None  # number of the key in first-visit order; None when every visit has its own key
    hashes: Hashes  # per visit

    def __len__(self) -> int:
        return len(self.event)


def single_entries(table: Table, events: Events) -> tuple[Events, Hashes] | None:
    """An entry per event in event order with the hashes of their keys, or None when a key is met twice.

    For events that are ordered elsewhere, by `records.sequence_numbers`; keys must be whole and stay the same.
    """
    visits = _visits(table, events)
    if visits.key is not None or len(visits) != len(events):
        return None
    return _entries_of_single_visits(events, visits), visits.hashes


def consolidated(table: Table, events: Events, *, partial: bool = False) -> Events:
    """The entries for these events in output order; `partial` when images may leave fields out."""
    visits = _visits(table, events)
    firsts = np.arange(len(visits)) if visits.key is None else np.unique(visits.key, return_index=True)[1]
    is_followed = len(firsts) > 0 and _is_followed(events, visits, int(firsts[-1]))
    order = columnar.session_order(visits.hashes[firsts], event_after_last_key=is_followed)
    if visits.key is None:
        entries = _entries_of_single_visits(events, visits)
    else:
        entries = _entries_of_repeated_visits(events, visits, visits.key, partial=partial)
    order = order[(entries.before[order] != NOWHERE) | (entries.after[order] != NOWHERE)]
    return Events(entries.images, entries.before[order], entries.after[order], entries.indirect[order])


def _visits(table: Table, events: Events) -> _Visits:
    key = [events.images[index] for index in table.key_indexes]
    same_key = _keeps_its_key(key, events)
    # In event order, the visit before ahead of the visit after.
    pairs = np.stack([(events.before != NOWHERE) & ~same_key, events.after != NOWHERE], axis=1)
    event, side = np.nonzero(pairs)
    image = np.where(side == 0, events.before[event], events.after[event])
    recorded = ~columnar.null_keys(key)[image]
    if not recorded.all():
        event, side, image = event[recorded], side[recorded], image[recorded]
    keys = [vector.take(image) for vector in key]
    hashes = columnar.hash_keys(keys)
    return _Visits(event, (side == 0) | same_key[event], side == 1, columnar.key_numbers(keys, hashes), hashes)


def _keeps_its_key(key: list[Vector], events: Events) -> Mask:
    """Which events are updates whose key stays the same, bit by bit."""
    updates = np.flatnonzero((events.before != NOWHERE) & (events.after != NOWHERE))
    same = np.zeros(len(events), dtype=bool)
    if len(updates):
        same[updates] = True
        for vector in key:
            before, after = vector.take(events.before[updates]), vector.take(events.after[updates])
            same[updates] &= ~columnar.differ(before, after, bitwise=True)
    return same


def _is_followed(events: Events, visits: _Visits, last: int) -> bool:
    """Whether the hash table saw another event, and so a chance to grow, after its last new key at visit `last`."""
    event = int(visits.event[last])
    # An update is two events: one with the old row, one with the new.
    is_followed_by_own_second = bool(visits.removes[last]) and events.after[event] != NOWHERE
    return last < len(visits) - 1 or event < len(events) - 1 or is_followed_by_own_second


def _entries_of_single_visits(events: Events, visits: _Visits) -> Events:
    before = np.where(visits.removes, events.before[visits.event], NOWHERE)
    after = np.where(visits.adds, events.after[visits.event], NOWHERE)
    return Events(events.images, before, after, events.indirect[visits.event])


def _entries_of_repeated_visits(events: Events, visits: _Visits, key: Indexes, *, partial: bool) -> Events:
    by_key = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[by_key], prepend=-1))
    indirect = np.logical_and.reduceat(events.indirect[visits.event[by_key]], starts)
    by_key = by_key[~_contradicting(visits, key, by_key)[by_key]]
    count = len(starts)
    before, after = np.full(count, NOWHERE), np.full(count, NOWHERE)
    changes_key = np.diff(key[by_key], prepend=-1) != 0
    firsts, lasts = by_key[changes_key], by_key[np.append(changes_key[1:], True)[: len(by_key)]]
    before[key[firsts]] = np.where(visits.removes[firsts], events.before[visits.event[firsts]], NOWHERE)
    after[key[lasts]] = np.where(visits.adds[lasts], events.after[visits.event[lasts]], NOWHERE)
    entries = Events(events.images, before, after, indirect)
    return _overlaid(entries, events, visits, key, by_key) if partial else entries


def _contradicting(visits: _Visits, key: Indexes, by_key: Indexes) -> Mask:
    """Visits of events that cannot have happened: inserts over a living row, updates and deletes of a dead one.

    They keep what is there (INSERT + INSERT, UPDATE + INSERT, DELETE + UPDATE, DELETE + DELETE, changesets §3.1).
    """
    same_key = key[by_key[1:]] == key[by_key[:-1]]
    clash = same_key & (visits.removes[by_key[1:]] != visits.adds[by_key[:-1]])
    if not clash.any():
        return np.zeros(len(visits), dtype=bool)
    alive: dict[int, bool] = {}
    contradicting = np.zeros(len(visits), dtype=bool)
    rows = zip(range(len(visits)), visits.event.tolist(), key.tolist(), visits.removes.tolist(), strict=True)
    for _, group in groupby(rows, key=lambda row: row[1]):
        members = list(group)
        if all(alive.get(number, removes) == removes for _, _, number, removes in members):
            alive.update((number, bool(visits.adds[visit])) for visit, _, number, _ in members)
        else:
            contradicting[[visit for visit, *_ in members]] = True
    return contradicting


def _overlaid(entries: Events, events: Events, visits: _Visits, key: Indexes, by_key: Indexes) -> Events:
    """Entries whose images put partial rows over one another; for keys that were visited more than once."""
    rows: list[list[Field]] = []
    before, after = entries.before.copy(), entries.after.copy()
    first_new_row = entries.images[0].length
    for number, group in groupby(by_key.tolist(), key=lambda visit: int(key[visit])):
        members = list(group)
        if len(members) == 1:
            continue
        old, new = _merged_images(events, visits, members)
        for image, pointers in ((old, before), (new, after)):
            pointers[number] = NOWHERE if image is None else first_new_row + len(rows)
            if image is not None:
                rows.append(image)
    if not rows:
        return entries
    added = [from_values(column) for column in zip(*rows, strict=True)]
    images = [concatenated(pair) for pair in zip(entries.images, added, strict=True)]
    return Events(images, before, after, entries.indirect)


def _merged_images(
    events: Events, visits: _Visits, members: list[int]
) -> tuple[list[Field] | None, list[Field] | None]:
    first: list[Field] | None = None
    current: list[Field] | None = None
    for place, visit in enumerate(members):
        old, new = (
            [vector.value(int(rows[visits.event[visit]])) for vector in events.images] if exists[visit] else None
            for rows, exists in ((events.before, visits.removes), (events.after, visits.adds))
        )
        if place == 0:
            first = old
        elif first is not None and old is not None and current is not None:
            # What no earlier event set is still as it was at first.
            first = [o if f is UNDEFINED and c is UNDEFINED else f for f, c, o in zip(first, current, old, strict=True)]
        if new is not None and old is not None and current is not None:
            new = [c if n is UNDEFINED else n for c, n in zip(current, new, strict=True)]
        current = new
    return first, current


def section_pieces(table: Table, entries: Events, marker: int) -> Iterator[bytes | memoryview]:
    """The bytes of a section, piece by piece; nothing when no change survives."""
    records, _ = encoded_entries(table, entries, marker)
    if not len(records):
        return
    yield table.header(marker)
    yield columnar.content_of(records)


def encoded_entries(table: Table, entries: Events, marker: int) -> tuple[pa.LargeBinaryArray, Indexes]:
    """The records of the entries, in their order, and their entries; updates that change nothing have no record."""
    has_before, has_after = entries.before != NOWHERE, entries.after != NOWHERE
    found = [
        _records(kind, table, entries, np.flatnonzero(mask), marker == CHANGESET_MARKER)
        for kind, mask in ((INSERT, ~has_before), (DELETE, ~has_after), (UPDATE, has_before & has_after))
        if mask.any()
    ]
    if not found:
        return columnar.empty_data(0), np.empty(0, dtype=np.int64)
    if len(found) == 1:
        return found[0]
    # Each kind is in output order already; this interleaves them.
    owners = np.concatenate([rows for _, rows in found])
    order = np.argsort(owners, kind="stable")
    return pa.concat_arrays([records for records, _ in found]).take(columnar.of_numbers(order)), owners[order]


def _records(
    kind: int, table: Table, entries: Events, rows: Indexes, is_changeset: bool
) -> tuple[pa.LargeBinaryArray, Indexes]:
    """The records of the entries of one kind, without those that change nothing, and their entries."""
    flags = table.key_flags
    old = [] if kind == INSERT else [vector.take(entries.before[rows]) for vector in entries.images]
    new = [] if kind == DELETE else [vector.take(entries.after[rows]) for vector in entries.images]
    changed: list[Mask] = []
    if kind == UPDATE:
        # Unknown old values (patchsets by key) count as changed; keys never do.
        pairs = zip(old, new, flags, strict=True)
        never = np.zeros(len(rows), dtype=bool)
        changed = [never if f else columnar.differ(b, a) & ~a.has_tag(Tag.UNDEFINED) for b, a, f in pairs]
        any_change = np.logical_or.reduce(changed)
        if not any_change.all():
            left = np.flatnonzero(any_change)
            old, new = ([vector.take(left) for vector in side] for side in (old, new))
            changed, rows = [mask[left] for mask in changed], rows[left]
    indirect = entries.indirect[rows]
    writer = columnar.RecordWriter(len(rows))
    writer.byte(kind)
    writer.byte(indirect.astype(np.uint8) if indirect.any() else 0)
    masks: list[Mask | None] = [*changed] or [None] * len(flags)
    presence = [None if flag else mask for flag, mask in zip(flags, masks, strict=True)]
    # A patchset holds the key only of an old row, and together with the new values in an update.
    if is_changeset or kind == DELETE:
        for vector, present, flag in zip(old, presence, flags, strict=bool(old)):
            if flag or is_changeset:
                writer.field(vector, present)
    for vector, present, flag in zip(new, presence, flags, strict=bool(new)):
        if flag and kind == UPDATE and is_changeset:
            writer.byte(Tag.UNDEFINED)
        else:
            writer.field(vector, present)
    return writer.joined(), rows

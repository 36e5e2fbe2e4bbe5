"""What happened to one table, in order: a log of insert, update and delete events with their row images."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np

from driftline.changesets.format import Row
from driftline.changesets.table import Table
from driftline.changesets.vector_affinity import with_affinity
from driftline.changesets.vectors import Indexes, Mask, Vector, concatenated, from_values

NOWHERE = -1  # a row image that does not exist: the one before an insert, the one after a delete

RowEvent = tuple[Row | None, Row | None, bool]  # before, after, indirect


@dataclass(frozen=True, slots=True)
class ColumnEvents:
    """Events of one kind from whole columns: images before and after, None for inserts and deletes."""

    before: list[Vector] | None
    after: list[Vector] | None
    indirect: bool

    @property
    def length(self) -> int:
        """How many events these are."""
        return (self.before or self.after or [])[0].length


@dataclass(frozen=True, slots=True)
class Events:
    """Events as arrays: `before` and `after` point into the rows of `images`, or are `NOWHERE`."""

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
        self._chunks: list[list[RowEvent] | ColumnEvents] = []
        self._open: list[RowEvent] | None = None

    def append(self, event: RowEvent) -> None:
        """Note one event."""
        if self._open is None:
            self._open = []
            self._chunks.append(self._open)
        self._open.append(event)

    def append_columns(self, events: ColumnEvents) -> None:
        """Note the events of whole columns."""
        self._open = None
        if events.length:
            self._chunks.append(events)

    def collected(self) -> Events:
        """All events as arrays, affinities applied."""
        parts = []
        first_row = 0
        for chunk in self._chunks:
            part = _from_rows(chunk, first_row) if isinstance(chunk, list) else _from_columns(chunk, first_row)
            first_row += part.images[0].length
            parts.append(part)
        stacked = [concatenated(columns) for columns in zip(*(part.images for part in parts), strict=True)]
        return Events(
            [with_affinity(vector, kind) for vector, kind in zip(stacked, self.table.affinities, strict=True)],
            np.concatenate([part.before for part in parts]),
            np.concatenate([part.after for part in parts]),
            np.concatenate([part.indirect for part in parts]),
        )


def _from_rows(events: list[RowEvent], first_row: int) -> Events:
    befores, afters, indirect = zip(*events, strict=True)
    present = np.array([(before is not None, after is not None) for before, after in zip(befores, afters, strict=True)])
    images = [row for row in chain.from_iterable(zip(befores, afters, strict=True)) if row is not None]
    # Images lie in event order, the one before ahead of the one after.
    places = first_row + np.cumsum(present.reshape(-1)) - 1
    pointers = np.where(present, places.reshape(-1, 2), NOWHERE)
    columns = [from_values(column) for column in zip(*images, strict=True)]
    return Events(columns, pointers[:, 0], pointers[:, 1], np.array(indirect, dtype=bool))


def _from_columns(events: ColumnEvents, first_row: int) -> Events:
    count = events.length
    rows = np.arange(first_row, first_row + count)
    nowhere = np.full(count, NOWHERE)
    indirect = np.full(count, events.indirect)
    if events.before is None or events.after is None:
        images = events.before if events.after is None else events.after
        assert images is not None
        return Events(
            images, nowhere if events.before is None else rows, nowhere if events.after is None else rows, indirect
        )
    stacked = [concatenated(pair) for pair in zip(events.before, events.after, strict=True)]
    return Events(stacked, rows, rows + count, indirect)

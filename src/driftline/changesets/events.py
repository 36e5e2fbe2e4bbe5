"""What happened to one table, in order: a log of insert, update and delete events with their row images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from driftline.changesets.arrow_buffers import Indexes, Mask
from driftline.changesets.format import TAG_NULL, TAG_UNDEFINED, Row
from driftline.changesets.table import Table, plain_value
from driftline.changesets.vectors import Vector, concatenated, from_arrow, from_values, with_affinity
from driftline.errors import ChangesetError

NOWHERE = -1  # a row image that does not exist: the one before an insert, the one after a delete


@dataclass(frozen=True, slots=True)
class Events:
    """Events as arrays: `before` and `after` point into the rows of `images`, or are `NOWHERE`."""

    images: list[Vector]
    before: Indexes
    after: Indexes
    indirect: Mask

    def __len__(self) -> int:
        return len(self.before)


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

    def collected(self, first_row: int) -> Events:
        """The events as arrays; images are numbered from `first_row`."""
        count = self.length
        before = _numbered(count, first_row, self.before is not None)
        after = _numbered(count, first_row + count * (self.before is not None), self.after is not None)
        sides = [side for side in (self.before, self.after) if side is not None]
        images = [concatenated(columns) for columns in zip(*sides, strict=True)]
        return Events(images, before, after, np.full(count, self.indirect))


class RowEvents:
    """Single events: the images before and after lie in turn in one list, which costs little to append to."""

    def __init__(self) -> None:
        self.images: list[Row | None] = []
        self.indirect: list[int] = []

    def collected(self, first_row: int) -> Events:
        """The events as arrays; images are numbered from `first_row`."""
        befores, afters = self.images[0::2], self.images[1::2]
        has_before, has_after = _is_there(befores), _is_there(afters)
        if has_before is None or has_after is None:
            rows = [image for image in self.images if image is not None]
            there = np.array([image is not None for image in self.images]).reshape(-1, 2)
            places = np.where(there, (first_row + np.cumsum(there) - 1).reshape(-1, 2), NOWHERE)
            before, after = places[:, 0], places[:, 1]
        else:
            rows = [*(befores if has_before else ()), *(afters if has_after else ())]
            before = _numbered(len(befores), first_row, has_before)
            after = _numbered(len(afters), first_row + has_before * len(befores), has_after)
        indirect = np.zeros(len(befores), dtype=bool)
        indirect[self.indirect] = True
        return Events([from_values(column) for column in zip(*rows, strict=True)], before, after, indirect)


def _is_there(images: Sequence[Row | None]) -> bool | None:
    """Whether all images exist (True) or none does (False)."""
    missing = images.count(None)
    return None if 0 < missing < len(images) else not missing


def _numbered(count: int, first: int, exists: bool) -> Indexes:
    return np.arange(first, first + count) if exists else np.full(count, NOWHERE)


class EventLog:
    """The events of one table; cheap to append to, turned into columns at the end."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.partial = False  # whether some images leave fields out (patchsets by key)
        self.aliases: list[Table] = []  # equal tables under which events came in, kept so that their ids stay theirs
        self._chunks: list[RowEvents | ColumnEvents] = []
        self._open: RowEvents | None = None

    def append(self, before: Row | None, after: Row | None, indirect: bool) -> None:
        """Note one event."""
        events = self._open or self._opened()
        if indirect:
            events.indirect.append(len(events.images) // 2)
        events.images += (before, after)

    def append_columns(self, events: ColumnEvents) -> None:
        """Note the events of whole columns."""
        self._open = None
        if events.length:
            self._chunks.append(events)

    def collected(self) -> Events:
        """All events as arrays, affinities applied."""
        parts: list[Events] = []
        first_row = 0
        for chunk in self._chunks:
            part = chunk.collected(first_row)
            first_row += part.images[0].length
            parts.append(part)
        if not parts:
            nothing = np.empty(0, dtype=np.int64)
            return Events([Vector(0, TAG_NULL) for _ in self.table.columns], nothing, nothing, nothing.astype(bool))
        stacked = [concatenated(columns) for columns in zip(*(part.images for part in parts), strict=True)]
        return Events(
            [with_affinity(vector, kind) for vector, kind in zip(stacked, self.table.affinities, strict=True)],
            np.concatenate([part.before for part in parts]),
            np.concatenate([part.after for part in parts]),
            np.concatenate([part.indirect for part in parts]),
        )

    def _opened(self) -> RowEvents:
        self._open = RowEvents()
        self._chunks.append(self._open)
        return self._open


def image_columns(table: Table, data: object, *, whole: bool = True) -> list[Vector]:
    """The table's columns from `data`, by name; `whole` refuses data that leaves columns out."""
    given = {table.index_of(name): column for name, column in _named_columns(data) if not table.is_generated(name)}
    length = _common_length(table, {table.column_names[index]: column for index, column in given.items()})
    vectors = []
    for index, name in enumerate(table.column_names):
        if index in given:
            vectors.append(_as_vector(given[index], name))
        elif whole or table.key_flags[index]:
            raise ChangesetError(f'table {table.name}: the data has no column "{name}"', code="missing_column")
        else:
            vectors.append(Vector(length, TAG_UNDEFINED))
    return vectors


def _named_columns(data: Any) -> list[tuple[str, Any]]:
    if isinstance(data, Mapping):
        return list(data.items())
    if not isinstance(data, pa.Table | pa.RecordBatch):
        # Polars frames, and anything else that speaks the Arrow C stream.
        data = data.to_arrow() if hasattr(data, "to_arrow") else pa.table(data)
    return list(zip(data.schema.names, data.columns, strict=True))


def _common_length(table: Table, columns: Mapping[str, Any]) -> int:
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise ChangesetError(f"table {table.name}: columns of different lengths, or none", code="row_width_mismatch")
    return lengths.pop()


def _as_vector(column: Any, name: str) -> Vector:
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return from_arrow(column, name=name)
    if hasattr(column, "to_arrow"):
        return from_arrow(column.to_arrow(), name=name)
    if hasattr(column, "dtype") and column.dtype.kind in "biuf":
        return from_arrow(pa.array(column), name=name)
    return from_values([plain_value(value) for value in column])

"""Kernels for sections whose records are made in many places and sorted elsewhere.

Each place encodes its events and gives every record a sort key: its bucket in the session's hash table and its signed
sequence number there (`order.py`). Whoever sorts by it gets the bytes of one local session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from driftline.changesets.events import EventLog
from driftline.changesets.from_events import EventCollector, key_collision
from driftline.changesets.order import Hashes, bucket_count, sequence_numbers
from driftline.changesets.records import content_of, joined_fields
from driftline.changesets.session import encoded_entries, single_entries
from driftline.changesets.table import Table
from driftline.changesets.vectors import Indexes

_WRITE_ROWS = 1 << 16

SCHEMA = pa.schema(
    [("hash", pa.uint32()), ("sequence", pa.int64()), ("key", pa.large_binary()), ("record", pa.large_binary())]
)


class SectionPlan(NamedTuple):
    """What all places agree on: the table, the format, and how many buckets the session ends with."""

    table: Table
    marker: int
    buckets: int

    @classmethod
    def of(cls, table: Table, marker: int, events: int, *, ends_with_update: bool) -> SectionPlan:
        """The plan for so many events, each with a key of its own."""
        return cls(table, marker, bucket_count(events, event_after_last_key=ends_with_update))

    def ranges_of(self, hashes: Hashes, ranges: int) -> Indexes:
        """Which of so many ranges of buckets each hash belongs to."""
        return (hashes & np.uint32(self.buckets - 1)).astype(np.int64) * ranges // self.buckets


def encode_events(plan: SectionPlan, collector: EventCollector, first_event: int) -> pa.Table:
    """The records of some events of the stream, the first of which has number `first_event`.

    An update that changes nothing has a null record: its key still has to be told from the others.
    """
    log = EventLog(plan.table)
    collector.fill(log)
    events = log.collected()
    found = single_entries(plan.table, events)
    if found is None:
        raise key_collision(plan.table)
    entries, hashes = found
    numbers = np.arange(first_event, first_event + len(events))
    rows = np.where(entries.after >= 0, entries.after, entries.before)
    key = joined_fields([entries.images[index].take(rows) for index in plan.table.key_indexes])
    records, places = encoded_entries(plan.table, entries, plan.marker)
    places_of_records = np.full(len(events), -1)
    places_of_records[places] = np.arange(len(places))
    taken = records.take(pa.array(places_of_records, mask=places_of_records < 0))
    return pa.table([hashes, sequence_numbers(numbers, plan.buckets), key, taken], schema=SCHEMA)


def cut_by_range(plan: SectionPlan, records: pa.Table, ranges: int) -> Iterator[tuple[int, pa.Table]]:
    """The records of each range of buckets."""
    targets = plan.ranges_of(np.asarray(records["hash"]), ranges)
    order = np.argsort(targets, kind="stable")
    borders = np.searchsorted(targets[order], np.arange(ranges + 1))
    for number in range(ranges):
        rows = order[borders[number] : borders[number + 1]]
        if len(rows):
            yield number, records.take(pa.array(rows))


def joined_range(plan: SectionPlan, parts: Sequence[pa.Table]) -> Iterator[memoryview]:
    """The bytes of a range of buckets from the parts that all places sent, in any order."""
    records = pa.concat_tables(parts).combine_chunks()
    hashes = np.asarray(records["hash"])
    sequence = np.asarray(records["sequence"])
    order = np.lexsort((sequence, hashes & np.uint32(plan.buckets - 1)))
    _check_keys_differ(plan.table, hashes, records["key"])
    content = records["record"].combine_chunks()
    content = content.chunk(0) if isinstance(content, pa.ChunkedArray) else content
    for start in range(0, len(order), _WRITE_ROWS):
        yield content_of(content.take(pa.array(order[start : start + _WRITE_ROWS])))


def _check_keys_differ(table: Table, hashes: Hashes, keys: pa.ChunkedArray) -> None:
    """Equal keys have equal hashes, so only keys whose hashes meet are compared."""
    order = np.argsort(hashes, kind="stable")
    meets = hashes[order[1:]] == hashes[order[:-1]]
    suspects = np.unique(np.concatenate([order[1:][meets], order[:-1][meets]]))
    if len(suspects) and len(keys.take(pa.array(suspects)).unique()) < len(suspects):
        raise key_collision(table)

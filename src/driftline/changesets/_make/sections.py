"""Sections larger than memory: records are encoded one by one and put into the order of a session at the end.

Every key may come once. A record's place follows from its key's hash and from when it came (`records.py`), so records
can be buffered in a temporary file (`Spool`), or be made by many tasks and sorted by range of buckets elsewhere
(`SectionPlan`): the bytes are those of one session that saw the same events.
"""

from __future__ import annotations

import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import IO, Any, BinaryIO, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftline.changesets._format import records as columnar
from driftline.changesets._format.changeset import Changeset, Patchset
from driftline.changesets._format.read import Header, Window, key_of, records_in, split_fields
from driftline.changesets._format.records import Hashes, Indexes, as_numbers, of_bytes, of_numbers
from driftline.changesets._format.session import EventLog, Events, encoded_entries, image_columns, single_entries
from driftline.changesets._format.streams import merged, mixed_formats, other_shape
from driftline.changesets._format.table import FIRST_BUCKETS, Row, Table, bucket_count, folded, refused
from driftline.changesets._make.rows import EventCollector, key_collision
from driftline.core import ArrowCodec, SpillStore, Workspace, write_all
from driftline.errors import ChangesetError

# ("insert", rows), ("update", before, after) or ("delete", rows), each with Arrow, Polars or plain columns
Chunk = tuple[object, ...]

# What tasks that encode records send to those that sort them.
SCHEMA = pa.schema(
    [("hash", pa.int64()), ("sequence", pa.int64()), ("key", pa.large_binary()), ("record", pa.large_binary())]
)

_WRITE_ROWS = 1 << 16
# While a share is merged its records are Python objects, and columns before and after: this many times their bytes.
_OBJECTS = 24
_BLOCK = 1 << 20
_RECORDS = pa.schema([("number", pa.int64()), ("key", pa.large_binary()), ("record", pa.large_binary())])


def encoded(
    table: Table, events: Events, marker: int
) -> tuple[Hashes, pa.LargeBinaryArray, pa.LargeBinaryArray] | None:
    """The hashes of the keys of events, their keys and their records; None where a key comes twice or changes.

    An update that changes nothing has an empty record.
    """
    found = single_entries(table, events)
    if found is None:
        return None
    entries, hashes = found
    rows = np.where(entries.after >= 0, entries.after, entries.before)
    keys = columnar.joined_fields([entries.images[index].take(rows) for index in table.key_indexes])
    records, places = encoded_entries(table, entries, marker)
    lengths = np.zeros(len(events), dtype=np.int64)
    lengths[places] = columnar.byte_ranges(records)[1]
    return hashes, keys, columnar.binary_array(_offsets(lengths), columnar.content_of(records))


def _has_repeated_key(hashes: Hashes, keys: pa.LargeBinaryArray | pa.ChunkedArray) -> bool:
    """Whether a key comes twice: equal keys have equal hashes, so only keys whose hashes meet are compared."""
    suspects = columnar.rows_that_meet(hashes)
    return bool(len(suspects)) and len(keys.take(of_numbers(suspects)).unique()) < len(suspects)


def _in_order(records: pa.LargeBinaryArray, order: Indexes) -> Iterator[memoryview]:
    for start in range(0, len(order), _WRITE_ROWS):
        yield columnar.content_of(records.take(of_numbers(order[start : start + _WRITE_ROWS])))


def _offsets(lengths: Indexes) -> Indexes:
    return np.concatenate([[0], np.cumsum(lengths)])


def write_columns(
    out: BinaryIO,
    table: Table,
    chunks: Iterable[Chunk],
    *,
    format: Literal["changeset", "patchset"] = "changeset",  # noqa: A002 - the word of the command line
) -> int:
    """Write the changes of a stream of columns; how many records there are.

    >>> import io
    >>> users = Table("users", columns=[("id", "INTEGER"), ("name", "TEXT")], primary_key=["id"])
    >>> out = io.BytesIO()
    >>> write_columns(out, users, [("insert", {"id": [1], "name": ["A"]}), ("delete", {"id": [2], "name": ["B"]})])
    2
    """
    marker = (Patchset if format == "patchset" else Changeset).marker
    with Spool.opened(table, marker) as spool:
        for chunk in chunks:
            spool.add(_events_of(table, chunk))
        return spool.write_to(out, event_after_last_key=spool.ends_with_update)


def _events_of(table: Table, chunk: Chunk) -> Events:
    kind, *sides = chunk
    if (kind, len(sides)) not in (("insert", 1), ("update", 2), ("delete", 1)):
        raise refused("invalid_chunk", "a chunk is (insert, rows), (update, before, after) or (delete, rows)")
    images = [image_columns(table, side) for side in sides]
    if images[0][0].length != images[-1][0].length:
        raise refused("row_width_mismatch", "an update has as many rows before as after")
    log = EventLog(table)
    before = None if kind == "insert" else images[0]
    log.append_columns(before, None if kind == "delete" else images[-1])
    return log.collected()


class Spool:
    """Records and keys in temporary files, their hashes and lengths in memory."""

    @classmethod
    @contextmanager
    def opened(cls, table: Table, marker: int) -> Iterator[Spool]:
        """A spool whose files are removed when the context ends."""
        with tempfile.TemporaryFile() as records, tempfile.TemporaryFile() as keys:
            yield cls(table, marker, records, keys)

    def __init__(self, table: Table, marker: int, records: IO[bytes], keys: IO[bytes]) -> None:
        self._table = table
        self._marker = marker
        self._records, self._keys = records, keys
        self._hashes: list[Hashes] = []
        self._record_lengths: list[Indexes] = []
        self._key_lengths: list[Indexes] = []
        self.ends_with_update = False

    def add(self, events: Events) -> None:
        """Add some events; every key may come once, complete and unchanged."""
        if not len(events):
            return
        found = encoded(self._table, events, self._marker)
        if found is None:
            raise self._repeated_key()
        hashes, keys, records = found
        self._records.write(columnar.content_of(records))
        self._keys.write(columnar.content_of(keys))
        self._hashes.append(hashes)
        self._record_lengths.append(columnar.byte_ranges(records)[1])
        self._key_lengths.append(columnar.byte_ranges(keys)[1])
        self.ends_with_update = bool(events.before[-1] >= 0 and events.after[-1] >= 0)

    def add_rows(self, events: Iterable[tuple[Row | None, Row | None]]) -> None:
        """Add events as rows before and after."""
        log = EventLog(self._table)
        log.extend(events)
        self.add(log.collected())

    def write_to(self, out: IO[bytes], *, event_after_last_key: bool, keys_are_unique: bool = False) -> int:
        """Write the section in the order of a session; how many records there are (changesets §2.1).

        `keys_are_unique` is for events of a database, whose index has made its keys unique already.
        """
        if not self._hashes:
            return 0
        hashes = np.concatenate(self._hashes)
        if not keys_are_unique and _has_repeated_key(hashes, _mapped(self._keys, self._key_lengths)):
            raise self._repeated_key()
        lengths = np.concatenate(self._record_lengths)
        order = columnar.session_order(hashes, event_after_last_key=event_after_last_key)
        order = order[lengths[order] > 0]
        if len(order):
            write_all(out, self._table.header(self._marker))
        for piece in _in_order(_mapped(self._records, [lengths]), order):
            write_all(out, piece)
        return len(order)

    def _repeated_key(self) -> ChangesetError:
        return refused(
            "repeated_key",
            f"table {self._table.name}: in a stream every key may come once, whole and unchanged; "
            "collect the events in a Changeset or Patchset instead",
        )


def _mapped(file: IO[bytes], lengths: Sequence[Indexes]) -> pa.LargeBinaryArray:
    """The values of a file by their lengths, read from it when they are taken."""
    file.flush()
    offsets = _offsets(np.concatenate(lengths))
    content = np.memmap(file, dtype=np.uint8, mode="r") if offsets[-1] else np.empty(0, dtype=np.uint8)
    return columnar.binary_array(offsets, content)


class SectionPlan(NamedTuple):
    """What all tasks share: the table, the format, and how many buckets the session ends with."""

    table: Table
    marker: int
    buckets: int

    @classmethod
    def of(cls, table: Table, marker: int, events: int, *, ends_with_update: bool) -> SectionPlan:
        """The plan for so many events, each with a key of its own."""
        return cls(table, marker, bucket_count(events, event_after_last_key=ends_with_update))

    def buckets_of(self, hashes: Hashes) -> Indexes:
        """The bucket of each hash."""
        return (hashes & np.uint32(self.buckets - 1)).astype(np.int64)


def encode_events(plan: SectionPlan, collector: EventCollector, first_event: int) -> pa.Table:
    """The records of some events of the stream, the first of which has number `first_event`."""
    log = EventLog(plan.table)
    collector.fill(log)
    events = log.collected()
    found = encoded(plan.table, events, plan.marker)
    if found is None:
        raise key_collision(plan.table)
    sequence = columnar.sequence_numbers(np.arange(first_event, first_event + len(events)), plan.buckets)
    hashes, keys, records = found
    columns = [of_numbers(hashes), of_numbers(sequence), keys, records]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def cut_by_range(plan: SectionPlan, records: pa.Table, ranges: int) -> Iterator[tuple[int, pa.Table]]:
    """The records of each range of buckets."""
    return _parts(records, plan.buckets_of(_hashes(records)) * ranges // plan.buckets)


def _parts(records: pa.Table, numbers: Indexes) -> Iterator[tuple[int, pa.Table]]:
    """The records that have each number, in their order."""
    if not len(numbers):
        return
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    for number, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
        yield number, records.take(of_numbers(rows))


def joined_range(plan: SectionPlan, parts: Sequence[pa.Table]) -> Iterator[memoryview]:
    """The bytes of a range of buckets from the parts that all tasks sent, in any order."""
    records = pa.concat_tables(parts)
    hashes = _hashes(records)
    if _has_repeated_key(hashes, records["key"]):
        raise key_collision(plan.table)
    order = np.lexsort((as_numbers(whole(records["sequence"])), plan.buckets_of(hashes)))
    return _in_order(whole(records["record"]), order)


def _hashes(records: pa.Table) -> Hashes:
    return as_numbers(whole(records["hash"])).astype(np.uint32)


def whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)


# Files that do not fit into memory, concatenated to the bytes that SQLite's own changegroup would write.
#
# Records are partitioned into shares by their key, so that all changes of a row are in one of them, and each share is
# merged alone. What the one large hash table would have looked like follows from what each record did to the number of
# its entries: the table grows when a record finds it half full, and each growth turns the chains around (changesets
# §2.2). So the place of a surviving change follows from its hash, from the record that put it there last, and from
# whether the number of growths since then is even.


class ChangegroupOnDisk:
    """Collects files one after the other, then writes one that does what they do."""

    def __init__(self, workspace: Workspace, *, size: int, memory_bytes: int) -> None:
        self._shares = max(1, size * _OBJECTS // memory_bytes)
        self._workspace = workspace
        self._limit = memory_bytes // 8
        self._headers: dict[str, Header] = {}  # the first one of each table
        self._counts: Counter[str] = Counter()
        self._records: SpillStore[tuple[str, int], pa.Table] = self._store()

    def add_file(self, stream: IO[bytes]) -> None:
        """Put the records of a file into their shares."""
        for header, found in records_in(Window(b"", stream.read)):
            name = self._name(header)
            first = self._counts[name]
            self._counts[name] += len(found)
            keys = [key_of(record, header) for record in found]
            shares = np.fromiter((zlib.crc32(key) % self._shares for key in keys), np.int64, len(keys))
            columns = [of_numbers(np.arange(first, self._counts[name])), of_bytes(keys), of_bytes(found)]
            records = pa.Table.from_arrays(columns, schema=_RECORDS)
            for share, part in _parts(records, shares):
                self._records.add((name, share), part)

    def write_to(self, out: IO[bytes]) -> None:
        """Write the sections in first-touch order; a table without surviving changes has none."""
        for name, header in self._headers.items():
            effects = np.ones(self._counts[name], dtype=np.int8)
            left: SpillStore[int, pa.Table] = self._store()
            for share in range(self._shares):
                remaining = _remaining(header, self._records.take((name, share)), effects)
                if remaining.num_rows:
                    left.add(share, remaining)
            self._write_section(out, header, left, _growths(effects))

    def _write_section(self, out: IO[bytes], header: Header, left: SpillStore[int, pa.Table], growths: Indexes) -> None:
        plan = SectionPlan(header.table, header.marker, FIRST_BUCKETS << len(growths))
        ranges: SpillStore[int, pa.Table] = self._store()
        for share in sorted(left.keys()):
            for piece in left.take(share):
                for number, part in cut_by_range(plan, _in_sequence(piece, growths), self._shares):
                    ranges.add(number, part)
        if ranges.keys():
            write_all(out, plan.table.header(plan.marker))
        for number in sorted(ranges.keys()):
            for content in joined_range(plan, ranges.take(number)):
                write_all(out, content)

    def _store(self) -> SpillStore[Any, pa.Table]:
        return SpillStore(self._workspace, self._limit, ArrowCodec())

    def _name(self, header: Header) -> str:
        name = folded(header.table.name)
        if any(other.marker != header.marker for other in self._headers.values()):
            raise mixed_formats()
        if self._headers.setdefault(name, header).table.key_flags != header.table.key_flags:
            raise other_shape(header.table)
        return name


def _remaining(header: Header, pieces: Sequence[pa.Table], effects: npt.NDArray[np.int8]) -> pa.Table:
    """What is left of a share, with the number of the record that put it there in place of its sequence.

    `effects` is set to what each record did to the number of entries: one more, as many, or one less.
    """
    kept: dict[bytes, tuple[int, bytes]] = {}
    opening = header.table.header(header.marker)
    rows = (zip(*(column.to_pylist() for column in piece.columns), strict=True) for piece in pieces)
    for number, key, record in chain.from_iterable(rows):
        existing = kept.pop(key, None)
        result: bytes | None = record
        if existing is not None:
            result = merged(opening, existing[1], record)
            effects[number] = -1 if result is None else 0
        if result is not None:
            kept[key] = (number, result)
    numbers = np.fromiter((number for number, _ in kept.values()), np.int64, len(kept))
    hashes = _key_hashes(list(kept), len(header.table.key_indexes))
    records = of_bytes([record for _, record in kept.values()])
    return pa.Table.from_arrays([of_numbers(hashes), of_numbers(numbers), of_bytes(list(kept)), records], schema=SCHEMA)


def _key_hashes(keys: list[bytes], columns: int) -> Hashes:
    if not keys:
        return np.empty(0, dtype=np.uint32)
    fields = [keys] if columns == 1 else list(zip(*(split_fields(key) for key in keys), strict=True))
    return columnar.hash_keys([columnar.from_fields(column) for column in fields])


def _growths(effects: npt.NDArray[np.int8]) -> Indexes:
    """The numbers of the records before which the hash table grew.

    >>> _growths(np.ones(300, dtype=np.int8)).tolist(), _growths(np.array([1, -1] * 300, dtype=np.int8)).tolist()
    ([128, 256], [])
    """
    found: list[int] = []
    entries = 0
    for start in range(0, len(effects), _BLOCK):
        block = effects[start : start + _BLOCK]
        counts = entries + np.cumsum(block, dtype=np.int64)
        entries = int(counts[-1])
        counts -= block  # how many there were before each record
        place = 0
        while (full := np.flatnonzero(counts[place:] >= FIRST_BUCKETS << len(found) >> 1)).size:
            place += int(full[0])
            found.append(start + place)
            place += 1
    return np.array(found, dtype=np.int64)


def _in_sequence(left: pa.Table, growths: Indexes) -> pa.Table:
    """The changes that are left, with their places in their chains."""
    numbers = as_numbers(whole(left["sequence"]))
    later = len(growths) - np.searchsorted(growths, numbers, side="right")
    return left.set_column(1, SCHEMA.field(1), of_numbers(np.where(later % 2 == 0, ~numbers, numbers)))

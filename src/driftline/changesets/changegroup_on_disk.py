"""Concatenating files that do not fit into memory, to the bytes that SQLite's own changegroup would write.

Records go into shares by their key, so that all changes of a row meet in one of them, and each share is merged alone.
What the one large hash table would have looked like follows from what each record did to the number of its entries: the
table grows when a record finds it half full, and each growth turns the chains around (changesets §2.2). So a change
that is left has its place by its hash, by the record that put it there last, and by whether the growths since then are
even.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from driftline.changesets.arrow_buffers import Indexes, as_numbers, of_bytes, of_numbers
from driftline.changesets.changegroup import Merger, mixed_formats, other_shape
from driftline.changesets.format import FIRST_BUCKETS, PATCHSET_MARKER
from driftline.changesets.names import folded
from driftline.changesets.order import Hashes, byte_ranges, hash_keys
from driftline.changesets.reading import Header, Slices, Window, read_raw_record, record_slices, split_fields
from driftline.changesets.sections import SCHEMA, SectionPlan, cut_by_range, joined_range, whole
from driftline.changesets.vectors import from_fields
from driftline.core._files import write_all
from driftline.core._workspace import SpillStore, TableCodec, Workspace

# While a share is merged its records are Python objects, and columns before and after: this many times their bytes.
_OBJECTS = 24
_BLOCK = 1 << 20
_RECORDS = pa.schema([("number", pa.int64()), ("key", pa.large_binary()), ("record", pa.large_binary())])


@dataclass(slots=True)
class _Section:
    """A table of the files: its first header, how its changes are merged, and how many records it has."""

    header: Header
    merger: Merger
    records: int = 0


class ChangegroupOnDisk:
    """Takes files one after the other, then writes the one that does what they do."""

    def __init__(self, workspace: Workspace, *, size: int, memory_bytes: int) -> None:
        self._shares = max(1, size * _OBJECTS // memory_bytes)
        self._workspace = workspace
        self._limit = memory_bytes // 8
        self._sections: dict[str, _Section] = {}
        self._records: SpillStore[tuple[str, int], pa.Table] = self._store()

    def add_file(self, stream: IO[bytes]) -> None:
        """Put the records of a file into their shares."""
        for header, slices in record_slices(Window(b"", stream.read)):
            name, section = self._section(header)
            first = section.records
            section.records += len(slices.keys)
            shares = np.fromiter((zlib.crc32(key) % self._shares for key in slices.keys), np.int64, len(slices.keys))
            records = _table_of(np.arange(first, section.records), slices)
            for share, rows in _rows_by_share(shares):
                self._records.add((name, share), records.take(of_numbers(rows)))

    def write_to(self, out: IO[bytes]) -> None:
        """Write the sections in first-touch order; a table without surviving changes has none."""
        for name, section in self._sections.items():
            effects = np.ones(section.records, dtype=np.int8)
            left: SpillStore[int, pa.Table] = self._store()
            for share in range(self._shares):
                merged = _merged(section, self._records.take((name, share)), effects)
                if merged.num_rows:
                    left.add(share, merged)
            self._write_section(out, section, left, _growths(effects))

    def _write_section(
        self, out: IO[bytes], section: _Section, left: SpillStore[int, pa.Table], growths: Indexes
    ) -> None:
        plan = SectionPlan(section.header.table, section.header.marker, FIRST_BUCKETS << len(growths))
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
        return SpillStore(self._workspace, self._limit, TableCodec())

    def _section(self, header: Header) -> tuple[str, _Section]:
        name = folded(header.table.name)
        section = self._sections.get(name)
        if section is None:
            section = _Section(header, Merger(header.table, header.marker == PATCHSET_MARKER))
            if any(other.header.marker != header.marker for other in self._sections.values()):
                raise mixed_formats()
            self._sections[name] = section
        elif section.header.marker != header.marker:
            raise mixed_formats()
        elif section.header.table.key_flags != header.table.key_flags:
            raise other_shape(header.table)
        return name, section


def _table_of(numbers: Indexes, slices: Slices) -> pa.Table:
    return pa.Table.from_arrays([of_numbers(numbers), of_bytes(slices.keys), of_bytes(slices.records)], schema=_RECORDS)


def _rows_by_share(shares: Indexes) -> Iterator[tuple[int, Indexes]]:
    order = np.argsort(shares, kind="stable")
    found, starts = np.unique(shares[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, starts[1:]), strict=True)


def _merged(section: _Section, pieces: Sequence[pa.Table], effects: npt.NDArray[np.int8]) -> pa.Table:
    """What is left of a share, with the number of the record that put it there in place of its sequence.

    `effects` learns what each record did to the number of entries: one more, as many, or one less.
    """
    kept: dict[bytes, tuple[int, bytes]] = {}
    for number, key, record in _rows(pieces):
        existing = kept.pop(key, None)
        result: bytes | None = record
        if existing is not None:
            result = _merge(section, existing[1], record)
            effects[number] = -1 if result is None else 0
        if result is not None:
            kept[key] = (number, result)
    numbers = np.fromiter((number for number, _ in kept.values()), np.int64, len(kept))
    hashes = _hashes(list(kept), len(section.header.table.key_indexes))
    records = of_bytes([record for _, record in kept.values()])
    return pa.Table.from_arrays([of_numbers(hashes), of_numbers(numbers), of_bytes(list(kept)), records], schema=SCHEMA)


def _rows(pieces: Iterable[pa.Table]) -> Iterator[tuple[int, bytes, bytes]]:
    for piece in pieces:
        for batch in piece.to_batches():
            numbers, keys, records = batch.columns
            yield from zip(as_numbers(numbers).tolist(), _values(keys), _values(records), strict=True)


def _values(column: pa.LargeBinaryArray) -> Iterator[bytes]:
    starts, lengths, content = byte_ranges(column)
    data = content.data
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        yield bytes(data[start : start + length])


def _merge(section: _Section, existing: bytes, record: bytes) -> bytes | None:
    first, second = (read_raw_record(data, 0, section.header)[0] for data in (existing, record))
    result = section.merger.merge(first, second)
    return None if result is None else result.encode()


def _hashes(keys: list[bytes], columns: int) -> Hashes:
    if not keys:
        return np.empty(0, dtype=np.uint32)
    fields = [keys] if columns == 1 else list(zip(*(split_fields(key) for key in keys), strict=True))
    return hash_keys([from_fields(column) for column in fields])


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

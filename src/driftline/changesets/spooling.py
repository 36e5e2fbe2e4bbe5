"""A section from a stream of columns, larger than memory: records wait in a temporary file until their order is known.

What stays in memory is a hash and two offsets per row. Every key may come once; the order of the file is that of one
session that saw the same events.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa

from driftline.changesets.changeset import Changeset, Patchset
from driftline.changesets.events import ColumnEvents, EventLog, Events, image_columns
from driftline.changesets.order import Hashes, byte_ranges, session_order, stable_order
from driftline.changesets.records import binary_array, content_of, joined_fields
from driftline.changesets.session import encoded_entries, single_entries
from driftline.changesets.table import Table
from driftline.changesets.vectors import Indexes
from driftline.errors import ChangesetError
from driftline.files import write_all

# ("insert", rows), ("update", before, after) or ("delete", rows), each with Arrow, Polars or plain columns
Chunk = tuple[Any, ...]

_WRITE_ROWS = 1 << 16


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


class Spool:
    """Records and keys in files, their hashes and lengths in memory."""

    @classmethod
    @contextmanager
    def opened(cls, table: Table, marker: int) -> Iterator[Spool]:
        """A spool whose files go when it is left."""
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
        """Take some events in; every key may come once, whole and unchanged."""
        if not len(events):
            return
        found = single_entries(self._table, events)
        if found is None:
            raise self._repeated_key()
        entries, hashes = found
        rows = np.where(entries.after >= 0, entries.after, entries.before)
        key = joined_fields([entries.images[index].take(rows) for index in self._table.key_indexes])
        records, places = encoded_entries(self._table, entries, self._marker)
        # An update that changes nothing has no record; its key still counts for the order.
        lengths = np.zeros(len(events), dtype=np.int64)
        lengths[places] = byte_ranges(records)[1]
        self._records.write(content_of(records))
        self._keys.write(content_of(key))
        self._hashes.append(hashes)
        self._record_lengths.append(lengths)
        self._key_lengths.append(byte_ranges(key)[1])
        self.ends_with_update = bool(events.before[-1] >= 0 and events.after[-1] >= 0)

    def write_to(self, out: IO[bytes], *, event_after_last_key: bool) -> int:
        """Write the section in the order of a session; how many records there are (changesets §2.1)."""
        if not self._hashes:
            return 0
        hashes = np.concatenate(self._hashes)
        self._check_keys(hashes)
        lengths = np.concatenate(self._record_lengths)
        order = session_order(hashes, event_after_last_key=event_after_last_key)
        order = order[lengths[order] > 0]
        if len(order):
            write_all(out, self._table.header(self._marker))
        records = _mapped(self._records, lengths)
        for start in range(0, len(order), _WRITE_ROWS):
            write_all(out, content_of(records.take(pa.array(order[start : start + _WRITE_ROWS]))))
        return len(order)

    def _check_keys(self, hashes: Hashes) -> None:
        order = stable_order(hashes)
        meets = hashes[order[1:]] == hashes[order[:-1]]
        suspects = np.unique(np.concatenate([order[1:][meets], order[:-1][meets]]))
        if len(suspects):
            keys = _mapped(self._keys, np.concatenate(self._key_lengths)).take(pa.array(suspects))
            if len(keys.unique()) < len(suspects):
                raise self._repeated_key()

    def _repeated_key(self) -> ChangesetError:
        return ChangesetError(
            f"table {self._table.name}: in a stream every key may come once, whole and unchanged; "
            "collect the events in a Changeset or Patchset instead",
            code="repeated_key",
        )


def _events_of(table: Table, chunk: Chunk) -> Events:
    kind, *sides = chunk
    if (kind, len(sides)) not in (("insert", 1), ("update", 2), ("delete", 1)):
        raise ChangesetError(
            "a chunk is (insert, rows), (update, before, after) or (delete, rows)", code="invalid_chunk"
        )
    images = [image_columns(table, side) for side in sides]
    if images[0][0].length != images[-1][0].length:
        raise ChangesetError("an update has as many rows before as after", code="row_width_mismatch")
    log = EventLog(table)
    before = None if kind == "insert" else images[0]
    log.append_columns(ColumnEvents(before, None if kind == "delete" else images[-1], False))
    return log.collected()


def _mapped(file: IO[bytes], lengths: Indexes) -> pa.LargeBinaryArray:
    """The values of a file by their lengths, read from it when they are taken."""
    file.flush()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    content = np.memmap(file, dtype=np.uint8, mode="r") if offsets[-1] else np.empty(0, dtype=np.uint8)
    return binary_array(offsets, content)

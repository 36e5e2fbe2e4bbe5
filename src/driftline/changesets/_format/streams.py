"""Files of changes as streams: read as often as needed, never completely in memory.

Concatenating and inverting are left to SQLite's own streams (changesets §8). Where SQLite refuses a file, driftline's
reader reads it again to find the damage.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import IO, TYPE_CHECKING, BinaryIO, SupportsBytes, TypeAlias

import apsw

from driftline.changesets._format.read import Window, operations_in, walk
from driftline.changesets._format.table import (
    DELETE,
    INSERT,
    PATCHSET_MARKER,
    UPDATE,
    Operation,
    Table,
    folded,
    patchset_not_invertible,
    refused,
)
from driftline.core import io_errors, open_bytes, write_all
from driftline.errors import ChangesetError, OptionError

if TYPE_CHECKING:
    from driftline.changesets._format.database import Database

    Changes: TypeAlias = SupportsBytes | str | os.PathLike[str] | BinaryIO

Open = Callable[[], IO[bytes]]

_SMALL_BYTES = 16 << 20  # never worth finding out how much memory there is
_HELD = 2.5  # SQLite's changegroup takes about this many times its input
_BLOCK_BYTES = 1 << 16

# By default SQLite passes on a kilobyte at a time, and the calls took half of the time.
apsw.session_config(apsw.SQLITE_SESSION_CONFIG_STRMSIZE, _BLOCK_BYTES)


@contextmanager
def reopenable(data: Changes) -> Iterator[Open]:
    """A function that opens the changes from their start, as often as it is called.

    A file name is opened again each time; what can be read only once, such as standard input, is kept in a temporary
    file.
    """
    if isinstance(data, str | os.PathLike):
        yield lambda: open_bytes(data)
    elif isinstance(data, SupportsBytes) or not hasattr(data, "read"):
        content = content_of(data)
        yield lambda: io.BytesIO(content)
    else:
        import shutil
        import tempfile

        with tempfile.NamedTemporaryFile() as kept:
            shutil.copyfileobj(data, kept, 1 << 20)
            kept.flush()
            yield lambda: open_bytes(kept.name)


def content_of(data: Changes) -> bytes:
    """All bytes of some changes."""
    if isinstance(data, str | os.PathLike):
        with io_errors(data), open_bytes(data) as stream:
            return stream.read()
    if isinstance(data, bytearray | memoryview) or hasattr(data, "__bytes__"):
        return bytes(data)
    if hasattr(data, "read"):
        return bytes(data.read())
    raise OptionError(
        f"changes are bytes, a Changeset or Patchset, a file name or an open file, not {type(data).__name__}"
    )


def invert_to(out: IO[bytes], data: Changes) -> None:
    """Write the changeset that undoes this one (changesets §3.3)."""
    with reopenable(data) as open_changes:
        try:
            with open_changes() as stream:
                apsw.Changeset.invert_stream(stream.read, lambda block: _pass_on(out, block))
        except apsw.Error as error:
            with open_changes() as stream:
                if summary(stream).is_patchset:
                    raise patchset_not_invertible() from error
            raise refused("invert_failed", f"the changeset cannot be inverted: {error}") from error


def concat_to(
    out: IO[bytes], files: Iterable[Changes], *, schema: Database | None = None, memory: Callable[[], int] | None = None
) -> None:
    """Write one file that does what these do one after the other (changesets §3.1).

    `schema` is a database with the newer tables: files from before a column was added get its default (changesets
    §3.4). SQLite holds all changes; files that need more bytes than `memory` says are merged on disk instead.
    """
    with ExitStack() as stack:
        opens = [stack.enter_context(reopenable(item)) for item in files]
        size = sum(map(_size, opens))
        builder = stack.enter_context(closing(apsw.ChangesetBuilder()))  # type: ignore[no-untyped-call]
        try:
            if schema is None and memory is not None and size > _SMALL_BYTES and size * _HELD > memory():
                _concat_on_disk(out, opens, size, memory())
                return
            if schema is not None:
                from driftline.changesets._format.database import connect

                builder.schema(stack.enter_context(connect(schema)), "main")
            for open_changes in opens:
                with open_changes() as stream:
                    builder.add(stream.read)
        except apsw.Error as error:
            raise why_not_together(opens, error) from error
        builder.output_stream(lambda block: _pass_on(out, block))


def _concat_on_disk(out: IO[bytes], opens: Iterable[Open], size: int, memory_bytes: int) -> None:
    from driftline.changesets._make.sections import ChangegroupOnDisk
    from driftline.core import Workspace

    with Workspace() as workspace:
        group = ChangegroupOnDisk(workspace, size=size, memory_bytes=memory_bytes)
        for open_changes in opens:
            with open_changes() as stream:
                group.add_file(stream)
        group.write_to(out)


def _size(open_changes: Open) -> int:
    with open_changes() as stream:
        if stream.seekable():
            return stream.seek(0, os.SEEK_END)
        return sum(map(len, iter(lambda: stream.read(1 << 20), b"")))  # compressed


def _pass_on(out: IO[bytes], block: bytes | memoryview) -> None:
    write_all(out, block)


def merged(header: bytes, *records: bytes) -> bytes | None:
    """One record that does what records of the same row do one after the other (changesets §3.1); None for nothing."""
    with closing(apsw.ChangesetBuilder()) as builder:  # type: ignore[no-untyped-call]
        for record in records:
            builder.add(header + record)
        return builder.output()[len(header) :] or None


def mixed_formats() -> ChangesetError:
    return refused("mixed_formats", "changesets and patchsets cannot be combined")


def other_shape(table: Table) -> ChangesetError:
    return refused(
        "schema_mismatch",
        f"table {table.name} has other columns or another key in another file: where columns were added, "
        "give the newer tables (--schema or --database)",
    )


def why_not_together(opens: Iterable[Open], error: apsw.Error) -> ChangesetError:
    """What driftline's reader finds in files that SQLite refused to merge; damage is raised with its offset."""
    markers: set[int] = set()
    known: dict[str, Table] = {}
    for open_changes in opens:
        with open_changes() as stream:
            found = summary(stream)
        if found.marker is not None:
            markers.add(found.marker)
        if len(markers) > 1:
            return mixed_formats()
        for section in found.sections:
            table = known.setdefault(folded(section.table.name), section.table)
            if table.key_flags != section.table.key_flags:
                return other_shape(table)
    if isinstance(error, apsw.SchemaChangeError):
        return refused("schema_mismatch", "the files do not fit the tables that were given")
    return refused("concat_failed", f"the files cannot be combined: {error}")


# The contents of a file, read a block at a time.


def iterate(data: Changes, tables: Iterable[Table] = ()) -> Iterator[Operation]:
    """The operations of a file in their order, read a block at a time; `tables` give names to columns.

    >>> [operation.kind for operation in iterate(bytes.fromhex("5401017400 120005 090005"))]
    ['insert', 'delete']
    """
    with reopenable(data) as open_changes, open_changes() as stream:
        yield from operations_of(stream, tables)


def operations_of(stream: IO[bytes], tables: Iterable[Table] = ()) -> Iterator[Operation]:
    """The operations of an open file from where it stands."""
    for _, operations in operations_in(Window(b"", stream.read, tables)):
        yield from operations


@dataclass(slots=True)
class Section:
    """The records of one table: how many of each kind, and how many of them are indirect."""

    table: Table
    kinds: Counter[int] = field(default_factory=Counter)
    indirect: int = 0

    def statistics(self) -> dict[str, int]:
        kinds = self.kinds
        return {"insert": kinds[INSERT], "update": kinds[UPDATE], "delete": kinds[DELETE], "indirect": self.indirect}


@dataclass(slots=True)
class Summary:
    """What a file holds, without its rows: its format and its sections, in file order."""

    marker: int | None = None
    sections: list[Section] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(section.kinds.total() for section in self.sections)

    @property
    def is_patchset(self) -> bool:
        return self.marker == PATCHSET_MARKER

    @property
    def counts(self) -> Counter[str]:
        """Records by kind, and those of them that are indirect."""
        return sum((Counter(section.statistics()) for section in self.sections), Counter[str]())

    @property
    def tables(self) -> Counter[str]:
        """Records by table, in file order."""
        found = Counter[str]()
        for section in self.sections:
            found[section.table.name] += section.kinds.total()
        return found

    def run_lengths(self) -> Iterator[int]:
        """How many records follow each other under one table's name."""
        for _, sections in groupby(self.sections, key=lambda section: section.table.name):
            yield sum(section.kinds.total() for section in sections)

    def add(self, table: Table, data: bytes, starts: list[int]) -> None:
        """Count records of a table; sections of one table that follow each other are one."""
        if not self.sections or self.sections[-1].table is not table:
            self.sections.append(Section(table))
        self.sections[-1].kinds.update(map(data.__getitem__, starts))
        self.sections[-1].indirect += len(starts) - [data[start + 1] for start in starts].count(0)


def summary(stream: IO[bytes], tables: Iterable[Table] = ()) -> Summary:
    """Read a file to its end and count; damage is an error with its offset."""
    found = Summary()
    window = Window(b"", stream.read, tables)
    for header, places in walk(window):
        found.marker = header.marker
        found.add(header.table, window.data, places[:-1])
    return found

"""`Changeset` and `Patchset`: builders, parsed files and results of merging, all with the same methods.

>>> users = Table("users", columns=[("id", "INTEGER"), ("name", "TEXT")], primary_key=["id"])
>>> changes = Changeset().insert(users, {"id": 1, "name": "Alice"}).update(users, (1, "Alice"), (1, "Alicia"))
>>> [(operation.kind, operation.new) for operation in changes]
[('insert', (1, 'Alicia'))]
>>> bytes(changes).hex()
'5402010075736572730012000100000000000000010306416c69636961'
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, NoReturn, Self, SupportsBytes

import apsw

from driftline.changesets._format import streams
from driftline.changesets._format.database import tables_from_database
from driftline.changesets._format.read import Window, records_in, with_headers
from driftline.changesets._format.session import EventLog, image_columns
from driftline.changesets._format.table import (
    CHANGESET_MARKER,
    PATCHSET_MARKER,
    UNDEFINED,
    AnyRow,
    Operation,
    Row,
    Table,
    Tag,
    folded,
    patchset_not_invertible,
    refused,
)
from driftline.core import write_all

if TYPE_CHECKING:
    from driftline.changesets._format.database import Database
    from driftline.changesets._format.records import Vector
    from driftline.changesets._format.streams import Changes
    from driftline.changesets._make.sql import Tables


class class_or_instance:  # noqa: N801 - reads as a decorator
    """A method that can be called on the class too."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: object, owner: type) -> Callable[..., Any]:
        return MethodType(self._function, owner if instance is None else instance)


class ChangeFile:
    """What changesets and patchsets share: events come in, the bytes of a session come out.

    A file that was parsed or merged can take further events; they are merged as SQLite's changegroup would.
    """

    marker: ClassVar[int]

    def __init__(self) -> None:
        self._closed = b""
        self._known: list[Table] = []  # tables that give names to the columns of the closed part
        self._group: apsw.ChangesetBuilder | None = None
        self._logs: dict[str, EventLog] = {}
        self._log_of: dict[int, EventLog] = {}

    @classmethod
    def from_bytes(cls, data: bytes, tables: Iterable[Table] = ()) -> Self:
        """A file of this format; its columns get names from `tables` where given."""
        parsed = parse(data, tables)
        if not isinstance(parsed, cls) and data:
            raise refused(
                "wrong_format", f"a {cls.__name__.lower()} is wanted, this is a {type(parsed).__name__.lower()}"
            )
        return cls._made(parsed._closed, parsed._known)

    @classmethod
    def _made(cls, closed: bytes, known: list[Table]) -> Self:
        made = cls()
        made._closed, made._known = closed, known
        return made

    def insert(self, table: Table, row: AnyRow, *, indirect: bool = False) -> Self:
        """A row was inserted."""
        return self._append(table, None, table.row(row), indirect)

    def _append(self, table: Table, before: Row | None, after: Row | None, indirect: bool) -> Self:
        log = self.log_of(table)
        log.partial = log.partial or (before is not None and UNDEFINED in before)
        log.append(before, after, indirect)
        return self

    def insert_columns(self, table: Table, data: Any, *, indirect: bool = False) -> Self:
        """Rows were inserted, given as Arrow, Polars or plain columns by name."""
        self.log_of(table).append_columns(None, image_columns(table, data), indirect)
        return self

    def update_columns(self, table: Table, before: Any, after: Any, *, indirect: bool = False) -> Self:
        """Rows were updated: columns before and after, row by row beside each other.

        Those of a patchset may be the key only before, and what changed after.
        """
        old, new = self._images(table, before), self._images(table, after)
        if old[0].length != new[0].length:
            raise refused("row_width_mismatch", f"{old[0].length} rows before and {new[0].length} after an update")
        self.log_of(table).append_columns(old, new, indirect)
        return self

    def delete_columns(self, table: Table, data: Any, *, indirect: bool = False) -> Self:
        """Rows were deleted, given as columns; the key columns are enough for a patchset."""
        self.log_of(table).append_columns(self._images(table, data), None, indirect)
        return self

    def _images(self, table: Table, data: Any) -> list[Vector]:
        images = image_columns(table, data, whole=self.marker == CHANGESET_MARKER)
        log = self.log_of(table)
        log.partial = log.partial or any(vector.is_all(Tag.UNDEFINED) for vector in images)
        return images

    def add(self, operation: Operation) -> Self:
        """Merge an operation, such as one of another file, by the rules of a changegroup (changesets §3.1)."""
        if operation.patchset != (self.marker == PATCHSET_MARKER):
            raise refused(
                "mixed_formats",
                f"this is a {type(self).__name__.lower()}, the operation comes from a "
                f"{'patchset' if operation.patchset else 'changeset'}",
            )
        group = self._gathered()
        added = operation.table.header(self.marker) + operation.encode()
        try:
            group.add(added)
        except apsw.Error as error:
            raise streams.why_not_together(
                [partial(io.BytesIO, part) for part in (group.output(), added)], error
            ) from error
        self._known.append(operation.table)
        return self

    def _gathered(self) -> apsw.ChangesetBuilder:
        """A changegroup that holds everything so far."""
        if self._group is None or self._logs:
            self._known += self._named_tables()
            group = apsw.ChangesetBuilder()  # type: ignore[no-untyped-call]
            for part in (self._closed_bytes(), b"".join(self._session_pieces())):
                group.add(part)
            self._closed, self._group, self._logs, self._log_of = b"", group, {}, {}
        return self._group

    def filtered(self, keep: Callable[[Operation], bool]) -> Self:
        """The file with only those operations that `keep` selects, in the order of this file.

        >>> users = Table("users", columns=[("id", "INTEGER"), ("name", "TEXT")], primary_key=["id"])
        >>> changes = Changeset().insert(users, (1, "Alice")).delete(users, (2, "Bob"))
        >>> changes.filtered(lambda operation: operation.kind == "insert")
        <Changeset users: {'insert': 1, 'update': 0, 'delete': 0, 'indirect': 0}>
        """
        records = ((header, record) for header, found in records_in(Window(bytes(self))) for record in found)
        kept = (record for operation, record in zip(self, records, strict=True) if keep(operation))
        return self._made(b"".join(with_headers(kept)), self._named_tables())

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The bytes piece by piece: one table's section is built after the other."""
        closed = self._closed_bytes()
        if not closed:
            yield from self._session_pieces()
        elif not self._logs:
            yield closed
        else:
            yield _joined([closed, b"".join(self._session_pieces())])

    def _closed_bytes(self) -> bytes:
        return self._closed if self._group is None else self._group.output()

    def write_to(self, out: BinaryIO) -> int:
        """Write the bytes to an open file; how many there were."""
        return sum(write_all(out, piece) for piece in self.pieces())

    def __iter__(self) -> Iterator[Operation]:
        return streams.iterate(bytes(self), self._named_tables())

    def __call__(self) -> Iterator[Operation]:
        """The operations: `changes()` of a `DatabaseDiff`, whose `changes` is this file."""
        return iter(self)

    def __len__(self) -> int:
        return len(self._summary())

    def __bool__(self) -> bool:
        return bool(self._closed or self._group or self._logs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChangeFile) and bytes(self) == bytes(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {counted}" for name, counted in self.statistics().items())
        return f"<{type(self).__name__} {counts or 'empty'}>"

    @property
    def operations(self) -> list[Operation]:
        """The surviving operations in file order."""
        return list(self)

    @property
    def tables(self) -> list[Table]:
        """The tables with surviving operations, in file order."""
        return list({section.table.name: section.table for section in self._summary().sections}.values())

    def statistics(self) -> dict[str, dict[str, int]]:
        """Counts of inserts, updates, deletes and indirect changes by table."""
        counts: dict[str, Counter[str]] = {}
        for section in self._summary().sections:
            counts.setdefault(section.table.name, Counter()).update(section.statistics())
        return {name: dict(counted) for name, counted in counts.items()}

    def _summary(self) -> streams.Summary:
        return streams.summary(io.BytesIO(bytes(self)), self._named_tables())

    def _named_tables(self) -> list[Table]:
        """The tables whose columns have names, each once; the newest description wins."""
        known = [*self._known, *(log.table for log in self._logs.values())]
        return list({folded(table.name): table for table in known if table.is_named}.values())

    def to_sql(self, tables: Iterable[Table] = ()) -> str:
        """The operations as SQL statements, a line each; `tables` name the columns of a parsed file."""
        from driftline.changesets._format.show import to_sql

        operations = streams.iterate(bytes(self), tables) if tables else self
        return "".join(f"{statement}\n" for statement in to_sql(operations))

    def _session_pieces(self) -> Iterator[bytes | memoryview]:
        from driftline.changesets._format.session import consolidated, section_pieces

        for log in self._logs.values():
            entries = consolidated(log.table, log.collected(), partial=log.partial)
            yield from section_pieces(log.table, entries, self.marker)

    def log_of(self, table: Table) -> EventLog:
        """The log that takes this table's events."""
        if (known := self._log_of.get(id(table))) is not None:
            return known
        log = self._logs.setdefault(folded(table.name), EventLog(table))
        if log.table.columns != table.columns or log.table.key_flags != table.key_flags:
            raise refused("schema_mismatch", f"two different tables named {table.name}")
        log.aliases.append(table)
        self._log_of[id(table)] = log
        return log


class Changeset(ChangeFile):
    """Changes with all old values: can be inverted, and conflicts can be found when it is applied."""

    marker = CHANGESET_MARKER

    def update(self, table: Table, old: AnyRow, new: AnyRow, *, indirect: bool = False) -> Self:
        """A row was updated; columns that stay as they were may be left out (a mapping) or `UNDEFINED` in both rows."""
        before = _before(table, old)
        after = _after(table, before, new)
        unknown = [index for index, field in enumerate(before) if field is UNDEFINED and after[index] is not UNDEFINED]
        if unknown:
            raise refused(
                "missing_column",
                f'table {table.name}: column "{table.column_names[unknown[0]]}" changes and has no old value',
            )
        return self._append(table, before, after, indirect)

    def delete(self, table: Table, row: AnyRow, *, indirect: bool = False) -> Self:
        """A row was deleted."""
        return self._append(table, table.row(row), None, indirect)

    def invert(self) -> Changeset:
        """The changeset that undoes this one."""
        return invert(self)


class Patchset(ChangeFile):
    """Changes with keys and new values only: smaller, and can be built without the old rows."""

    marker = PATCHSET_MARKER

    def update(self, table: Table, old: Any, new: Any, *, indirect: bool = False) -> Self:
        """A row was updated: old and new row, or its key and the changed columns.

        >>> users = Table("users", columns=["id", "name", "age"], primary_key=["id"])
        >>> [operation.new for operation in Patchset().update(users, {"id": 1}, {"age": 31})]
        [(UNDEFINED, UNDEFINED, 31)]
        """
        if not _is_whole_row(table, old):
            return self._update_by_key(table, table.key(old), new, indirect)
        before = _before(table, old)
        return self._append(table, before, _after(table, before, new), indirect)

    def delete(self, table: Table, row: Any, *, indirect: bool = False) -> Self:
        """A row was deleted, given whole or by its key; where all columns are the key, a tuple is a key."""
        is_key_only = len(table.primary_key) == table.width and not isinstance(row, Mapping)
        is_whole = _is_whole_row(table, row) and not is_key_only
        return self._append(table, _before(table, row) if is_whole else table.key(row), None, indirect)

    def invert(self) -> NoReturn:
        """A patchset cannot be undone."""
        raise patchset_not_invertible()

    @class_or_instance
    def digest_sql(cls_or_self: Patchset | type[Patchset], text: str, tables: Tables) -> Patchset:  # noqa: N805
        """Add what INSERT, UPDATE … WHERE key and DELETE … WHERE key statements do; on the class, to a new patchset.

        >>> users = Table.from_sql("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
        >>> bytes(Patchset.digest_sql("DELETE FROM users WHERE id = '7'", users)).hex()
        '500201007573657273000900010000000000000007'
        """
        from driftline.changesets._make.sql import digest

        target = cls_or_self() if isinstance(cls_or_self, type) else cls_or_self
        digest(text, tables, target)
        return target

    def _update_by_key(self, table: Table, key: Row, changes: object, indirect: bool) -> Self:
        if not isinstance(changes, Mapping):
            raise refused("invalid_changes", "an update by key takes the changed columns as a mapping")
        changed = table.fields(changes)
        if any(changed[index] not in (UNDEFINED, key[index]) for index in table.key_indexes):
            raise refused("key_change", f"table {table.name}: a change of key needs the whole old and new row")
        after = tuple(old if new is UNDEFINED else new for old, new in zip(key, changed, strict=True))
        return self._append(table, key, after, indirect)


def parse(data: Changes, tables: Iterable[Table] = ()) -> Changeset | Patchset:
    """The changeset or patchset in these bytes or this file, checked to its end; `tables` give names to columns.

    >>> parse(bytes.fromhex("5402010075736572730012000100000000000000010306416c69636961")).statistics()
    {'users': {'insert': 1, 'update': 0, 'delete': 0, 'indirect': 0}}
    """
    content = streams.content_of(data)
    known = data._named_tables() if isinstance(data, ChangeFile) else []
    known += tables
    marker = streams.summary(io.BytesIO(content), known).marker
    return (Patchset if marker == PATCHSET_MARKER else Changeset)._made(content, known)


def concat(*data: Changes, schema: Database | None = None) -> Changeset | Patchset:
    """One file that does what these do one after the other, as SQLite's changegroup merges them.

    `schema` is a database with the newer tables: files from before a column was added get its default.
    """
    known = [table for item in data if isinstance(item, ChangeFile) for table in item._named_tables()]
    if schema is not None:
        known += tables_from_database(schema)
    return parse(_joined(data, schema), {folded(table.name): table for table in known}.values())


def _joined(files: Iterable[Changes], schema: Database | None = None) -> bytes:
    out = io.BytesIO()
    streams.concat_to(out, files, schema=schema)
    return out.getvalue()


def invert(data: Changes) -> Changeset:
    """The changeset that undoes this one; a patchset is refused."""
    out = io.BytesIO()
    streams.invert_to(out, data)
    return Changeset._made(out.getvalue(), data._named_tables() if isinstance(data, ChangeFile) else [])


def rebase(data: Changes, *rebase_data: bytes | SupportsBytes) -> Changeset | Patchset:
    """Local changes moved behind remote ones: `rebase_data` is what applying the remote changes gave."""
    content = streams.content_of(data)
    tables = data.tables if isinstance(data, ChangeFile) else []
    if isinstance(parse(content), Patchset):
        raise refused("rebase_failed", "a patchset cannot be rebased: it does not hold the old values")
    rebaser = apsw.Rebaser()  # type: ignore[no-untyped-call]
    try:
        for item in rebase_data:
            rebaser.configure(bytes(item))
        return parse(rebaser.rebase(content), [table for table in tables if table.is_named])
    except apsw.Error as error:
        for item in rebase_data:
            parse(bytes(item))
        raise refused("rebase_failed", f"the changes could not be rebased: {error}") from error


def _before(table: Table, old: AnyRow) -> Row:
    before = table.row(old, partial=True)
    for index in table.key_indexes:
        if before[index] is UNDEFINED:
            raise refused(
                "missing_column",
                f'table {table.name}: the old row has no value for its key column "{table.column_names[index]}"',
            )
    return before


def _after(table: Table, before: Row, new: AnyRow) -> Row:
    changed = table.fields(new) if isinstance(new, Mapping) else table.row(new, partial=True)
    return tuple(old if field is UNDEFINED else field for old, field in zip(before, changed, strict=True))


def _is_whole_row(table: Table, row: object) -> bool:
    if isinstance(row, Mapping):
        return sum(not table.is_generated(name) for name in row) == table.width
    return not isinstance(row, str | bytes) and hasattr(row, "__len__") and len(row) == table.width

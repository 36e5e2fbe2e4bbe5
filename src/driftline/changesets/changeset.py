"""`Changeset` and `Patchset`: builders, parsed files and results of merging, all with the same face.

>>> users = Table("users", columns=[("id", "INTEGER"), ("name", "TEXT")], primary_key=["id"])
>>> changes = Changeset()
>>> changes.insert(users, {"id": 1, "name": "Alice"})
>>> changes.update(users, (1, "Alice"), (1, "Alicia"))
>>> [(operation.kind, operation.new) for operation in changes]
[('insert', (1, 'Alicia'))]
>>> bytes(changes).hex()
'5402010075736572730012000100000000000000010306416c69636961'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MethodType
from typing import Any, BinaryIO, ClassVar, Self

from driftline.changesets.events import ColumnEvents, EventLog, image_columns
from driftline.changesets.format import CHANGESET_MARKER, PATCHSET_MARKER, TAG_UNDEFINED, UNDEFINED, Row
from driftline.changesets.names import folded
from driftline.changesets.operations import Operation
from driftline.changesets.reading import Header, read_headers, read_operations
from driftline.changesets.table import AnyRow, Table
from driftline.errors import ChangesetError


class class_or_instance:  # noqa: N801 - reads as a decorator
    """A method that can be called on the class too."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        return MethodType(self._function, owner if instance is None else instance)


class ChangeFile:
    """What changesets and patchsets share: events come in, the bytes of a session come out.

    A file that was parsed or merged can take further events; they are merged as SQLite's changegroup would.
    """

    marker: ClassVar[int]

    def __init__(self) -> None:
        self._closed = b""
        self._operations: list[Operation] | None = None
        self._logs: dict[str, EventLog] = {}
        self._log_of: dict[int, EventLog] = {}

    @classmethod
    def from_bytes(cls, data: bytes, tables: Iterable[Table] = ()) -> Self:
        """A file of this format; its columns get names from `tables` where given."""
        parsed = parse(data, tables)
        if not isinstance(parsed, cls) and data:
            wanted = cls.__name__.lower()
            raise ChangesetError(
                f"a {wanted} is wanted, this is a {type(parsed).__name__.lower()}", code="wrong_format"
            )
        made = cls()
        made._closed, made._operations = bytes(data), parsed._operations
        return made

    def insert(self, table: Table, row: AnyRow, *, indirect: bool = False) -> None:
        """A row was inserted."""
        self.log_of(table).append(None, table.row(row), indirect)

    def insert_columns(self, table: Table, data: Any, *, indirect: bool = False) -> None:
        """Rows were inserted, given as Arrow, Polars or plain columns by name."""
        self.log_of(table).append_columns(ColumnEvents(None, image_columns(table, data), indirect))

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The bytes piece by piece: one table's section is built after the other."""
        if not self._closed:
            yield from self._session_pieces()
        elif not self._logs:
            yield self._closed
        else:
            from driftline.changesets.changegroup import merged

            yield merged([self._closed, b"".join(self._session_pieces())])

    def write_to(self, out: BinaryIO) -> int:
        """Write the bytes to an open file; how many there were."""
        return sum(out.write(piece) for piece in self.pieces())

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.operations)

    def __len__(self) -> int:
        return len(self.operations)

    def __bool__(self) -> bool:
        return bool(self._closed or self._logs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChangeFile) and bytes(self) == bytes(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {counted}" for name, counted in self.statistics().items())
        return f"<{type(self).__name__} {counts or 'empty'}>"

    @property
    def operations(self) -> list[Operation]:
        """The surviving operations in file order."""
        if self._operations is None or self._logs:
            known = [log.table for log in self._logs.values()]
            closed = [operation.table for operation in self._operations or ()]
            return parse(bytes(self), [*known, *_named_once(closed)])._operations or []
        return self._operations

    @property
    def tables(self) -> list[Table]:
        """The tables with surviving operations, in file order."""
        return list({operation.table.name: operation.table for operation in self.operations}.values())

    def statistics(self) -> dict[str, dict[str, int]]:
        """Counts of inserts, updates, deletes and indirect changes by table."""
        counts: dict[str, dict[str, int]] = {}
        for operation in self.operations:
            of_table = counts.setdefault(operation.table.name, {"insert": 0, "update": 0, "delete": 0, "indirect": 0})
            of_table[operation.kind] += 1
            of_table["indirect"] += bool(operation.indirect)
        return counts

    def to_sql(self, tables: Iterable[Table] = ()) -> str:
        """The operations as SQL statements, a line each; `tables` name the columns of a parsed file."""
        from driftline.changesets.showing import statements

        operations = parse(bytes(self), tables).operations if tables else self.operations
        return "".join(f"{statement}\n" for statement in statements(operations))

    def _session_pieces(self) -> Iterator[bytes | memoryview]:
        from driftline.changesets.session import consolidated, section_pieces

        for log in self._logs.values():
            entries = consolidated(log.table, log.collected(), partial=log.partial)
            yield from section_pieces(log.table, entries, self.marker)

    def log_of(self, table: Table) -> EventLog:
        """The log that takes this table's events."""
        return self._log_of.get(id(table)) or self._new_log(table)

    def _new_log(self, table: Table) -> EventLog:
        log = self._logs.setdefault(folded(table.name), EventLog(table))
        if log.table.columns != table.columns or log.table.key_flags != table.key_flags:
            raise ChangesetError(f"two different tables named {table.name}", code="schema_mismatch")
        log.aliases.append(table)
        self._log_of[id(table)] = log
        return log


class Changeset(ChangeFile):
    """Changes with all old values: can be inverted, and conflicts can be found when it is applied."""

    marker = CHANGESET_MARKER

    def update(self, table: Table, old: AnyRow, new: AnyRow, *, indirect: bool = False) -> None:
        """A row was updated; a mapping `new` may leave out columns that stay as they were."""
        before = table.row(old)
        self.log_of(table).append(before, _after(table, before, new), indirect)

    def delete(self, table: Table, row: AnyRow, *, indirect: bool = False) -> None:
        """A row was deleted."""
        self.log_of(table).append(table.row(row), None, indirect)

    def update_columns(self, table: Table, before: Any, after: Any, *, indirect: bool = False) -> None:
        """Rows were updated: columns before and after, row by row beside each other."""
        _append_updates(self.log_of(table), image_columns(table, before), image_columns(table, after), indirect)

    def delete_columns(self, table: Table, data: Any, *, indirect: bool = False) -> None:
        """Rows were deleted, given as columns."""
        self.log_of(table).append_columns(ColumnEvents(image_columns(table, data), None, indirect))

    def invert(self) -> Changeset:
        """The changeset that undoes this one."""
        from driftline.changesets.changegroup import inverted

        return Changeset.from_bytes(inverted(bytes(self)), _named_once(self.tables))


class Patchset(ChangeFile):
    """Changes with keys and new values only: smaller, and can be built without the old rows."""

    marker = PATCHSET_MARKER

    def update(self, table: Table, old: Any, new: Any, *, indirect: bool = False) -> None:
        """A row was updated: old and new row, or its key and the changed columns.

        >>> patch = Patchset()
        >>> users = Table("users", columns=["id", "name", "age"], primary_key=["id"])
        >>> patch.update(users, {"id": 1}, {"age": 31})
        >>> [operation.new for operation in patch]
        [(UNDEFINED, UNDEFINED, 31)]
        """
        if _is_whole_row(table, old):
            before = table.row(old)
            self.log_of(table).append(before, _after(table, before, new), indirect)
        else:
            self._update_by_key(table, table.key(old), new, indirect)

    def delete(self, table: Table, row: Any, *, indirect: bool = False) -> None:
        """A row was deleted, given whole or by its key."""
        log = self.log_of(table)
        if _is_whole_row(table, row):
            log.append(table.row(row), None, indirect)
        else:
            log.partial = True
            log.append(table.key(row), None, indirect)

    def update_columns(self, table: Table, before: Any, after: Any, *, indirect: bool = False) -> None:
        """Rows were updated: columns before and after; `before` may hold the key only, `after` only what changed."""
        old, new = image_columns(table, before, whole=False), image_columns(table, after, whole=False)
        log = self.log_of(table)
        log.partial = log.partial or _leaves_fields_out([*old, *new])
        _append_updates(log, old, new, indirect)

    def delete_columns(self, table: Table, data: Any, *, indirect: bool = False) -> None:
        """Rows were deleted, given as columns; the key columns are enough."""
        images = image_columns(table, data, whole=False)
        log = self.log_of(table)
        log.partial = log.partial or _leaves_fields_out(images)
        log.append_columns(ColumnEvents(images, None, indirect))

    @class_or_instance
    def digest_sql(cls_or_self: Patchset | type[Patchset], text: str, tables: Any) -> Patchset:  # noqa: N805
        """Add what INSERT, UPDATE … WHERE key and DELETE … WHERE key statements do; on the class, to a new patchset.

        >>> users = Table.from_sql("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
        >>> bytes(Patchset.digest_sql("DELETE FROM users WHERE id = '7'", users)).hex()
        '500201007573657273000900010000000000000007'
        """
        from driftline.changesets.sql_digest import digest

        target = cls_or_self() if isinstance(cls_or_self, type) else cls_or_self
        digest(text, tables, target)
        return target

    def _update_by_key(self, table: Table, key: Row, changes: Any, indirect: bool) -> None:
        if not isinstance(changes, Mapping):
            raise ChangesetError("an update by key takes the changed columns as a mapping", code="invalid_changes")
        changed = table.fields(changes)
        if any(changed[index] not in (UNDEFINED, key[index]) for index in table.key_indexes):
            raise ChangesetError(
                f"table {table.name}: a change of key needs the whole old and new row", code="key_change"
            )
        after = tuple(old if new is UNDEFINED else new for old, new in zip(key, changed, strict=True))
        log = self.log_of(table)
        log.partial = True
        log.append(key, after, indirect)


def parse(data: bytes | ChangeFile, tables: Iterable[Table] = ()) -> Changeset | Patchset:
    """The changeset or patchset in these bytes, checked to its end; `tables` give names to columns.

    >>> parse(bytes.fromhex("5402010075736572730012000100000000000000010306416c69636961")).statistics()
    {'users': {'insert': 1, 'update': 0, 'delete': 0, 'indirect': 0}}
    """
    content = bytes(data)
    named = {folded(table.name): table for table in tables}
    operations: list[Operation] = []
    header: Header | None = None
    offset = 0
    while offset < len(content):
        header = read_headers(content, offset, header)
        header = header._replace(table=_named(header.table, named))
        found, offset = read_operations(content, header)
        operations += found
    made = Patchset() if header is not None and header.marker == PATCHSET_MARKER else Changeset()
    made._closed, made._operations = content, operations
    return made


def concat(*data: bytes | ChangeFile) -> Changeset | Patchset:
    """One file that does what these do one after the other, as SQLite's changegroup merges them."""
    from driftline.changesets.changegroup import merged

    tables = [table for item in data if isinstance(item, ChangeFile) for table in _named_once(item.tables)]
    return parse(merged(bytes(item) for item in data), tables)


def invert(data: bytes | ChangeFile) -> Changeset:
    """The changeset that undoes this one; a patchset is refused."""
    from driftline.changesets.changegroup import inverted

    tables = _named_once(data.tables) if isinstance(data, ChangeFile) else []
    return Changeset.from_bytes(inverted(bytes(data)), tables)


def _named(table: Table, named: Mapping[str, Table]) -> Table:
    known = named.get(folded(table.name))
    if known is None:
        return table
    if known.key_flags != table.key_flags:
        raise ChangesetError(
            f"table {table.name} of the file has {table.width} columns and key {table.key_flags}, "
            f"the schema has {known.width} and {known.key_flags}",
            code="schema_mismatch",
        )
    return known


def _named_once(tables: Iterable[Table]) -> list[Table]:
    return list({folded(table.name): table for table in tables if table.is_named}.values())


def _after(table: Table, before: Row, new: AnyRow) -> Row:
    if not isinstance(new, Mapping):
        return table.row(new)
    changed = table.fields(new)
    return tuple(old if field is UNDEFINED else field for old, field in zip(before, changed, strict=True))


def _is_whole_row(table: Table, row: Any) -> bool:
    if isinstance(row, Mapping):
        return sum(name not in table.generated for name in row) == table.width
    return not isinstance(row, str | bytes) and hasattr(row, "__len__") and len(row) == table.width


def _leaves_fields_out(vectors: Iterable[Any]) -> bool:
    return any(vector.is_all(TAG_UNDEFINED) for vector in vectors)


def _append_updates(log: EventLog, before: Any, after: Any, indirect: bool) -> None:
    if before[0].length != after[0].length:
        raise ChangesetError(
            f"{before[0].length} rows before and {after[0].length} after an update", code="row_width_mismatch"
        )
    log.append_columns(ColumnEvents(before, after, indirect))

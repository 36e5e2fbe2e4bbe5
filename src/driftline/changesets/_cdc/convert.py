"""Captured changes of other databases as changesets, row deltas or events of a table diff (changesets §10.3).

>>> message = '{"action":"U","table":"t","columns":[{"name":"id","value":1},{"name":"v","value":2}]}'
>>> from_cdc([message], "CREATE TABLE t (id INTEGER PRIMARY KEY, v, w)").changes.operations
[<update of t: {'id': 1} -> {'v': 2}>]
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, Literal

from driftline import deltas
from driftline.changesets._cdc.dialects import AtLine, CdcEvent, CdcValue, DecimalText, Image, NumberText, events_of
from driftline.changesets._format.changeset import Changeset, Patchset
from driftline.changesets._format.database import ROWID, tables_from_sql
from driftline.changesets._format.table import Affinity, Field, Operation, Table, apply_affinity, folded, refused
from driftline.core import canonical_json, exact_number
from driftline.errors import DeltaError

Format = Literal["changeset", "patchset"]
Lines = Iterable[str | bytes]
OffsetLines = Iterable[tuple[int, bytes]]  # each with the offset at which it begins
Row = dict[str, Field]

# How SQLite's affinities read values on their way to the type of a column.
# Exact numbers are read as text: the affinities of numbers round. Booleans and JSON have none.
_AFFINITIES = {"string": "TEXT", "number": "NUMERIC", "integer": "TEXT", "decimal": "TEXT"}
_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false")


@dataclass(frozen=True, slots=True)
class CdcNote:
    """Something that was passed over on request."""

    code: str
    name: str
    line: int


@dataclass(slots=True)
class Captured:
    """The changes of captured messages, and what was passed over."""

    changes: Changeset | Patchset
    notes: list[CdcNote] = field(default_factory=list)
    transaction: str | None = None

    def __bytes__(self) -> bytes:
        return bytes(self.changes)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)


@dataclass(frozen=True, slots=True)
class CdcOptions:
    """How messages are read: from which source, whether old images are whole, and what becomes of TRUNCATE."""

    source: str | None = None
    before: Literal["key", "full"] = "key"
    on_truncate: Literal["error", "skip"] = "error"


def from_cdc(
    lines: Lines,
    tables: str | Table | Iterable[Table],
    *,
    format: Format = "patchset",  # noqa: A002 - the word of the command line
    source: str | None = None,
    before: Literal["key", "full"] = "key",
    on_truncate: Literal["error", "skip"] = "error",
) -> Captured:
    """The changes of wal2json, Debezium or Maxwell messages, one JSON message a line, in their order.

    `tables` are the SQLite tables that the rows go into, also as `CREATE TABLE` text. A changeset needs whole old rows.
    """
    options = CdcOptions(source, before, on_truncate)
    captured = Captured(_empty(format))
    for change in row_changes(lines, tables, options, captured.notes):
        change.add_to(captured.changes)
    return captured


def transactions(
    lines: Lines,
    tables: str | Table | Iterable[Table],
    options: CdcOptions,
    *,
    format: Format,  # noqa: A002
) -> Iterator[Captured]:
    """The same, a result for each transaction that changed rows."""
    captured = Captured(_empty(format))
    number = None
    for change in row_changes(lines, tables, options, captured.notes):
        if number is not None and change.transaction_number != number:
            yield captured
            captured = Captured(_empty(format), captured.notes)
        number = change.transaction_number
        captured.transaction = change.event.transaction
        change.add_to(captured.changes)
    if number is not None:
        yield captured


def _empty(format: Format) -> Changeset | Patchset:  # noqa: A002
    return Changeset() if format == "changeset" else Patchset()


def row_changes(
    lines: Lines, tables: str | Table | Iterable[Table], options: CdcOptions, notes: list[CdcNote]
) -> Iterator[RowChange]:
    """The changes of rows, each checked against its table."""
    if isinstance(tables, str):
        tables = tables_from_sql(tables)
    known = {folded(table.name): table for table in ([tables] if isinstance(tables, Table) else tables)}
    namespaces: dict[str, str] = {}
    transaction = _Transaction()
    for line, event in events_of(lines, options.source):
        transaction.see(event)
        if event.kind in ("begin", "commit"):
            continue
        with AtLine(line):
            name = folded(event.table)
            if name not in known:
                raise refused("unknown_table", f'the schema has no table "{event.table}"')
            if namespaces.setdefault(name, event.namespace) != event.namespace:
                # One name in two databases would be mixed up.
                where = f"{namespaces[name]} and {event.namespace}"
                raise refused("ambiguous_table", f'table "{event.table}" comes from {where}: give one of them')
            table = known[name]
            if event.kind != "truncate":
                yield RowChange.of(event, table, options, transaction.number, line)
            elif options.on_truncate == "skip":
                notes.append(CdcNote("truncate", table.name, line))
            else:
                raise refused(
                    "truncate", f"table {table.name} was truncated, and no change says so (--on-truncate skip)"
                )
    if transaction.is_open:
        raise refused("open_transaction", "the last transaction has begun and was not committed")


class _Transaction:
    """The number of the transaction that events belong to, by its marks or by the ids that events have."""

    def __init__(self) -> None:
        self.number = 0
        self.is_open = False
        self._id: str | None = None

    def see(self, event: CdcEvent) -> None:
        if event.kind == "commit":
            self.number += 1
            self.is_open, self._id = False, None
            return
        is_new = event.transaction != self._id
        if event.kind == "begin":
            # Maxwell marks every row but the last of a transaction.
            self.number += is_new or not self.is_open
            self.is_open, self._id = True, event.transaction
        elif not self.is_open and is_new:
            self.number += 1
            self._id = event.transaction


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of a row in the terms of its SQLite table; `old` is None where the old row is not known whole."""

    event: CdcEvent
    table: Table
    key: Row
    old: Row | None
    new: Row | None
    line: int
    transaction_number: int

    @classmethod
    def of(cls, event: CdcEvent, table: Table, options: CdcOptions, number: int, line: int) -> RowChange:
        """The change of an event, checked against its table."""
        if table.primary_key == (ROWID,):
            raise refused("no_key", f"table {table.name} has no primary key, and messages do not tell its rowids")
        before, new = _row(table, event.old), _row(table, event.new)
        old = _whole(table, before, event, options)
        if event.kind == "insert":
            if new is None:
                raise refused("invalid_message", f"an insert of {table.name} without a row")
            _check_complete(table, new, "missing_column", "an insert")
            return cls(event, table, _key(table, new), None, new, line, number)
        key = _key(table, before if _has_key(table, before) else new if event.kind == "update" else None)
        if event.kind == "update" and new is None:
            raise refused("invalid_message", f"an update of {table.name} without a new row")
        return cls(event, table, key, old, None if event.kind == "delete" else new, line, number)

    def add_to(self, changes: Changeset | Patchset) -> None:
        if isinstance(changes, Changeset) and self.event.kind != "insert" and self.old is None:
            with AtLine(self.line):
                raise refused(
                    "no_old_row",
                    f"table {self.table.name}: a changeset needs the whole old row (REPLICA IDENTITY FULL; wal2json "
                    "format 1 leaves NULLs out of it, Debezium does not tell: --before full), or make a patchset",
                )
        for op, key, values in self.steps():
            if op == "INSERT":
                changes.insert(self.table, values)
            elif op == "DELETE":
                changes.delete(self.table, key if self.old is None else self.old)
            elif self.old is None:
                changes.update(self.table, key, values)
            else:
                changes.update(self.table, self.old, {**self.old, **(self.new or {})})

    def steps(self) -> list[tuple[deltas.Op, Row, Row]]:
        """What happens to rows, by key: an update that changes the key is a delete and an insert."""
        if self.event.kind == "insert":
            return [("INSERT", self.key, self.new or {})]
        if self.event.kind == "delete":
            return [("DELETE", self.key, {})]
        if self.changes_key:
            row = self.complete_new()
            return [("DELETE", self.key, {}), ("INSERT", _key(self.table, row), row)]
        return [("UPDATE", self.key, self.changed_values())]

    @property
    def changes_key(self) -> bool:
        """Whether an update moves the row to another key."""
        new = self.new or {}
        return not all(_is_same(before, new.get(name, before)) for name, before in self.key.items())

    def changed_values(self) -> Row:
        """The new values of an update without its key: those that changed, or all that were sent."""
        known = self.old or {}
        sent = {name: value for name, value in (self.new or {}).items() if name not in self.key}
        return {name: value for name, value in sent.items() if name not in known or not _is_same(known[name], value)}

    def complete_new(self) -> Row:
        """The new row with what is known from the old one."""
        row = {**(self.old or {}), **(self.new or {})}
        with AtLine(self.line):
            _check_complete(self.table, row, "unchanged_toast", "a change of key")
        return row


def _is_same(one: Field, other: Field) -> bool:
    return type(one) is type(other) and one == other


def deltas_from_cdc(
    lines: Lines,
    tables: str | Table | Iterable[Table],
    *,
    client_id: str,
    start: int | deltas.Clock,
    source: str | None = None,
    before: Literal["key", "full"] = "key",
    on_truncate: Literal["error", "skip"] = "error",
    notes: list[CdcNote] | None = None,
) -> Iterator[deltas.RowDelta]:
    """The same messages as row deltas; timestamps count up from `start`, or come from a clock."""
    timestamps = iter(start.now, None) if isinstance(start, deltas.Clock) else count(start)
    options = CdcOptions(source, before, on_truncate)
    for change in row_changes(lines, tables, options, [] if notes is None else notes):
        with AtLine(change.line):
            yield from _deltas(change, client_id, timestamps)


def _deltas(change: RowChange, client_id: str, timestamps: Iterator[int | None]) -> Iterator[deltas.RowDelta]:
    for op, key, values in change.steps():
        if op == "UPDATE" and not values:
            continue
        for name, value in values.items():
            if isinstance(value, bytes):
                where = f'table {change.table.name}, column "{name}"'
                raise refused("invalid_value", f"{where}: row deltas hold no blobs")
        columns = [deltas.ColumnDelta(name, value) for name, value in values.items()]
        yield deltas.RowDelta.make(
            op=op,
            table=change.table.name,
            row_id=deltas.row_id_of_key(list(key.values())),
            client_id=client_id,
            columns=columns,
            hlc=next(timestamps) or 0,
        )


def _row(table: Table, image: Image | None) -> Row | None:
    """An image by the table's own column names, with values as its columns store them."""
    if image is None:
        return None
    row: Row = {}
    for name, value in image.items():
        if table.is_generated(name):
            continue
        if folded(name) not in table.column_index:
            raise refused("schema_mismatch", f'table {table.name} has no column "{name}"')
        column = table.columns[table.column_index[folded(name)]]
        row[column.name] = apply_affinity(_stored(value, column.affinity), column.affinity)
    return row


def _stored(value: CdcValue, affinity: Affinity) -> Field:
    if not isinstance(value, NumberText):
        return value
    # Other affinities read the number from its text; without one it would stay text.
    return float(value) if affinity is Affinity.BLOB else str(value)


def _whole(table: Table, before: Row | None, event: CdcEvent, options: CdcOptions) -> Row | None:
    if before is None:
        return None
    if options.before == "full":
        return {**dict.fromkeys(table.column_names), **before}
    return before if event.is_whole and len(before) == table.width else None


def _has_key(table: Table, row: Row | None) -> bool:
    return row is not None and all(name in row for name in table.primary_key)


def _key(table: Table, row: Row | None) -> Row:
    if row is None or not _has_key(table, row):
        raise refused(
            "no_key", f"table {table.name}: the message does not have the key ({', '.join(table.primary_key)})"
        )
    return {name: row[name] for name in table.primary_key}


def _check_complete(table: Table, row: Mapping[str, Field], code: str, what: str) -> None:
    missing = [name for name in table.column_names if name not in row]
    if missing:
        raise refused(code, f'table {table.name}: {what} without a value for column "{missing[0]}"')


# Events of a table diff, which lakes load (pipeline §8): `added`, `changed` or `removed`, a changed row with only the
# columns that were sent. Pieces of a stream are read independently of one another, so that tasks can share the work.


@dataclass(frozen=True)
class CdcTable:
    """The table that a stream is read for: its name there, its key, its columns and their types."""

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    types: Mapping[str, deltas.ColumnType]
    namespace: str | None = None  # any, where none is named
    source: str | None = None
    skip_truncate: bool = False
    ignore_new: bool = False  # columns that the table does not have are passed over
    fill_missing: bool = False  # an insert without a column has null there

    def is_about(self, event: CdcEvent) -> bool:
        """Whether an event is one of this table's."""
        return folded(event.table) == folded(self.name) and self.namespace in (None, event.namespace)

    def type_of(self, name: str) -> deltas.ColumnType:
        """The type of a column; what is not declared is text."""
        return self.types.get(name, "string")

    def number(self, name: str, value: CdcValue) -> CdcValue:
        """A number before SQLite's affinities read it: exact ones as written, others if a double holds them."""
        kind = self._number_types.get(folded(name))
        if kind is None or value is None or isinstance(value, bytes | float):
            return value
        if kind == "number":
            is_whole = str(value).lstrip("-").isdecimal()
            is_number = isinstance(value, NumberText | DecimalText)
            token = int(value) if is_whole else exact_number(str(value)) if is_number else 0
            if deltas.survives(token):
                return value
            raise refused(
                "inexact_number",
                f'column "{name}" is a number, a double, which would change {str(value)[:60]}: '
                f'declare columns = {{ {name} = "{"integer" if is_whole else "decimal"}" }}',
            )
        if isinstance(value, str) and not isinstance(value, NumberText | DecimalText):
            return value
        with _typing():
            return str(deltas.typed_row({name: str(value)}, {name: kind})[name])

    @cached_property
    def _number_types(self) -> dict[str, deltas.ColumnType]:
        kinds = {folded(name): kind for name, kind in self.types.items()}
        return {name: kind for name, kind in kinds.items() if kind not in ("string", "boolean", "json")}

    def sqlite_table(self) -> Table:
        """The table whose rules read rows and values."""
        columns = [(name, _AFFINITIES.get(deltas.ColumnSchema(name, self.type_of(name)).kind)) for name in self.columns]
        return Table(self.name, columns, self.key)


@dataclass
class PieceFacts:
    """What a piece of a stream contains beside its changes.

    `columns` are the ones that rows of the table have, `ending` says how its transactions end: None where no mark was
    seen, else where the one that is still open begins, or -1 where none is.
    """

    counts: Counter[str] = field(default_factory=Counter)
    columns: dict[str, None] = field(default_factory=dict)
    namespaces: dict[str, None] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)
    truncated: int = 0
    ending: int | None = None
    open_id: str | None = None
    committed: bool = False

    def see_mark(self, event: CdcEvent, offset: int) -> None:
        """Take notice of where a transaction begins or ends; Maxwell marks every row but the last as a beginning."""
        if event.kind == "commit":
            self.ending, self.open_id, self.committed = -1, None, True
        elif self.ending in (None, -1) or event.transaction != self.open_id:
            self.ending, self.open_id = offset, event.transaction


def survey(lines: OffsetLines, table: CdcTable) -> PieceFacts:
    """Which columns the rows of a piece have, without reading their values."""
    facts = PieceFacts()
    for _ in _table_events(lines, table, facts):
        pass
    return facts


def convert(lines: OffsetLines, table: CdcTable, write: Callable[[bytes], object]) -> PieceFacts:
    """Write the changes of a piece as lines of events; a message that cannot be read is an error."""
    facts = PieceFacts()
    target = table.sqlite_table()
    options = CdcOptions(table.source)
    for offset, event in _table_events(lines, table, facts):
        with AtLine(offset, "byte"):
            change = RowChange.of(_with_columns(event, table), target, options, 0, 1)
            for row in _diff_events(change, table):
                facts.counts[str(row["type"])] += 1
                write(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    return facts


@contextmanager
def _typing() -> Iterator[None]:
    try:
        yield
    except DeltaError as error:
        raise refused(error.code, error.message) from error


def _table_events(lines: OffsetLines, table: CdcTable, facts: PieceFacts) -> Iterator[tuple[int, CdcEvent]]:
    """The events of the table's rows; all others are counted in `facts`."""
    for offset, line in lines:
        with AtLine(offset, "byte"):
            found = [event for _, event in events_of([line], table.source)]
        for event in found:
            if event.kind in ("begin", "commit"):
                facts.see_mark(event, offset)
            elif not table.is_about(event):
                facts.others[event.table] += 1
            elif event.kind == "truncate":
                facts.truncated += 1
                if not table.skip_truncate:
                    with AtLine(offset, "byte"):
                        raise refused(
                            "truncate",
                            f"table {table.name} was truncated, and no row says so: "
                            'on_truncate = "skip" passes over it',
                        )
            else:
                facts.namespaces.setdefault(event.namespace)
                for image in (event.new, event.old):
                    facts.columns.update(dict.fromkeys(image or ()))
                yield offset, event


def _with_columns(event: CdcEvent, table: CdcTable) -> CdcEvent:
    """The event with the columns of the table: unknown ones dropped and missing ones null, where that is allowed."""
    known = {folded(name) for name in table.columns}
    old, new = (
        image and {name: table.number(name, value) for name, value in image.items()} for image in (event.old, event.new)
    )
    if table.ignore_new:
        old, new = (
            image and {name: value for name, value in image.items() if folded(name) in known} for image in (old, new)
        )
    if table.fill_missing and event.kind == "insert" and new is not None:
        there = {folded(name) for name in new}
        new = {**new, **{name: None for name in table.columns if folded(name) not in there}}
    return replace(event, old=old, new=new)


def _diff_events(change: RowChange, table: CdcTable) -> Iterator[dict[str, object]]:
    """The change as events of a diff; a changed key is a removed row and an added one."""
    for op, key, values in change.steps():
        if op == "UPDATE" and values:
            after = _typed(values, table)
            yield {"type": "changed", "key": _key_texts(key, table), "before": {}, "after": after}
        elif op != "UPDATE":
            kind, row = ("added", values) if op == "INSERT" else ("removed", key)
            yield {"type": kind, "key": _key_texts(row, table), "row": _typed(row, table)}


def _key_texts(row: Mapping[str, Field], table: CdcTable) -> dict[str, object]:
    """The key as text, which it is in files of text too, so that rows have the same ids wherever they come from.

    Exact numbers are in their wire form, as from every source.
    """
    found: dict[str, object] = {}
    by_name: dict[str, Any] = {folded(name): value for name, value in row.items()}
    for name in table.key:
        value, kind = by_name[folded(name)], table.type_of(name)
        if kind in ("integer", "string") or deltas.decimal_scale(kind) is not None:
            with _typing():
                found[name] = deltas.typed_key(name, value, kind)
        else:
            found[name] = value if isinstance(value, str) else canonical_json(value)
    return found


def _typed(row: Mapping[str, Field], table: CdcTable) -> dict[str, object]:
    return {name: _lake_value(name, value, table.type_of(name)) for name, value in row.items()}


def _lake_value(name: str, value: Field, kind: deltas.ColumnType) -> Any:
    """A stored value as the lake's column holds it."""
    if value is None:
        return None
    if isinstance(value, bytes):
        raise refused("invalid_value", f'column "{name}": row deltas hold no blobs')
    if kind == "boolean":
        text = str(value).lower()
        if text not in (*_TRUE, *_FALSE):
            raise refused("wrong_type", f'column "{name}" holds {str(value)[:40]!r}, which is not a boolean')
        return text in _TRUE
    if kind == "number" and isinstance(value, str):
        raise refused("wrong_type", f'column "{name}" holds {value[:40]!r}, which is not a number')
    if kind == "integer" or deltas.decimal_scale(kind) is not None:
        with _typing():
            return deltas.typed_row({name: value}, {name: kind})[name]
    if kind == "json" and isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value

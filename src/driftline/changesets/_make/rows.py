"""Events of a table diff and row deltas as changesets and patchsets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import msgspec

from driftline.changesets._format.changeset import Changeset, Patchset
from driftline.changesets._format.records import PLAIN_INTEGER, Vector, from_values, matching
from driftline.changesets._format.session import EventLog, single_entries
from driftline.changesets._format.table import Row, Table, Tag, Value, folded, plain_value, refused
from driftline.core import canonical_json
from driftline.deltas import RowDelta, RowState, TableSchema, merge, stamp_of
from driftline.errors import ChangesetError

Format = Literal["changeset", "patchset"]
Event = Mapping[str, Any]
Schemas = TableSchema | Iterable[TableSchema] | Mapping[str, TableSchema]

_ROW_ID_COLUMN = "row_id"
_FRAME = ("schema", "stats", "unchanged")
_EMPTY = "^$"
_DECIMAL = r"^-?(?:0|[1-9][0-9]{0,8})\.[0-9]{0,5}[1-9]$"  # few digits: read and printed again they are the same


# Row deltas.


def from_deltas(deltas: Iterable[RowDelta], schemas: Schemas) -> Patchset:
    """The patchset that brings a database from before these deltas to after them, in whatever order they are given.

    Deltas contain new values only, so no changeset can be made of them.

    >>> from driftline.deltas import ColumnDelta, RowDelta, TableSchema
    >>> columns = [{"name": "title", "type": "string"}, {"name": "done", "type": "boolean"}]
    >>> todos = TableSchema(table="todos", columns=columns)
    >>> delta = RowDelta.make(
    ...     op="UPDATE", table="todos", row_id="7", client_id="laptop", columns=[ColumnDelta("done", True)], hlc=1
    ... )
    >>> [(operation.kind, operation.key, operation.new) for operation in from_deltas([delta], [todos])]
    [('update', ('7',), (UNDEFINED, UNDEFINED, 1))]
    """
    known = _by_name(schemas)
    tables = {name: table_of(schema) for name, schema in known.items()}
    ordered = sorted(deltas, key=stamp_of)
    first: dict[tuple[str, str], RowDelta] = {}
    for delta in ordered:
        first.setdefault((delta.table, delta.row_id), delta)
    states = merge(ordered)
    patch = Patchset()
    for (name, row_id), delta in first.items():
        if name not in known:
            raise refused("schema_needed", f'no schema for table "{name}"')
        _add_row(patch, tables[name], known[name], row_id, delta.op, states[name, row_id])
    return patch


def table_of(schema: TableSchema) -> Table:
    """The SQLite table of a schema; without key columns the row id is the key, in a column of its own."""
    columns = [(column.name, column.sqlite_type) for column in schema.columns]
    if schema.key:
        return Table(schema.table, columns=columns, primary_key=schema.key)
    if _ROW_ID_COLUMN in schema:
        raise refused("schema_mismatch", f'table {schema.table} has a column "{_ROW_ID_COLUMN}": name its key columns')
    return Table(schema.table, columns=[(_ROW_ID_COLUMN, "TEXT"), *columns], primary_key=[_ROW_ID_COLUMN])


def _add_row(patch: Patchset, table: Table, schema: TableSchema, row_id: str, first_op: str, state: RowState) -> None:
    key = _key_values(schema, row_id)
    columns = [column for column in schema.columns if column.name in state.columns]
    values = {column.name: _sqlite_value(state.columns[column.name], column.type) for column in columns}
    # A row that begins with an INSERT did not exist before; if it does not live now, nothing is left of it.
    if first_op == "DELETE" or (first_op == "UPDATE" and not state.live):
        patch.delete(table, key)
    if state.live and first_op == "UPDATE":
        patch.update(table, key, {name: value for name, value in values.items() if name not in key})
    elif state.live:
        patch.insert(table, {**dict.fromkeys(table.column_names), **values, **key})


def _key_values(schema: TableSchema, row_id: str) -> dict[str, Value]:
    """The key columns that a row id stands for: one value as text, several as a canonical JSON array."""
    if not schema.key:
        return {_ROW_ID_COLUMN: row_id}
    if len(schema.key) == 1:
        return {schema.key[0]: _key_value(schema, schema.key[0], row_id)}
    try:
        parts = json.loads(row_id)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or len(parts) != len(schema.key):
        raise refused(
            "invalid_key",
            f"row id {row_id!r} of table {schema.table} is not a JSON array of {len(schema.key)} key values",
        )
    return {name: _key_value(schema, name, part) for name, part in zip(schema.key, parts, strict=True)}


def _key_value(schema: TableSchema, name: str, value: object) -> Value:
    kind = schema.by_name[name].type
    if kind == "boolean" and value in ("true", "false"):
        return int(value == "true")
    # A json key alone is its canonical text already (deltas and lake: row ids).
    return value if kind == "json" and isinstance(value, str) else _sqlite_value(value, kind)


def _by_name(schemas: Schemas) -> dict[str, TableSchema]:
    if isinstance(schemas, TableSchema):
        schemas = [schemas]
    listed = schemas.values() if isinstance(schemas, Mapping) else schemas
    return {schema.table: schema for schema in listed}


# Events of a table diff.


class EventCollector:
    """Collects the events of one table diff and infers their table."""

    def __init__(
        self,
        name: str,
        *,
        types: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        primary_key: Sequence[str] | None = None,
    ) -> None:
        self._name = name
        self._types = {folded(column): declared for column, declared in (types or {}).items()}
        self._requested = columns
        self._columns: list[str] = []
        self.key: list[str] | None = None if primary_key is None else list(primary_key)
        self._images: list[Row | None] = []

    def add(self, event: Event) -> None:
        """Add one event."""
        kind = event.get("type")
        if kind == "schema":
            columns = list(event["columns_b"])
            if self._requested is not None and set(columns) != set(self._requested):
                raise refused(
                    "schema_mismatch",
                    f"table {self._name} has columns {', '.join(self._requested)}, the diff {', '.join(columns)}",
                )
            self._columns = columns if self._requested is None else list(self._requested)
            return
        if kind in _FRAME:
            return
        if not self._columns:
            raise refused("invalid_events", "a table diff starts with its schema event")
        if self.key is None:
            if "key" not in event:
                raise refused("key_needed", "a positional diff has no keys: diff with --key to make a changeset")
            self.key = list(event["key"])
        if kind == "added":
            self._images += (None, self._row(event["row"]))
        elif kind == "removed":
            self._images += (self._row(event["row"]), None)
        elif kind == "changed":
            self._images += (self._row(event["before"]), self._row(event["after"]))
        else:
            raise refused("invalid_events", f"a table diff has no event of type {kind!r}")

    def add_lines(self, lines: Iterable[bytes]) -> None:
        """Add the events of JSON lines."""
        decode = msgspec.json.Decoder().decode
        for line in lines:
            if line.strip():
                self.add(decode(line))

    def votes(self) -> list[TypeInference]:
        """Which types the values of each column fit."""
        rows = [image for image in self._images if image is not None]
        values = list(zip(*rows, strict=True)) or [()] * len(self._columns)
        return [_type_votes(from_values(column)) for column in values]

    def table(self, votes: Sequence[TypeInference] | None = None) -> Table:
        """The table, with declared types and, where there are none, inferred ones."""
        unknown = [name for name in self._types if name not in {folded(column) for column in self._columns}]
        if unknown:
            raise refused("unknown_column", f'the diff has no column "{unknown[0]}" to give a type to')
        columns = [
            (name, self._types.get(folded(name)) or vote.declared_type())
            for name, vote in zip(self._columns, self.votes() if votes is None else votes, strict=True)
        ]
        return Table(self._name, columns=columns, primary_key=self.key or self._columns[:1])

    def fill(self, log: EventLog) -> None:
        """Append the events to a log, in their order."""
        log.extend(zip(self._images[0::2], self._images[1::2], strict=True))

    def ends_with_update(self) -> bool:
        """Whether the last event is an update, which is two events for a session."""
        return bool(self._images) and None not in self._images[-2:]

    def __len__(self) -> int:
        return len(self._images) // 2

    def _row(self, row: Mapping[str, Any]) -> Row:
        return tuple(_sqlite_value(row.get(name)) for name in self._columns)


def from_events(
    events: Iterable[Event],
    table: str | Table,
    *,
    format: Format = "changeset",  # noqa: A002 - the word of the command line
    types: Mapping[str, str] | None = None,
    primary_key: Sequence[str] | None = None,
) -> Changeset | Patchset:
    """The changes of a keyed table diff.

    `types` declares column types, the others are inferred from the rows that changed; a `Table` declares all.

    >>> events = [
    ...     {"type": "schema", "columns_a": ["id", "name"], "columns_b": ["id", "name"]},
    ...     {"type": "changed", "key": {"id": "3"}, "before": {"id": "3", "name": "Carol"},
    ...      "after": {"id": "3", "name": "Caroline"}},
    ... ]
    >>> changes = from_events(events, "people")
    >>> changes.tables[0].columns[0].declared_type, changes.operations[0].new
    ('INTEGER', (UNDEFINED, 'Caroline'))
    """
    if isinstance(table, Table):
        collector = EventCollector(table.name, columns=table.column_names, primary_key=table.primary_key)
    else:
        collector = EventCollector(table, types=types, primary_key=primary_key)
    for event in events:
        collector.add(event)
    changes = Patchset() if format == "patchset" else Changeset()
    _fill(changes, collector, table if isinstance(table, Table) else collector.table())
    return changes


def _fill(changes: Changeset | Patchset, collector: EventCollector, table: Table) -> None:
    log = changes.log_of(table)
    collector.fill(log)
    if single_entries(table, log.collected()) is None:
        raise key_collision(table)


def key_collision(table: Table) -> ChangesetError:
    """The error for keys that are different texts and the same values, such as 1 and 01 as integers."""
    return refused(
        "key_collision",
        f"table {table.name}: different keys become the same, or NULL, with these types: declare the key "
        f"({', '.join(table.primary_key)}) as TEXT",
    )


def write_changeset(lines: Iterable[bytes], out: BinaryIO, **settings: Any) -> None:
    """The `changeset` format of table diffs."""
    _write(lines, out, Changeset(), **settings)


def write_patchset(lines: Iterable[bytes], out: BinaryIO, **settings: Any) -> None:
    """The `patchset` format of table diffs."""
    _write(lines, out, Patchset(), **settings)


def _write(
    lines: Iterable[bytes],
    out: BinaryIO,
    changes: Changeset | Patchset,
    *,
    table: str | None = None,
    types: Mapping[str, str] | None = None,
    notice: Any = None,
) -> None:
    if not table:
        raise refused("table_needed", "a changeset needs the name of its table: give --table NAME")
    collector = EventCollector(table, types=types)
    collector.add_lines(lines)
    typed = collector.table()
    if notice is not None:
        notice(describe_types(typed, types or {}))
    _fill(changes, collector, typed)
    changes.write_to(out)


def describe_types(table: Table, declared: Mapping[str, str]) -> str:
    """The types of a table's columns in one line, and where they come from."""
    known = {folded(name) for name in declared}
    parts = [
        f"{column.name} {column.declared_type} ({'declared' if folded(column.name) in known else 'inferred'})"
        for column in table.columns
    ]
    return f"table {table.name}: {', '.join(parts)}; key {', '.join(table.primary_key)}"


def _sqlite_value(value: object, kind: str = "") -> Value:
    if kind == "integer" and value is not None:
        return int(cast(int, value))
    if isinstance(value, dict | list) or (kind == "json" and value is not None):
        return canonical_json(value)
    return plain_value(value)


class TypeInference(NamedTuple):
    """Which types the values of a column fit; votes of parts of a column are joined with `|`."""

    integers: bool = False
    reals: bool = False
    others: bool = False

    def __or__(self, other: TypeInference) -> TypeInference:
        return TypeInference(*(one or two for one, two in zip(self, other, strict=True)))

    def declared_type(self) -> str:
        """The type that loses nothing."""
        if self.others or not (self.integers or self.reals):
            return "TEXT"
        if not self.reals:
            return "INTEGER"
        return "NUMERIC" if self.integers else "REAL"


def _type_votes(vector: Vector) -> TypeInference:
    """The votes of a column's values; empty texts and NULLs fit every type.

    >>> columns = (["1", "-20", ""], ["1.5"], ["1", "1.5"], ["007"], ["1.50"])
    >>> [_type_votes(from_values(values)).declared_type() for values in columns]
    ['INTEGER', 'REAL', 'NUMERIC', 'TEXT', 'TEXT']
    """
    integers = vector.has_tag(Tag.INTEGER) | matching(vector, PLAIN_INTEGER)
    reals = vector.has_tag(Tag.REAL) | matching(vector, _DECIMAL)
    abstaining = vector.has_tag(Tag.NULL) | matching(vector, _EMPTY)
    return TypeInference(bool(integers.any()), bool(reals.any()), not bool((integers | reals | abstaining).all()))

"""The door from row deltas: the net change of every row becomes a patchset.

Deltas hold new values only, so there is no changeset in them.

>>> from driftline.deltas import ColumnDelta, RowDelta, TableSchema
>>> columns = [{"name": "title", "type": "string"}, {"name": "done", "type": "boolean"}]
>>> todos = TableSchema(table="todos", columns=columns)
>>> delta = RowDelta.make(
...     op="UPDATE", table="todos", row_id="7", client_id="laptop", columns=[ColumnDelta("done", True)], hlc=1
... )
>>> [(operation.kind, operation.key, operation.new) for operation in from_deltas([delta], [todos])]
[('update', ('7',), (UNDEFINED, UNDEFINED, 1))]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from driftline.changesets.changeset import Patchset
from driftline.changesets.format import Value
from driftline.changesets.table import Table, plain_value
from driftline.core._json import canonical_json
from driftline.deltas._deltas import RowDelta
from driftline.deltas._merge import RowState, merge, stamp_of
from driftline.deltas._schema import TableSchema
from driftline.errors import ChangesetError

ROW_ID_COLUMN = "row_id"

_DECLARED = {"string": "TEXT", "number": "REAL", "boolean": "INTEGER", "json": "TEXT"}

Schemas = TableSchema | Iterable[TableSchema] | Mapping[str, TableSchema]


def from_deltas(deltas: Iterable[RowDelta], schemas: Schemas) -> Patchset:
    """The patchset that brings a database from before these deltas to after them, whatever order they come in."""
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
            raise ChangesetError(f'no schema for table "{name}"', code="schema_needed")
        _add_row(patch, tables[name], known[name], row_id, delta.op, states[name, row_id])
    return patch


def table_of(schema: TableSchema) -> Table:
    """The SQLite table of a schema; without key columns the row id is the key, in a column of its own."""
    columns = [(column.name, _DECLARED[column.type]) for column in schema.columns]
    if schema.key:
        return Table(schema.table, columns=columns, primary_key=schema.key)
    if ROW_ID_COLUMN in schema:
        raise ChangesetError(
            f'table {schema.table} has a column "{ROW_ID_COLUMN}": name its key columns', code="schema_mismatch"
        )
    return Table(schema.table, columns=[(ROW_ID_COLUMN, "TEXT"), *columns], primary_key=[ROW_ID_COLUMN])


def _add_row(patch: Patchset, table: Table, schema: TableSchema, row_id: str, first_op: str, state: RowState) -> None:
    key = _key_values(schema, row_id)
    columns = [column for column in schema.columns if column.name in state.columns]
    values = {column.name: _sqlite_value(column.type, state.columns[column.name]) for column in columns}
    if first_op == "INSERT":
        # The row did not exist before; if it does not live now, nothing is left of it.
        if state.live:
            patch.insert(table, {**dict.fromkeys(table.column_names), **values, **key})
        return
    if not state.live:
        patch.delete(table, key)
    elif first_op == "DELETE":
        patch.delete(table, key)
        patch.insert(table, {**dict.fromkeys(table.column_names), **values, **key})
    else:
        changes = {name: value for name, value in values.items() if name not in key}
        patch.update(table, key, changes)


def _key_values(schema: TableSchema, row_id: str) -> dict[str, Value]:
    """The key columns that a row id stands for: one value as text, several as a canonical JSON array."""
    if not schema.key:
        return {ROW_ID_COLUMN: row_id}
    if len(schema.key) == 1:
        return {schema.key[0]: _key_value(schema, schema.key[0], row_id)}
    try:
        parts = json.loads(row_id)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or len(parts) != len(schema.key):
        raise ChangesetError(
            f"row id {row_id!r} of table {schema.table} is not a JSON array of {len(schema.key)} key values",
            code="invalid_key",
        )
    return {name: _key_value(schema, name, part) for name, part in zip(schema.key, parts, strict=True)}


def _key_value(schema: TableSchema, name: str, value: object) -> Value:
    kind = schema.by_name[name].type
    if kind == "boolean" and value in ("true", "false"):
        return int(value == "true")
    # A json key alone is its canonical text already (deltas and lake: row ids).
    return value if kind == "json" and isinstance(value, str) else _sqlite_value(kind, value)


def _sqlite_value(kind: str, value: object) -> Value:
    if value is None:
        return None
    if kind == "json" or isinstance(value, dict | list):
        return canonical_json(value)
    return plain_value(value)


def _by_name(schemas: Schemas) -> dict[str, TableSchema]:
    if isinstance(schemas, TableSchema):
        schemas = [schemas]
    listed = schemas.values() if isinstance(schemas, Mapping) else schemas
    return {schema.table: schema for schema in listed}

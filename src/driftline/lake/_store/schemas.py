"""The schema registry: a table's current columns, kept as a property of its deltas table, with a counter.

Columns may be added and removed. The deltas table keeps every column it ever had; retyping one, or taking a removed
name back with another type, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from deltalake import CommitProperties, DeltaTable, Field
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from driftline.deltas import ColumnSchema, TableSchema
from driftline.errors import DeltaError, LakeError
from driftline.lake.columns import META_COLUMNS, delta_file_schema, escape_name, unescape_name
from driftline.lake.delta_tables import Commit, create, load, retried
from driftline.lake.layout import Lake

SCHEMA_PROPERTY = "driftline.schema"
VERSION_PROPERTY = "driftline.schemaVersion"  # counts the changes, so that copies elsewhere know their age

_DELTA_TYPES: dict[str, str] = {"string": "string", "number": "double", "boolean": "boolean", "json": "string"}


def register(lake: Lake, schema: TableSchema) -> None:
    """Make `schema` the table's current one; a table name that differs from another only in case is refused.

    The steps are columns, property, then the envelopes that the schema takes; each can be repeated after a kill.
    """
    from driftline.lake.flushing import flush_envelopes

    _check_case(lake, schema.table)
    retried(lambda: _try_register(lake, schema), f"registering the schema of {schema.table}")
    flush_envelopes(lake, schema.table)


def registered(lake: Lake, table: str) -> TableSchema | None:
    """The table's current schema, or None if none is registered."""
    return schema_of(load(lake, table, "deltas"))


def required(lake: Lake, table: str) -> TableSchema:
    """The table's current schema; without one the way to register it is told."""
    return required_table(lake, table)[1]


def required_table(lake: Lake, table: str) -> tuple[DeltaTable, TableSchema]:
    """The deltas table as it is now and its schema, of one look at the log."""
    deltas_table = load(lake, lake.table_name(table), "deltas")
    schema = schema_of(deltas_table)
    if deltas_table is None or schema is None:
        raise LakeError(
            f"table {table!r} has no schema yet: register one with `driftline lake schema {table} FILE`",
            code="no_schema",
            table=table,
        )
    return deltas_table, schema


def schema_of(deltas_table: DeltaTable | None) -> TableSchema | None:
    """The current schema that a loaded deltas table carries."""
    if deltas_table is None:
        return None
    text = deltas_table.metadata().configuration.get(SCHEMA_PROPERTY)
    return None if text is None else TableSchema.from_wire(json.loads(text))


def schema_version(deltas_table: DeltaTable | None) -> int:
    """How often the schema was changed; 0 where none is registered."""
    if deltas_table is None or schema_of(deltas_table) is None:
        return 0
    return int(deltas_table.metadata().configuration.get(VERSION_PROPERTY, 1))


def every_column(deltas_table: DeltaTable) -> list[ColumnSchema]:
    """Every column the deltas table ever had, removed ones too, in the order of its files."""
    return [
        ColumnSchema(unescape_name(field.name), field.metadata.get("driftline.type", "string"))
        for field in deltas_table.schema().fields
        if field.name not in META_COLUMNS
    ]


def _try_register(lake: Lake, schema: TableSchema) -> bool:
    deltas_table = load(lake, schema.table, "deltas")
    text = json.dumps(schema.to_wire(), ensure_ascii=False)
    if deltas_table is None:
        described = Commit(metadata={"operation": "schema"})
        create(lake, schema.table, "deltas", delta_file_schema(schema.columns), described)
        return _try_register(lake, schema)  # deltalake takes its own properties only when a table is created
    if schema_of(deltas_table) == schema:
        return True
    added = _added_columns(every_column(deltas_table), schema)
    note = CommitProperties(custom_metadata={"driftline": {"operation": "schema"}})
    try:
        # Columns first: a crash in between leaves columns that nobody uses, and the next try goes on.
        if added:
            deltas_table.alter.add_columns(added, commit_properties=note)
            return _try_register(lake, schema)
        deltas_table.alter.set_table_properties(
            {SCHEMA_PROPERTY: text, VERSION_PROPERTY: str(schema_version(deltas_table) + 1)},
            raise_if_not_exists=False,
            commit_properties=note,
        )
    except CommitFailedError:
        return False
    return True


def _added_columns(ever: Sequence[ColumnSchema], schema: TableSchema) -> list[Field]:
    known = {column.name.casefold(): column for column in ever}
    added = []
    for column in schema.columns:
        before = known.get(column.name.casefold())
        if before is None:
            metadata = {"driftline.type": column.type}
            added.append(Field(escape_name(column.name), PrimitiveType(_DELTA_TYPES[column.type]), metadata=metadata))
        elif before != column:
            raise _changed(schema.table, before, column)
    return added


def _changed(table: str, before: ColumnSchema, after: ColumnSchema) -> DeltaError:
    if before.name != after.name:
        problem = f"column {before.name!r} of table {table} cannot be renamed to {after.name!r}"
    else:
        problem = f"column {before.name!r} of table {table} is a {before.type} and cannot become a {after.type}"
    return DeltaError(
        f"{problem}: add a column under a new name, migrate the values, then remove the old one",
        code="SCHEMA_ERROR",
        table=table,
        column=before.name,
    )


def _check_case(lake: Lake, table: str) -> None:
    for known in lake.tables():
        if known != table and known.casefold() == table.casefold():
            raise DeltaError(f"table {table!r} differs from {known!r} only in case", code="SCHEMA_ERROR", table=table)

"""The schema registry, generations and retention of a table, stored as properties and commits of its deltas table.

Columns may be added and removed. The deltas table retains every column it ever had; retyping one, or adding a removed
name again with another type, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from driftline.deltas import ColumnSchema, ColumnType, TableSchema
from driftline.errors import DeltaError, LakeError
from driftline.lake._store.lake import Lake
from driftline.lake._store.parquet import DataFile
from driftline.lake._store.rows import META_COLUMNS, delta_file_schema, unescape_name, value_fields
from driftline.lake._store.tables import (
    Commit,
    StoredTable,
    commits_of,
    create,
    load,
    retried,
    transaction_version,
)

SCHEMA_PROPERTY = "driftline.schema"
VERSION_PROPERTY = "driftline.schemaVersion"  # counts the changes, so that the age of a copy is known
GENERATION = "generation"  # application transaction, and operation of the commit
FIRST = 1
HORIZON_PROPERTY = "driftline.horizon"  # deltas below it are archived
REFUSE_PROPERTY = "driftline.refuse-before"  # set first, so that no delta is committed while the archive is made
ARCHIVED_BEFORE = "archive"  # application transaction of `archive`: the horizon it was made for

_COLUMN_TYPES: dict[pa.DataType, ColumnType] = {
    pa.float64(): "number",
    pa.bool_(): "boolean",
    pa.int64(): "integer",
}


def register(lake: Lake, schema: TableSchema) -> None:
    """Make `schema` the table's current one; a table name that differs from another only in case is refused.

    The steps are columns, property, then the envelopes that the schema accepts; each can be repeated after a kill.
    """
    from driftline.lake._store.flush import flush_envelopes

    for known in lake.tables():
        if known != schema.table and known.casefold() == schema.table.casefold():
            problem = f"table {schema.table!r} differs from {known!r} only in case"
            raise DeltaError(problem, code="SCHEMA_ERROR", table=schema.table)
    retried(lambda: _try_register(lake, schema), f"registering the schema of {schema.table}")
    flush_envelopes(lake, schema.table)


def registered(lake: Lake, table: str) -> TableSchema | None:
    """The table's current schema, or None if none is registered."""
    return schema_of(load(lake, table, "deltas"))


def required(lake: Lake, table: str) -> TableSchema:
    """The table's current schema, or an error that says how to register one."""
    return required_table(lake, table)[1]


def required_table(lake: Lake, table: str) -> tuple[StoredTable, TableSchema]:
    """The current deltas table and its schema, of one read of the log."""
    deltas_table = load(lake, lake.table_name(table), "deltas")
    schema = schema_of(deltas_table)
    if deltas_table is None or schema is None:
        raise LakeError(
            f"table {table!r} has no schema yet: register one with `driftline lake schema {table} FILE`",
            code="no_schema",
            table=table,
        )
    return deltas_table, schema


def schema_of(deltas_table: StoredTable | None) -> TableSchema | None:
    """The current schema of a loaded deltas table."""
    if deltas_table is None:
        return None
    text = deltas_table.property(SCHEMA_PROPERTY)
    return None if text is None else TableSchema.from_wire(json.loads(text))


def schema_version(deltas_table: StoredTable | None) -> int:
    """How often the schema was changed; 0 where none is registered."""
    if deltas_table is None or schema_of(deltas_table) is None:
        return 0
    return int(deltas_table.property(VERSION_PROPERTY) or 1)


def every_column(deltas_table: StoredTable) -> list[ColumnSchema]:
    """Every column the deltas table ever had, removed ones too, in the order of its files."""
    return [
        ColumnSchema(unescape_name(field.name), (field.metadata or {}).get(b"driftline.type", b"string").decode())
        for field in deltas_table.schema()
        if field.name not in META_COLUMNS
    ]


def _try_register(lake: Lake, schema: TableSchema) -> bool:
    deltas_table = load(lake, schema.table, "deltas")
    text = json.dumps(schema.to_wire(), ensure_ascii=False)
    if deltas_table is None:
        described = Commit(metadata={"operation": "schema"})
        create(lake, schema.table, "deltas", delta_file_schema(schema.columns), described)
        return _try_register(lake, schema)  # a store may accept only its own properties when a table is created
    if schema_of(deltas_table) == schema:
        return True
    added = _added_columns(every_column(deltas_table), schema)
    details = {"operation": "schema"}
    # Columns first: a crash in between leaves unused columns, and the next try continues.
    if added:
        return deltas_table.add_columns(added, details) and _try_register(lake, schema)
    properties = {SCHEMA_PROPERTY: text, VERSION_PROPERTY: str(schema_version(deltas_table) + 1)}
    return deltas_table.set_properties(properties, details)


def column_type(stored: pa.DataType) -> ColumnType:
    """The type of a column by its type in the files; json is text to every reader."""
    if pa.types.is_decimal(stored):
        return f"decimal({stored.scale})"
    return _COLUMN_TYPES.get(stored, "string")


def _added_columns(ever: Sequence[ColumnSchema], schema: TableSchema) -> list[pa.Field]:
    known = {column.name.casefold(): column for column in ever}
    added = []
    for column in schema.columns:
        before = known.get(column.name.casefold())
        if before is None:
            added += value_fields([column])
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


# Generations: a new one starts empty and may have other types; earlier ones stay readable (deltas-and-lake §13). It is
# one commit to the deltas table that removes all files and sets the columns; earlier versions retain what was there.
# Snapshots of an earlier generation are known by the number that their commit pins.


def generation_of(delta_table: StoredTable | None) -> int:
    """The generation that a loaded Delta table belongs to."""
    return transaction_version(delta_table, GENERATION) or FIRST


def start_generation(lake: Lake, table: str, columns: Sequence[ColumnSchema]) -> int:
    """Start a new generation with these columns; its number. A table that does not exist yet stays so."""
    number = FIRST

    def attempt() -> bool:
        nonlocal number
        deltas_table = load(lake, table, "deltas")
        if deltas_table is None:
            return True
        number = generation_of(deltas_table) + 1
        details = {"operation": GENERATION, "generation": number}
        commit = Commit(transactions={GENERATION: number}, metadata=details, overwrite=True)
        return deltas_table.append(commit, delta_file_schema(columns))

    retried(attempt, f"starting a generation of {table}")
    return number


def last_versions(lake: Lake, table: str) -> dict[int, int]:
    """The last version of `deltas` in each generation, as far as the log has them; the newest one is the current."""
    deltas_table = load(lake, table, "deltas")
    if deltas_table is None:
        return {}
    ends = {generation_of(deltas_table): deltas_table.version()}
    if generation_of(deltas_table) == FIRST:
        return ends
    begun: int | None = None
    for entry in commits_of(lake, table, "deltas", deltas_table.version()):
        if entry is None:
            break
        if begun is not None:
            ends[begun - 1] = entry.version
        begun = entry.transactions.get(GENERATION)
    return ends


def version_of_generation(lake: Lake, table: str, number: int) -> int:
    """The version of `deltas` that a generation ended with."""
    ends = last_versions(lake, lake.table_name(table))
    if number not in ends:
        known = ", ".join(map(str, sorted(ends))) or "none"
        raise LakeError(f"table {table!r} has no generation {number} (there is {known})", code="unknown_generation")
    return ends[number]


# Retention: the horizon below which deltas are refused, and the archived base that replay then starts from.


def horizon_of(deltas_table: StoredTable | None) -> int | None:
    """The hlc from which deltas are kept, or None if all are."""
    return _number(deltas_table, HORIZON_PROPERTY)


def refused_before(deltas_table: StoredTable | None) -> int | None:
    """The hlc below which new deltas are refused, or None."""
    return _number(deltas_table, REFUSE_PROPERTY)


def archive_files(lake: Lake, table: str, horizon: int | None) -> list[DataFile]:
    """The archived base for a horizon; none without a horizon."""
    if horizon is None:
        return []
    for entry in commits_of(lake, table, "archive"):
        if entry is not None and entry.transactions.get(ARCHIVED_BEFORE) == horizon:
            archive = load(lake, table, "archive", entry.version)
            if archive is not None:
                return archive.files()
    raise LakeError(f"the archived base of table {table!r} for horizon {horizon} is missing", code="missing_archive")


def check_horizon(table: str, as_of: int | None, horizon: int | None) -> None:
    """Refuse a timestamp before the horizon, whose deltas are archived."""
    if as_of is not None and horizon is not None and as_of < horizon - 1:
        raise LakeError(
            f"table {table!r} keeps history from {horizon} on; {as_of} is before that",
            code="TOO_OLD",
            table=table,
            horizon=str(horizon),
        )


def too_old(table: str, hlc: int, horizon: int, index: int) -> LakeError:
    """The error for a delta below the horizon."""
    return LakeError(
        f"delta {index} of table {table!r} has hlc {hlc}, before the retention horizon {horizon}",
        code="TOO_OLD",
        table=table,
        index=index,
    )


def _number(deltas_table: StoredTable | None, name: str) -> int | None:
    if deltas_table is None:
        return None
    text = deltas_table.property(name)
    return None if text is None else int(text)

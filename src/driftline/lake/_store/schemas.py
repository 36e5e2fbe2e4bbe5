"""The schema registry, generations and retention of a table, stored as properties and commits of its deltas table.

Columns may be added and removed. The deltas table retains every column it ever had; retyping one, or adding a removed
name again with another type, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from deltalake import CommitProperties, DeltaTable, Field
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from driftline.core import JsonObject
from driftline.deltas import MAX_DIGITS, ColumnSchema, ColumnType, TableSchema
from driftline.errors import DeltaError, LakeError
from driftline.lake._store.delta import (
    Commit,
    append,
    commit_entries,
    create,
    files_of,
    load,
    retried,
    transaction_version,
)
from driftline.lake._store.lake import Lake
from driftline.lake._store.parquet import DataFile
from driftline.lake._store.rows import META_COLUMNS, delta_file_schema, escape_name, unescape_name

SCHEMA_PROPERTY = "driftline.schema"
VERSION_PROPERTY = "driftline.schemaVersion"  # counts the changes, so that the age of a copy is known
GENERATION = "generation"  # application transaction, and operation of the commit
FIRST = 1
HORIZON_PROPERTY = "driftline.horizon"  # deltas below it are archived
REFUSE_PROPERTY = "driftline.refuse-before"  # set first, so that no delta is committed while the archive is made
ARCHIVED_BEFORE = "archive"  # application transaction of `archive`: the horizon it was made for

_DELTA_TYPES = {
    "string": "string",
    "number": "double",
    "boolean": "boolean",
    "json": "string",
    "integer": "long",
    "decimal": f"decimal({MAX_DIGITS},{{}})",
}
_COLUMN_TYPES = {"double": "number", "boolean": "boolean", "long": "integer"}


def register(lake: Lake, schema: TableSchema) -> None:
    """Make `schema` the table's current one; a table name that differs from another only in case is refused.

    The steps are columns, property, then the envelopes that the schema accepts; each can be repeated after a kill.
    """
    from driftline.lake._store.flush import flush_envelopes

    _check_case(lake, schema.table)
    retried(lambda: _try_register(lake, schema), f"registering the schema of {schema.table}")
    flush_envelopes(lake, schema.table)


def registered(lake: Lake, table: str) -> TableSchema | None:
    """The table's current schema, or None if none is registered."""
    return schema_of(load(lake, table, "deltas"))


def required(lake: Lake, table: str) -> TableSchema:
    """The table's current schema, or an error that says how to register one."""
    return required_table(lake, table)[1]


def required_table(lake: Lake, table: str) -> tuple[DeltaTable, TableSchema]:
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


def schema_of(deltas_table: DeltaTable | None) -> TableSchema | None:
    """The current schema of a loaded deltas table."""
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
        return _try_register(lake, schema)  # deltalake accepts only its own properties when a table is created
    if schema_of(deltas_table) == schema:
        return True
    added = _added_columns(every_column(deltas_table), schema)
    note = CommitProperties(custom_metadata={"driftline": {"operation": "schema"}})
    try:
        # Columns first: a crash in between leaves unused columns, and the next try continues.
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


def column_type(delta_type: str) -> ColumnType:
    """The type of a column by its type in a Delta table; json is text to every reader."""
    if delta_type.startswith("decimal("):
        return f"decimal({delta_type.removesuffix(')').rpartition(',')[2]})"
    return _COLUMN_TYPES.get(delta_type, "string")


def _delta_type(column: ColumnSchema) -> str:
    return _DELTA_TYPES[column.kind].format(column.scale)


def _added_columns(ever: Sequence[ColumnSchema], schema: TableSchema) -> list[Field]:
    known = {column.name.casefold(): column for column in ever}
    added = []
    for column in schema.columns:
        before = known.get(column.name.casefold())
        if before is None:
            metadata = {"driftline.type": column.type}
            added.append(Field(escape_name(column.name), PrimitiveType(_delta_type(column)), metadata=metadata))
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


# Generations: a new one starts empty and may have other types; earlier ones stay readable (deltas-and-lake §13). It is
# one commit to the deltas table that removes all files and sets the columns; Delta's versions retain the earlier ones.
# Snapshots of an earlier generation are known by the number that their commit pins.


def generation_of(delta_table: DeltaTable | None) -> int:
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
        return append(deltas_table, commit, delta_file_schema(columns))

    retried(attempt, f"starting a generation of {table}")
    return number


def last_versions(lake: Lake, table: str) -> dict[int, int]:
    """The last version of `deltas` in each generation, as far as the log has them; the newest one is the current."""
    deltas_table = load(lake, table, "deltas")
    if deltas_table is None:
        return {}
    ends = {generation_of(deltas_table): int(deltas_table.version())}
    if generation_of(deltas_table) == FIRST:
        return ends
    for version in range(deltas_table.version(), 0, -1):
        begun = _begun_by(commit_entries(lake, table, "deltas", version) or [])
        if begun is not None:
            ends[begun - 1] = version - 1
    return ends


def version_of_generation(lake: Lake, table: str, number: int) -> int:
    """The version of `deltas` that a generation ended with."""
    ends = last_versions(lake, lake.table_name(table))
    if number not in ends:
        known = ", ".join(map(str, sorted(ends))) or "none"
        raise LakeError(f"table {table!r} has no generation {number} (there is {known})", code="unknown_generation")
    return ends[number]


def _begun_by(entries: Sequence[JsonObject]) -> int | None:
    found = (entry["txn"]["version"] for entry in entries if entry.get("txn", {}).get("appId") == GENERATION)
    return next(found, None)


# Retention: the horizon below which deltas are refused, and the archived base that replay then starts from.


def horizon_of(deltas_table: DeltaTable | None) -> int | None:
    """The hlc from which deltas are kept, or None if all are."""
    return _number(deltas_table, HORIZON_PROPERTY)


def refused_before(deltas_table: DeltaTable | None) -> int | None:
    """The hlc below which new deltas are refused, or None."""
    return _number(deltas_table, REFUSE_PROPERTY)


def archive_files(lake: Lake, table: str, horizon: int | None) -> list[DataFile]:
    """The archived base for a horizon; none without a horizon."""
    if horizon is None:
        return []
    newest = load(lake, table, "archive")
    for version in range(newest.version() if newest else -1, -1, -1):
        if _archived_before(lake, table, version) == horizon:
            archive = load(lake, table, "archive", version)
            if archive is not None:
                return files_of(archive)
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


def _archived_before(lake: Lake, table: str, version: int) -> int | None:
    for entry in commit_entries(lake, table, "archive", version) or []:
        if entry.get("txn", {}).get("appId") == ARCHIVED_BEFORE:
            return int(entry["txn"]["version"])
    return None


def _number(deltas_table: DeltaTable | None, name: str) -> int | None:
    if deltas_table is None:
        return None
    text = deltas_table.metadata().configuration.get(name)
    return None if text is None else int(text)

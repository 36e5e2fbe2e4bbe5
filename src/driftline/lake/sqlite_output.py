"""A SQLite database with one table: string TEXT, number REAL, boolean INTEGER, json TEXT."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from driftline.deltas import TableSchema
from driftline.files import StrPath, explain_io_errors, replace_file
from driftline.lake.columns import ROW_ID

SQL_TYPES = {"string": "TEXT", "number": "REAL", "boolean": "INTEGER", "json": "TEXT"}


def write_sqlite(path: StrPath, schema: TableSchema, parts: Iterable[StrPath]) -> None:
    """Fill a new database from part files and move it into place."""
    import apsw

    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with explain_io_errors(target):
            connection = apsw.Connection(str(temporary))
            try:
                _fill(connection, schema, parts)
            finally:
                connection.close()
            replace_file(temporary, target)
    finally:
        for left in (temporary, Path(f"{temporary}-journal")):
            left.unlink(missing_ok=True)


def create_statement(schema: TableSchema) -> str:
    """`CREATE TABLE`: the row id is the key unless the schema names key columns."""
    columns = [f"{quoted(column.name)} {SQL_TYPES[column.type]}" for column in schema.columns]
    if schema.key:
        key = ", ".join(map(quoted, schema.key))
        return f"CREATE TABLE {quoted(schema.table)} ({', '.join(columns)}, PRIMARY KEY ({key}))"
    body = ", ".join([f"{quoted(ROW_ID)} TEXT PRIMARY KEY NOT NULL", *columns])
    return f"CREATE TABLE {quoted(schema.table)} ({body})"


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _fill(connection: Any, schema: TableSchema, parts: Iterable[StrPath]) -> None:
    names = [*([] if schema.key else [ROW_ID]), *schema.names]
    insert = f"INSERT INTO {quoted(schema.table)} VALUES ({', '.join('?' * len(names))})"  # noqa: S608
    connection.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN").fetchall()
    connection.execute(create_statement(schema))
    for part in parts:
        for batch in pq.ParquetFile(part).iter_batches(1 << 16, columns=names):
            connection.executemany(insert, zip(*_python_columns(batch, names), strict=True))
    connection.execute("COMMIT")


def _python_columns(batch: Any, names: Sequence[str]) -> list[list[Any]]:
    return [_plain(batch.column(name)).to_pylist() for name in names]


def _plain(array: Any) -> Any:
    return pc.cast(array, pa.int8()) if pa.types.is_boolean(array.type) else array

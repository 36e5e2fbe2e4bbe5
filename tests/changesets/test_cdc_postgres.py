"""wal2json's own messages: what a real PostgreSQL did arrives in SQLite."""

from __future__ import annotations

import apsw
import pytest

from driftline.changesets import apply, from_cdc
from driftline.errors import ChangesetError
from support.postgres_cluster import cluster

pytestmark = pytest.mark.wal2json

TYPES = {
    "id": ("integer PRIMARY KEY", "INTEGER PRIMARY KEY"),
    "name": ("text", "TEXT"),
    "price": ("numeric(30,2)", "TEXT"),
    "data": ("bytea", "BLOB"),
    "ok": ("boolean", "INTEGER"),
    "f": ("double precision", "REAL"),
    "ts": ("timestamp", "TEXT"),
    "j": ("jsonb", "TEXT"),
    "arr": ("integer[]", "TEXT"),
    "big": ("text", "TEXT"),
}
FIRST = r"""
BEGIN;
INSERT INTO items VALUES (1, 'a''ü漢', 12345678901234567890.10, '\x00ff', true, 1.5, '2024-01-02 03:04:05.123456',
  '{"b": 1, "a": [1.50]}', '{1,2}', repeat('x', 5000));
INSERT INTO items (id, f) VALUES (2, 1e300), (3, -0.5);
COMMIT;
INSERT INTO items (id, name) SELECT n, 'row ' || n FROM generate_series(10, 20) n;
"""
SECOND = r"""
UPDATE items SET ok = NOT coalesce(ok, true), price = 0.10 WHERE id IN (1, 2);
BEGIN;
UPDATE items SET name = NULL WHERE id = 11;
DELETE FROM items WHERE id BETWEEN 12 AND 14;
INSERT INTO items (id, data) VALUES (13, '');
COMMIT;
UPDATE items SET id = 99 WHERE id = 15;
SELECT pg_logical_emit_message(true, 'p', 'a message');
"""


def sqlite_database():
    connection = apsw.Connection(":memory:")
    connection.execute(f"CREATE TABLE items ({', '.join(f'{name} {kinds[1]}' for name, kinds in TYPES.items())})")
    return connection


def postgres_rows(server):
    """Each row as text that both databases print alike."""
    columns = [
        "id", "coalesce(name, '-')", "coalesce(price::text, '-')", "coalesce(encode(data, 'hex'), '-')",
        "coalesce(ok::int::text, '-')", "coalesce(f::text, '-')", "coalesce(ts::text, '-')", "coalesce(j::text, '-')",
        "coalesce(arr::text, '-')", "coalesce(length(big)::text, '-')",
    ]  # fmt: skip
    return server.sql(f"SELECT concat_ws('|', {', '.join(columns)}) FROM items ORDER BY id")


def sqlite_rows(connection):
    query = (
        "SELECT id, ifnull(name, '-'), ifnull(price, '-'), ifnull(lower(hex(data)), '-'), ifnull(ok, '-'), f, "
        "ifnull(ts, '-'), ifnull(j, '-'), ifnull(arr, '-'), ifnull(length(big), '-') FROM items ORDER BY id"
    )
    floats = {None: "-", 1.5: "1.5", 1e300: "1e+300", -0.5: "-0.5"}
    rows = [[*row[:5], floats[row[5]], *row[6:]] for row in connection.execute(query)]
    for row, data in zip(rows, connection.execute("SELECT data FROM items ORDER BY id"), strict=True):
        row[3] = "-" if data[0] is None else data[0].hex()
    return ["|".join(map(str, row)) for row in rows]


@pytest.fixture(scope="module")
def server():
    with cluster() as running:
        running.sql(f"CREATE TABLE items ({', '.join(f'{name} {kinds[0]}' for name, kinds in TYPES.items())})")
        running.sql("ALTER TABLE items ALTER big SET STORAGE EXTERNAL")
        yield running


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_changes_of_postgres_arrive(server, identity):
    server.sql(f"TRUNCATE items; ALTER TABLE items REPLICA IDENTITY {identity}")
    formats = {"one": ["format-version", "1", "include-xids", "1"], "two": ["format-version", "2"]}
    for slot in formats:
        server.sql(f"SELECT pg_create_logical_replication_slot('{slot}', 'wal2json')")
    databases = {}
    for statements in (FIRST, SECOND):
        server.sql(statements)
        wanted = postgres_rows(server)
        for slot, options in formats.items():
            lines = server.captured(slot, *options)
            for form in ("patchset", "changeset"):
                connection = databases.setdefault((slot, form), sqlite_database())
                found = captured(lines, connection, form, identity)
                if isinstance(found, ChangesetError):
                    # Whole old rows come with FULL only.
                    assert (found.code, form, identity) == ("no_old_row", "changeset", "DEFAULT")
                    del databases[slot, form]
                    continue
                apply(found, connection)
                assert sqlite_rows(connection) == wanted
    for slot in formats:
        server.sql(f"SELECT pg_drop_replication_slot('{slot}')")
    assert len(databases) == (4 if identity == "FULL" else 2)


def captured(lines, connection, form, identity):
    schema = sqlite_schema(connection)
    try:
        return from_cdc(lines, schema, format=form)
    except ChangesetError as error:
        # Format 1 leaves the NULLs of old rows out, which FULL makes up for.
        return from_cdc(lines, schema, format=form, before="full") if identity == "FULL" else error


def sqlite_schema(connection):
    return next(connection.execute("SELECT sql FROM sqlite_schema"))[0]


def test_truncate_is_told(server):
    server.sql("SELECT pg_create_logical_replication_slot('t', 'wal2json')")
    server.sql("TRUNCATE items")
    lines = server.captured("t", "format-version", "2")
    server.sql("SELECT pg_drop_replication_slot('t')")
    with pytest.raises(ChangesetError) as caught:
        from_cdc(lines, sqlite_schema(sqlite_database()))
    assert caught.value.code == "truncate"

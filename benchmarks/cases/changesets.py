"""Changesets: building, parsing and applying, against SQLite's own session and changegroup through apsw.

Everything runs in this process on databases in memory; times are the best of three, taken in turn.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import apsw
import pyarrow as pa

from benchmarks.contest import Contender, Row, hold
from benchmarks.data_changesets import COMPOSITE_DDL, INSERTS_DDL, Mixed, insert_rows, mixed, people, updates
from driftline.changesets import Changeset, Patchset, Table, apply, parse

UPDATE_COMPOSITE = "UPDATE t SET name = ?, amount = ? WHERE region = ? AND code = ?"
DELETE_COMPOSITE = "DELETE FROM t WHERE region = ? AND code = ?"
SCHEMAS = {
    "plain": "",
    "indexed": "CREATE INDEX by_name ON people (name); CREATE INDEX by_mail ON people (mail);",
    "triggers": "CREATE TABLE seen (id INTEGER PRIMARY KEY, who); "
    "CREATE TRIGGER watch AFTER INSERT ON people BEGIN INSERT INTO seen (who) VALUES (new.id); END;",
    "foreign keys": "",
}


def run(full: bool) -> list[Row]:
    sizes = [100_000, 1_000_000] if full else [20_000]
    rows: list[Row] = []
    for size in sizes:
        rows += _inserts(size)
        rows += _composite(f"{size:,} updates, composite text keys", updates(size))
        rows += _composite(f"{size:,} mixed operations, composite text keys", mixed(size))
    rows += _row_by_row(sizes[0])
    rows += _parsing(sizes[0])
    rows += _applying([30, 100, 1_000, 100_000] if full else [30, 1_000])
    return rows + _sizes()


def timed(name: str, work: Callable[[], Any], prepare: Callable[[], Any] | None = None) -> Contender:
    """A contender whose `work` takes what `prepare` made; only `work` is timed."""

    def call() -> dict[str, float]:
        gc.collect()
        prepared = () if prepare is None else (prepare(),)
        start = time.perf_counter()
        work(*prepared)
        return {"wall_s": time.perf_counter() - start}

    return Contender(name, call=call)


def database(ddl: str, rows: list[tuple[Any, ...]] | None = None) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(ddl)
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        with connection:
            connection.executemany(f"INSERT INTO t VALUES ({marks})", rows)
    return connection


def columns(table: Table, rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table(dict(zip(table.column_names, map(list, zip(*rows, strict=True)), strict=True)))


def _inserts(count: int) -> list[Row]:
    rows = insert_rows(count)
    table = Table.from_sql(INSERTS_DDL)
    arrow = columns(table, rows)

    def ours() -> bytes:
        changes = Changeset()
        changes.insert_columns(table, arrow)
        return bytes(changes)

    def add_insert_loop() -> bytes:
        builder = apsw.ChangesetBuilder()
        builder.schema(database(INSERTS_DDL), "main")
        for row in rows:
            builder.add_insert("t", False, row)
        return builder.output()

    def session() -> bytes:
        connection = database(INSERTS_DDL)
        recorder = apsw.Session(connection, "main")
        recorder.attach()
        with connection:
            connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        return recorder.changeset()

    assert ours() == session()
    peers = [timed("apsw ChangesetBuilder.add_insert loop", add_insert_loop), timed("SQL with a session", session)]
    return hold(f"{count:,} inserts from columns", [timed("driftline", ours), *peers])


def _composite(case: str, data: Mixed) -> list[Row]:
    table = Table.from_sql(COMPOSITE_DDL)
    inserts = columns(table, data.inserts) if data.inserts else None
    before, after = (columns(table, list(side)) for side in zip(*data.updates, strict=True))
    deletes = columns(table, data.deletes) if data.deletes else None

    def ours() -> bytes:
        changes = Changeset()
        if inserts is not None:
            changes.insert_columns(table, inserts)
        changes.update_columns(table, before, after)
        if deletes is not None:
            changes.delete_columns(table, deletes)
        return bytes(changes)

    def session(connection: apsw.Connection) -> bytes:
        recorder = apsw.Session(connection, "main")
        recorder.attach()
        with connection:
            if data.inserts:
                connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", data.inserts)
            connection.executemany(UPDATE_COMPOSITE, [(*new[2:], *old[:2]) for old, new in data.updates])
            if data.deletes:
                connection.executemany(DELETE_COMPOSITE, [row[:2] for row in data.deletes])
        return recorder.changeset()

    assert ours() == session(database(COMPOSITE_DDL, data.base))
    peer = timed("SQL with a session", session, lambda: database(COMPOSITE_DDL, data.base))
    return hold(case, [timed("driftline, columns", ours), peer])


def _row_by_row(count: int) -> list[Row]:
    rows = insert_rows(count)
    table = Table.from_sql(INSERTS_DDL)

    def ours() -> bytes:
        changes = Changeset()
        for row in rows:
            changes.insert(table, row)
        return bytes(changes)

    def session(many: bool) -> bytes:
        connection = database(INSERTS_DDL)
        recorder = apsw.Session(connection, "main")
        recorder.attach()
        with connection:
            if many:
                connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
            else:
                for row in rows:
                    connection.execute("INSERT INTO t VALUES (?, ?, ?)", row)
        return recorder.changeset()

    assert ours() == session(True)
    peers = [
        timed("SQL with a session, executemany", lambda: session(True)),
        timed("SQL with a session, a call per row", lambda: session(False)),
    ]
    return hold(f"{count:,} inserts, row at a time", [timed("driftline", ours), *peers])


def _parsing(count: int) -> list[Row]:
    changes = Changeset()
    table = Table.from_sql(INSERTS_DDL)
    changes.insert_columns(table, columns(table, insert_rows(count)))
    data = bytes(changes)
    peers = [
        timed("apsw iterate, new rows", lambda: sum(1 for change in apsw.Changeset.iter(data) if change.new)),
        timed(
            "apsw iterate, all of a change kept",
            lambda: [(c.name, c.op, c.old, c.new, c.indirect) for c in apsw.Changeset.iter(data)],
        ),
    ]
    return hold(f"parse {count:,} rows to operations", [timed("driftline", lambda: parse(data).operations), *peers])


def _applying(sizes: list[int]) -> list[Row]:
    rows = []
    for size, key, filled, kind in product(sizes, ("int", "UUID"), (False, True), SCHEMAS):
        case = f"apply {size:,}, {key} keys, {'populated' if filled else 'empty'}, {kind}"
        rows.append(Row(case, "milliseconds, best of 3", _apply_case(size, key == "UUID", filled, kind)))
    return rows


def _apply_case(size: int, uuids: bool, filled: bool, kind: str) -> dict[str, float]:
    """Half inserts and half updates where the table has rows, else inserts alone."""
    key = "TEXT" if uuids else "INTEGER"
    reference = "REFERENCES people (id)" if kind == "foreign keys" else ""
    ddl = f"CREATE TABLE people (id {key} PRIMARY KEY, name TEXT, mail TEXT, boss {reference}); {SCHEMAS[kind]}"
    if kind == "foreign keys":
        ddl = f"PRAGMA foreign_keys = ON; {ddl}"
    base = people(size, uuids=uuids) if filled else []
    fresh = people(size // 2 if filled else size, uuids=uuids, first=10**7)
    if kind == "foreign keys":
        base, fresh = ([(*row[:3], row[0]) for row in part] for part in (base, fresh))
    changed = [(row, (row[0], row[1] + "!", *row[2:])) for row in base[: size - len(fresh)]]
    table = Table("people", [("id", key), ("name", "TEXT"), ("mail", "TEXT"), "boss"], ["id"])
    changeset, patchset = map(bytes, _both_forms(table, fresh, changed))

    def start() -> apsw.Connection:
        connection = apsw.Connection(":memory:")
        connection.execute(ddl)
        with connection:
            connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", base)
        return connection

    def statements(connection: apsw.Connection) -> None:
        for row in fresh:
            connection.execute("INSERT INTO people VALUES (?, ?, ?, ?)", row)
        for old, new in changed:
            connection.execute("UPDATE people SET name = ? WHERE id = ?", (new[1], old[0]))

    def in_transaction(connection: apsw.Connection) -> None:
        with connection:
            statements(connection)

    ways: dict[str, Callable[[apsw.Connection], Any]] = {
        "SQL autocommit": statements,
        "SQL in a transaction": in_transaction,
        "changeset": lambda connection: apply(changeset, connection),
        "patchset": lambda connection: apply(patchset, connection),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(3):
        for name, work in ways.items():
            taken = timed(name, work, start).call
            assert taken is not None
            best[name] = min(best[name], taken()["wall_s"] * 1000)
    return best


def _both_forms(
    table: Table, inserted: Sequence[Any], updated: Sequence[tuple[Any, Any]], deleted: Sequence[Any] = ()
) -> tuple[Changeset, Patchset]:
    """The same operations as a changeset and as a patchset."""
    forms = Changeset(), Patchset()
    for changes in forms:
        for row in inserted:
            changes.insert(table, row)
        for old, new in updated:
            changes.update(table, old, new)
        for row in deleted:
            changes.delete(table, row)
    return forms


def _sizes() -> list[Row]:
    """1,000 operations as changeset, patchset, JSON and SQL text."""
    base, fresh = people(667, uuids=True), people(333, uuids=True, first=10**7)
    table = Table("people", [("id", "TEXT"), ("name", "TEXT"), ("mail", "TEXT"), ("age", "INTEGER")], ["id"])
    changed = [(row, (*row[:3], row[3] + 1)) for row in base[:334]]
    changeset, patchset = _both_forms(table, fresh, changed, base[334:])
    names = table.column_names
    records = [{"op": "insert", "table": "people", "row": dict(zip(names, row, strict=True))} for row in fresh]
    records += [{"op": "update", "table": "people", "id": new[0], "set": {"age": new[3]}} for _, new in changed]
    records += [{"op": "delete", "table": "people", "id": row[0]} for row in base[334:]]
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    figures = {
        "changeset_bytes": len(bytes(changeset)),
        "patchset_bytes": len(bytes(patchset)),
        "json_bytes": len(text),
        "sql_bytes": len(patchset.to_sql()),
    }
    return [
        Row("1,000 operations (inserts, updates, deletes)", "size", {name: float(v) for name, v in figures.items()})
    ]

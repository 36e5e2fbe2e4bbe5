"""The log on PostgreSQL, for gateways on several hosts: one head row gives the arrival order (gateway §10).

A writer locks the head row until its commit is visible. So sequences become visible in their order, and a reader that
sees one sees all below it; a bare sequence of the database would let a reader skip a commit that is not visible yet.
The tables are shared by all gateways of a database.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
from psycopg.rows import dict_row

from driftline.core import JsonObject
from driftline.deltas import RowKey
from driftline.errors import InputError
from driftline.gateway._log.log import DeltaLog, Entry, Head, Id, Identity, Session, StoredRow, script, unavailable

Connection = psycopg.Connection[Any]

# A blank line separates the statements of the file.
_FINGERPRINT, _KNOWN, _ROWS, _INSERT = script("postgres_queries.sql").split("\n\n")
_CHANNEL = "driftline"
_CREATE_LOCK = 7_283_001  # two servers that start at once create the tables one after the other
_SHARED = {"own": "gateway = %s AND", "gw": "%s,", "gateway": "gateway,"}  # the tables have rows of many gateways
_WORDS = {"t": "driftline_", "table": "tbl", "fold": "fold", **_SHARED}


@dataclass(frozen=True, slots=True)
class _Held:
    """A connection, and the number of those lost before it was opened."""

    connection: Connection
    losses: int


class PostgresLog(DeltaLog):
    """A `DeltaLog` in a database that several processes and hosts share."""

    _poll_seconds = 1.0  # a notification can be lost with its connection

    def __init__(self, address: str, gateway: str, *, wall: Callable[[], int] | None = None) -> None:
        super().__init__(wall)
        self._address = address
        self._gateway = gateway
        self._writer: _Held | None = None
        self._losses = 0  # number of lost connections
        self._readers = threading.local()
        self._opened: list[Connection] = []
        self._listener: threading.Thread | None = None
        self._closing = False
        self._fingerprint = ""  # of the database that was connected to last
        first = "INSERT INTO driftline_head (gateway, log_id, fingerprint) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
        with self._explained(), self._open() as db, db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE_LOCK,))
            db.execute(script("postgres.sql"))
            db.execute(first, (gateway, secrets.token_hex(8), _fingerprint(db)))
        self.identity()

    @contextmanager
    def writing(self) -> Iterator[_PostgresSession]:
        """A durable transaction; it is undone when the block raises."""
        with self._write_lock, self._explained():
            self._writer = self._usable(self._writer)
            with self._writer.connection.transaction():
                yield _PostgresSession(self._writer.connection, self._gateway, "FOR UPDATE")

    @contextmanager
    def reading(self) -> Iterator[_PostgresSession]:
        """This thread's connection for reading."""
        with self._explained():
            held = self._readers.held = self._usable(getattr(self._readers, "held", None))
            yield _PostgresSession(held.connection, self._gateway)

    def wait_past(self, seq: int, seconds: float) -> int:
        """Wait until the log reaches past a sequence, or for so long; the newest sequence then."""
        if self._listener is None:
            self._listener = threading.Thread(target=self._receive, name="log-listener", daemon=True)
            self._listener.start()
        return super().wait_past(seq, seconds)

    @contextmanager
    def flush_lock(self, *, wait: bool) -> Iterator[bool]:
        """Only one process of all hosts flushes at a time; the lock ends with the connection."""
        name = f"driftline:flush:{self._gateway}"
        with self._explained(), self._connect() as connection:
            function = "pg_advisory_lock" if wait else "pg_try_advisory_lock"
            row = connection.execute(f"SELECT {function}(hashtextextended(%s, 0))", (name,)).fetchone()
            yield wait or bool(row and row[0])

    def close(self) -> None:
        """Close every connection."""
        self._closing = True
        self._wake()
        with self._write_lock:
            for connection in self._opened:
                with contextlib.suppress(psycopg.Error):
                    connection.close()
        if self._listener is not None:
            self._listener.join(5)

    def _usable(self, held: _Held | None) -> _Held:
        """This connection, or a new one where it or any other was lost since it was opened."""
        if held is not None and held.losses == self._losses and not (held.connection.closed or held.connection.broken):
            return held
        if held is not None:
            held.connection.close()
        return _Held(self._connect(), self._losses)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """The database's errors as the gateway's: nothing was acknowledged, the client may try again."""
        try:
            yield
        except psycopg.Error as error:
            if isinstance(error, psycopg.OperationalError):
                self._losses += 1  # the server is down or another one: every thread reconnects
            message = (str(error).splitlines() or [type(error).__name__])[0]
            raise unavailable(f"the log cannot be used just now ({message})", type(error).__name__) from error

    def _open(self) -> Connection:
        connection: Connection = psycopg.connect(
            self._address, autocommit=True, fallback_application_name="driftline", options="-c synchronous_commit=on"
        )
        self._opened = [each for each in self._opened if not each.closed]
        self._opened.append(connection)
        return connection

    def _connect(self) -> Connection:
        """A connection; where the database is another one than before, the log takes a new id.

        The first connection after a promotion notices it, also that of a reader or listener: an earlier cursor must
        not be accepted by a log that may have lost the records before it.
        """
        connection = self._open()
        fingerprint = _fingerprint(connection)
        if fingerprint != self._fingerprint:
            with connection.transaction():
                session = _PostgresSession(connection, self._gateway, "FOR UPDATE")
                if session.head_row()["fingerprint"] != fingerprint:
                    session.renew_identity()
                    session.set(fingerprint=fingerprint)
            self._fingerprint = fingerprint
        return connection

    def _receive(self) -> None:
        """Wake waiting readers when another process commits; a lost connection is opened again."""
        while not self._closing:
            try:
                with self._connect() as connection:
                    connection.execute(f"LISTEN {_CHANNEL}")
                    while not self._closing:
                        for _ in connection.notifies(timeout=self._poll_seconds):
                            self._wake()
            except psycopg.Error:
                time.sleep(self._poll_seconds)


class _PostgresSession(Session):
    """A connection to the database, and the gateway whose rows of the tables it uses."""

    def __init__(self, db: Connection, gateway: str, lock: str = "") -> None:
        self.db = db
        self.gateway = gateway
        self._lock = lock

    def run(self, statement: str, *values: Any) -> psycopg.Cursor[Any]:
        return self.db.execute(_sql(statement), (self.gateway, *values), binary=True)

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with self.db.cursor() as cursor:
            cursor.executemany(_sql(statement), [(self.gateway, *row) for row in rows])

    def head_row(self) -> JsonObject:
        """The row of the head; a writer locks it until its commit."""
        query = f"SELECT * FROM driftline_head WHERE gateway = %s {self._lock}"  # noqa: S608 - a constant
        with self.db.cursor(row_factory=dict_row) as cursor:
            head = cursor.execute(query, (self.gateway,)).fetchone()
        if head is None:
            raise InputError(f"the database has no log of gateway {self.gateway!r} any more", code="corrupt_log")
        return head

    def head(self) -> Head:
        row = self.head_row()
        return Head(**{name: row[name] for name in Head.__slots__})

    def set(self, **values: Any) -> None:
        if values:
            assignments = ", ".join(f"{name} = %s" for name in values)
            query = f"UPDATE driftline_head SET {assignments} WHERE gateway = %s"  # noqa: S608 - constants
            self.db.execute(query, (*values.values(), self.gateway))

    def identity(self) -> Identity:
        row = self.head_row()
        return Identity(row["log_id"], tuple(row["was"]))

    def set_identity(self, identity: Identity) -> None:
        self.set(log_id=identity.log_id, was=list(identity.was))

    def known_ops(self, entries: Sequence[Entry]) -> dict[Id, int]:
        if not entries:
            return {}
        given = ([entry.hlc for entry in entries], [entry.delta_id for entry in entries], self.gateway)
        return {(hlc, bytes(delta_id)): op for hlc, delta_id, op in self.db.execute(_KNOWN, given)}

    def insert(self, first: int, taken: Sequence[tuple[int, Entry]], is_foreign: bool) -> None:
        """Add records in one statement, and notify waiting readers of other processes."""
        columns = (
            list(range(first, first + len(taken))),
            [entry.hlc for _, entry in taken],
            [arrival for arrival, _ in taken],
            [entry.op for _, entry in taken],
            [entry.delta_id for _, entry in taken],
            [entry.body for _, entry in taken],
        )
        self.db.execute(_INSERT, (self.gateway, is_foreign, *columns))
        self.db.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, self.gateway))

    def remove(self, upto: int) -> int:
        return self.run("DELETE FROM {t}log WHERE {own} seq <= ?", upto).rowcount

    def rows(self, keys: Sequence[RowKey]) -> dict[RowKey, StoredRow]:
        if not keys:
            return {}
        tables, row_ids = zip(*keys, strict=True)
        found = self.db.execute(_ROWS, (list(tables), list(row_ids), self.gateway), binary=True)
        return {(table, row_id): StoredRow(bytes(fold)) for table, row_id, fold in found}


@cache
def _sql(statement: str) -> str:
    return statement.format(**_WORDS).replace("?", "%s")


def _fingerprint(connection: Connection) -> str:
    found = connection.execute(_FINGERPRINT).fetchone()
    return "" if found is None else str(found[0])

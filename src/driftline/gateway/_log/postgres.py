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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row, tuple_row

from driftline.core import JsonObject
from driftline.deltas import Clock, RowKey, check_drift, physical_ms
from driftline.errors import DriftlineError, InputError
from driftline.gateway._log.log import (
    MAX_COUNTED,
    Appended,
    Claims,
    DeltaLog,
    Entry,
    Identity,
    Numbered,
    Projection,
    Record,
    StoredRow,
    StoredVersion,
    Waiting,
    check_clock,
    check_horizon,
    fresh_positions,
    new_tables,
    unavailable,
    unknown_entries,
    with_claims,
)

if TYPE_CHECKING:
    from driftline.gateway._sync.write_rules import Judgement

Connection = psycopg.Connection[Any]

# The head is rewritten with every commit: a page with free space keeps its versions.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS driftline_head (
    gateway text PRIMARY KEY, log_id text NOT NULL, was text[] NOT NULL DEFAULT '{}', fingerprint text NOT NULL,
    clock bigint NOT NULL DEFAULT 0, last bigint NOT NULL DEFAULT 0, pruned bigint NOT NULL DEFAULT 0,
    pruned_arrival bigint NOT NULL DEFAULT 0, horizon bigint NOT NULL DEFAULT 0, flushed bigint NOT NULL DEFAULT 0,
    flushing bigint NOT NULL DEFAULT 0, config bigint NOT NULL DEFAULT 0, rules bigint NOT NULL DEFAULT 0,
    projected bigint NOT NULL DEFAULT 0, projected_rules bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
CREATE TABLE IF NOT EXISTS driftline_log (
    gateway text NOT NULL, seq bigint NOT NULL, hlc bigint NOT NULL, arrival bigint NOT NULL, op smallint NOT NULL,
    delta_id bytea NOT NULL, body bytea NOT NULL, is_foreign boolean NOT NULL DEFAULT false,
    PRIMARY KEY (gateway, seq), UNIQUE (gateway, hlc, delta_id)
);
CREATE TABLE IF NOT EXISTS driftline_documents (
    gateway text NOT NULL, name text NOT NULL, body bytea NOT NULL, PRIMARY KEY (gateway, name)
);
CREATE TABLE IF NOT EXISTS driftline_tables (
    gateway text NOT NULL, folded text NOT NULL, name text NOT NULL, PRIMARY KEY (gateway, folded)
);
CREATE TABLE IF NOT EXISTS driftline_rows (
    gateway text NOT NULL, tbl text NOT NULL, row_id text NOT NULL, fold bytea NOT NULL,
    PRIMARY KEY (gateway, tbl, row_id)
);
CREATE TABLE IF NOT EXISTS driftline_row_versions (
    gateway text NOT NULL, tbl text NOT NULL, row_id text NOT NULL, seq bigint NOT NULL, live boolean NOT NULL,
    watched text NOT NULL, PRIMARY KEY (gateway, tbl, row_id, seq)
);
"""
# Where it differs on connect, the database was restored, promoted or copied. The timeline is read from the write-ahead
# log: the control file has the old one until the checkpoint after a promotion is done.
_FINGERPRINT = """
SELECT concat_ws('.', (SELECT system_identifier FROM pg_control_system()),
    ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int,
    (SELECT oid FROM pg_database WHERE datname = current_database()), 'driftline_log'::regclass::oid)
"""
_KNOWN = """
SELECT l.hlc, l.delta_id, l.op FROM driftline_log l
JOIN unnest(%b::bigint[], %b::bytea[]) AS given (hlc, delta_id) ON l.hlc = given.hlc AND l.delta_id = given.delta_id
WHERE l.gateway = %s
"""
_INSERT = """
INSERT INTO driftline_log (gateway, seq, hlc, arrival, op, delta_id, body, is_foreign)
SELECT %s, seq, hlc, arrival, op, delta_id, body, %s
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::smallint[], %b::bytea[], %b::bytea[])
    AS given (seq, hlc, arrival, op, delta_id, body)
"""
_CHANNEL = "driftline"
_CREATE_LOCK = 7_283_001  # two servers that start at once create the tables one after the other


@dataclass(frozen=True, slots=True)
class _Held:
    """A connection, and the number of those lost before it was opened."""

    connection: Connection
    losses: int


class PostgresLog(DeltaLog):
    """A `DeltaLog` in a database that several processes and hosts share."""

    _poll_seconds = 1.0  # a notification can be lost with its connection

    def __init__(self, address: str, gateway: str, *, wall: Callable[[], int] | None = None) -> None:
        super().__init__()
        self._address = address
        self._gateway = gateway
        self._wall = wall or physical_ms
        self._write_lock = threading.Lock()
        self._writer: _Held | None = None
        self._losses = 0  # number of lost connections
        self._readers = threading.local()
        self._opened: list[Connection] = []
        self._listener: threading.Thread | None = None
        self._closing = False
        self._fingerprint = ""  # of the database that was connected to last
        with self._explained(), self._open() as db, db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE_LOCK,))
            db.execute(_SCHEMA)
            first = (
                "INSERT INTO driftline_head (gateway, log_id, fingerprint) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
            )
            db.execute(first, (gateway, secrets.token_hex(8), _fingerprint(db)))
        self.identity()

    # Records.

    def identity(self) -> Identity:
        """The id of this log."""
        return _identity(self._numbers())

    def renew_identity(self) -> Identity:
        """Take a new random id because the log was set back; no range is being flushed then."""
        with self.writing() as db:
            return self._renew(db)

    def append(
        self, batches: Sequence[Sequence[Entry]], claims: Sequence[Claims | None] = ()
    ) -> list[Appended | DriftlineError]:
        """Append each batch whole or not at all, in one transaction."""
        with self.writing() as db:
            head = self._locked_head(db)
            clock = Clock(self._wall, last=head["clock"])
            entries = [entry for batch in batches for entry in batch]
            known = self._known_ops(db, entries)
            verdicts = None if self.judge is None else self.judge.begin(_View(self._gateway, db, head), entries)
            step = partial(self._accept, head, clock, known, self._tables(db), verdicts)
            taken: list[tuple[int, Entry]] = []
            results = [step(taken, batch, writer) for batch, writer in with_claims(batches, claims)]
            self._write(db, head, clock, taken, is_foreign=False)
            if verdicts is not None:
                self._put_rows(db, verdicts.changed())
                self._set(db, projected=head["last"] + len(taken))
        self._wake()
        return results

    def import_foreign(self, batch: Sequence[Entry]) -> int:
        """Append deltas of the lake that are not in this log; the number of new ones."""
        if not batch:
            return 0
        newest = max(entry.hlc for entry in batch)
        check_drift(newest, self._wall())
        with self.writing() as db:
            head = self._locked_head(db)
            known = self._known_ops(db, batch)
            fresh = unknown_entries(batch, lambda entry: known.get((entry.hlc, entry.delta_id)))
            clock = Clock(self._wall, last=max(head["clock"], newest))
            new_tables(fresh, self._tables(db).get)  # refuses a name that differs from a known one only in case
            arrivals = clock.take(len(fresh) * 2)[::2]
            self._write(db, head, clock, list(zip(arrivals, fresh, strict=True)), is_foreign=True)
        self._wake()
        return len(fresh)

    def read(self, after: int, limit: int, *, upto: int | None = None, since_hlc: int = -1) -> list[Record]:
        """The records after a sequence in order, those with an hlc above `since_hlc`."""
        query = """SELECT seq, hlc, arrival, body, is_foreign FROM driftline_log
            WHERE gateway = %s AND seq > %s AND seq <= %s AND hlc > %s ORDER BY seq LIMIT %s"""
        last = (1 << 62) if upto is None else upto
        with self._reading() as db:
            rows = db.execute(query, (self._gateway, after, last, since_hlc, limit), binary=True)
            return [Record(*row) for row in rows]

    def wait_past(self, seq: int, seconds: float) -> int:
        """Wait until the log reaches past a sequence, or for so long; the newest sequence then."""
        self._listen()
        return super().wait_past(seq, seconds)

    def has(self, hlc: int, delta_id: bytes) -> bool:
        """Whether a delta is known."""
        query = "SELECT 1 FROM driftline_log WHERE gateway = %s AND hlc = %s AND delta_id = %s"
        return self._one(query, self._gateway, hlc, delta_id) is not None

    def prune(self, upto: int) -> int:
        """Remove records up to a sequence; deltas as old as those are refused from then on."""
        with self.writing() as db:
            head = self._locked_head(db)
            gone = min(upto, head["last"])
            newest = db.execute(
                "SELECT max(hlc) FROM driftline_log WHERE gateway = %s AND seq <= %s", (self._gateway, upto)
            ).fetchone()
            if newest is None or newest["max"] is None:
                return 0
            arrival = db.execute(
                "SELECT arrival FROM driftline_log WHERE gateway = %s AND seq = %s", (self._gateway, gone)
            ).fetchone()
            removed = db.execute("DELETE FROM driftline_log WHERE gateway = %s AND seq <= %s", (self._gateway, upto))
            self._set(
                db,
                pruned=max(head["pruned"], gone),
                pruned_arrival=0 if arrival is None else arrival["arrival"],
                horizon=max(head["horizon"], newest["max"]),
            )
            return removed.rowcount

    def table_names(self) -> list[str]:
        """The tables that deltas have named."""
        with self._reading() as db:
            return sorted(self._tables(db).values())

    # Flush progress.

    def waiting(self) -> Waiting:
        """What is not in the lake yet."""
        query = """SELECT min(arrival), sum(length(body)) FROM (
            SELECT arrival, body FROM driftline_log WHERE gateway = %s AND seq > %s ORDER BY seq LIMIT %s) tail"""
        with self._reading() as db:
            row = db.execute(query, (self._gateway, self._numbers()["flushed"], MAX_COUNTED)).fetchone()
        oldest, size = row or (None, None)
        return Waiting(int(size or 0), None if oldest is None else oldest >> 16)

    def flush_again(self, after: int) -> None:
        """Note durably that the lake has nothing after this sequence any more."""
        with self.writing() as db:
            head = self._locked_head(db)
            self._set(db, flushed=min(head["flushed"], after), flushing=min(head["flushing"], after))

    @contextmanager
    def flush_lock(self, *, wait: bool) -> Iterator[bool]:
        """Only one process of all hosts flushes at a time; the lock ends with the connection."""
        name = f"driftline:flush:{self._gateway}"
        with self._explained(), self._connect() as connection:
            function = "pg_advisory_lock" if wait else "pg_try_advisory_lock"
            row = connection.execute(f"SELECT {function}(hashtextextended(%s, 0))", (name,)).fetchone()
            yield wait or bool(row and row[0])

    # Configuration.

    def document(self, name: str) -> bytes | None:
        """A named document, or None."""
        query = "SELECT body FROM driftline_documents WHERE gateway = %s AND name = %s"
        body = self._one(query, self._gateway, name)
        return None if body is None else bytes(body)

    def change_document(self, name: str, change: Callable[[bytes | None], bytes | None], *bumped: Numbered) -> None:
        """Rewrite or remove (None) a document and raise numbers, in one transaction."""
        with self.writing() as db:
            head = self._locked_head(db)
            key = (self._gateway, name)
            row = db.execute("SELECT body FROM driftline_documents WHERE gateway = %s AND name = %s", key).fetchone()
            before = None if row is None else bytes(row["body"])
            body = change(before)
            if body == before and not bumped:
                return
            db.execute("DELETE FROM driftline_documents WHERE gateway = %s AND name = %s", key)
            if body is not None:
                db.execute("INSERT INTO driftline_documents VALUES (%s, %s, %s)", (*key, body))
            self._set(db, **{each: head[each] + 1 for each in bumped})

    # Merged rows.

    def rows(self, keys: Sequence[RowKey]) -> dict[RowKey, StoredRow]:
        """Those of the rows that are stored."""
        with self._reading() as db:
            return _rows(db, self._gateway, keys)

    def all_rows(self) -> Iterator[tuple[RowKey, StoredRow]]:
        """Every stored row."""
        with self._reading() as db:
            rows = db.execute("SELECT tbl, row_id, fold FROM driftline_rows WHERE gateway = %s", (self._gateway,))
            for table, row_id, fold in rows:
                yield (table, row_id), StoredRow(bytes(fold))

    def versions(self, key: RowKey, after: int, limit: int) -> list[StoredVersion]:
        """The versions of a row after a sequence, in order."""
        query = """SELECT seq, live, watched FROM driftline_row_versions
            WHERE gateway = %s AND tbl = %s AND row_id = %s AND seq > %s ORDER BY seq LIMIT %s"""
        with self._reading() as db:
            return [StoredVersion(*row) for row in db.execute(query, (self._gateway, *key, after, limit))]

    # Upkeep.

    def upkeep(self) -> None:
        """Nothing to do: the database has its own upkeep."""

    def size(self) -> int:
        """Nothing to do: the database has its own upkeep."""
        return 0

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

    # Connections and steps.

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A durable transaction; it is undone when the block raises."""
        with self._write_lock, self._explained():
            self._writer = self._usable(self._writer, row_factory=dict_row)
            with self._writer.connection.transaction():
                yield self._writer.connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._explained():
            held = self._readers.held = self._usable(getattr(self._readers, "held", None))
            yield held.connection

    def _usable(self, held: _Held | None, **options: Any) -> _Held:
        """This connection, or a new one where it or any other was lost since it was opened."""
        if held is not None and held.losses == self._losses and not (held.connection.closed or held.connection.broken):
            return held
        if held is not None:
            held.connection.close()
        return _Held(self._connect(**options), self._losses)

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

    def _open(self, **options: Any) -> Connection:
        connection: Connection = psycopg.connect(
            self._address,
            autocommit=True,
            fallback_application_name="driftline",
            options="-c synchronous_commit=on",
            **options,
        )
        self._opened = [each for each in self._opened if not each.closed]
        self._opened.append(connection)
        return connection

    def _connect(self, **options: Any) -> Connection:
        """A connection; where the database is another one than before, the log takes a new id.

        The first connection after a promotion notices it, also that of a reader or listener: an earlier cursor must
        not be accepted by a log that may have lost the records before it.
        """
        connection = self._open(**options)
        fingerprint = _fingerprint(connection)
        if fingerprint != self._fingerprint:
            with connection.transaction():
                if self._locked_head(connection)["fingerprint"] != fingerprint:
                    self._renew(connection)
                    self._set(connection, fingerprint=fingerprint)
            self._fingerprint = fingerprint
        return connection

    def _one(self, query: str, *values: Any) -> Any:
        with self._reading() as db:
            row = db.execute(query, values).fetchone()
        return None if row is None else row[0]

    def _numbers(self) -> JsonObject:
        with self._reading() as db:
            return self._head(db)

    def _arrival(self, seq: int) -> int | None:
        found = self._one("SELECT arrival FROM driftline_log WHERE gateway = %s AND seq = %s", self._gateway, seq)
        return None if found is None else int(found)

    def _head(self, db: Connection, lock: str = "") -> JsonObject:
        query = f"SELECT * FROM driftline_head WHERE gateway = %s {lock}"  # noqa: S608 - a constant
        with db.cursor(row_factory=dict_row) as cursor:
            head = cursor.execute(query, (self._gateway,)).fetchone()
        if head is None:
            raise InputError(f"the database has no log of gateway {self._gateway!r} any more", code="corrupt_log")
        return head

    def _locked_head(self, db: Connection) -> JsonObject:
        return self._head(db, "FOR UPDATE")

    def _renew(self, db: Connection) -> Identity:
        head = self._locked_head(db)
        renewed = Identity(secrets.token_hex(8), (head["log_id"], *head["was"]))
        # The number of the configuration wakes listeners, whose cursors are invalid now.
        config, flushed = head["config"] + 1, head["flushed"]
        self._set(db, log_id=renewed.log_id, was=list(renewed.was), flushing=flushed, config=config)
        return renewed

    def _accept(
        self,
        head: JsonObject,
        clock: Clock,
        known: dict[tuple[int, bytes], int],
        tables: dict[str, str],
        verdicts: Judgement | None,
        taken: list[tuple[int, Entry]],
        batch: Sequence[Entry],
        claims: Claims | None,
    ) -> Appended | DriftlineError:
        try:
            fresh = fresh_positions(batch, lambda entry: known.get((entry.hlc, entry.delta_id)))
            check_clock(batch, fresh, clock.last, self._wall())
            check_horizon(batch, fresh, head["horizon"])
            hidden = () if verdicts is None else verdicts.check(batch, fresh, claims)
            found = new_tables(batch, tables.get)
            server_hlc = clock.follow(max(batch[position].hlc for position in fresh)) if fresh else clock.now()
        except DriftlineError as error:
            return error
        tables.update(found)
        entries = [batch[position] for position in fresh]
        known.update({(entry.hlc, entry.delta_id): entry.op for entry in entries})
        if verdicts is not None:
            verdicts.take(batch, fresh, head["last"] + len(taken) + 1)
        taken += zip(clock.take(len(entries) * 2)[::2], entries, strict=True)
        return Appended(server_hlc, fresh, hidden)

    def _write(
        self,
        db: Connection,
        head: JsonObject,
        clock: Clock,
        taken: Sequence[tuple[int, Entry]],
        *,
        is_foreign: bool,
    ) -> None:
        last = head["last"] + len(taken)
        if taken:
            columns = (
                list(range(head["last"] + 1, last + 1)),
                [entry.hlc for _, entry in taken],
                [arrival for arrival, _ in taken],
                [entry.op for _, entry in taken],
                [entry.delta_id for _, entry in taken],
                [entry.body for _, entry in taken],
            )
            db.execute(_INSERT, (self._gateway, is_foreign, *columns))
            self._add_tables(db, {entry.table.casefold(): entry.table for _, entry in taken})
            db.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, self._gateway))
        self._set(db, clock=clock.last, last=last)

    def _known_ops(self, db: Connection, entries: Sequence[Entry]) -> dict[tuple[int, bytes], int]:
        if not entries:
            return {}
        given = ([entry.hlc for entry in entries], [entry.delta_id for entry in entries], self._gateway)
        return {(row["hlc"], bytes(row["delta_id"])): row["op"] for row in db.execute(_KNOWN, given)}

    def _tables(self, db: Connection) -> dict[str, str]:
        with db.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute("SELECT folded, name FROM driftline_tables WHERE gateway = %s", (self._gateway,))
            return {row["folded"]: row["name"] for row in rows}

    def _add_tables(self, db: Connection, tables: Mapping[str, str]) -> None:
        for folded, name in tables.items():
            db.execute(
                "INSERT INTO driftline_tables VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", (self._gateway, folded, name)
            )

    def _replace_rows(
        self, rows: Mapping[RowKey, StoredRow], before: Projection, after: Projection, *, anew: bool
    ) -> None:
        with self.writing() as db:
            head = self._locked_head(db)
            if (head["projected"], head["projected_rules"]) != (before.seq, before.rules):
                return
            if anew:
                for table in ("driftline_rows", "driftline_row_versions"):
                    db.execute(f"DELETE FROM {table} WHERE gateway = %s", (self._gateway,))  # noqa: S608 - constants
            self._put_rows(db, rows)
            self._set(db, projected=after.seq, projected_rules=after.rules)

    def _put_rows(self, db: Connection, rows: Mapping[RowKey, StoredRow]) -> None:
        """Replace merged rows, and add their new versions."""
        folds = [(self._gateway, *key, row.fold) for key, row in rows.items()]
        versions = [
            (self._gateway, *key, each.seq, each.live, each.watched)
            for key, row in rows.items()
            for each in row.versions
        ]
        with db.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO driftline_rows VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (gateway, tbl, row_id) DO UPDATE SET fold = excluded.fold",
                folds,
            )
            cursor.executemany("INSERT INTO driftline_row_versions VALUES (%s, %s, %s, %s, %s, %s)", versions)

    def _raise(self, name: str, value: int) -> None:
        query = f"UPDATE driftline_head SET {name} = greatest({name}, %s) WHERE gateway = %s"  # noqa: S608 - constants
        with self.writing() as db:
            db.execute(query, (value, self._gateway))

    def _set(self, db: Connection, **values: Any) -> None:
        if values:
            assignments = ", ".join(f"{name} = %s" for name in values)
            query = f"UPDATE driftline_head SET {assignments} WHERE gateway = %s"  # noqa: S608 - constants
            db.execute(query, (*values.values(), self._gateway))

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = threading.Thread(target=self._receive, name="log-listener", daemon=True)
            self._listener.start()

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


@dataclass(frozen=True, slots=True)
class _View:
    """What a judge reads inside an append, which has locked the head."""

    gateway: str
    db: Connection
    head: Mapping[str, int]

    def numbers(self) -> Mapping[str, int]:
        return self.head

    def document(self, name: str) -> bytes | None:
        query = "SELECT body FROM driftline_documents WHERE gateway = %s AND name = %s"
        row = self.db.execute(query, (self.gateway, name)).fetchone()
        return None if row is None else bytes(row["body"])

    def rows(self, keys: Sequence[RowKey]) -> dict[RowKey, StoredRow]:
        return _rows(self.db, self.gateway, keys)

    def records(self, after: int, upto: int) -> list[Record]:
        query = """SELECT seq, hlc, arrival, body, is_foreign FROM driftline_log
            WHERE gateway = %s AND seq > %s AND seq <= %s ORDER BY seq"""
        with self.db.cursor(row_factory=tuple_row) as cursor:
            found = cursor.execute(query, (self.gateway, after, upto), binary=True)
            return [Record(seq, hlc, arrival, bytes(body), foreign) for seq, hlc, arrival, body, foreign in found]


def _rows(db: Connection, gateway: str, keys: Sequence[RowKey]) -> dict[RowKey, StoredRow]:
    if not keys:
        return {}
    query = """SELECT r.tbl, r.row_id, r.fold FROM driftline_rows r
        JOIN unnest(%s::text[], %s::text[]) AS given (tbl, row_id) ON r.tbl = given.tbl AND r.row_id = given.row_id
        WHERE r.gateway = %s"""
    tables, row_ids = zip(*keys, strict=True)
    with db.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(query, (list(tables), list(row_ids), gateway), binary=True)
        return {(table, row_id): StoredRow(bytes(fold)) for table, row_id, fold in found}


def _fingerprint(connection: Connection) -> str:
    with connection.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(_FINGERPRINT).fetchone()
    return "" if found is None else str(found[0])


def _identity(head: Mapping[str, Any]) -> Identity:
    return Identity(head["log_id"], tuple(head["was"]))

"""The embedded log: one SQLite file in WAL mode, synced before every response.

Ids are indexed behind their hlc: new deltas have new timestamps, so the index grows at its end instead of at random
pages, and a log of ten million takes pushes as fast as an empty one.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from driftline.deltas import RowKey
from driftline.errors import InputError
from driftline.gateway._log import log

FORMAT_VERSION = 2

_COUNTERS = ("clock", "last", "pruned", "horizon", "flushed", "flushing", "config", "rules_number")
_SPAN_BITS = 12  # 4096 records share one greatest hlc, so that `since` skips older spans
_BUSY_MS = 10_000
_CHECKPOINT_BYTES = 8 << 20
_NAMES = {"rules": "rules_number"}  # counters whose name in the file is another one
_WORDS = {"t": "", "own": "", "gw": "", "gateway": "", "table": "name", "fold": "body"}


class SqliteLog(log.DeltaLog):
    """A `DeltaLog` in a file, with the gateway's clock and small documents beside it."""

    _poll_seconds = 0.1

    def __init__(self, path: Path, *, wall: Callable[[], int] | None = None, vfs: str | None = None) -> None:
        super().__init__(wall)
        self._path = path
        self._vfs = vfs
        self._readers = threading.local()
        self._all_readers: list[apsw.Connection] = []
        with _explained(path):
            self._writer = self._connect()
            self._writer.execute("PRAGMA page_size = 8192")
            self._writer.execute("PRAGMA journal_mode = WAL")
        with self.writing() as session:
            _migrate(session, path.name)

    @contextmanager
    def writing(self) -> Iterator[_SqliteSession]:
        """A durable transaction, synced once; it is undone when the block raises."""
        with self._write_lock, _explained(self._path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield _SqliteSession(self._writer)
                self._writer.execute("COMMIT")
            except BaseException:
                # A failed COMMIT may have ended the transaction by itself.
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[_SqliteSession]:
        """This thread's connection for reading."""
        with _explained(self._path):
            connection: apsw.Connection | None = getattr(self._readers, "connection", None)
            if connection is None:
                connection = self._readers.connection = self._connect()
                connection.execute("PRAGMA cache_size = -4000")
                self._all_readers.append(connection)
            yield _SqliteSession(connection)

    @contextmanager
    def flush_lock(self, *, wait: bool) -> Iterator[bool]:
        """Only one process flushes at a time."""
        with open(self._path.with_name("flush.lock"), "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def upkeep(self) -> None:
        """Copy a write-ahead log that has grown to the file, without blocking writers or readers."""
        if self.size() > _CHECKPOINT_BYTES:
            self.checkpoint()

    def size(self) -> int:
        """The size of the write-ahead log."""
        try:
            return self._path.with_name(self._path.name + "-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def checkpoint(self) -> None:
        """Copy the write-ahead log to the file."""
        with self.reading() as session:
            session.db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        """Close every connection; the last one copies the write-ahead log to the file."""
        with self._write_lock:
            for connection in (*self._all_readers, self._writer):
                connection.close()

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path), vfs=self._vfs)
        connection.set_busy_timeout(_BUSY_MS)
        # FULL syncs the write-ahead log at every commit, before the response.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 16000")
        connection.execute("PRAGMA cache_size = -32000")
        return connection


class _SqliteSession(log.Session):
    """A connection to the file."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db

    def run(self, statement: str, *values: Any) -> apsw.Cursor:
        return self.db.execute(_sql(statement), values)

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        self.db.executemany(_sql(statement), rows)

    def head(self) -> log.Head:
        counters = dict(self.db.execute("SELECT name, value FROM counters"))
        return log.Head(**{name: counters[_NAMES.get(name, name)] for name in log.Head.__slots__})

    def set(self, **numbers: int) -> None:
        values = [(value, _NAMES.get(name, name)) for name, value in numbers.items()]
        self.db.executemany("UPDATE counters SET value = ? WHERE name = ?", values)

    def identity(self) -> log.Identity:
        named = dict(self.db.execute("SELECT name, CAST(body AS TEXT) FROM documents WHERE name IN ('log_id', 'was')"))
        return log.Identity(named["log_id"], tuple(json.loads(named["was"])))

    def set_identity(self, identity: log.Identity) -> None:
        bodies = [(identity.log_id.encode(), "log_id"), (json.dumps(identity.was).encode(), "was")]
        self.db.executemany("UPDATE documents SET body = ? WHERE name = ?", bodies)

    def known_ops(self, entries: Sequence[log.Entry]) -> dict[log.Id, int]:
        """The operations of known ids, which the index has behind their hlc."""
        query = "SELECT op FROM log WHERE hlc = ? AND delta_id = ?"
        found = ((entry.id, self.db.execute(query, entry.id, prepare_flags=0).get) for entry in entries)
        return {entry_id: op for entry_id, op in found if op is not None}

    def insert(self, first: int, taken: Sequence[tuple[int, log.Entry]], is_foreign: bool) -> None:
        """Add records, and the greatest hlc of their spans."""
        highest: dict[int, int] = {}
        for seq, (_, entry) in enumerate(taken, first):
            span = seq >> _SPAN_BITS
            highest[span] = max(highest.get(span, 0), entry.hlc)
        self.db.executemany(
            "INSERT INTO log (seq, hlc, arrival, op, delta_id, body, is_foreign) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (seq, entry.hlc, arrival, entry.op, entry.delta_id, entry.body, is_foreign)
                for seq, (arrival, entry) in enumerate(taken, first)
            ),
        )
        self.db.executemany(
            "INSERT INTO spans VALUES (?, ?) ON CONFLICT DO UPDATE SET max_hlc = max(max_hlc, excluded.max_hlc)",
            highest.items(),
        )

    def remove(self, upto: int) -> int:
        self.db.execute("DELETE FROM log WHERE seq <= ?", (upto,))
        removed = self.db.changes()
        self.db.execute("DELETE FROM spans WHERE (span + 1) << ? <= ?", (_SPAN_BITS, upto))
        return removed

    def rows(self, keys: Sequence[RowKey]) -> dict[RowKey, log.StoredRow]:
        query = "SELECT body FROM rows WHERE name = ? AND row_id = ?"
        found = ((key, self.db.execute(query, key).get) for key in keys)
        return {key: log.StoredRow(bytes(body)) for key, body in found if body is not None}

    def records(self, after: int, upto: int, limit: int, since_hlc: int = -1) -> list[log.Record]:
        """The records in a range; spans without an hlc above `since_hlc` are skipped."""
        if since_hlc < 0:
            return super().records(after, upto, limit)
        found: list[log.Record] = []
        query = "SELECT span FROM spans WHERE span >= ? AND max_hlc > ? ORDER BY span"
        spans = self.db.execute(query, ((after + 1) >> _SPAN_BITS, since_hlc))
        for (span,) in spans:
            first, end = max(after, (span << _SPAN_BITS) - 1), min(upto, ((span + 1) << _SPAN_BITS) - 1)
            found += super().records(first, end, limit - len(found), since_hlc)
            if len(found) >= limit or end >= upto:
                break
        spans.close()
        return found


@cache
def _sql(statement: str) -> str:
    return statement.format(**_WORDS)


def _migrate(session: _SqliteSession, name: str) -> None:
    """Create the tables, or bring them to the current format, inside a transaction."""
    db = session.db
    version = db.execute("PRAGMA user_version").get
    if version > FORMAT_VERSION:
        raise InputError(
            f"{name} has log format {version}; formats up to {FORMAT_VERSION} are understood: "
            "open it with the driftline that wrote it, or a newer one"
        )
    if version == 0:
        db.execute(log.script("sqlite.sql"))
        db.executemany("INSERT INTO counters VALUES (?, 0)", [(name,) for name in _COUNTERS])
        db.execute("INSERT INTO documents VALUES ('log_id', ?)", (secrets.token_hex(8).encode(),))
    if version == 1:
        # The lake identifies a log of that format by its gateway's name alone.
        db.execute("INSERT INTO documents VALUES ('unnamed_in_lake', '1')")
    if version < FORMAT_VERSION:
        db.execute(log.script("sqlite-2.sql"))
        _separate_versions(session)
        db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def _separate_versions(session: _SqliteSession) -> None:
    """Move the versions of rows, which format 1 stored inside the row, to their own table."""
    for name, row_id, body in list(session.db.execute("SELECT name, row_id, body FROM rows")):
        plain = json.loads(body)
        history = [log.StoredVersion(seq, live, json.dumps(columns)) for seq, live, columns in plain.pop("history")]
        shown = (history[-1].live, history[-1].watched) if history else None
        row = log.StoredRow(json.dumps({**plain, "shown": shown}).encode(), tuple(history))
        session.put_rows({(name, row_id): row})


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """SQLite's errors as the gateway's: they name what the operator can fix, the client may try again."""
    try:
        yield
    except apsw.FullError as error:
        raise log.unavailable("the disk of the log is full", "disk_full") from error
    except apsw.NotADBError as error:
        raise InputError(f"{path.name} is not a log of this gateway: {error}", code="corrupt_log") from error
    except apsw.Error as error:
        raise log.unavailable(f"the log cannot be used just now ({error})", type(error).__name__) from error

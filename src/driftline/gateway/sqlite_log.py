"""The embedded log: one SQLite file in WAL mode, synced before every answer.

Ids are indexed behind their hlc: new deltas have new timestamps, so the index grows at its end instead of being torn
all over, and a log of ten million takes pushes as fast as an empty one.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from driftline.deltas.clock import Clock, physical_ms
from driftline.errors import DriftlineError, GatewayError, InputError
from driftline.gateway.log import Appended, Bounds, Entry, Record

FORMAT_VERSION = 1

_SPAN_BITS = 12  # 4096 records share one "greatest hlc", so that `since` skips what is older
_BUSY_MS = 10_000
_SCHEMA = """
CREATE TABLE log (
    seq INTEGER PRIMARY KEY, hlc INTEGER NOT NULL, arrival INTEGER NOT NULL, op INTEGER NOT NULL,
    delta_id BLOB NOT NULL, body BLOB NOT NULL
);
CREATE UNIQUE INDEX log_identity ON log (hlc, delta_id, op);
CREATE TABLE spans (span INTEGER PRIMARY KEY, max_hlc INTEGER NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE tables (folded TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
"""
_COUNTERS = ("clock", "last", "pruned", "horizon", "flushed", "flushing", "config", "rules_number")


class SqliteLog:
    """A `DeltaLog` in a file, with the gateway's clock and small documents beside it."""

    def __init__(self, path: Path, *, wall: Callable[[], int] | None = None, vfs: str | None = None) -> None:
        self._path = path
        self._wall = wall or physical_ms
        self._vfs = vfs
        self._write_lock = threading.Lock()
        self._readers = threading.local()
        self._all_readers: list[apsw.Connection] = []
        with _explained(path):
            self._writer = self._connect()
            self._prepare()
        self.log_id = str(self.document("log_id") or b"", "ascii")

    # --- the port -------------------------------------------------------------------------------------------------

    def append(self, batches: Sequence[Sequence[Entry]]) -> list[Appended | DriftlineError]:
        """Take whole batches or nothing of them, in one transaction and one sync."""
        with self.writing() as db:
            counters = _read_counters(db)
            clock = Clock(self._wall, last=counters["clock"])
            results = [self._append_batch(db, clock, counters, batch) for batch in batches]
            counters["clock"] = clock.last
            _write_counters(db, counters, ("clock", "last"))
        return results

    def read(self, after: int, limit: int, *, upto: int | None = None, since_hlc: int = -1) -> list[Record]:
        """The records after a sequence in order, those with a greater hlc than `since_hlc`."""
        last = (1 << 62) if upto is None else upto
        with _explained(self._path):
            if since_hlc < 0:
                return _select(self.reader(), "seq > ? AND seq <= ?", (after, last), limit)
            return self._read_since(after, limit, last, since_hlc)

    def has(self, hlc: int, delta_id: bytes) -> bool:
        """Whether a delta is known."""
        with _explained(self._path):
            found = self.reader().execute("SELECT 1 FROM log WHERE hlc = ? AND delta_id = ?", (hlc, delta_id))
            return found.fetchone() is not None

    def bounds(self) -> Bounds:
        """How far the log reaches."""
        return Bounds(self.counter("pruned"), self.counter("last"))

    def prune(self, upto: int) -> int:
        """Forget records up to a sequence; deltas as old as those are refused from then on."""
        with self.writing() as db:
            counters = _read_counters(db)
            newest = db.execute("SELECT max(hlc) FROM log WHERE seq <= ?", (upto,)).get
            if newest is None:
                return 0
            db.execute("DELETE FROM log WHERE seq <= ?", (upto,))
            removed = db.changes()
            db.execute("DELETE FROM spans WHERE (span + 1) << ? <= ?", (_SPAN_BITS, upto))
            counters["pruned"] = max(counters["pruned"], min(upto, counters["last"]))
            counters["horizon"] = max(counters["horizon"], newest)
            _write_counters(db, counters, ("pruned", "horizon"))
        return removed

    def close(self) -> None:
        """Fold the write-ahead log in and close every connection."""
        with self._write_lock:
            for connection in (*self._all_readers, self._writer):
                connection.close()

    # --- counters and documents -----------------------------------------------------------------------------------

    def counter(self, name: str) -> int:
        """A small number that lives with the log."""
        with _explained(self._path):
            return int(self.reader().execute("SELECT value FROM counters WHERE name = ?", (name,)).get)

    def set_counter(self, name: str, value: int) -> None:
        """Store a number durably."""
        with self.writing() as db:
            db.execute("UPDATE counters SET value = ? WHERE name = ?", (value, name))

    def document(self, name: str) -> bytes | None:
        """A named document, or None."""
        with _explained(self._path):
            body = self.reader().execute("SELECT body FROM documents WHERE name = ?", (name,)).get
            return None if body is None else bytes(body)

    def change_document(self, name: str, change: Callable[[bytes | None], bytes | None], *bumped: str) -> None:
        """Rewrite or remove (None) a document and raise counters, in one durable step."""
        with self.writing() as db:
            before = db.execute("SELECT body FROM documents WHERE name = ?", (name,)).get
            body = change(None if before is None else bytes(before))
            if body is None:
                db.execute("DELETE FROM documents WHERE name = ?", (name,))
            else:
                db.execute("INSERT OR REPLACE INTO documents VALUES (?, ?)", (name, body))
            db.executemany("UPDATE counters SET value = value + 1 WHERE name = ?", [(each,) for each in bumped])

    def table_names(self) -> list[str]:
        """The tables that deltas have spoken of."""
        with _explained(self._path):
            return [name for (name,) in self.reader().execute("SELECT name FROM tables ORDER BY name")]

    def first_arrival_from(self, hlc: int) -> int:
        """The sequence of the first record that arrived at `hlc` or later; one past the end if none did."""
        low, high = self.counter("pruned") + 1, self.counter("last") + 1
        while low < high:  # arrivals rise with the sequence
            middle = (low + high) // 2
            with _explained(self._path):
                arrival = self.reader().execute("SELECT arrival FROM log WHERE seq = ?", (middle,)).get
            low, high = (low, middle) if arrival >= hlc else (middle + 1, high)
        return low

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """A durable transaction; it is undone when the block raises."""
        with self._write_lock, _explained(self._path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                # A failed COMMIT may have ended the transaction by itself.
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    def reader(self) -> apsw.Connection:
        """This thread's connection for reading."""
        connection: apsw.Connection | None = getattr(self._readers, "connection", None)
        if connection is None:
            connection = self._readers.connection = self._connect()
            connection.execute("PRAGMA cache_size = -4000")
            self._all_readers.append(connection)
        return connection

    def checkpoint(self) -> None:
        """Copy what is in the write-ahead log to the file, without stopping writers or readers."""
        with _explained(self._path):
            self.reader().execute("PRAGMA wal_checkpoint(PASSIVE)")

    def wal_bytes(self) -> int:
        """The size of the write-ahead log."""
        try:
            return self._path.with_name(self._path.name + "-wal").stat().st_size
        except FileNotFoundError:
            return 0

    # --- inside ---------------------------------------------------------------------------------------------------

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path), vfs=self._vfs)
        connection.set_busy_timeout(_BUSY_MS)
        # FULL syncs the write-ahead log at every commit: an answer is given after that.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 16000")
        connection.execute("PRAGMA cache_size = -32000")
        return connection

    def _prepare(self) -> None:
        self._writer.execute("PRAGMA page_size = 8192")
        self._writer.execute("PRAGMA journal_mode = WAL")
        with self.writing() as db:
            version = db.execute("PRAGMA user_version").get
            if version == 0:
                db.execute(_SCHEMA)
                db.executemany("INSERT INTO counters VALUES (?, 0)", [(name,) for name in _COUNTERS])
                db.execute("INSERT INTO documents VALUES ('log_id', ?)", (secrets.token_hex(8).encode(),))
                db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            elif version != FORMAT_VERSION:
                raise InputError(f"{self._path.name} has log format {version}; format {FORMAT_VERSION} is understood")

    def _append_batch(
        self, db: apsw.Connection, clock: Clock, counters: dict[str, int], batch: Sequence[Entry]
    ) -> Appended | DriftlineError:
        try:
            fresh = _fresh_positions(db, batch)
            _check_horizon(batch, fresh, counters["horizon"])
            new_tables = _new_tables(db, batch)
            server_hlc = clock.recv(max(entry.hlc for entry in batch)) if batch else clock.now()
        except DriftlineError as error:
            return error
        db.executemany("INSERT INTO tables VALUES (?, ?)", [(name.casefold(), name) for name in new_tables])
        if fresh:
            first = counters["last"] + 1
            arrivals = clock.take(len(fresh) * 2)[::2]  # the odd ones are for what views make of a record
            _insert(db, first, arrivals, [batch[position] for position in fresh])
            counters["last"] += len(fresh)
        return Appended(server_hlc, fresh)

    def _read_since(self, after: int, limit: int, last: int, since_hlc: int) -> list[Record]:
        db = self.reader()
        found: list[Record] = []
        spans = db.execute(
            "SELECT span FROM spans WHERE span >= ? AND max_hlc > ? ORDER BY span",
            ((after + 1) >> _SPAN_BITS, since_hlc),
        )
        for (span,) in spans:
            first, end = max(after, (span << _SPAN_BITS) - 1), min(last, ((span + 1) << _SPAN_BITS) - 1)
            where = "seq > ? AND seq <= ? AND hlc > ?"
            found += _select(db, where, (first, end, since_hlc), limit - len(found))
            if len(found) >= limit or end >= last:
                break
        spans.close()
        return found


def _select(db: apsw.Connection, where: str, values: tuple[int, ...], limit: int) -> list[Record]:
    query = f"SELECT seq, hlc, arrival, body FROM log WHERE {where} ORDER BY seq LIMIT ?"  # noqa: S608 - constants
    return [Record(*row) for row in db.execute(query, (*values, limit))]


def _fresh_positions(db: apsw.Connection, batch: Sequence[Entry]) -> list[int]:
    """Positions of entries that are not known yet; a known id with another operation refuses the batch."""
    fresh: list[int] = []
    in_batch: dict[bytes, int] = {}
    for position, entry in enumerate(batch):
        known: Any = in_batch.get(entry.delta_id)
        if known is None:
            known = db.execute(
                "SELECT op FROM log WHERE hlc = ? AND delta_id = ?", (entry.hlc, entry.delta_id), prepare_flags=0
            ).get
        if known is None:
            fresh.append(position)
            in_batch[entry.delta_id] = entry.op
        elif known != entry.op:
            raise GatewayError(f"deltas[{position}]: its id is known with another op", index=position)
    return fresh


def _check_horizon(batch: Sequence[Entry], fresh: Sequence[int], horizon: int) -> None:
    for position in fresh:
        if horizon and batch[position].hlc <= horizon:
            raise GatewayError(
                f"deltas[{position}]: older than what this gateway still remembers (hlc up to {horizon})",
                code="TOO_OLD",
                index=position,
            )


def _new_tables(db: apsw.Connection, batch: Sequence[Entry]) -> list[str]:
    """Tables seen for the first time; names are unique ignoring case, because they become directories."""
    found: dict[str, str] = {}
    for name in sorted({entry.table for entry in batch}):
        folded = name.casefold()
        known = db.execute("SELECT name FROM tables WHERE folded = ?", (folded,)).get or found.get(folded)
        if known is None:
            found[folded] = name
        elif known != name:
            raise GatewayError(f"table {name!r} differs from {known!r} only in case")
    return list(found.values())


def _insert(db: apsw.Connection, first: int, arrivals: Sequence[int], entries: Sequence[Entry]) -> None:
    db.executemany(
        "INSERT INTO log (seq, hlc, arrival, op, delta_id, body) VALUES (?, ?, ?, ?, ?, ?)",
        (
            (seq, entry.hlc, arrival, entry.op, entry.delta_id, entry.body)
            for seq, arrival, entry in zip(range(first, first + len(entries)), arrivals, entries, strict=True)
        ),
    )
    highest: dict[int, int] = {}
    for seq, entry in enumerate(entries, first):
        span = seq >> _SPAN_BITS
        highest[span] = max(highest.get(span, 0), entry.hlc)
    db.executemany(
        "INSERT INTO spans VALUES (?, ?) ON CONFLICT DO UPDATE SET max_hlc = max(max_hlc, excluded.max_hlc)",
        highest.items(),
    )


def _read_counters(db: apsw.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT name, value FROM counters"))


def _write_counters(db: apsw.Connection, counters: dict[str, int], names: Sequence[str]) -> None:
    db.executemany("UPDATE counters SET value = ? WHERE name = ?", [(counters[name], name) for name in names])


def unavailable(message: str, reason: str) -> GatewayError:
    """The log cannot be used just now; nothing was acknowledged and the client may try again."""
    return GatewayError(message, code="BACKPRESSURE_ERROR", reason=reason, retry_after=2)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """SQLite's troubles as the gateway's: what the operator can mend is said, the client may try again."""
    try:
        yield
    except apsw.FullError as error:
        raise unavailable("the disk of the log is full", "disk_full") from error
    except apsw.NotADBError as error:
        raise InputError(f"{path.name} is not a log of this gateway: {error}", code="corrupt_log") from error
    except apsw.Error as error:
        raise unavailable(f"the log cannot be used just now ({error})", type(error).__name__) from error

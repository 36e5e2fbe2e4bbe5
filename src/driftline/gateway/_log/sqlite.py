"""The embedded log: one SQLite file in WAL mode, synced before every response.

Ids are indexed behind their hlc: new deltas have new timestamps, so the index grows at its end instead of at random
pages, and a log of ten million takes pushes as fast as an empty one.
"""

from __future__ import annotations

import fcntl
import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

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

FORMAT_VERSION = 2

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
# What format 2 adds to format 1. Records of earlier logs were pushed: none of them is foreign.
_SECOND_FORMAT = """
ALTER TABLE log ADD COLUMN is_foreign INTEGER NOT NULL DEFAULT 0;
INSERT OR IGNORE INTO counters VALUES ('pruned_arrival', 0), ('projected', 0), ('projected_rules', 0);
INSERT INTO documents VALUES ('was', '[]');
CREATE TABLE IF NOT EXISTS rows (
    name TEXT NOT NULL, row_id TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (name, row_id)
) WITHOUT ROWID;
CREATE TABLE row_versions (
    name TEXT NOT NULL, row_id TEXT NOT NULL, seq INTEGER NOT NULL, live INTEGER NOT NULL, watched TEXT NOT NULL,
    PRIMARY KEY (name, row_id, seq)
) WITHOUT ROWID;
"""
_SPAN_BITS = 12  # 4096 records share one greatest hlc, so that `since` skips older spans
_BUSY_MS = 10_000
_CHECKPOINT_BYTES = 8 << 20
_COUNTER_OF: dict[Numbered, str] = {"config": "config", "rules": "rules_number"}


class SqliteLog(DeltaLog):
    """A `DeltaLog` in a file, with the gateway's clock and small documents beside it."""

    _poll_seconds = 0.1

    def __init__(self, path: Path, *, wall: Callable[[], int] | None = None, vfs: str | None = None) -> None:
        self._path = path
        self._wall = wall or physical_ms
        self._vfs = vfs
        self._write_lock = threading.Lock()
        self._readers = threading.local()
        self._all_readers: list[apsw.Connection] = []
        super().__init__()
        with _explained(path):
            self._writer = self._connect()
            self._prepare()

    # Records.

    def identity(self) -> Identity:
        """The id of this log."""
        with _explained(self._path):
            return _identity(self.reader())

    def renew_identity(self) -> Identity:
        """Take a new random id because the log was set back; no range is being flushed then."""
        with self.writing() as db:
            before = _identity(db)
            renewed = Identity(secrets.token_hex(8), (before.log_id, *before.was))
            _write_identity(db, renewed)
            counters = _read_counters(db)
            counters["flushing"] = counters["flushed"]
            counters["config"] += 1  # wakes listeners, whose cursors are invalid now
            _write_counters(db, counters, ("flushing", "config"))
        return renewed

    def append(
        self, batches: Sequence[Sequence[Entry]], claims: Sequence[Claims | None] = ()
    ) -> list[Appended | DriftlineError]:
        """Append each batch whole or not at all, in one transaction and one sync."""
        with self.writing() as db:
            counters = _read_counters(db)
            clock = Clock(self._wall, last=counters["clock"])
            entries = [entry for batch in batches for entry in batch]
            verdicts = None if self.judge is None else self.judge.begin(_View(db, counters), entries)
            step = partial(self._append_batch, db, clock, counters, verdicts)
            results = [step(batch, writer) for batch, writer in with_claims(batches, claims)]
            counters["clock"] = clock.last
            if verdicts is not None:
                _put_rows(db, verdicts.changed())
                counters["projected"] = counters["last"]
            _write_counters(db, counters, ("clock", "last", "projected"))
        self._wake()
        return results

    def import_foreign(self, batch: Sequence[Entry]) -> int:
        """Append deltas of the lake that are not in this log; the number of new ones."""
        if not batch:
            return 0
        newest = max(entry.hlc for entry in batch)
        check_drift(newest, self._wall())  # else it would advance the clock, and every client's with it
        with self.writing() as db:
            counters = _read_counters(db)
            fresh = unknown_entries(batch, partial(_known_op, db))
            clock = Clock(self._wall, last=max(counters["clock"], newest))
            db.executemany("INSERT INTO tables VALUES (?, ?)", new_tables(fresh, partial(_known_table, db)).items())
            self._take(db, clock, counters, fresh, is_foreign=True)
            counters["clock"] = clock.last
            _write_counters(db, counters, ("clock", "last"))
        self._wake()
        return len(fresh)

    def read(self, after: int, limit: int, *, upto: int | None = None, since_hlc: int = -1) -> list[Record]:
        """The records after a sequence in order, those with an hlc above `since_hlc`."""
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

    def prune(self, upto: int) -> int:
        """Remove records up to a sequence; deltas as old as those are refused from then on."""
        with self.writing() as db:
            counters = _read_counters(db)
            newest = db.execute("SELECT max(hlc) FROM log WHERE seq <= ?", (upto,)).get
            if newest is None:
                return 0
            gone = min(upto, counters["last"])
            counters["pruned_arrival"] = db.execute("SELECT arrival FROM log WHERE seq = ?", (gone,)).get or 0
            db.execute("DELETE FROM log WHERE seq <= ?", (upto,))
            removed = db.changes()
            db.execute("DELETE FROM spans WHERE (span + 1) << ? <= ?", (_SPAN_BITS, upto))
            counters["pruned"] = max(counters["pruned"], gone)
            counters["horizon"] = max(counters["horizon"], newest)
            _write_counters(db, counters, ("pruned", "pruned_arrival", "horizon"))
        return removed

    def table_names(self) -> list[str]:
        """The tables that deltas have named."""
        with _explained(self._path):
            return [name for (name,) in self.reader().execute("SELECT name FROM tables ORDER BY name")]

    # Flush progress.

    def waiting(self) -> Waiting:
        """What is not in the lake yet."""
        query = "SELECT min(arrival), sum(length(body)) FROM (SELECT arrival, body FROM log WHERE seq > ? LIMIT ?)"
        with _explained(self._path):
            oldest, size = next(self.reader().execute(query, (self._numbers()["flushed"], MAX_COUNTED)))
        return Waiting(size or 0, None if oldest is None else oldest >> 16)

    def flush_again(self, after: int) -> None:
        """Note durably that the lake has nothing after this sequence any more."""
        with self.writing() as db:
            db.execute("UPDATE counters SET value = min(value, ?) WHERE name IN ('flushed', 'flushing')", (after,))

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

    # Configuration.

    def document(self, name: str) -> bytes | None:
        """A named document, or None."""
        with _explained(self._path):
            return _document(self.reader(), name)

    def change_document(self, name: str, change: Callable[[bytes | None], bytes | None], *bumped: Numbered) -> None:
        """Rewrite or remove (None) a document and raise numbers, in one durable step."""
        with self.writing() as db:
            before = _document(db, name)
            body = change(before)
            if body == before and not bumped:
                return
            if body is None:
                db.execute("DELETE FROM documents WHERE name = ?", (name,))
            else:
                db.execute("INSERT OR REPLACE INTO documents VALUES (?, ?)", (name, body))
            raised = [(_COUNTER_OF[each],) for each in bumped]
            db.executemany("UPDATE counters SET value = value + 1 WHERE name = ?", raised)

    # Merged rows.

    def rows(self, keys: Sequence[RowKey]) -> dict[RowKey, StoredRow]:
        """Those of the rows that are stored."""
        with _explained(self._path):
            return _rows(self.reader(), keys)

    def all_rows(self) -> Iterator[tuple[RowKey, StoredRow]]:
        """Every stored row."""
        with _explained(self._path):
            for name, row_id, body in self.reader().execute("SELECT name, row_id, body FROM rows"):
                yield (name, row_id), StoredRow(bytes(body))

    def versions(self, key: RowKey, after: int, limit: int) -> list[StoredVersion]:
        """The versions of a row after a sequence, in order."""
        query = """SELECT seq, live, watched FROM row_versions WHERE name = ? AND row_id = ? AND seq > ?
            ORDER BY seq LIMIT ?"""
        with _explained(self._path):
            rows = self.reader().execute(query, (*key, after, limit))
            return [StoredVersion(seq, bool(live), watched) for seq, live, watched in rows]

    def _replace_rows(
        self, rows: Mapping[RowKey, StoredRow], before: Projection, after: Projection, *, anew: bool
    ) -> None:
        with self.writing() as db:
            counters = _read_counters(db)
            if (counters["projected"], counters["projected_rules"]) != (before.seq, before.rules):
                return
            if anew:
                db.execute("DELETE FROM rows; DELETE FROM row_versions")
            _put_rows(db, rows)
            counters["projected"], counters["projected_rules"] = after.seq, after.rules
            _write_counters(db, counters, ("projected", "projected_rules"))

    # Upkeep.

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
        with _explained(self._path):
            self.reader().execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        """Close every connection; the last one copies the write-ahead log to the file."""
        with self._write_lock:
            for connection in (*self._all_readers, self._writer):
                connection.close()

    # Connections and steps.

    def _numbers(self) -> Mapping[str, int]:
        with _explained(self._path):
            counters = _read_counters(self.reader())
        return {**counters, "rules": counters["rules_number"]}

    def _arrival(self, seq: int) -> int | None:
        with _explained(self._path):
            found: int | None = self.reader().execute("SELECT arrival FROM log WHERE seq = ?", (seq,)).get
        return found

    def _raise(self, name: str, value: int) -> None:
        with self.writing() as db:
            db.execute("UPDATE counters SET value = max(value, ?) WHERE name = ?", (value, name))

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

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path), vfs=self._vfs)
        connection.set_busy_timeout(_BUSY_MS)
        # FULL syncs the write-ahead log at every commit, before the response.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 16000")
        connection.execute("PRAGMA cache_size = -32000")
        return connection

    def _prepare(self) -> None:
        self._writer.execute("PRAGMA page_size = 8192")
        self._writer.execute("PRAGMA journal_mode = WAL")
        with self.writing() as db:
            _migrate(db, self._path.name)

    def _append_batch(
        self,
        db: apsw.Connection,
        clock: Clock,
        counters: dict[str, int],
        verdicts: Judgement | None,
        batch: Sequence[Entry],
        claims: Claims | None,
    ) -> Appended | DriftlineError:
        try:
            fresh = fresh_positions(batch, partial(_known_op, db))
            check_clock(batch, fresh, clock.last, self._wall())
            check_horizon(batch, fresh, counters["horizon"])
            hidden = () if verdicts is None else verdicts.check(batch, fresh, claims)
            tables = new_tables(batch, partial(_known_table, db))
            server_hlc = clock.follow(max(batch[position].hlc for position in fresh)) if fresh else clock.now()
        except DriftlineError as error:
            return error
        db.executemany("INSERT INTO tables VALUES (?, ?)", tables.items())
        if verdicts is not None:
            verdicts.take(batch, fresh, counters["last"] + 1)
        self._take(db, clock, counters, [batch[position] for position in fresh])
        return Appended(server_hlc, fresh, hidden)

    def _take(
        self,
        db: apsw.Connection,
        clock: Clock,
        counters: dict[str, int],
        entries: Sequence[Entry],
        *,
        is_foreign: bool = False,
    ) -> None:
        if entries:
            arrivals = clock.take(len(entries) * 2)[
                ::2
            ]  # the odd ones are for the deltas that a view derives from a record
            _insert(db, counters["last"] + 1, arrivals, entries, is_foreign)
            counters["last"] += len(entries)

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


@dataclass(frozen=True, slots=True)
class _View:
    """What a judge reads inside an append."""

    db: apsw.Connection
    counters: Mapping[str, int]

    def numbers(self) -> Mapping[str, int]:
        return {**self.counters, "rules": self.counters["rules_number"]}

    def document(self, name: str) -> bytes | None:
        return _document(self.db, name)

    def rows(self, keys: Sequence[RowKey]) -> dict[RowKey, StoredRow]:
        return _rows(self.db, keys)

    def records(self, after: int, upto: int) -> list[Record]:
        return _select(self.db, "seq > ? AND seq <= ?", (after, upto), upto - after)


def _rows(db: apsw.Connection, keys: Sequence[RowKey]) -> dict[RowKey, StoredRow]:
    found: dict[RowKey, StoredRow] = {}
    for key in keys:
        body = db.execute("SELECT body FROM rows WHERE name = ? AND row_id = ?", key).get
        if body is not None:
            found[key] = StoredRow(bytes(body))
    return found


def _put_rows(db: apsw.Connection, rows: Mapping[RowKey, StoredRow]) -> None:
    """Replace merged rows, and add their new versions."""
    folds = ((*key, row.fold) for key, row in rows.items())
    db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", folds)
    db.executemany("INSERT INTO row_versions VALUES (?, ?, ?, ?, ?)", _version_rows(rows))


def _migrate(db: apsw.Connection, name: str) -> None:
    """Create the tables, or bring them to the current format, inside a transaction."""
    version = db.execute("PRAGMA user_version").get
    if version > FORMAT_VERSION:
        raise InputError(
            f"{name} has log format {version}; formats up to {FORMAT_VERSION} are understood: "
            "open it with the driftline that wrote it, or a newer one"
        )
    if version == 0:
        db.execute(_SCHEMA)
        db.executemany("INSERT INTO counters VALUES (?, 0)", [(name,) for name in _COUNTERS])
        db.execute("INSERT INTO documents VALUES ('log_id', ?)", (secrets.token_hex(8).encode(),))
    if version == 1:
        # The lake knows a log of that format by its gateway's name alone.
        db.execute("INSERT INTO documents VALUES ('unnamed_in_lake', '1')")
    if version < FORMAT_VERSION:
        db.execute(_SECOND_FORMAT)
        _separate_versions(db)
        db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def _version_rows(rows: Mapping[RowKey, StoredRow]) -> Iterator[tuple[Any, ...]]:
    """The versions of rows as they are inserted."""
    for key, row in rows.items():
        yield from ((*key, each.seq, each.live, each.watched) for each in row.versions)


def _separate_versions(db: apsw.Connection) -> None:
    """Move the versions of rows, which format 1 stored inside the row, to their own table."""
    for name, row_id, body in list(db.execute("SELECT name, row_id, body FROM rows")):
        plain = json.loads(body)
        history = [StoredVersion(seq, live, json.dumps(columns)) for seq, live, columns in plain.pop("history")]
        shown = (history[-1].live, history[-1].watched) if history else None
        row = StoredRow(json.dumps({**plain, "shown": shown}).encode(), tuple(history))
        db.execute("UPDATE rows SET body = ? WHERE name = ? AND row_id = ?", (row.fold, name, row_id))
        db.executemany("INSERT INTO row_versions VALUES (?, ?, ?, ?, ?)", _version_rows({(name, row_id): row}))


def _select(db: apsw.Connection, where: str, values: tuple[int, ...], limit: int) -> list[Record]:
    query = f"SELECT seq, hlc, arrival, body, is_foreign FROM log WHERE {where} ORDER BY seq LIMIT ?"  # noqa: S608
    rows = db.execute(query, (*values, limit))
    return [Record(seq, hlc, arrival, body, bool(foreign)) for seq, hlc, arrival, body, foreign in rows]


def _document(db: apsw.Connection, name: str) -> bytes | None:
    body = db.execute("SELECT body FROM documents WHERE name = ?", (name,)).get
    return None if body is None else body.encode() if isinstance(body, str) else bytes(body)


def _identity(db: apsw.Connection) -> Identity:
    named = dict(db.execute("SELECT name, CAST(body AS TEXT) FROM documents WHERE name IN ('log_id', 'was')"))
    return Identity(named["log_id"], tuple(json.loads(named["was"])))


def _write_identity(db: apsw.Connection, identity: Identity) -> None:
    db.execute("UPDATE documents SET body = ? WHERE name = 'log_id'", (identity.log_id.encode(),))
    db.execute("UPDATE documents SET body = ? WHERE name = 'was'", (json.dumps(identity.was).encode(),))


def _known_op(db: apsw.Connection, entry: Entry) -> int | None:
    found: int | None = db.execute(
        "SELECT op FROM log WHERE hlc = ? AND delta_id = ?", (entry.hlc, entry.delta_id), prepare_flags=0
    ).get
    return found


def _known_table(db: apsw.Connection, folded: str) -> str | None:
    found: str | None = db.execute("SELECT name FROM tables WHERE folded = ?", (folded,)).get
    return found


def _insert(
    db: apsw.Connection, first: int, arrivals: Sequence[int], entries: Sequence[Entry], is_foreign: bool
) -> None:
    db.executemany(
        "INSERT INTO log (seq, hlc, arrival, op, delta_id, body, is_foreign) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (seq, entry.hlc, arrival, entry.op, entry.delta_id, entry.body, is_foreign)
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


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """SQLite's errors as the gateway's: they name what the operator can fix, the client may try again."""
    try:
        yield
    except apsw.FullError as error:
        raise unavailable("the disk of the log is full", "disk_full") from error
    except apsw.NotADBError as error:
        raise InputError(f"{path.name} is not a log of this gateway: {error}", code="corrupt_log") from error
    except apsw.Error as error:
        raise unavailable(f"the log cannot be used just now ({error})", type(error).__name__) from error

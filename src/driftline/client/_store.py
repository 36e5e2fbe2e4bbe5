"""The local store: one SQLite file with confirmed rows and pending writes (gateway §11).

The application sees both, merged by the one rule of merging, so nothing is rebased when others write too.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

from driftline.client._http import Types, read_json
from driftline.client._rows import (
    Change,
    Filters,
    Subscription,
    Where,
    passes,
    read_columns,
    read_filters,
    wire_columns,
)
from driftline.client._sync import Connection, Follower, SyncReport, sync_round
from driftline.core import JsonObject, canonical_json, utf16_sorted
from driftline.deltas import (
    COUNTER_BITS,
    Clock,
    RowDelta,
    RowKey,
    RowMerge,
    RowState,
    check_column_name,
    check_table_name,
    extract,
    fold_from_plain,
    fold_to_plain,
    index_keys,
    index_spans,
    make_hlc,
    physical_ms,
    sort_key,
)
from driftline.errors import InputError, OptionError

FORMAT_VERSION = 2
_SMALLEST_OFFSET_MS = 2000  # clocks that differ by less are taken as equal

_NO_STORE = "the file is no store, or a damaged one: restore it, or remove it and sync anew"
_UPSERT = "INSERT INTO {} VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET fold = excluded.fold"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A write that the gateway refused for good, and why."""

    delta: RowDelta
    code: str
    message: str


class Store:
    """Rows of an application that are synced with a gateway; safe to use from several threads."""

    def __init__(
        self,
        path: str | Path,
        client_id: str,
        *,
        url: str | None = None,
        gateway: str | None = None,
        token: str | Callable[[], str] | None = None,
        parameters: Mapping[str, str] | None = None,
        wall: Callable[[], int] | None = None,
        types: Types | None = None,
        indexes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.client_id = client_id
        self._connection = Connection(url, gateway, client_id, token, dict(parameters or {}))
        self._wall = wall or physical_ms
        self._lock = threading.RLock()
        self.sending = threading.Lock()  # the queue has one sender at a time
        self._followers: list[Follower] = []
        self._changed: list[tuple[RowKey, RowState, RowState]] = []  # by the step that is being written
        self._subscriptions: list[Subscription] = []
        self._news: deque[tuple[Subscription, list[Change]]] = deque()
        self._notifying = threading.Lock()
        self._notifier: int | None = None
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._prepare()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise InputError(_NO_STORE, code="damaged_store") from error
            raise InputError(f"{path} cannot be opened: {error}") from error
        self._types: dict[str, dict[str, str]] = json.loads(self._meta("types") or "{}")
        self.note_types(types)
        if indexes is not None:
            self._make_indexes(indexes)

    # Rows.

    def put(self, table: str, row_id: str, columns: Mapping[str, Any]) -> None:
        """Set columns of a row, which is created if it is missing; the others stay. Seen at once, sent by `sync`."""
        written = wire_columns(columns, self._types.get(table, {}))
        key = (table, row_id)
        with self.writing(), self._changing([key]) as (before, _):
            seen = before[key].columns if before[key].live else None
            self._enqueue(table, row_id, seen, {**(seen or {}), **written})

    def delete(self, table: str, row_id: str) -> None:
        """Delete a row; a missing one stays missing."""
        key = (table, row_id)
        with self.writing(), self._changing([key]) as (before, _):
            if before[key].live:
                self._enqueue(table, row_id, before[key].columns, None)

    def get(self, table: str, row_id: str) -> JsonObject | None:
        """A row's columns, None where it is missing."""
        with self._lock:
            return read_columns(self._state((table, row_id)), self._types.get(table, {}))

    def rows(self, table: str) -> dict[str, JsonObject]:
        """Every row of a table by its id, in order of the ids (by UTF-16 code unit)."""
        return self.query(table)

    def query(
        self,
        table: str,
        where: Where = (),
        *,
        order_by: str | None = None,
        descending: bool = False,
        limit: int | None = None,
    ) -> dict[str, JsonObject]:
        """The rows that pass all filters `{column, op, value}`, which mean what they mean in sync rules, by their ids.

        They come in order of the ids, or of a column: missing and null first, then false, true, numbers, text, the
        rest. Where `indexes` of the store has a column of an `eq`, `in`, `gt`, `gte`, `lt` or `lte` filter, the cost
        grows with the rows that it lets pass, not with the table. A column that a row does not have passes no filter.
        """
        filters = read_filters(table, where)
        if order_by is not None:
            check_column_name(order_by)
        if limit is not None and (type(limit) is not int or limit < 0):
            raise OptionError(f"limit is a number of rows, not {limit!r}")
        found: dict[str, JsonObject] = {}
        with self._lock:
            types = self._types.get(table, {})
            for row_id, state in self._candidates(table, filters):
                if order_by is None and len(found) == limit:
                    break
                if passes(state, filters, types):
                    found[row_id] = read_columns(state, types) or {}
        if order_by is None:
            return found
        rows = sorted(found.items(), key=lambda row: sort_key(row[1].get(order_by)), reverse=descending)
        return dict(rows[:limit])

    def subscribe(
        self, table: str, callback: Callable[[list[Change]], object], *, row_id: str | None = None, where: Where = ()
    ) -> Subscription:
        """Call a function with the changes of a table, a row or the rows that pass filters, until it is closed.

        It is called once for each commit that changes such rows (`put`, `delete`, a page of `sync`), after it and in
        order, one call at a time, by a thread that writes. `columns` is None where the row is gone or passes no
        longer. What the function raises goes to `sys.excepthook`; the store and other subscriptions continue.
        """
        subscription = Subscription(table, row_id, read_filters(table, where), callback)
        with self._lock:
            self._subscriptions.append(subscription)
        return subscription

    @property
    def pending(self) -> int:
        """Writes that the gateway has not confirmed yet."""
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM queue").fetchone()[0])

    def rejected(self) -> list[Rejected]:
        """Writes that the gateway refused, oldest first; they have no effect any more."""
        with self._lock:
            rows = self._db.execute("SELECT delta, code, message FROM rejected ORDER BY n").fetchall()
        return [Rejected(_delta(text), code, message) for text, code, message in rows]

    def forget_rejected(self) -> None:
        """Drop the list of refused writes."""
        with self.writing():
            self._db.execute("DELETE FROM rejected")

    # Syncing.

    def sync(self) -> SyncReport:
        """Send pending writes and fetch changes; raises where the gateway cannot be reached, and nothing is lost."""
        if self._notifier == threading.get_ident():
            raise OptionError("a subscription's function cannot sync: sync when it has returned, or in another thread")
        with self.sending:
            report, refusal = sync_round(self, self._connection)
        if refusal is not None:
            raise refusal
        return report

    async def sync_async(self) -> SyncReport:
        """`sync` for asyncio."""
        import asyncio

        return await asyncio.to_thread(self.sync)

    def follow(self) -> Follower:
        """Every change as it arrives, with `for` or `async for`; writes are sent as they are made meanwhile."""
        follower = Follower(self, self._connection)
        self._followers.append(follower)
        return follower

    def close(self) -> None:
        """Stop followers and close the file."""
        for follower in self._followers:
            follower.stop()
        with self._lock:
            self._db.close()

    # Steps of a round.

    def queued(self, limit: int, most_bytes: int = 8 << 20) -> list[tuple[int, RowDelta]]:
        """The oldest pending writes with their numbers, so many and so large together; at least one."""
        sizes = "SELECT n, sum(length(CAST(delta AS BLOB))) OVER (ORDER BY n) AS size FROM queue ORDER BY n LIMIT ?"
        query = f"SELECT q.n, q.delta FROM ({sizes}) s JOIN queue q ON q.n = s.n WHERE s.size <= ? ORDER BY q.n"  # noqa: S608
        with self._lock:
            rows = self._db.execute(query, (limit, most_bytes)).fetchall()
            if not rows:
                rows = self._db.execute("SELECT n, delta FROM queue ORDER BY n LIMIT 1").fetchall()
        return [(number, _delta(text)) for number, text in rows]

    def confirm(self, numbers: Sequence[int], deltas: Sequence[RowDelta], hidden: Sequence[RowDelta]) -> list[Change]:
        """Move writes from the queue to the confirmed rows but for hidden ones, in one step; the rows that changed."""
        with self.writing(), self._changing([(delta.table, delta.row_id) for delta in hidden]) as (_, changes):
            self._fold_in(deltas)
            self._db.executemany("DELETE FROM queue WHERE n = ?", [(number,) for number in numbers])
        return changes

    def note_time(self, server_ms: int | None) -> None:
        """Note how far this machine's clock is from the gateway's, where the difference matters."""
        if server_ms is None:
            return
        with self._lock:
            offset = server_ms - self._wall()
            offset = offset if abs(offset) > _SMALLEST_OFFSET_MS else 0
            before = int(self._meta("offset") or 0)
            if offset != before and (not offset or abs(offset - before) > _SMALLEST_OFFSET_MS):
                self._set_meta("offset", str(offset))

    def note_types(self, types: Types | None) -> None:
        """Note the columns whose numbers are exact: integers and decimals come back as `int` and `Decimal`."""
        known = {**self._types, **{table: dict(columns) for table, columns in (types or {}).items()}}
        if known != self._types:
            with self._lock:
                self._types = known
                self._set_meta("types", json.dumps(known))

    def restamp(self, first: int, server_ms: int, latest: int) -> list[Change]:
        """Give the writes of the queue from `first` on timestamps that the gateway accepts, in the same order.

        No log has them, so their ids are unknown to everyone. While the clock is still wrong, the offset gives the true
        time of writing; where it was corrected meanwhile, a write counts as made now.
        """
        self.note_time(server_ms)
        with self.writing():
            offset = server_ms - self._wall()
            earlier = self._db.execute("SELECT delta FROM queue WHERE n < ? ORDER BY n", (first,)).fetchall()
            later = self._db.execute("SELECT n, delta FROM queue WHERE n >= ? ORDER BY n", (first,)).fetchall()
            last = max([int(self._meta("observed") or 0), *(_delta(text).hlc for (text,) in earlier)])
            last = min(last, latest - len(later))  # the gateway has issued nothing beyond what it accepts
            now = max(make_hlc(server_ms), last)
            writes = [(number, _delta(text)) for number, text in later]
            with self._changing([(old.table, old.row_id) for _, old in writes]) as (_, changes):
                for number, old in writes:
                    last = max(min(old.hlc + (offset << COUNTER_BITS), now), last + 1)
                    row = {"table": old.table, "row_id": old.row_id, "client_id": old.client_id}
                    made = RowDelta.make(op=old.op, columns=old.columns, hlc=last, **row)
                    self._db.execute("UPDATE queue SET delta = ? WHERE n = ?", (json.dumps(made.to_wire()), number))
            self._set_meta("clock", str(last))
        return changes

    def reject(self, number: int, code: str, message: str) -> Change:
        """Take a refused write out of the queue; the row without it."""
        with self.writing():
            name, row_id = self._db.execute("SELECT name, row_id FROM queue WHERE n = ?", (number,)).fetchone()
            with self._changing([(name, row_id)]):
                self._db.execute(
                    "INSERT INTO rejected (delta, code, message) SELECT delta, ?, ? FROM queue WHERE n = ?",
                    (code, message, number),
                )
                self._db.execute("DELETE FROM queue WHERE n = ?", (number,))
            return Change(name, row_id, self.get(name, row_id))

    def take(
        self, deltas: Sequence[RowDelta], cursor: str, server_hlc: int, *, after: str | None
    ) -> list[Change] | None:
        """Merge the page after a cursor and advance, in one step; the rows that changed.

        None, and nothing is merged, where the cursor of the store is another one by now: a follower and `sync` work
        side by side, and a page merged after a snapshot that it does not follow would leave a gap.
        """
        with self.writing():
            if self._meta("cursor") != after:
                return None
            with self._changing([(delta.table, delta.row_id) for delta in deltas]) as (_, changes):
                self._fold_in(deltas)
            self._advance(cursor, server_hlc)
        return changes

    def begin_snapshot(self) -> None:
        """Remove the rows of an earlier snapshot that was not completed."""
        with self.writing():
            self._db.execute("DELETE FROM incoming")

    def add_to_snapshot(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Store a page's rows until the snapshot is complete."""
        with self.writing():
            for row in rows:
                state = {name: value for name, value in row.items() if name not in ("table", "rowId")}
                self._db.execute(_UPSERT.format("incoming"), (row["table"], row["rowId"], json.dumps(state)))

    def fold_into_snapshot(self, deltas: Iterable[RowDelta]) -> None:
        """Merge deltas of a full pull, where the gateway has no snapshots."""
        with self.writing():
            self._fold_in(deltas, "incoming")

    def end_snapshot(self, cursor: str, server_hlc: int) -> list[Change]:
        """Replace all confirmed rows by the snapshot, in one step; pending writes stay."""
        differing = (
            "SELECT name, row_id FROM (SELECT * FROM confirmed UNION ALL SELECT * FROM incoming)"
            " GROUP BY name, row_id HAVING count(*) < 2 OR min(fold) <> max(fold)"
        )
        with self.writing():
            keys = [(name, row_id) for name, row_id in self._db.execute(differing)]
            with self._changing(keys) as (_, changes):
                self._db.execute("DELETE FROM confirmed")
                self._db.execute("INSERT INTO confirmed SELECT * FROM incoming")
                self._db.execute("DELETE FROM incoming")
            self._advance(cursor, server_hlc)
        return changes

    @contextmanager
    def _changing(self, keys: Iterable[RowKey]) -> Iterator[tuple[dict[RowKey, RowState], list[Change]]]:
        """Rows before the block, and a list of those that it changed; indexes and subscriptions follow."""
        before = {key: self._state(key) for key in keys}
        changes: list[Change] = []
        yield before, changes
        indexes = self._indexes()
        for key, old in before.items():
            new = self._state(key)
            if old.live != new.live or canonical_json(old.columns) != canonical_json(new.columns):
                changes.append(Change(*key, read_columns(new, self._types.get(key[0], {}))))
                self._changed.append((key, old, new))
                for column in indexes.get(key[0], ()):
                    self._index(
                        "DELETE FROM indexed WHERE name = ? AND col = ? AND value = ? AND id = ?", key, column, old
                    )
                    self._index("INSERT INTO indexed VALUES (?, ?, ?, ?)", key, column, new)

    def _advance(self, cursor: str, server_hlc: int) -> None:
        """Note a new cursor. Later writes are newer than everything seen by then."""
        self._set_meta("cursor", cursor)
        for name in ("clock", "observed"):
            if server_hlc > int(self._meta(name) or 0):
                self._set_meta(name, str(server_hlc))

    @property
    def cursor(self) -> str | None:
        """The position of the store in the gateway's log."""
        with self._lock:
            return self._meta("cursor")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One durable step; undone when the block raises."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._changed.clear()
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self._subscriptions = [each for each in self._subscriptions if each.is_open]
            for each in self._subscriptions:
                news = [each.news(*change, self._types.get(each.table, {})) for change in self._changed]
                if any(news):
                    self._news.append((each, list(chain.from_iterable(news))))
            self._changed.clear()
        self._notify()

    def _notify(self) -> None:
        """Call subscriptions in the order of commits, unless a call is under way, whose thread then makes these."""
        while self._news and self._notifying.acquire(blocking=False):
            self._notifier = threading.get_ident()
            try:
                while self._news:
                    subscription, news = self._news.popleft()
                    if subscription.is_open:
                        subscription.callback(news)
            except Exception as error:  # noqa: BLE001 - it is the application's, and what was written is written
                sys.excepthook(type(error), error, error.__traceback__)
            finally:
                self._notifier = None
                self._notifying.release()

    # Indexes: the keys of the values that are seen, so that a filter finds its rows without the others.

    def _indexes(self) -> Any:
        return json.loads(self._meta("indexes") or "{}")

    def _make_indexes(self, indexes: Mapping[str, Sequence[str]]) -> None:
        """Index these columns, and no others."""
        requested = {
            check_table_name(table): sorted(set(map(check_column_name, each))) for table, each in indexes.items()
        }
        with self.writing():
            if requested == self._indexes():
                return
            self._set_meta("indexes", json.dumps(requested))
            self._db.execute("DELETE FROM indexed")
            for table, columns in requested.items():
                for row_id, state in self._candidates(table, ()):
                    for column in columns:
                        self._index("INSERT INTO indexed VALUES (?, ?, ?, ?)", (table, row_id), column, state)

    def _index(self, statement: str, key: RowKey, column: str, state: RowState) -> None:
        if column in state.columns:
            keys = index_keys(state.columns[column])
            self._db.executemany(statement, [(key[0], column, each, key[1]) for each in keys])

    def _candidates(self, table: str, filters: Filters) -> Iterator[tuple[str, RowState]]:
        """Rows in order of their ids: all that may pass the filters, by the best index."""
        columns = self._indexes().get(table, ())
        candidates = [
            (name, index_spans([(op, value) for each, op, value in filters if each == name])) for name in columns
        ]
        spans = [(name, found) for name, found in candidates if found is not None]
        if spans:
            column, ranges = min(spans, key=lambda each: any(first != last for first, last in each[1]))
            within = "SELECT id FROM indexed WHERE name = ? AND col = ? AND value BETWEEN ? AND ?"
            ids = {row_id for span in ranges for (row_id,) in self._db.execute(within, (table, column, *span))}
            yield from ((row_id, self._state((table, row_id))) for row_id in utf16_sorted(ids))
            return
        confirmed = dict(self._db.execute("SELECT row_id, fold FROM confirmed WHERE name = ?", (table,)))
        waiting: dict[str, list[str]] = {row_id: [] for row_id in confirmed}
        for row_id, text in self._db.execute("SELECT row_id, delta FROM queue WHERE name = ?", (table,)):
            waiting.setdefault(row_id, []).append(text)
        for row_id in utf16_sorted(waiting):
            yield row_id, _joined(confirmed.get(row_id), waiting[row_id]).state()

    # Helpers.

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        with self.writing():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0 and self._db.execute("SELECT 1 FROM sqlite_master").fetchone():  # of another application
                raise InputError(_NO_STORE, code="damaged_store")
            if version > FORMAT_VERSION:
                raise InputError(f"the store has format {version}; format {FORMAT_VERSION} is understood")
            if version < FORMAT_VERSION:
                script = resources.files("driftline.client").joinpath("store.sql").read_text("utf-8")
                for statement in script.strip().split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            if version == 0:
                self._set_meta("client_id", self.client_id)
            owner = self._meta("client_id")
        if owner != self.client_id:
            self._db.close()
            raise InputError(f"this store belongs to client {owner!r}, not {self.client_id!r}", code="other_client")

    def _enqueue(self, table: str, row_id: str, before: Any, after: Any) -> None:
        offset = int(self._meta("offset") or 0)
        clock = Clock(lambda: self._wall() + offset, last=int(self._meta("clock") or 0))
        made = extract(before, after, table=table, row_id=row_id, client_id=self.client_id, hlc=clock.now())
        if made is None:
            return
        wire = made.to_wire()
        RowDelta.from_wire(wire)  # names that every gateway refuses are refused here
        self._db.execute("INSERT INTO queue (name, row_id, delta) VALUES (?, ?, ?)", (table, row_id, json.dumps(wire)))
        self._set_meta("clock", str(clock.last))
        for follower in self._followers:
            follower.wake()

    def _state(self, key: RowKey) -> RowState:
        found = self._db.execute("SELECT fold FROM confirmed WHERE name = ? AND row_id = ?", key).fetchone()
        waiting = self._db.execute("SELECT delta FROM queue WHERE name = ? AND row_id = ?", key)
        return _joined(found and found[0], (text for (text,) in waiting)).state()

    def _fold(self, key: RowKey, where: str = "confirmed") -> RowMerge:
        query = f"SELECT fold FROM {where} WHERE name = ? AND row_id = ?"  # noqa: S608 - one of two constants
        found = self._db.execute(query, key).fetchone()
        return _joined(found and found[0], ())

    def _fold_in(self, deltas: Iterable[RowDelta], where: str = "confirmed") -> None:
        folds: dict[RowKey, RowMerge] = {}
        for delta in deltas:
            key = (delta.table, delta.row_id)
            folds[key] = folds.get(key) or self._fold(key, where)
            folds[key].add(delta)
        lines = ((*key, json.dumps(fold_to_plain(fold))) for key, fold in folds.items())
        self._db.executemany(_UPSERT.format(where), lines)

    def _meta(self, name: str) -> str | None:
        found = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def _set_meta(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def _delta(text: str) -> RowDelta:
    return RowDelta.from_wire(read_json(text))


def _joined(fold: str | None, waiting: Iterable[str]) -> RowMerge:
    """A confirmed row with its pending writes."""
    found = RowMerge() if fold is None else fold_from_plain(read_json(fold))
    for text in waiting:
        found.add(_delta(text))
    return found

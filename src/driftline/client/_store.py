"""The local store: one SQLite file with confirmed rows and pending writes (gateway §11).

The application sees both, merged by the one rule of merging, so nothing is rebased when others write too.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from driftline.client._http import Types, read_json
from driftline.client._sync import Connection, Follower, SyncReport, sync_round
from driftline.core import JsonObject
from driftline.deltas import (
    COUNTER_BITS,
    SAFE_INTEGER,
    Clock,
    RowDelta,
    RowKey,
    RowMerge,
    RowState,
    abbreviate,
    check_text,
    check_value,
    exact_value,
    exact_wire,
    extract,
    fold_from_plain,
    fold_to_plain,
    make_hlc,
    physical_ms,
)
from driftline.errors import DeltaError, InputError

FORMAT_VERSION = 1
_SMALLEST_OFFSET_MS = 2000  # clocks that differ by less are taken as equal

_UPSERT = "INSERT INTO {} VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET fold = excluded.fold"


@dataclass(frozen=True, slots=True)
class Change:
    """A row that changed; `columns` is None where it was deleted."""

    table: str
    row_id: str
    columns: JsonObject | None


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
    ) -> None:
        self.client_id = client_id
        self._connection = Connection(url, gateway, client_id, token, dict(parameters or {}))
        self._wall = wall or physical_ms
        self._lock = threading.RLock()
        self.sending = threading.Lock()  # the queue has one sender at a time
        self._followers: list[Follower] = []
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._prepare()
        self._types: dict[str, dict[str, str]] = json.loads(self._meta("types") or "{}")
        self.note_types(types)

    # Rows.

    def put(self, table: str, row_id: str, columns: Mapping[str, Any]) -> None:
        """Set columns of a row, which is created if it is missing; the others stay. Seen at once, sent by `sync`."""
        written = _wire_columns(columns, self._types.get(table, {}))
        with self.writing():
            state = self._state((table, row_id))
            before = state.columns if state.live else None
            self._enqueue(table, row_id, before, {**(before or {}), **written})

    def delete(self, table: str, row_id: str) -> None:
        """Delete a row; a missing one stays missing."""
        with self.writing():
            state = self._state((table, row_id))
            if state.live:
                self._enqueue(table, row_id, state.columns, None)

    def get(self, table: str, row_id: str) -> JsonObject | None:
        """A row's columns, None where it is missing."""
        with self._lock:
            return self._change((table, row_id), self._state((table, row_id))).columns

    def rows(self, table: str) -> dict[str, JsonObject]:
        """Every row of a table by its id, in order of the ids."""
        with self._lock:
            confirmed = self._db.execute("SELECT row_id, fold FROM confirmed WHERE name = ?", (table,)).fetchall()
            waiting = self._db.execute("SELECT row_id, delta FROM queue WHERE name = ?", (table,)).fetchall()
        folds = {row_id: fold_from_plain(read_json(text)) for row_id, text in confirmed}
        for row_id, text in waiting:
            folds.setdefault(row_id, RowMerge()).add(_delta(text))
        found = [self._change((table, row_id), folds[row_id].state()) for row_id in sorted(folds)]
        return {change.row_id: change.columns for change in found if change.columns is not None}

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

    def confirm(self, numbers: Sequence[int], deltas: Iterable[RowDelta]) -> None:
        """Move writes that the gateway has from the queue to the confirmed rows, in one step."""
        with self.writing():
            self._fold_in(deltas)
            self._db.executemany("DELETE FROM queue WHERE n = ?", [(number,) for number in numbers])

    def note_time(self, server_ms: int | None) -> None:
        """Note how far this machine's clock is from the gateway's, where it is more than a moment."""
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

    def restamp(self, first: int, server_ms: int, latest: int) -> None:
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
            for number, text in later:
                old = _delta(text)
                last = max(min(old.hlc + (offset << COUNTER_BITS), now), last + 1)
                row = {"table": old.table, "row_id": old.row_id, "client_id": old.client_id}
                made = RowDelta.make(op=old.op, columns=old.columns, hlc=last, **row)
                self._db.execute("UPDATE queue SET delta = ? WHERE n = ?", (json.dumps(made.to_wire()), number))
            self._set_meta("clock", str(last))

    def reject(self, number: int, code: str, message: str) -> Change:
        """Take a refused write out of the queue; the row without it."""
        with self.writing():
            name, row_id = self._db.execute("SELECT name, row_id FROM queue WHERE n = ?", (number,)).fetchone()
            self._db.execute(
                "INSERT INTO rejected (delta, code, message) SELECT delta, ?, ? FROM queue WHERE n = ?",
                (code, message, number),
            )
            self._db.execute("DELETE FROM queue WHERE n = ?", (number,))
            return self._change((name, row_id), self._state((name, row_id)))

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
            keys = list(dict.fromkeys((delta.table, delta.row_id) for delta in deltas))
            with self._advancing(keys, cursor, server_hlc) as changes:
                self._fold_in(deltas)
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
            with self._advancing(keys, cursor, server_hlc) as changes:
                self._db.execute("DELETE FROM confirmed")
                self._db.execute("INSERT INTO confirmed SELECT * FROM incoming")
                self._db.execute("DELETE FROM incoming")
        return changes

    @contextmanager
    def _advancing(self, keys: Sequence[RowKey], cursor: str, server_hlc: int) -> Iterator[list[Change]]:
        """Note a new cursor; the rows that the block changes. Later writes are newer than everything seen by then."""
        changes: list[Change] = []
        before = {key: self._state(key) for key in keys}
        yield changes
        self._set_meta("cursor", cursor)
        for name in ("clock", "observed"):
            if server_hlc > int(self._meta(name) or 0):
                self._set_meta(name, str(server_hlc))
        for key in keys:
            after = self._state(key)
            if after != before[key]:
                changes.append(self._change(key, after))

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
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    # Helpers.

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        with self.writing():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                script = resources.files("driftline.client").joinpath("store.sql").read_text("utf-8")
                for statement in script.strip().split(";\n"):
                    self._db.execute(statement)
                self._set_meta("client_id", self.client_id)
                self._db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            elif version != FORMAT_VERSION:
                raise InputError(f"the store has format {version}; format {FORMAT_VERSION} is understood")
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
        fold = self._fold(key)
        for (text,) in self._db.execute("SELECT delta FROM queue WHERE name = ? AND row_id = ?", key):
            fold.add(_delta(text))
        return fold.state()

    def _change(self, key: RowKey, state: RowState) -> Change:
        """A row as the application sees it."""
        if not state.live:
            return Change(*key, None)
        types = self._types.get(key[0], {})
        return Change(*key, {name: _python_value(types.get(name), value) for name, value in state.columns.items()})

    def _fold(self, key: RowKey, where: str = "confirmed") -> RowMerge:
        query = f"SELECT fold FROM {where} WHERE name = ? AND row_id = ?"  # noqa: S608 - one of two constants
        found = self._db.execute(query, key).fetchone()
        return RowMerge() if found is None else fold_from_plain(read_json(found[0]))

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


def _wire_columns(columns: Mapping[str, Any], types: Mapping[str, str]) -> JsonObject:
    """The columns as deltas carry them; what would not come back as it was put is refused."""
    found: JsonObject = {}
    for name, value in columns.items():
        kind = types.get(check_text("column", name))
        if kind is None or value is None:
            _check_exact(name, value)
            check_value(name, value)
            found[name] = value
            continue
        try:
            found[name] = exact_wire(kind, value)
        except ValueError as error:
            raise DeltaError(
                f"column {abbreviate(name)} is {kind}, which does not hold {value!r}", column=name
            ) from error
    return found


def _python_value(kind: str | None, wire: Any) -> Any:
    if kind is None or wire is None:
        return wire
    try:
        return exact_value(kind, wire)
    except ValueError:  # of a delta from before the column had this type
        return wire


def _check_exact(column: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            check_text(f"a key in column {abbreviate(column)}", name)
            _check_exact(column, item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_exact(column, item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise DeltaError(f"column {abbreviate(column)}: {value} is not JSON: put None or a text", column=column)
    elif type(value) is int and not -SAFE_INTEGER <= value <= SAFE_INTEGER:
        message = f"column {abbreviate(column)}: {value} is beyond ±(2^53 - 1), where doubles are not exact: put a text"
        raise DeltaError(message, column=column)

"""Syncing a store with its gateway: one round (push, pull, or a snapshot), and a follower that stays connected."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from driftline.client._http import FeedReader, GatewayClient
from driftline.deltas import RowDelta
from driftline.errors import GatewayError, OptionError

if TYPE_CHECKING:
    from driftline.client._rows import Change
    from driftline.client._store import Store

_BATCH = 500
_MOST_RESTAMPS = 5  # in one round
# Refusals that no second try can change: the write is rejected.
_FINAL = ("VALIDATION_ERROR", "SCHEMA_ERROR", "TOO_OLD", "PAYLOAD_TOO_LARGE")
_PASSING = ("unreachable", "BACKPRESSURE_ERROR", "OVERLOADED", "RATE_LIMITED", "CLOCK_DRIFT", "unexpected_answer")
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_REST = 0.2  # after a feed that the server ended


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the gateway; a token that has to be renewed is a function."""

    url: str | None
    gateway: str | None
    client_id: str
    token: str | Callable[[], str] | None
    parameters: dict[str, str]

    def open(self, patience: float = 5.0) -> GatewayClient:
        """A client of the gateway."""
        if self.url is None or self.gateway is None:
            raise OptionError("a store is synced with a gateway: give url and gateway", code="no_gateway")
        return GatewayClient(
            self.url, self.gateway, self.client_id, token=self.token, patience=patience, parameters=self.parameters
        )


@dataclass(slots=True)
class SyncReport:
    """The result of a round."""

    pushed: int = 0
    rejected: int = 0
    pulled: int = 0
    from_snapshot: bool = False
    changes: list[Change] = field(default_factory=list)


def sync_round(store: Store, connection: Connection) -> tuple[SyncReport, GatewayError | None]:
    """One round, and why writes could not be pushed: reading does not wait for that."""
    client, report = connection.open(), SyncReport()
    refusal: GatewayError | None = None
    try:
        _push(store, client, report)
    except GatewayError as error:
        if error.code in ("AUTH_ERROR", "unreachable"):
            raise
        refusal = error
    if store.cursor is None:
        _take_snapshot(store, client, report)
    try:
        _pull(store, client, report)
    except GatewayError as error:
        if error.code != "MUST_REFETCH":
            raise
        _take_snapshot(store, client, report)
        _pull(store, client, report)
    return report, refusal


def _push(store: Store, client: GatewayClient, report: SyncReport) -> None:
    """Send the queue, oldest first; writes that are refused for good are rejected and the rest is sent."""
    restamps = 0
    size = _BATCH
    while waiting := store.queued(size):
        deltas = [delta for _, delta in waiting]
        try:
            answer = client.push(deltas)
        except GatewayError as error:
            named = [waiting[position][0] for position in error.context.get("positions", ())]
            if error.code == "CLOCK_DRIFT" and named and restamps < _MOST_RESTAMPS:
                report.changes += store.restamp(named[0], error.serverTime, int(error.maxHlc))
                restamps += 1
                continue
            if error.code not in _FINAL and not (error.code == "FORBIDDEN" and named):
                raise
            if not named and len(waiting) > 1:
                size = len(waiting) // 2  # no single write is named: bisect
                continue
            for number in named or [waiting[0][0]]:
                report.changes.append(store.reject(number, error.code.wire, error.message))
                report.rejected += 1
        else:
            hidden = set(answer.get("hidden", ()))  # what the rules do not show to this client after it was written
            shown = [delta for position, delta in enumerate(deltas) if position not in hidden]
            unseen = [deltas[position] for position in hidden]
            report.changes += store.confirm([number for number, _ in waiting], shown, unseen)
            store.note_time(answer.get("serverTime"))
            report.pushed += len(deltas)
            size = _BATCH


def _take_snapshot(store: Store, client: GatewayClient, report: SyncReport) -> None:
    store.begin_snapshot()
    cursor, server_hlc = "", 0
    try:
        for page in client.snapshot():
            store.add_to_snapshot(page.rows)
            cursor, server_hlc = page.cursor, page.server_hlc
            store.note_time(page.server_time)
            store.note_types(page.types)
    except GatewayError as error:
        if error.code != "NOT_FOUND":
            raise
        for pulled in client.pull_all():  # a gateway without snapshots
            store.fold_into_snapshot(pulled.deltas)
            cursor, server_hlc = pulled.cursor, pulled.server_hlc
    report.changes += store.end_snapshot(cursor, server_hlc)
    report.from_snapshot = True


def _pull(store: Store, client: GatewayClient, report: SyncReport) -> None:
    has_more = True
    while has_more:
        after = store.cursor
        page = client.pull(cursor=after)
        store.note_time(page.server_time)
        store.note_types(page.types)
        changes = store.take(page.deltas, page.cursor, page.server_hlc, after=after)
        has_more = page.has_more or changes is None  # None: a follower was faster, continue after it
        report.changes += changes or []
        report.pulled += 0 if changes is None else len(page.deltas)


class Follower:
    """Iterates over the changes of a store: a thread reads the feed, writes are sent as they are made."""

    def __init__(self, store: Store, connection: Connection) -> None:
        self._store = store
        self._connection = connection
        self._news: queue.Queue[tuple[str, FeedReader | None, Any]] = queue.Queue()
        self._stopped = threading.Event()
        self._reader: FeedReader | None = None

    def wake(self) -> None:
        """Send a new write."""
        self._news.put(("written", None, None))

    def stop(self) -> None:
        """End the iteration, from any thread."""
        self._stopped.set()
        self._news.put(("stopped", None, None))
        if self._reader is not None:
            self._reader.close()

    def __iter__(self) -> Iterator[Change]:
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            try:
                with self._store.sending:
                    report, refusal = sync_round(self._store, self._connection)
                yield from report.changes
                if refusal is not None:
                    raise refusal
                pause = _FIRST_PAUSE
                yield from self._listen()
            except GatewayError as error:
                # Being offline is normal; a refused token is for the application to fix.
                if error.code not in _PASSING:
                    raise
                self._stopped.wait(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE)
            except sqlite3.ProgrammingError:
                if not self._stopped.is_set():  # else the store was closed meanwhile
                    raise

    async def __aiter__(self) -> AsyncIterator[Change]:
        loop = asyncio.get_running_loop()
        found: asyncio.Queue[Change | BaseException | None] = asyncio.Queue()

        def tell(what: Change | BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed: no caller waits any more
                loop.call_soon_threadsafe(found.put_nowait, what)

        def run() -> None:
            try:
                for change in self:
                    tell(change)
                tell(None)
            except BaseException as error:  # noqa: BLE001 - it is raised where the changes are awaited
                tell(error)

        threading.Thread(target=run, name="follow", daemon=True).start()
        try:
            while (change := await found.get()) is not None:
                if isinstance(change, BaseException):
                    raise change
                yield change
        finally:
            self.stop()

    def _listen(self) -> Iterator[Change]:
        """One connection of the feed, until it is closed."""
        client, position = self._connection.open(), self._store.cursor or ""
        self._reader = reader = client.feed(position)
        threading.Thread(target=self._read, args=(reader,), name="feed", daemon=True).start()
        try:
            while not self._stopped.is_set():
                kind, source, content = self._news.get()
                if kind == "written":
                    report = SyncReport()
                    with self._store.sending:
                        _push(self._store, client, report)
                    yield from report.changes
                elif source is not reader:
                    continue  # the rest of an earlier connection
                elif kind == "deltas":
                    deltas = [RowDelta.from_wire(delta) for delta in content["deltas"]]
                    self._store.note_time(content.get("serverTime"))
                    changes = self._store.take(deltas, content["cursor"], int(content["serverHlc"]), after=position)
                    if changes is None:
                        return  # the application has synced: listen from its cursor
                    position = content["cursor"]
                    yield from changes
                elif content is not None:
                    raise content
                else:
                    self._stopped.wait(_REST)
                    return
        finally:
            reader.close()

    def _read(self, reader: FeedReader) -> None:
        ending: GatewayError | None = None
        try:
            for name, data in reader:
                if name != "deltas":
                    break  # the position is invalid: the next round starts from a snapshot
                self._news.put((name, reader, data))
        except GatewayError as error:
            ending = None if error.code == "MUST_REFETCH" else error
        finally:
            self._news.put(("ended", reader, ending))

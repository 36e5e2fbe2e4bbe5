"""Following a gateway: a thread reads its feed, writes are sent as they are made, a lost line is found again."""

from __future__ import annotations

import asyncio
import queue
import random
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from driftline.client.syncing import Connection, SyncReport, deltas_of, push_waiting
from driftline.core._json import JsonObject
from driftline.errors import DriftlineError, GatewayError
from driftline.gateway.client import FeedReader, GatewayClient

if TYPE_CHECKING:
    from driftline.client.store import Change, Store

_PASSING = ("unreachable", "BACKPRESSURE_ERROR", "OVERLOADED", "RATE_LIMITED", "CLOCK_DRIFT", "unexpected_answer")
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_REST = 0.2  # after a feed that the server ended


class Follower:
    """Changes of a store, as long as somebody iterates; `stop` ends it from anywhere."""

    def __init__(self, store: Store, connection: Connection) -> None:
        self._store = store
        self._connection = connection
        self._news: queue.Queue[tuple[str, FeedReader | None, Any]] = queue.Queue()
        self._stopped = threading.Event()
        self._reader: FeedReader | None = None

    def wake(self) -> None:
        """A write waits to be sent."""
        self._news.put(("written", None, None))

    def stop(self) -> None:
        """End the iteration."""
        self._stopped.set()
        self._news.put(("stopped", None, None))
        if self._reader is not None:
            self._reader.close()

    def __iter__(self) -> Iterator[Change]:
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            try:
                yield from self._store.sync().changes
                pause = _FIRST_PAUSE
                yield from self._listen()
            except GatewayError as error:
                # Being offline is nothing special; a token that is refused is the application's to mend.
                if error.code not in _PASSING:
                    raise
                self._stopped.wait(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _LONGEST_PAUSE)
            except sqlite3.ProgrammingError:
                if not self._stopped.is_set():  # else the store was closed under it, which ends it
                    raise

    async def __aiter__(self) -> AsyncIterator[Change]:
        loop = asyncio.get_running_loop()
        found: asyncio.Queue[Change | BaseException | None] = asyncio.Queue()

        def run() -> None:
            ending: BaseException | None = None
            try:
                for change in self:
                    loop.call_soon_threadsafe(found.put_nowait, change)
            except DriftlineError as error:
                ending = error
            loop.call_soon_threadsafe(found.put_nowait, ending)

        thread = threading.Thread(target=run, name="follow", daemon=True)
        thread.start()
        try:
            while (change := await found.get()) is not None:
                if isinstance(change, BaseException):
                    raise change
                yield change
        finally:
            self.stop()

    def _listen(self) -> Iterator[Change]:
        """One connection of the feed, until it ends."""
        client, position = self._connection.open(), self._store.cursor or ""
        self._reader = reader = client.feed(position)
        threading.Thread(target=self._read, args=(reader,), name="feed", daemon=True).start()
        try:
            while not self._stopped.is_set():
                kind, source, content = self._news.get()
                if kind == "written":
                    yield from self._send(client)
                elif source is not reader:
                    continue  # the rest of an earlier connection
                elif kind == "deltas":
                    changes = self._taken(content, position)
                    if changes is None:
                        return  # the application has synced by itself: listen from where it stands
                    position = content["cursor"]
                    yield from changes
                elif content is not None:
                    raise content
                else:
                    self._stopped.wait(_REST)
                    return
        finally:
            reader.close()

    def _send(self, client: GatewayClient) -> list[Change]:
        report = SyncReport()
        with self._store.sending:
            push_waiting(self._store, client, report)
        return report.changes

    def _taken(self, event: JsonObject, position: str) -> list[Change] | None:
        deltas = deltas_of(event["deltas"])
        return self._store.take(deltas, event["cursor"], int(event["serverHlc"]), after=position)

    def _read(self, reader: FeedReader) -> None:
        ending: GatewayError | None = None
        try:
            for name, data in reader:
                if name != "deltas":
                    break  # the position is gone: the next round begins anew
                self._news.put((name, reader, data))
        except GatewayError as error:
            ending = None if error.code == "MUST_REFETCH" else error
        finally:
            self._news.put(("ended", reader, ending))

"""The live feed: deltas as they arrive, by server-sent events or by a long poll (gateway §7).

One thread of the process waits for commits to the log and wakes all listeners; a page is read and encoded once for all
listeners with the same cursor and view.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from driftline.deltas import physical_ms
from driftline.errors import DriftlineError, GatewayError
from driftline.gateway._auth import Caller
from driftline.gateway._log.log import DeltaLog
from driftline.gateway._sync.pull import LogReader, Page
from driftline.gateway._sync.rules import SyncRules
from driftline.http import error_body, error_members, public_error

MAX_WAIT_SECONDS = 30
MAX_LISTENERS = 2000  # of one process
MAX_PER_CLIENT = 4
PAGE_LIMIT = 1000
BEGIN = b"retry: 2000\n\n"

_HEARTBEAT_SECONDS = 15.0
_PACE_SECONDS = 0.1  # between two reads of one listener, so that many small commits become one event
_POLL_SECONDS = 0.1  # commits of other processes and new rules are found by polling
_MAX_CACHED = 1000
_WHOLE = re.compile(r"[0-9]{1,6}")
_logger = logging.getLogger("driftline.gateway.feed")

InThread = Callable[..., Awaitable[Page]]


def wait_of(query: Mapping[str, str]) -> int:
    """The seconds that a pull may wait, at most 30."""
    text = query.get("wait", "0")
    if not _WHOLE.fullmatch(text):
        raise GatewayError("wait is a number of seconds")
    return min(int(text), MAX_WAIT_SECONDS)


class CommitSignal:
    """Wakes every listener of this process when the log or the configuration changes."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._event: asyncio.Event | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.turn = 0  # number of changes so far

    def next(self) -> asyncio.Event:
        """The event of the next change; taken before a read, no change is missed."""
        if self._event is None:
            self._event = asyncio.Event()
            arguments = (asyncio.get_running_loop(),)
            self._thread = threading.Thread(target=self._watch, args=arguments, name="commit-signal", daemon=True)
            self._thread.start()
        return self._event

    def ring(self) -> None:
        """Wake every listener; only from the event loop's thread."""
        if self._event is not None:
            rung, self._event = self._event, asyncio.Event()
            self.turn += 1
            rung.set()

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        seen = (-1, -1)
        while not self._stop.is_set():
            try:
                now = (self._log.wait_past(max(seen[0], 0), _POLL_SECONDS), self._log.head().config)
            except DriftlineError as error:  # the log is busy or its disk is full: poll again
                _logger.warning("feed", extra={"fields": {"code": error.code, "error": error.message}})
                self._stop.wait(1)
                continue
            if now != seen and not loop.is_closed():
                seen = now
                loop.call_soon_threadsafe(self.ring)


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """A page as it is sent; `chunk` is empty when the caller sees nothing of it."""

    chunk: bytes
    deltas: int
    cursor: str
    has_more: bool
    turn: int  # of the signal before it was read


class Feeds:
    """The listeners of this process."""

    def __init__(
        self, reader: LogReader, in_thread: InThread, server_hlc: Callable[[], int], sent: Callable[[int], None]
    ) -> None:
        self.signal = CommitSignal(reader.log)
        self.open = 0
        self._reader = reader
        self._in_thread = in_thread
        self._server_hlc = server_hlc
        self._sent = sent  # called with the number of deltas of an event
        self._by_client: Counter[str] = Counter()
        self._pages: dict[tuple[int, str, str], asyncio.Future[FeedEvent]] = {}
        self._pages_turn = -1
        self._rules: tuple[SyncRules | None, int] = (None, 0)
        self._closing = False

    @contextmanager
    def listening(self, client_id: str) -> Iterator[None]:
        """Count a listener, or refuse it."""
        if self.open >= MAX_LISTENERS:
            raise GatewayError("too many listeners: try again", code="OVERLOADED", retry_after=5)
        if self._by_client[client_id] >= MAX_PER_CLIENT:
            message = f"a client listens at most {MAX_PER_CLIENT} times at once"
            raise GatewayError(message, code="RATE_LIMITED", retry_after=5)
        self.open += 1
        self._by_client[client_id] += 1
        try:
            yield
        finally:
            self.open -= 1
            self._by_client[client_id] -= 1
            if not self._by_client[client_id]:
                del self._by_client[client_id]

    async def long_poll(self, caller: Caller, query: Mapping[str, str], seconds: int) -> Page:
        """A page; where it would be empty, wait for deltas."""
        deadline = time.monotonic() + seconds
        with self.listening(caller.client_id):
            while True:
                advanced = self.signal.next()
                page = await self._in_thread(self._reader.page, caller, query)
                left = min(deadline, _expiry(caller)) - time.monotonic()
                if page.deltas or page.has_more or left <= 0 or self._closing:
                    return page
                query = {**_without_start(query), "cursor": page.cursor.encode()}
                await _is_set(advanced, left)
                await asyncio.sleep(min(_PACE_SECONDS, max(deadline - time.monotonic(), 0)))

    async def first_event(self, caller: Caller, query: Mapping[str, str]) -> FeedEvent:
        """The first event of a feed; an invalid cursor is refused before anything is sent."""
        self.signal.next()
        return await self._read(caller, query)

    async def events(self, caller: Caller, query: Mapping[str, str], event: FeedEvent) -> AsyncIterator[bytes]:
        """The stream, until the client disconnects, its token expires, its cursor is invalid or the server stops."""
        query = _without_start(query)
        sent = ""  # the last cursor that the client got
        yield BEGIN
        while True:
            if event.chunk:
                self._sent(event.deltas)
                sent = event.cursor
                yield event.chunk
            await asyncio.sleep(_PACE_SECONDS)
            async for beat in self._quiet(event, caller, sent):
                sent = event.cursor
                yield beat
            if self._closing or time.monotonic() >= _expiry(caller):
                return
            try:
                event = await self._after(caller, query, event.cursor)
            except DriftlineError as error:
                public = public_error(error)
                name = b"refetch" if public.code == "MUST_REFETCH" else b"error"
                body = error_body(public.code.wire, public.message, **error_members(public))
                yield b"event: %b\ndata: %b\n\n" % (name, body)
                return

    def stop(self) -> None:
        """End every stream, because the server stops; only from the event loop's thread."""
        self._closing = True
        self.signal.ring()

    async def _quiet(self, event: FeedEvent, caller: Caller, sent: str) -> AsyncIterator[bytes]:
        """Heartbeats until something may have arrived; a cursor that advanced without deltas is sent with them."""
        while not (event.has_more or self._closing):
            advanced = self.signal.next()
            left = min(_HEARTBEAT_SECONDS, _expiry(caller) - time.monotonic())
            if self.signal.turn != event.turn or left <= 0 or await _is_set(advanced, left):
                return
            yield b": \n\n" if sent == event.cursor else b"id: %b\n: \n\n" % event.cursor.encode()
            sent = event.cursor

    async def _after(self, caller: Caller, query: Mapping[str, str], cursor: str) -> FeedEvent:
        """The event after a cursor, read once for all listeners there with the same view."""
        if self._pages_turn != self.signal.turn or len(self._pages) > _MAX_CACHED:
            self._pages, self._pages_turn = {}, self.signal.turn
            self._rules = self._reader.current_rules()  # new rules wake listeners too
        _, number, digest = self._reader.sight(caller, query, self._rules)
        key = (number, digest, cursor)
        if key not in self._pages:
            self._pages[key] = asyncio.ensure_future(self._read(caller, {**query, "cursor": cursor}))
        # Shielded: one listener that disconnects must not cancel the read for the others.
        return await asyncio.shield(self._pages[key])

    async def _read(self, caller: Caller, query: Mapping[str, str]) -> FeedEvent:
        turn = self.signal.turn
        page = await self._in_thread(self._reader.page, caller, {**query, "limit": str(PAGE_LIMIT)})
        cursor = page.cursor.encode()
        if not page.deltas:
            return FeedEvent(b"", 0, cursor, page.has_more, turn)
        parts = (b",".join(page.deltas), self._server_hlc(), physical_ms(), cursor.encode())
        data = b'{"deltas":[%b],"serverHlc":"%d","serverTime":%d,"cursor":"%b"}' % parts
        chunk = b"id: %b\nevent: deltas\ndata: %b\n\n" % (cursor.encode(), data)
        return FeedEvent(chunk, len(page.deltas), cursor, page.has_more, turn)


def _expiry(caller: Caller) -> float:
    """The monotonic time at which the caller's token expires."""
    expires = caller.claims.get("exp")
    return float("inf") if expires is None else time.monotonic() + float(expires) - time.time()


def _without_start(query: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if name not in ("since", "cursor")}


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event was set before the time was over."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True

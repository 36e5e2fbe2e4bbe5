"""The live feed: clients that wait for what arrives, by server-sent events or by a long poll (gateway §7).

One thread of the process waits for the log to move on and wakes everybody who waits; a page is read and encoded once
for all who stand at the same cursor with the same view.
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

from driftline.errors import DriftlineError, GatewayError
from driftline.gateway._auth import Caller
from driftline.gateway._log.log import DeltaLog
from driftline.gateway._sync.pull import LogReader, Page
from driftline.gateway._sync.rules import SyncRules
from driftline.http import error_body, public_error, refetch_members

MAX_WAIT_SECONDS = 30
MAX_LISTENERS = 2000  # of one process
MAX_PER_CLIENT = 4
PAGE_LIMIT = 1000
BEGIN = b"retry: 2000\n\n"

_HEARTBEAT_SECONDS = 15.0
_PACE_SECONDS = 0.1  # between two reads of one listener, so that many small commits become one event
_LOOK_SECONDS = 0.1  # commits of other processes and new rules are found by looking
_MAX_CACHED = 1000
_WHOLE = re.compile(r"[0-9]{1,6}")
_logger = logging.getLogger("driftline.gateway.feed")

InThread = Callable[..., Awaitable[Page]]


def wait_of(query: Mapping[str, str]) -> int:
    """The seconds that a pull is willing to wait, at most 30."""
    text = query.get("wait", "0")
    if not _WHOLE.fullmatch(text):
        raise GatewayError("wait is a number of seconds")
    return min(int(text), MAX_WAIT_SECONDS)


class CommitSignal:
    """Wakes everybody in this process who waits for the log or the configuration to move on."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._event: asyncio.Event | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.turn = 0  # how often it has rung

    def next(self) -> asyncio.Event:
        """What will be set at the next change; take it before reading, then nothing is missed."""
        if self._event is None:
            self._event = asyncio.Event()
            arguments = (asyncio.get_running_loop(),)
            self._thread = threading.Thread(target=self._watch, args=arguments, name="commit-signal", daemon=True)
            self._thread.start()
        return self._event

    def ring(self) -> None:
        """Wake everybody; only from the event loop's thread."""
        if self._event is not None:
            rung, self._event = self._event, asyncio.Event()
            self.turn += 1
            rung.set()

    def close(self) -> None:
        """End the watching thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        seen = (-1, -1)
        while not self._stop.is_set():
            try:
                now = (self._log.wait_past(max(seen[0], 0), _LOOK_SECONDS), self._log.numbers().config)
            except DriftlineError as error:  # the log is busy or its disk is full: look again
                _logger.warning("feed", extra={"fields": {"code": error.code, "error": error.message}})
                self._stop.wait(1)
                continue
            if now != seen and not loop.is_closed():
                seen = now
                loop.call_soon_threadsafe(self.ring)


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """A page as it goes out; `chunk` is empty when the caller is not shown anything of it."""

    chunk: bytes
    deltas: int
    cursor: str
    has_more: bool
    turn: int  # how often the signal had rung before it was read


class Feeds:
    """Everybody who listens to this process."""

    def __init__(
        self, reader: LogReader, in_thread: InThread, server_hlc: Callable[[], int], sent: Callable[[int], None]
    ) -> None:
        self.signal = CommitSignal(reader.log)
        self.open = 0
        self._reader = reader
        self._in_thread = in_thread
        self._server_hlc = server_hlc
        self._sent = sent  # told how many deltas went out with an event
        self._by_client: Counter[str] = Counter()
        self._pages: dict[tuple[int, str, str], asyncio.Future[FeedEvent]] = {}
        self._pages_turn = -1
        self._rules: tuple[SyncRules | None, int] = (None, 0)
        self._closing = False

    @contextmanager
    def listening(self, client_id: str) -> Iterator[None]:
        """Count a listener in, or refuse it."""
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
        """A page; where nothing is there to send, wait for it."""
        deadline = time.monotonic() + seconds
        with self.listening(caller.client_id):
            while True:
                advanced = self.signal.next()
                page = await self._in_thread(self._reader.page, caller, query)
                left = min(deadline, _expiry(caller)) - time.monotonic()
                if page.deltas or page.has_more or left <= 0 or self._closing:
                    return page
                query = {**_without_start(query), "cursor": page.cursor.encode()}
                await _either(advanced, left)
                await asyncio.sleep(min(_PACE_SECONDS, max(deadline - time.monotonic(), 0)))

    async def first_event(self, caller: Caller, query: Mapping[str, str]) -> FeedEvent:
        """What a feed begins with; a cursor that cannot be continued from is refused before anything is sent."""
        self.signal.next()
        return await self._read(caller, query)

    async def events(self, caller: Caller, query: Mapping[str, str], event: FeedEvent) -> AsyncIterator[bytes]:
        """The stream, until the client leaves, its token expires, its cursor ends or the server does."""
        query = _without_start(query)
        told = ""  # the last cursor that the client was given
        yield BEGIN
        while True:
            if event.chunk:
                self._sent(event.deltas)
                told = event.cursor
                yield event.chunk
            await asyncio.sleep(_PACE_SECONDS)
            async for beat in self._quiet(event, caller, told):
                told = event.cursor
                yield beat
            if self._closing or time.monotonic() >= _expiry(caller):
                return
            try:
                event = await self._after(caller, query, event.cursor)
            except DriftlineError as error:
                yield _refetch(error)
                return

    async def _quiet(self, event: FeedEvent, caller: Caller, told: str) -> AsyncIterator[bytes]:
        """Heartbeats until something may have arrived; a cursor that moved on unseen is told along with them."""
        while not (event.has_more or self._closing):
            advanced = self.signal.next()
            left = min(_HEARTBEAT_SECONDS, _expiry(caller) - time.monotonic())
            if self.signal.turn != event.turn or left <= 0 or await _either(advanced, left):
                return
            yield b": \n\n" if told == event.cursor else b"id: %b\n: \n\n" % event.cursor.encode()
            told = event.cursor

    async def _after(self, caller: Caller, query: Mapping[str, str], cursor: str) -> FeedEvent:
        """The event after a cursor, read once for everybody who stands there with the same view."""
        if self._pages_turn != self.signal.turn or len(self._pages) > _MAX_CACHED:
            self._pages, self._pages_turn = {}, self.signal.turn
            self._rules = self._reader.current_rules()  # new rules ring too
        sight = self._reader.sight(caller, query, self._rules)
        key = (sight.rules_number, sight.digest, cursor)
        if key not in self._pages:
            self._pages[key] = asyncio.ensure_future(self._read(caller, {**query, "cursor": cursor}))
        # Shielded: one listener that leaves must not take the page away from the others.
        return await asyncio.shield(self._pages[key])

    async def _read(self, caller: Caller, query: Mapping[str, str]) -> FeedEvent:
        turn = self.signal.turn
        page = await self._in_thread(self._reader.page, caller, {**query, "limit": str(PAGE_LIMIT)})
        return self._encoded(page, turn)

    def _encoded(self, page: Page, turn: int) -> FeedEvent:
        cursor = page.cursor.encode()
        if not page.deltas:
            return FeedEvent(b"", 0, cursor, page.has_more, turn)
        data = b'{"deltas":[%b],"serverHlc":"%d","cursor":"%b"}' % (
            b",".join(page.deltas),
            self._server_hlc(),
            cursor.encode(),
        )
        chunk = b"id: %b\nevent: deltas\ndata: %b\n\n" % (cursor.encode(), data)
        return FeedEvent(chunk, len(page.deltas), cursor, page.has_more, turn)

    def stop(self) -> None:
        """Let every listener go, because the server ends; only from the event loop's thread."""
        self._closing = True
        self.signal.ring()


def _refetch(error: DriftlineError) -> bytes:
    told = public_error(error)
    name = b"refetch" if told.code == "MUST_REFETCH" else b"error"
    return b"event: %b\ndata: %b\n\n" % (name, error_body(told.code, told.message, **refetch_members(told)))


def _expiry(caller: Caller) -> float:
    """The monotonic time at which the caller's token ends."""
    expires = caller.claims.get("exp")
    return float("inf") if expires is None else time.monotonic() + float(expires) - time.time()


def _without_start(query: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if name not in ("since", "cursor")}


async def _either(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event was set before the time was over."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True

"""Group commit: pushes that arrive while the disk is syncing share the next sync."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from driftline.errors import DriftlineError, GatewayError
from driftline.gateway.log import Appended, DeltaLog, Entry

_MAX_DELTAS_PER_COMMIT = 20_000


@dataclass(frozen=True, slots=True)
class _Waiting:
    batch: Sequence[Entry]
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Appended | DriftlineError]


class GroupCommit:
    """One thread that writes everything waiting in one transaction, then answers all of it."""

    def __init__(self, log: DeltaLog, *, max_pending: int = 50_000) -> None:
        self._log = log
        self._max_pending = max_pending
        self._pending = 0
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self.is_failing = False  # whether the last try to write did not work
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """Deltas that wait to be written."""
        return self._pending

    async def append(self, batch: Sequence[Entry]) -> Appended:
        """Durable when it returns; refused with backpressure while too much waits."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(batch, loop, loop.create_future())
        with self._changed:
            if self._closing:
                raise _busy("the gateway is shutting down")
            if self._pending and self._pending + len(batch) > self._max_pending:
                raise _busy(f"{self._pending} deltas are waiting to be written")
            self._pending += len(batch)
            self._queue.append(waiting)
            self._changed.notify()
        result = await waiting.answer
        if isinstance(result, DriftlineError):
            raise result
        return result

    def close(self) -> None:
        """Write what waits, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while group := self._next_group():
            results = self._write([waiting.batch for waiting in group])
            with self._changed:
                self._pending -= sum(len(waiting.batch) for waiting in group)
            for waiting, result in zip(group, results, strict=True):
                _answer(waiting, result)

    def _next_group(self) -> list[_Waiting]:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            group: list[_Waiting] = []
            size = 0
            while self._queue and (not group or size + len(self._queue[0].batch) <= _MAX_DELTAS_PER_COMMIT):
                group.append(self._queue.popleft())
                size += len(group[-1].batch)
            return group

    def _write(self, batches: list[Sequence[Entry]]) -> list[Appended | DriftlineError]:
        try:
            results = self._log.append(batches)
            self.is_failing = False
            return results
        except DriftlineError as error:
            self.is_failing = True
            return [error] * len(batches)
        except Exception as error:  # noqa: BLE001 - whatever happens, everybody who waits gets an answer
            self.is_failing = True
            return [GatewayError(f"the log failed: {error}", code="INTERNAL_ERROR")] * len(batches)


def _answer(waiting: _Waiting, result: Appended | DriftlineError) -> None:
    def settle() -> None:
        if not waiting.answer.done():  # the client may have gone away
            waiting.answer.set_result(result)

    if not waiting.loop.is_closed():
        waiting.loop.call_soon_threadsafe(settle)


def _busy(message: str) -> GatewayError:
    return GatewayError(message, code="BACKPRESSURE_ERROR", retry_after=1)

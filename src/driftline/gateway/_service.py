"""The gateway without HTTP: what it does with pushes, pulls and snapshots, and its background work."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from driftline.deltas import MAX_DRIFT_MS, TableSchema, make_hlc, physical_ms
from driftline.errors import DeltaError, DriftlineError, GatewayError, InputError, StorageError
from driftline.gateway._auth import Caller
from driftline.gateway._lake import process
from driftline.gateway._lake.flush import Configuration, FlushReport, load_configuration
from driftline.gateway._lake.snapshot import DEFAULT_LIMIT, MAX_LIMIT, PageSigner, PageToken, Request, page_keys
from driftline.gateway._log.log import UNSEEDED, Appended, Claims, DeltaLog, Entry, unavailable
from driftline.gateway._settings import GatewaySettings, authenticator
from driftline.gateway._sync import rules as sync_rules
from driftline.gateway._sync.feed import Feeds
from driftline.gateway._sync.pull import LogReader, Page, limit_of, naming_snapshot, parameters_of
from driftline.gateway._sync.push import Push, check_authors, check_clocks, check_horizons, check_schemas, parse_push
from driftline.gateway._sync.row_index import RowIndex
from driftline.http import Metrics, RateLimiter

T = TypeVar("T")

_MAX_DELTAS_PER_COMMIT = 20_000
_LARGE_BODY = 128 << 10  # larger bodies are parsed outside the event loop
_REMEMBERED_CLIENTS = 1000
_FAILED_PER_SECOND = 10.0
_NEW_KEY_SECONDS, _KEYS_SECONDS = 30.0, 300.0  # how often a provider's keys are fetched, for an unknown one and always
_REFUSALS_SECONDS = 60.0  # forged pages are reported once in this time
_TICK_SECONDS = 0.5
_FLUSH_SECONDS = 1.0  # between two looks at what is pending
_TRY_AGAIN_SECONDS = 5.0
_FREE_BYTES = 64 << 20
_PRUNE_TICKS, _REFRESH_TICKS, _CLOCK_TICKS = 4, 60, 1200
_REFRESH_MS = 25_000  # the first of several servers refreshes the copy of the lake's facts for all
_PRUNE_STEP = 20_000  # records removed in one transaction, so that pushes are not blocked
_logger = logging.getLogger("driftline.gateway")


class Gateway:
    """A running gateway; `close` drains it."""

    def __init__(self, settings: GatewaySettings, metrics: Metrics | None = None) -> None:
        settings.data.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        self.authenticator = authenticator(settings)
        self.limiter = RateLimiter(settings.rate_limit / settings.workers)
        # Guessing is slowed down; a caller with a valid token is never delayed by others at its address.
        failures = min(settings.rate_limit, _FAILED_PER_SECOND / settings.workers)
        self._failed = RateLimiter(failures, burst=failures)
        self.metrics = metrics or Metrics(settings.data / "metrics")
        self.log = settings.open_log()
        self._claim_log()
        self.log.judge = sync_rules.RowRules()
        self.index = RowIndex(self.log)
        self.reader = LogReader(self.log, self.index, settings.gateway, self._current_rules)
        self.feeds = Feeds(self.reader, self.in_thread, self.server_hlc, self._event_sent)
        self.lake = process.PipedProcess("lake", process.LakeDesk, settings)
        self._snapshots = process.SnapshotProcesses(settings)
        self._fetching = asyncio.Lock()
        self._snapshot_slots = asyncio.Semaphore(process.SNAPSHOTS_AT_ONCE)
        self._page_refused = -_REFUSALS_SECONDS
        chosen = settings.compaction
        self._compactor: process.Compactor | None = None
        if chosen is not None:
            self._compactor = process.Compactor(settings.lake_location, chosen, self._compacted)
        self._has_refreshed = False
        self._check_lake()
        self.last_seen: OrderedDict[str, int] = OrderedDict()
        self._configuration: Configuration | None = None
        self._commit = GroupCommit(self.log, max_pending=settings.max_pending)
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="gateway")
        self._flush_pause = _FLUSH_SECONDS
        self._timer = _Ticker("flush", self._flush_when_due, _FLUSH_SECONDS)
        self._upkeep = _Ticker("upkeep", self._keep_up, _TICK_SECONDS)
        stored = self.log.document("rules")
        if stored is not None and "writes" not in json.loads(stored):  # of an earlier version: all could write all
            _logger.warning('sync rules without "writes": clients may write what they may read')

    @property
    def pending(self) -> int:
        """Deltas that are not written yet."""
        return self._commit.pending

    async def push(self, caller: Caller, body: bytes) -> tuple[Push, Appended]:
        """Validate a whole batch, then make it durable."""
        push = parse_push(body) if len(body) <= _LARGE_BODY else await self.in_thread(parse_push, body)
        check_authors(push, caller.client_id)
        check_clocks(push, physical_ms(), self.server_hlc, self._is_known)
        configuration = self.configuration()
        _check_open(configuration)
        check_schemas(push, configuration.schemas, configuration.is_strict, self._is_known)
        check_horizons(push, configuration.floors, self._is_known)
        claims = None if caller.is_admin else caller.claims
        try:
            appended = await self._commit.append(push.entries, claims)
        except GatewayError as error:
            # Where rules are so new that rows are not merged for them, a short log is merged first.
            if error.context.get("reason") != sync_rules.RULES_REASON or not await self.in_thread(self._follow_soon):
                raise
            appended = await self._commit.append(push.entries, claims)
        self._count_push(push, appended, len(body))
        return push, appended

    def _follow_soon(self) -> bool:
        """Merge rows for the rules, unless the lake has some that are missing, or too many to do so in a request."""
        configuration, head = self.configuration(), self.log.head()
        if configuration.rules is None:
            return True
        if self.log.document(UNSEEDED) is not None:
            return False
        first = head.projected if head.projected_rules == configuration.rules_number else head.pruned
        if head.last - first > sync_rules.MAX_BEHIND:
            return False
        self.follow_rows()
        return True

    async def check_ready(self) -> None:
        """Raise the reason why pushes are refused; a log that failed is tried once more, every few seconds."""
        configuration = await self.in_thread(self.configuration)
        _check_open(configuration)
        if self.settings.log is None:
            check_disk(self.settings.data)
        if not await self.in_thread(self._follow_soon):
            raise sync_rules.rows_behind()
        failure = self._commit.failure
        if failure is not None and time.monotonic() - self._commit.failed_at < _TRY_AGAIN_SECONDS:
            raise failure
        if failure is not None or self.pending >= self.settings.max_pending:
            await self._commit.append([])

    async def pull(self, caller: Caller, query: Mapping[str, str]) -> Page:
        """A page of the log, filtered by the sync rules."""
        return await self.in_thread(self.reader.page, caller, query)

    def exact_types(self, caller: Caller) -> dict[str, dict[str, str]]:
        """The exact columns of the tables that a caller may see."""
        configuration = self.configuration()
        return configuration.exact_types(None if caller.is_admin else configuration.rules)

    async def snapshot(self, caller: Caller, query: Mapping[str, str], *, as_arrow: bool) -> bytes:
        """A page of the state of all rows that the caller sees."""
        configuration = await self.in_thread(self.configuration)
        keys = await self.in_thread(page_keys, self.log)
        signer = PageSigner(keys, self.settings.gateway, caller.client_id)
        request = Request(
            self._page_token(signer, query.get("page")),
            signer,
            limit_of(query, DEFAULT_LIMIT, MAX_LIMIT),
            None if caller.is_admin else configuration.rules,
            configuration.rules_number,
            caller.claims,
            parameters_of(query),
            as_arrow,
            self.exact_types(caller),
        )
        with naming_snapshot(self.settings.gateway), self._noting_snapshots():
            try:
                await asyncio.wait_for(self._snapshot_slots.acquire(), process.SNAPSHOT_WAIT_SECONDS)
            except TimeoutError as error:
                raise process.snapshots_busy() from error
            try:
                page = await self.in_thread(self._snapshots.page, request)
            finally:
                self._snapshot_slots.release()
        self.metrics.add("driftline_snapshot_pages_total")
        self.metrics.add("driftline_sent_bytes_total", len(page))
        return page

    def _page_token(self, signer: PageSigner, text: str | None) -> PageToken | None:
        """The token of a request; a forged one is refused before any process works for it."""
        try:
            return None if text is None else signer.read(text)
        except GatewayError as error:
            if error.code == "VALIDATION_ERROR" and time.monotonic() - self._page_refused > _REFUSALS_SECONDS:
                self._page_refused = time.monotonic()
                _logger.warning("page refused", extra={"fields": {"sub": signer.subject}})
            raise

    @contextmanager
    def _noting_snapshots(self) -> Iterator[None]:
        """Report to the operator what keeps snapshots from being served."""
        try:
            yield
        except GatewayError as error:
            fields = {"reason": error.context.get("reason"), "error": error.context.get("found", error.message)}
            if fields["reason"] == "lake_damaged":
                self.metrics.add("driftline_lake_damaged_total")
                _logger.error("lake_damaged", extra={"fields": fields})
            elif error.code == "BACKPRESSURE_ERROR":
                _logger.warning("snapshot", extra={"fields": fields})
            raise

    async def flush(self) -> FlushReport:
        """Flush everything that has arrived by now to the lake, and import deltas that reached it another way."""
        try:
            report: FlushReport = await self.in_thread(self.lake.ask, "flush")
        except InputError:
            _check_open(self.configuration())  # another log's lake: the error that pushes get
            raise
        self._flushed(report)
        await self.in_thread(self._refreshed)
        return report

    async def set_schema(self, data: bytes) -> TableSchema:
        """Register or change a table's schema."""
        try:
            plain = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise GatewayError(f"the body is not JSON: {error}") from error
        schema = TableSchema.from_wire(plain)
        try:
            await self.in_thread(self.lake.ask, "register", schema)
        except DeltaError as error:
            raise GatewayError(error.message, code="SCHEMA_ERROR") from error
        return schema

    async def set_rules(self, data: bytes | None) -> sync_rules.SyncRules | None:
        """Set the sync rules, or remove them; cursors made under other rules become invalid."""
        rules = None if data is None else sync_rules.parse_rules(data)
        if rules is not None and not await self.in_thread(self.index.is_whole):
            raise GatewayError(
                "sync rules look at whole rows, and deltas were forgotten before this gateway kept their rows: "
                "begin a new data directory beside the same lake (--adopt-lake)"
            )
        await self.in_thread(self._store_rules, data, rules)
        return rules

    def _store_rules(self, data: bytes | None, rules: sync_rules.SyncRules | None) -> None:
        """Replace the rules; where only what may be written changes, cursors stay valid."""
        known = self.log.document("rules")
        before = None if known is None else sync_rules.read_stored_rules(known)
        is_same_view = before is not None and rules is not None and before.buckets == rules.buckets

        def change(current: bytes | None) -> bytes | None:
            if current != known:
                raise GatewayError("the rules are being changed by another request", code="BACKPRESSURE_ERROR")
            return data

        self.log.change_document("rules", change, *(("config",) if is_same_view else ("config", "rules")))
        if rules is not None and not is_same_view and self.log.head().horizon and self._has_lake():
            self._await_seeds()
            self._refreshed()

    def _await_seeds(self) -> None:
        """Refuse writes under rules until the rows that only the lake has are known."""
        self.log.change_document(UNSEEDED, lambda _: b"1", "config")

    def _has_lake(self) -> bool:
        """Whether the lake may have content; an object store is assumed to."""
        location = self.settings.lake_location
        return "://" in location or Path(location, "tables").exists() or Path(location, "gateways").exists()

    async def fetch_keys(self, scope: Mapping[str, Any]) -> None:
        """Fetch a provider's keys where a token has a new one; one fetch for all that wait, and not too often."""
        if self.authenticator is not None and self.authenticator.lacks_key_of(_authorization(scope)):
            async with self._fetching:
                if self.authenticator.lacks_key_of(_authorization(scope)):
                    await self.in_thread(self.authenticator.renew_keys, _NEW_KEY_SECONDS)

    def authenticate(self, scope: Mapping[str, Any]) -> Caller | None:
        """The caller of a request by its token; None where the gateway runs without authentication."""
        if self.authenticator is None:
            return None
        try:
            return self.authenticator.caller(_authorization(scope))
        except GatewayError:
            address = scope["client"][0] if scope.get("client") else "unknown"
            self._failed.take(address, "too many requests without a valid token from this address")
            raise

    def gauges(self) -> dict[str, tuple[str, float]]:
        """The gauges of the log and this process: name, help, value."""
        head, now = self.log.head(), physical_ms()
        lag = max((now - (hlc >> 16) for hlc in list(self.last_seen.values())), default=0)
        return {
            "driftline_log_last_sequence": ("Newest sequence of the log.", head.last),
            "driftline_log_pruned_sequence": ("Everything up to this sequence is forgotten.", head.pruned),
            "driftline_log_flushed_sequence": ("Everything up to this is in the lake.", head.flushed),
            "driftline_log_wal_bytes": ("Size of the write-ahead log.", self.log.size()),
            "driftline_clock_ahead_ms": ("How far the log's clock is ahead of this machine's.", self.clock_ahead_ms()),
            "driftline_feeds_open": ("Clients that listen to a feed or a long poll (this process).", self.feeds.open),
            "driftline_pending_deltas": ("Deltas waiting to be written (this process).", self.pending),
            "driftline_last_seen_lag_ms": ("How far the hindmost client's lastSeenHlc lies back (this process).", lag),
        }

    def configuration(self) -> Configuration:
        """The current configuration (another process may have changed it)."""
        number = self.log.head().config
        if self._configuration is None or self._configuration.number != number:
            self._configuration = load_configuration(self.log)
        return self._configuration

    def server_hlc(self) -> int:
        """The log's clock, not before any delta it has accepted; a restart with another wall clock restores it too."""
        return self.log.head().clock

    def clock_ahead_ms(self) -> int:
        """How far the log's clock is ahead of the machine's: that was wrong once, or is wrong now."""
        return max((self.server_hlc() >> 16) - physical_ms(), 0)

    def prune(self) -> int:
        """Remove deltas that are older than the retention time and in the lake; the number removed."""
        if self.settings.retention_days is None:
            return 0
        before = physical_ms() - round(self.settings.retention_days * 86_400_000)
        upto = min(self.log.first_arrival_from(make_hlc(max(before, 0))) - 1, self.log.head().flushed)
        self.follow_rows()
        removed = 0
        while (pruned := self.log.head().pruned) < upto:
            removed += self.log.prune(min(pruned + _PRUNE_STEP, upto))
        return removed

    def follow_rows(self) -> None:
        """Bring the merged rows up to the log: sync rules need them, also for records that retention removes."""
        configuration = self.configuration()
        if configuration.rules is not None or self.settings.retention_days is not None:
            self.index.catch_up(configuration.rules or sync_rules.NO_RULES, configuration.rules_number)

    def refresh(self) -> None:
        """Refresh the copy of the lake's facts and import deltas from it; one server does it for all."""
        last = int(self.log.document(process.REFRESHED) or 0)
        is_due = not self._has_refreshed or physical_ms() - last >= _REFRESH_MS
        if is_due and self._has_lake():
            self._refreshed()

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run blocking work outside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close(self, flush_seconds: float = 4.0) -> None:
        """Write pending deltas, flush as far as time allows, release every resource."""
        self._commit.close()
        self.feeds.signal.close()
        self._upkeep.close()
        self._timer.close()
        try:
            head = self.log.head()
            if head.flushed < head.last:
                self._flushed(self.lake.ask("flush", False, seconds=flush_seconds))
        except DriftlineError as error:
            self._flush_failed(error)
        self.lake.close()
        self._snapshots.close()
        if self._compactor is not None:
            self._compactor.close()
        self._threads.shutdown()
        self.log.close()

    def _claim_log(self) -> None:
        """A log belongs to the gateway that created it."""
        gateway = self.settings.gateway
        self.log.change_document("gateway", lambda before: before or gateway.encode())
        owner = (self.log.document("gateway") or b"").decode()
        if owner != gateway:
            self.log.close()
            raise InputError(f"this data directory belongs to gateway {owner!r}, not {gateway!r}", code="other_gateway")

    def _check_lake(self) -> None:
        """Refuse to start with another log's lake; a lake that cannot be reached is checked before a flush."""
        if not self._has_lake():
            return
        if self.log.head().last == 0:
            self._await_seeds()
        try:
            self._flushed(self.lake.ask("start"))
        except StorageError as error:
            _logger.warning("lake", extra={"fields": {"code": error.code, "error": error.message}})
        except DriftlineError:
            self.lake.close()
            self.log.close()
            raise

    def _current_rules(self) -> tuple[sync_rules.SyncRules | None, int]:
        configuration = self.configuration()
        return configuration.rules, configuration.rules_number

    def _event_sent(self, deltas: int) -> None:
        self.metrics.add("driftline_feed_events_total")
        self.metrics.add("driftline_deltas_pulled_total", deltas)

    def _count_push(self, push: Push, appended: Appended, size: int) -> None:
        self.metrics.add("driftline_deltas_accepted_total", len(push.entries))
        self.metrics.add("driftline_deltas_applied_total", len(appended.fresh))
        self.metrics.add("driftline_received_bytes_total", size)
        if push.last_seen_hlc is not None:
            self.last_seen[push.client_id] = push.last_seen_hlc
            self.last_seen.move_to_end(push.client_id)
            if len(self.last_seen) > _REMEMBERED_CLIENTS:
                self.last_seen.popitem(last=False)

    def _refreshed(self) -> None:
        refreshed: FlushReport = self.lake.ask("refresh")
        self.metrics.add("driftline_imported_deltas_total", refreshed.imported)
        self._compact(refreshed)
        self._has_refreshed = True

    def _compact(self, report: FlushReport) -> None:
        """Compact the tables that are due, and pass notices on to the operator."""
        for notice in report.notices:
            _logger.warning(notice)
        if self._compactor is not None and report.due:
            self._compactor.take(report.due)

    def _compacted(self, table: str, notice: str | None) -> None:
        self.metrics.add("driftline_compactions_total")
        if notice is not None:
            _logger.warning(notice)
        _logger.info("compacted", extra={"fields": {"table": table}})

    def _is_known(self, entry: Entry) -> bool:
        return self.log.has(entry.hlc, entry.delta_id)

    def _flushed(self, report: FlushReport) -> None:
        if report.notices:  # the log was set back: what it lost is imported from the lake
            self._await_seeds()
        self.metrics.add("driftline_set_back_total", len(report.notices))
        self.metrics.add("driftline_set_aside_deltas_total", report.set_aside)
        self._compact(report)
        if report.set_aside:
            _logger.warning("deltas below the lake's horizon set aside", extra={"fields": {"deltas": report.set_aside}})
        if report.deltas:
            self.metrics.add("driftline_flushes_total")
            self.metrics.add("driftline_flushed_deltas_total", report.deltas)
            _logger.info("flushed", extra={"fields": {"deltas": report.deltas, "tables": len(report.tables)}})

    def _flush_when_due(self, _: int) -> float:
        """Flush when the pending deltas are large or old enough; failures make the pauses longer."""
        try:
            waiting = self.log.waiting()
            age = 0.0 if waiting.since_ms is None else time.time() - waiting.since_ms / 1000
            is_large = waiting.size >= self.settings.flush_bytes
            if waiting.since_ms is not None and (age >= self.settings.flush_seconds or is_large):
                self._flushed(self.lake.ask("flush", False))
            self._flush_pause = _FLUSH_SECONDS
        except DriftlineError as error:
            self._flush_failed(error)
            self._flush_pause = min(self._flush_pause * 2, 60.0)
        return self._flush_pause

    def _keep_up(self, turn: int) -> float:
        """Keep the write-ahead log short and the rows merged, and apply the retention time."""
        try:
            if self.authenticator is not None:
                self.authenticator.renew_keys(_KEYS_SECONDS)
            self.log.upkeep()
            self.follow_rows()
            if turn % _PRUNE_TICKS == 0:
                self.prune()
            if turn % _REFRESH_TICKS == 1:
                self.refresh()
            if turn % _CLOCK_TICKS == 0 and (ahead := self.clock_ahead_ms()) > MAX_DRIFT_MS:
                _logger.error(f"clock ahead by {ahead} ms: was the machine's clock wrong?")  # pushes and pulls go on
        except DriftlineError as error:
            _logger.warning("upkeep", extra={"fields": {"code": error.code, "error": error.message}})
        return _TICK_SECONDS

    def _flush_failed(self, error: DriftlineError) -> None:
        self.metrics.add("driftline_flush_errors_total")
        _logger.error("flush failed", extra={"fields": {"code": error.code, "error": error.message}})


class _Ticker:
    """A thread that works in turns, each after the pause that the one before returns, until it is closed."""

    def __init__(self, name: str, work: Callable[[int], float], pause: float) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work, pause), name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self, work: Callable[[int], float], pause: float) -> None:
        for turn in count():
            if self._stop.wait(pause):
                return
            pause = work(turn)


@dataclass(frozen=True, slots=True)
class _PendingBatch:
    batch: Sequence[Entry]
    claims: Claims | None
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Appended | DriftlineError]


class GroupCommit:
    """One thread that writes all pending batches in one transaction: pushes that arrive meanwhile share the next."""

    def __init__(self, log: DeltaLog, *, max_pending: int = 50_000) -> None:
        self._log = log
        self._max_pending = max_pending
        self.pending = 0  # deltas that are not written yet
        self._queue: deque[_PendingBatch] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self.failure: DriftlineError | None = None  # of the last write
        self.failed_at = 0.0
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._thread.start()

    async def append(self, batch: Sequence[Entry], claims: Claims | None = None) -> Appended:
        """Durable when it returns; refused with backpressure while too much is pending."""
        loop = asyncio.get_running_loop()
        waiting = _PendingBatch(batch, claims, loop, loop.create_future())
        with self._changed:
            if self._closing:
                raise unavailable("the gateway is shutting down", "closing", retry_after=1)
            if self.pending and self.pending + len(batch) > self._max_pending:
                raise unavailable(f"{self.pending} deltas are waiting to be written", "pending", retry_after=1)
            self.pending += len(batch)
            self._queue.append(waiting)
            self._changed.notify()
        result = await waiting.answer
        if isinstance(result, DriftlineError):
            raise result
        return result

    def close(self) -> None:
        """Write pending batches, then stop the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while group := self._next_group():
            results = self._write(group)
            with self._changed:
                self.pending -= sum(len(waiting.batch) for waiting in group)
            for waiting, result in zip(group, results, strict=True):
                if not waiting.loop.is_closed():
                    waiting.loop.call_soon_threadsafe(_resolve, waiting.answer, result)

    def _next_group(self) -> list[_PendingBatch]:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            group: list[_PendingBatch] = []
            size = 0
            while self._queue and (not group or size + len(self._queue[0].batch) <= _MAX_DELTAS_PER_COMMIT):
                group.append(self._queue.popleft())
                size += len(group[-1].batch)
            return group

    def _write(self, group: Sequence[_PendingBatch]) -> list[Appended | DriftlineError]:
        try:
            results = self._log.append([each.batch for each in group], [each.claims for each in group])
            self.failure = None
            return results
        except DriftlineError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - every caller gets a result
            failure = GatewayError(f"the log failed: {error}", code="INTERNAL_ERROR")
        self.failure, self.failed_at = failure, time.monotonic()
        return [failure] * len(group)


def _resolve(answer: asyncio.Future[Appended | DriftlineError], result: Appended | DriftlineError) -> None:
    if not answer.done():  # the client may have disconnected
        answer.set_result(result)


def check_disk(folder: Path) -> None:
    """Raise where the disk of the log is about to be full: small writes may succeed where pushes fail."""
    disk = shutil.disk_usage(folder)
    if disk.free < max(_FREE_BYTES, min(disk.total // 100, 1 << 30)):
        raise unavailable(f"the disk of the log has {disk.free >> 20} MiB left", "disk_full")


def _authorization(scope: Mapping[str, Any]) -> str | None:
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    return b", ".join(found).decode("latin-1") if found else None  # several are one list, which is no token


def _check_open(configuration: Configuration) -> None:
    if configuration.closed is not None:
        raise unavailable(configuration.closed, "other_log", retry_after=30)

"""A pull: which part of the log a caller wants, and the page it gets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from driftline.deltas._wire import hlc_from_wire
from driftline.errors import GatewayError
from driftline.gateway.auth import Caller
from driftline.gateway.cursor import NO_VIEW, Cursor, decode_cursor, must_refetch, naming_snapshot
from driftline.gateway.log import DeltaLog, Record
from driftline.gateway.row_index import RowIndex
from driftline.gateway.rules import SyncRules
from driftline.gateway.views import View

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000

_PAGE_BYTES = 16 << 20  # a page ends here too, because a record can be as large as a push
_FEW, _MANY = 64, 8192  # records read at a time: many only while they are small
_SMALL_BYTES = 1 << 20
_PARAMETER = "p."
_POSITIVE = re.compile(r"0*[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Page:
    """Deltas as JSON texts, where to go on, and whether there is more."""

    deltas: list[bytes]
    cursor: Cursor
    has_more: bool


def limit_of(query: Mapping[str, str], default: int = DEFAULT_LIMIT, most: int = MAX_LIMIT) -> int:
    """The wanted page size, by default at most 10,000."""
    text = query.get("limit")
    if text is None:
        return default
    if not _POSITIVE.fullmatch(text):
        raise GatewayError("limit is a positive integer")
    return min(int(text), most)


def parameters_of(query: Mapping[str, str]) -> dict[str, str]:
    """The parameters for sync rules: `?p.name=text`."""
    return {name[len(_PARAMETER) :]: text for name, text in query.items() if name.startswith(_PARAMETER)}


def start_of(query: Mapping[str, str], log: DeltaLog, rules: int, view: str = NO_VIEW) -> Cursor:
    """Where a pull begins: at its cursor, or at the beginning with an hlc to skip to."""
    if "cursor" in query:
        cursor = decode_cursor(query["cursor"])
        _check_log(cursor, log)
        if cursor.rules != rules:
            raise must_refetch("rules_changed", "the sync rules have changed since the cursor was made")
        if cursor.view != view:
            raise must_refetch("view_changed", "the claims or parameters that decide what you see have changed")
        return cursor
    if "since" in query:
        return _beginning(log, hlc_from_wire(query["since"], "since"), rules, view)
    raise GatewayError("since or cursor is required")


def _check_log(cursor: Cursor, log: DeltaLog) -> None:
    """Refuse a cursor of another log, of a log that was set back behind it, and of forgotten records."""
    bounds = log.bounds()
    if cursor.log_id != log.identity().log_id or cursor.seq > bounds.last:
        raise must_refetch("log_replaced", "the cursor belongs to another log")
    # A cursor inside a record still needs that record.
    if cursor.seq - bool(cursor.sent) < bounds.pruned:
        raise must_refetch("retention", "what follows the cursor has been forgotten")
    if log.arrival_at(cursor.seq) != cursor.arrival:
        raise must_refetch("log_replaced", "the log was set back behind the cursor")


def _beginning(log: DeltaLog, since: int, rules: int, view: str) -> Cursor:
    bounds = log.bounds()
    if since < bounds.pruned_hlc:
        raise must_refetch("retention", "deltas after this since have been forgotten")
    arrival = log.arrival_at(bounds.pruned) or 0
    return Cursor(log.identity().log_id, bounds.pruned, arrival, rules, view, 0, since, bounds.last)


def read_page(log: DeltaLog, start: Cursor, limit: int, view: View | None = None, upto: int | None = None) -> Page:
    """One page after a cursor, up to a sequence (by default the newest); `limit` binds, also inside a record."""
    last = log.bounds().last if upto is None else upto
    found: list[bytes] = []
    size = 0
    at = start
    # Without a view one record more than the page holds tells whether there is more.
    for record in _wanted(log, start, last, limit + 1 if view is None else _MANY):
        done = start.sent if record.seq == start.seq else 0
        told = ([record.body] if view is None else view.sent_for(record))[done:]
        room = limit - len(found) if size <= _PAGE_BYTES else 0
        size += sum(map(len, told))
        if len(told) > room:
            inside = start.at(record.seq, record.arrival, done + room) if room else at
            return Page(found + told[:room], inside, True)
        found += told
        at = start.at(record.seq, record.arrival)
    return Page(found, start.at(last, log.arrival_at(last) or 0), False)


def _wanted(log: DeltaLog, start: Cursor, last: int, most: int) -> Iterator[Record]:
    """The records after a cursor, older hlcs skipped among those that had arrived when the first page was asked."""
    after = start.seq - 1 if start.sent else start.seq
    skipping_to = min(start.skip_upto, last)
    yield from _read_range(log, after, skipping_to, start.since, most)
    yield from _read_range(log, max(after, skipping_to), last, -1, most)


def _read_range(log: DeltaLog, after: int, upto: int, since: int, most: int) -> Iterator[Record]:
    count = min(_FEW, most)
    while after < upto:
        records = log.read(after, count, upto=upto, since_hlc=since)
        yield from records
        if len(records) < count:
            return
        after = records[-1].seq
        is_small = sum(len(record.body) for record in records) < _SMALL_BYTES
        count = min(count * 8, _MANY, most) if is_small else _FEW


@dataclass(frozen=True, slots=True)
class Sight:
    """What a caller may see at the moment; None as rules is everything."""

    rules: SyncRules | None
    rules_number: int
    digest: str


@dataclass(frozen=True, slots=True)
class LogReader:
    """Pages of the log for callers."""

    log: DeltaLog
    index: RowIndex
    gateway: str
    current_rules: Callable[[], tuple[SyncRules | None, int]]

    def sight(self, caller: Caller, query: Mapping[str, str], current: tuple[SyncRules | None, int]) -> Sight:
        """What a caller may see with these parameters under the current rules."""
        rules, number = current
        if rules is None or caller.is_admin:
            return Sight(None, number, NO_VIEW)
        return Sight(rules, number, rules.view_digest(caller.claims, parameters_of(query)))

    def page(self, caller: Caller, query: Mapping[str, str]) -> Page:
        """One page from the query's cursor or since on."""
        with naming_snapshot(self.gateway):
            return self._page(caller, query)

    def _page(self, caller: Caller, query: Mapping[str, str]) -> Page:
        limit, sight = limit_of(query), self.sight(caller, query, self.current_rules())
        start = start_of(query, self.log, sight.rules_number, sight.digest)
        if sight.rules is None:
            return read_page(self.log, start, limit)
        upto = self.index.catch_up(sight.rules, sight.rules_number)
        view = View(
            self.index, sight.rules, caller.claims, self.gateway, parameters_of(query), rules_number=sight.rules_number
        )
        try:
            return read_page(self.log, start, limit, view, upto)
        finally:
            view.close()

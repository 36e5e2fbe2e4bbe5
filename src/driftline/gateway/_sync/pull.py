"""Pulls: pages of the log, the cursors between them, and what a caller under sync rules gets of each record."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import msgspec

from driftline.deltas import MAX_HLC, ColumnDelta, Op, RowDelta, RowKey, RowMerge, hlc_from_wire, stamp_of
from driftline.errors import GatewayError
from driftline.gateway._auth import Caller
from driftline.gateway._log.log import DeltaLog, Record
from driftline.gateway._sync.push import stored_delta
from driftline.gateway._sync.row_index import RowIndex, RowVersion, Story
from driftline.gateway._sync.rules import SyncRules

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000
NO_VIEW = "-"
REASONS = ("retention", "rules_changed", "view_changed", "log_replaced", "snapshot_gone")

_TEXT = re.compile(
    r"2\.([0-9a-f]{1,64})\.([0-9]{1,18})\.([0-9]{1,19})\.([0-9]{1,9})\.([0-9]{1,18})\.([0-9a-z-]{1,16})"
    r"(?:\.([0-9]{1,19})\.([0-9]{1,18}))?"
)
_FIRST_FORM = re.compile(r"1\.[0-9a-f]{1,64}\.[0-9.]+")
_PAGE_BYTES = 16 << 20  # a page ends here too, because a record can be as large as a push
_FEW, _MANY = 64, 8192  # records read at a time: many only while they are small
_SMALL_BYTES = 1 << 20
_PARAMETER = "p."
_POSITIVE = re.compile(r"0*[1-9][0-9]{0,18}")


# A cursor names its log, its record, the rules and the view it was made under (gateway §6), so that an invalid position
# is noticed: the log was replaced or set back, the record was removed, the rules or the caller's view changed. It also
# has the `since` of the first page: older deltas that had arrived by then are skipped, later arrivals are not.
@dataclass(frozen=True, slots=True)
class Cursor:
    """A client's position in the arrival order: record `seq`, of which `sent` deltas were sent (0: all).

    Up to `skip_upto` only deltas with an hlc above `since` are sent.
    """

    log_id: str
    seq: int
    arrival: int  # of the record at `seq`, 0 at the very beginning
    rules: int
    view: str = NO_VIEW
    sent: int = 0
    since: int = -1
    skip_upto: int = 0

    def at(self, seq: int, arrival: int, sent: int = 0) -> Cursor:
        """The same cursor further on."""
        return replace(self, seq=seq, arrival=arrival, sent=sent)

    def encode(self) -> str:
        """The cursor as clients carry it."""
        text = f"2.{self.log_id}.{self.seq}.{self.arrival}.{self.sent}.{self.rules}.{self.view}"
        if self.since >= 0 and self.seq < self.skip_upto:
            text += f".{self.since}.{self.skip_upto}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(text: str) -> Cursor:
    """The cursor that a client sends back."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    except ValueError as error:
        raise GatewayError("cursor is not one of this gateway") from error
    if _FIRST_FORM.fullmatch(plain):
        raise must_refetch("log_replaced", "the cursor is of an older form, which does not say which log it is of")
    match = _TEXT.fullmatch(plain)
    if match is None:
        raise GatewayError("cursor is not one of this gateway")
    log_id, seq, arrival, sent, rules, view, since, skip_upto = match.groups()
    skipping = (-1, 0) if since is None else (min(int(since), MAX_HLC), int(skip_upto))
    return Cursor(log_id, int(seq), int(arrival), int(rules), view, int(sent), *skipping)


@contextmanager
def naming_snapshot(gateway: str) -> Iterator[None]:
    """Add the address of the snapshot to the error of a client that must start anew."""
    try:
        yield
    except GatewayError as error:
        if error.code == "MUST_REFETCH":
            error.context["snapshot"] = f"/v1/sync/{gateway}/snapshot"
        raise


def must_refetch(reason: str, why: str) -> GatewayError:
    """The error of an invalid position; `reason` is for programs, `why` for users."""
    return GatewayError(f"{why}: begin anew", code="MUST_REFETCH", reason=reason)


# While a row has been visible all its life, the caller has all its deltas and gets the next one as it is. Once the row
# was alive and hidden, that chain is broken: from then on the caller gets the row's merged values with the arrival as
# their timestamp, which is greater than every timestamp before it and rises with the log. So a caller always ends at
# the merged state of the rows it may see, whatever arrives late.
#
# A delta that a DELETE of its row covers is not sent: it changes nothing, and a caller that started from a snapshot
# after that DELETE does not have it and would show the delta.
@dataclass
class View:
    """The rows that one caller under sync rules sees, during one request."""

    index: RowIndex
    rules: SyncRules
    claims: Mapping[str, Any]
    gateway: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    rules_number: int = 0
    _folds: dict[RowKey, RowMerge] = field(default_factory=dict)
    _stories: dict[RowKey, Story] = field(default_factory=dict)

    def sent_for(self, record: Record) -> list[bytes]:
        """The deltas that this caller gets for a record, none for a row that it does not see.

        Records are passed in the order of the log.
        """
        delta = stored_delta(record.body)
        key = (delta.table, delta.row_id)
        story = self._stories.get(key)
        if story is None:
            sees = partial(self._sees, delta.table)
            story = self._stories[key] = self.index.story(key, record.seq, sees, self._name)
        after = story.at(record.seq)
        was_visible = story.before is not None and story.sees(story.before)
        is_visible = after is not None and story.sees(after)
        if story.is_whole:
            deleted = None if delta.op == "DELETE" else self._fold(key).deleted
            if deleted is not None and stamp_of(delta) < deleted:
                # It changes nothing in the end, but no other delta hides what it hid in between.
                return [self._tombstone(delta, record)] if was_visible and not is_visible else []
            died = after is not None and not after.live
            if is_visible or (died and delta.op == "DELETE" and story.before is not None):
                return [record.body]
            return [self._tombstone(delta, record)] if was_visible else []
        if is_visible:
            return self._merged(delta, record, entering=not was_visible)
        return [self._tombstone(delta, record)] if was_visible else []

    def close(self) -> None:
        """Store how far rows were followed, for the next page of this caller."""
        for key, story in self._stories.items():
            self.index.store(key, story, self._name)

    @cached_property
    def _name(self) -> tuple[int, str]:
        return self.rules_number, self.rules.view_digest(self.claims, self.parameters)

    def _fold(self, key: RowKey) -> RowMerge:
        if key not in self._folds:
            self._folds[key] = self.index.fold(key)
        return self._folds[key]

    def _sees(self, table: str, version: RowVersion) -> bool:
        return version.live and self.rules.sees(table, version.columns, self.claims, self.parameters)

    def _merged(self, delta: RowDelta, record: Record, *, entering: bool) -> list[bytes]:
        present = self._fold((delta.table, delta.row_id)).state()
        if not self._sees(delta.table, RowVersion(record.seq, present.live, present.columns)):
            return []  # a later record hides the row again
        if entering or delta.op == "DELETE":
            whole = [ColumnDelta(name, value) for name, value in present.columns.items()]
            insert = self._made("INSERT", delta, whole, record.arrival + 1)
            return [insert] if entering else [self._tombstone(delta, record), insert]
        names = [entry.column for entry in delta.columns if entry.column in present.columns]
        changed = [ColumnDelta(name, present.columns[name]) for name in names]
        return [self._made("UPDATE", delta, changed, record.arrival + 1)] if changed else []

    def _tombstone(self, delta: RowDelta, record: Record) -> bytes:
        return self._made("DELETE", delta, [], record.arrival)

    def _made(self, op: Op, delta: RowDelta, columns: list[ColumnDelta], hlc: int) -> bytes:
        row = {"table": delta.table, "row_id": delta.row_id, "client_id": f"gateway:{self.gateway}"}
        return msgspec.json.encode(RowDelta.make(op=op, columns=columns, hlc=hlc, **row).to_wire())


@dataclass(frozen=True, slots=True)
class Page:
    """Deltas as JSON texts, the cursor after them, and whether there is more."""

    deltas: list[bytes]
    cursor: Cursor
    has_more: bool


def limit_of(query: Mapping[str, str], default: int = DEFAULT_LIMIT, most: int = MAX_LIMIT) -> int:
    """The requested page size, by default at most 10,000."""
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
    """Where a pull starts: at its cursor, or at the first record with an hlc to skip to."""
    if "cursor" in query:
        cursor = decode_cursor(query["cursor"])
        _check_log(cursor, log)
        if cursor.rules != rules:
            raise must_refetch("rules_changed", "the sync rules have changed since the cursor was made")
        if cursor.view != view:
            raise must_refetch("view_changed", "the claims or parameters that decide what you see have changed")
        return cursor
    if "since" not in query:
        raise GatewayError("since or cursor is required")
    since, head = hlc_from_wire(query["since"], "since"), log.head()
    if since < head.horizon:
        raise must_refetch("retention", "deltas after this since have been forgotten")
    arrival = log.arrival_at(head.pruned) or 0
    return Cursor(log.identity().log_id, head.pruned, arrival, rules, view, 0, since, head.last)


def _check_log(cursor: Cursor, log: DeltaLog) -> None:
    """Refuse a cursor of another log, of a log that was set back behind it, and of removed records."""
    head = log.head()
    if cursor.log_id != log.identity().log_id or cursor.seq > head.last:
        raise must_refetch("log_replaced", "the cursor belongs to another log")
    # A cursor inside a record still needs that record.
    if cursor.seq - bool(cursor.sent) < head.pruned:
        raise must_refetch("retention", "what follows the cursor has been forgotten")
    if log.arrival_at(cursor.seq) != cursor.arrival:
        raise must_refetch("log_replaced", "the log was set back behind the cursor")


def read_page(log: DeltaLog, start: Cursor, limit: int, view: View | None = None, upto: int | None = None) -> Page:
    """One page after a cursor, up to a sequence (by default the newest); `limit` applies inside a record too."""
    last = log.head().last if upto is None else upto
    found: list[bytes] = []
    size = 0
    at = start
    # Without a view, one record more than the page takes shows whether there is more.
    for record in _records(log, start, last, limit + 1 if view is None else _MANY):
        done = start.sent if record.seq == start.seq else 0
        sent = ([record.body] if view is None else view.sent_for(record))[done:]
        left = limit - len(found) if size <= _PAGE_BYTES else 0
        size += sum(map(len, sent))
        if len(sent) > left:
            inside = start.at(record.seq, record.arrival, done + left) if left else at
            return Page(found + sent[:left], inside, True)
        found += sent
        at = start.at(record.seq, record.arrival)
    return Page(found, start.at(last, log.arrival_at(last) or 0), False)


def _records(log: DeltaLog, start: Cursor, last: int, most: int) -> Iterator[Record]:
    """The records after a cursor, without older hlcs among those that had arrived by the first page."""
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
class LogReader:
    """Pages of the log for callers."""

    log: DeltaLog
    index: RowIndex
    gateway: str
    current_rules: Callable[[], tuple[SyncRules | None, int]]

    def sight(
        self, caller: Caller, query: Mapping[str, str], current: tuple[SyncRules | None, int]
    ) -> tuple[SyncRules | None, int, str]:
        """The rules that a caller is under now (None: it sees everything), their number, and the digest of its view."""
        rules, number = current
        if rules is None or caller.is_admin:
            return None, number, NO_VIEW
        return rules, number, rules.view_digest(caller.claims, parameters_of(query))

    def page(self, caller: Caller, query: Mapping[str, str]) -> Page:
        """One page from the query's `cursor` or `since` on."""
        with naming_snapshot(self.gateway):
            limit = limit_of(query)
            rules, number, digest = self.sight(caller, query, self.current_rules())
            start = start_of(query, self.log, number, digest)
            if rules is None:
                return read_page(self.log, start, limit)
            upto = self.index.catch_up(rules, number)
            view = View(self.index, rules, caller.claims, self.gateway, parameters_of(query), number)
            try:
                return read_page(self.log, start, limit, view, upto)
            finally:
                view.close()

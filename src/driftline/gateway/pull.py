"""A pull: which part of the log a caller wants, and the page it gets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from driftline.deltas.wire import hlc_from_wire
from driftline.errors import GatewayError
from driftline.gateway.cursor import Cursor, decode_cursor
from driftline.gateway.log import DeltaLog, Record
from driftline.gateway.views import View

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000

_SCAN = 10_000  # records read at a time when a view hides some
_POSITIVE = re.compile(r"0*[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Page:
    """Deltas as JSON texts, where to go on, and whether there is more."""

    deltas: list[bytes]
    cursor: Cursor
    has_more: bool


def limit_of(query: Mapping[str, str]) -> int:
    """The wanted page size, at most 10,000."""
    text = query.get("limit")
    if text is None:
        return DEFAULT_LIMIT
    if not _POSITIVE.fullmatch(text):
        raise GatewayError("limit is a positive integer")
    return min(int(text), MAX_LIMIT)


def start_of(query: Mapping[str, str], log: DeltaLog, rules: int) -> Cursor:
    """Where a pull begins: at its cursor, or at the beginning with an hlc to skip to."""
    bounds = log.bounds()
    if "cursor" in query:
        cursor = decode_cursor(query["cursor"])
        stale = cursor.log_id != log.identity().log_id or cursor.rules != rules
        if stale or not bounds.pruned <= cursor.seq <= bounds.last:
            raise GatewayError(
                "the cursor points to what this gateway does not have any more: fetch anew with since=0",
                code="MUST_REFETCH",
            )
        return cursor
    if "since" in query:
        since = hlc_from_wire(query["since"], "since")
        return Cursor(log.identity().log_id, rules, bounds.pruned, since, bounds.last)
    raise GatewayError("since or cursor is required")


def read_page(log: DeltaLog, start: Cursor, limit: int, view: View | None = None, upto: int | None = None) -> Page:
    """One page after a cursor, up to a sequence (by default the newest)."""
    last = log.bounds().last if upto is None else upto
    found: list[bytes] = []
    seq = start.seq
    # One record more than the page holds tells whether there is more.
    for record in _wanted(log, start, last, limit + 1 if view is None else _SCAN):
        sent = [record.body] if view is None else view.sent_for(record)
        if found and len(found) + len(sent) > limit:
            return Page(found, _at(start, seq), True)
        found += sent
        seq = record.seq
    return Page(found, _at(start, last), False)


def _at(start: Cursor, seq: int) -> Cursor:
    return Cursor(start.log_id, start.rules, seq, start.since, start.skip_upto)


def _wanted(log: DeltaLog, start: Cursor, last: int, page: int) -> Iterator[Record]:
    """The records after a cursor, older hlcs skipped among those that had arrived when the first page was asked."""
    after = start.seq
    skipping_to = min(start.skip_upto, last)
    while after < skipping_to:
        records = log.read(after, page, upto=skipping_to, since_hlc=start.since)
        yield from records
        after = records[-1].seq if len(records) == page else skipping_to
    while after < last:
        records = log.read(after, page, upto=last)
        if not records:
            return
        yield from records
        after = records[-1].seq

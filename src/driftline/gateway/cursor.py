"""Cursors: an opaque position in the arrival order (gateway §6).

A cursor knows its log, the record it stands at and what it was made under, so that a position that means nothing any
more is noticed: the log was replaced or set back, the record is forgotten, the rules or the caller's view changed. It
also carries the `since` of the first page: deltas that had arrived by then and are older stay skipped, late arrivals
after it do not.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from driftline.deltas._deltas import MAX_HLC
from driftline.errors import GatewayError

NO_VIEW = "-"
REASONS = ("retention", "rules_changed", "view_changed", "log_replaced", "snapshot_gone")

_TEXT = re.compile(
    r"2\.([0-9a-f]{1,64})\.([0-9]{1,18})\.([0-9]{1,19})\.([0-9]{1,9})\.([0-9]{1,18})\.([0-9a-z-]{1,16})"
    r"(?:\.([0-9]{1,19})\.([0-9]{1,18}))?"
)
_FIRST_FORM = re.compile(r"1\.[0-9a-f]{1,64}\.[0-9.]+")


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a client stands: at record `seq`, of which `sent` deltas are with it (0: all that it is to get).

    Up to `skip_upto` only deltas with an hlc above `since` are wanted.
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
    """Whoever must begin anew is told where the state to begin with is."""
    try:
        yield
    except GatewayError as error:
        if error.code == "MUST_REFETCH":
            error.context["snapshot"] = f"/v1/sync/{gateway}/snapshot"
        raise


def must_refetch(reason: str, why: str) -> GatewayError:
    """The client's position is worth nothing any more; `reason` is for programs, `why` for people."""
    return GatewayError(f"{why}: begin anew", code="MUST_REFETCH", reason=reason)

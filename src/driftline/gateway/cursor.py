"""Cursors: an opaque place in the arrival order.

A cursor knows its log and the sync rules it was made under, so that a place that means nothing any more is noticed.
It also carries the `since` of the first page: deltas that had arrived by then and are older stay skipped, late
arrivals after it do not.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from driftline.errors import GatewayError

_TEXT = re.compile(r"1\.([0-9a-f]{1,64})\.([0-9]{1,18})\.([0-9]{1,18})(?:\.([0-9]{1,19})\.([0-9]{1,18}))?")


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last sequence seen; up to `skip_upto` only deltas with an hlc above `since` are wanted."""

    log_id: str
    rules: int
    seq: int
    since: int = -1
    skip_upto: int = 0

    def encode(self) -> str:
        """The cursor as clients carry it."""
        text = f"1.{self.log_id}.{self.rules}.{self.seq}"
        if self.since >= 0 and self.seq < self.skip_upto:
            text += f".{self.since}.{self.skip_upto}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(text: str) -> Cursor:
    """The cursor that a client sends back."""
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    except ValueError as error:
        raise GatewayError("cursor is not one of this gateway") from error
    match = _TEXT.fullmatch(plain)
    if match is None:
        raise GatewayError("cursor is not one of this gateway")
    log_id, rules, seq, since, skip_upto = match.groups()
    return Cursor(log_id, int(rules), int(seq), -1 if since is None else int(since), int(skip_upto or 0))

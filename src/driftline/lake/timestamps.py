"""Timestamps as users write them: an hlc in digits, or a time.

>>> parse_timestamp("65536000000"), parse_timestamp("1970-01-01T00:16:40Z") >> 16
(65536000000, 1000000)
"""

from __future__ import annotations

from datetime import UTC, datetime

from driftline.deltas._deltas import MAX_COUNTER, MAX_HLC, make_hlc
from driftline.errors import OptionError

LAST_TIMESTAMP = MAX_HLC


def parse_timestamp(text: str, *, first: bool = False) -> int:
    """The hlc of a decimal number, or the last hlc of the millisecond that an ISO 8601 time names (UTC by default).

    `first` gives the first hlc of the millisecond instead, for things that begin then.
    """
    if text.isdecimal() and text.isascii():
        hlc = int(text)
        if hlc <= MAX_HLC:
            return hlc
        raise OptionError(f"{text} is not a timestamp: the greatest is {MAX_HLC}", code="invalid_moment")
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise OptionError(
            f"{text!r} is neither an hlc nor a time such as 2026-11-15T12:00:00Z", code="invalid_moment"
        ) from error
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    milliseconds = (aware - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000
    if milliseconds < 0:
        raise OptionError(f"{text!r} is before 1970", code="invalid_moment")
    return make_hlc(int(milliseconds), 0 if first else MAX_COUNTER)


def timestamp_text(hlc: int) -> str:
    """An hlc as a time with milliseconds and its counter.

    >>> timestamp_text(65536000001)
    '1970-01-01T00:16:40.000Z+1'
    """
    wall, counter = hlc >> 16, hlc & MAX_COUNTER
    try:
        text = datetime.fromtimestamp(wall / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError):
        text = f"{wall}ms"
    return f"{text}+{counter}" if counter else text

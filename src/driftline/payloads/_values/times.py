"""Points in time to the nanosecond, and durations.

>>> parse_duration("1h30m") // 10**9
5400
>>> parse_iso("2025-02-02T10:30:00Z").nanoseconds == parse_iso("20250202T113000,000+01").nanoseconds
True
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

_SECOND = 1_000_000_000
_UNITS = {
    "ms": _SECOND // 1000,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
    "d": 86400 * _SECOND,
    "w": 7 * 86400 * _SECOND,
}
# Counts from 1970, in nanoseconds of one unit.
EPOCH_UNITS = {"epoch": _SECOND, "epoch-ms": _SECOND // 1000}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_DURATION = re.compile(f"(?:{_PART.pattern})+")
_ISO = re.compile(
    r"""([0-9]{4})(?:-([0-9]{2})-([0-9]{2})|([0-9]{2})([0-9]{2}))
    (?:[Tt\ ]([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2})(?:[.,]([0-9]{1,9}))?)?)?
       \ ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?""",
    re.VERBOSE,
)


class Instant(NamedTuple):
    """Nanoseconds since year 1 in UTC, and whether an offset was written."""

    nanoseconds: int
    is_aware: bool


Parser = Callable[[str], Instant | None]


def parse_duration(text: str) -> int | None:
    """Nanoseconds of `5s`, `250ms`, `1h30m`; None where it is not a duration."""
    if _DURATION.fullmatch(text) is None:
        return None
    # Fractions of a nanosecond are beneath any clock.
    return sum(round(float(number) * _UNITS[unit]) for number, unit in _PART.findall(text))


@lru_cache(maxsize=8192)
def parse_iso(text: str) -> Instant | None:
    """An ISO 8601 date or date and time, extended or basic; None where it is not one."""
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    year, month, day, basic_month, basic_day, hour, minute, second, fraction, offset = found.groups()
    try:
        days = date(int(year), int(month or basic_month), int(day or basic_day)).toordinal()
    except ValueError:
        return None
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    # 24:00 is the end of the day and :60 a leap second; both are the next second of the calendar.
    if hours > 24 or minutes > 59 or seconds > 60 or (hours == 24 and (minutes or seconds)):
        return None
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds - _offset_seconds(offset)
    return Instant(total * _SECOND + int((fraction or "0").ljust(9, "0")), offset is not None)


def _offset_seconds(offset: str | None) -> int:
    if offset is None or offset in "Zz":
        return 0
    digits = offset[1:].replace(":", "").ljust(4, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if offset[0] == "-" else seconds


def parser_for(template: str) -> Parser | None:
    """The parser of a format: `ISO8601` or a `strptime` template; None where it is neither."""
    if template.upper().replace("-", "").replace(" ", "") == "ISO8601":
        return parse_iso
    if "%" not in template:
        return None
    try:
        datetime.strptime("", template)
    except ValueError as error:
        if "bad directive" in str(error) or "stray" in str(error):
            return None
    except (re.error, IndexError, OverflowError):
        return None
    return lru_cache(maxsize=1024)(lambda text: _parse_template(text, template))


def _parse_template(text: str, template: str) -> Instant | None:
    try:
        moment = datetime.strptime(text, template)
    except (ValueError, OverflowError):
        return None
    offset = moment.utcoffset()
    elapsed = moment.replace(tzinfo=None) - datetime.min - (offset or timedelta())
    whole = (elapsed.days + 1) * 86400 + elapsed.seconds
    return Instant(whole * _SECOND + elapsed.microseconds * 1000, offset is not None)


def duration_text(nanoseconds: int) -> str:
    """A span in seconds for a message.

    >>> duration_text(8_500_000_000)
    '8.5s'
    """
    whole, rest = divmod(nanoseconds, _SECOND)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{whole}{fraction}s"

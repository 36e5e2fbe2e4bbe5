"""`x-migration-datetime-format` and `-tolerance`: points in time, each side in its own format or as a count."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from driftline.payloads._rules.scalars.parts import BadValueError, Change, Constants, End, Step, Token, Verdict, differ
from driftline.payloads._values.times import EPOCH_UNITS, Parser, duration_text, parse_duration, parser_for
from driftline.payloads._values.values import CastError, Value, numeric_value

_EPOCH_START = datetime(1970, 1, 1)
_UNREADABLE = "cannot be read as a date and time"


class TimeFormat(NamedTuple):
    """How each side writes points in time: a parser of texts, and the unit of a count from 1970; what is tolerated."""

    parse: tuple[Parser, Parser]
    epoch: tuple[int | None, int | None] = (None, None)
    tolerance: int | None = None  # nanoseconds
    tolerance_rule: str | None = None


def read_time_format(value: object) -> TimeFormat:
    """The formats that a schema gives."""
    sides = (value.get("old"), value.get("new")) if isinstance(value, dict) and len(value) == 2 else (value, value)
    units = [EPOCH_UNITS.get(side) if isinstance(side, str) else None for side in sides]
    # A count becomes ISO text before it is read (`epoch`).
    parsers = [
        parser_for("ISO8601" if unit is not None else side) if isinstance(side, str) else None
        for side, unit in zip(sides, units, strict=True)
    ]
    old, new = parsers
    if old is None or new is None:
        raise BadValueError("must be ISO8601, epoch, epoch-ms or a strptime format, or one for old and one for new")
    return TimeFormat((old, new), (units[0], units[1]))


def read_duration(value: Value) -> int:
    """The tolerance that a schema gives, in nanoseconds."""
    nanoseconds = parse_duration(value.strip()) if isinstance(value, str) else None
    if nanoseconds is None:
        raise BadValueError("must be a duration such as 5s, 250ms or 1h30m (ms, s, m, h, d, w)")
    return nanoseconds


def points_in_time(written: TimeFormat, rule: str | None) -> End:
    """Dates and times that are the same, or at most the tolerance apart."""
    (parse_old, parse_new), tolerance, tolerance_rule = written.parse, written.tolerance, written.tolerance_rule
    format_rule = rule or tolerance_rule

    def verdict(left: str, right: str, old: Value, new: Value) -> Verdict | None:
        if left == right and parse_old is parse_new:
            return None
        before, after = parse_old(left), parse_new(right)
        if before is None or after is None:
            sides = [name for name, moment in (("Old", before), ("New", after)) if moment is None]
            unreadable = f"{' and '.join(sides)} {_UNREADABLE}"
            found = Verdict(None, "", format_rule) if left == right else differ(old, new, format_rule)
            return found._replace(warning=unreadable)
        naive = "New" if before.is_aware else "Old"
        warning = None if before.is_aware == after.is_aware else f"{naive} has no time zone; it is taken as UTC"
        span = abs(before.nanoseconds - after.nanoseconds)
        if tolerance is None and span:
            return differ(old, new, format_rule, warning)
        if tolerance is not None and span > tolerance:
            message = f"Time difference ({duration_text(span)}) exceeds tolerance ({duration_text(tolerance)})"
            return Verdict("DATETIME_EXCEEDED", message, tolerance_rule, warning, format_rule)
        return Verdict(None, "", format_rule, warning) if warning is not None else None

    def agree(left: str, right: str) -> bool:
        before, after = parse_old(left), parse_new(right)
        if before is None or after is None or before.is_aware != after.is_aware:
            return False
        return abs(before.nanoseconds - after.nanoseconds) <= (tolerance or 0)

    def code(constants: Constants) -> str:
        return f"{constants.add(agree)}({{l}}, {{r}})"

    # Tokens and axes are those of one side.
    def sided(parse: Parser, for_new: End | None = None) -> End:
        return End(verdict, _token(parse), _coarse(parse), _axis(parse), float(tolerance or 0), code, _problem(parse),
                   for_new=for_new)  # fmt: skip

    return sided(parse_old, None if parse_new is parse_old else sided(parse_new))


def _token(parse: Parser) -> Callable[[str], Token]:
    def token(text: str) -> Token:
        moment = parse(text)
        return text if moment is None else ("moment", moment.nanoseconds)

    return token


def _coarse(parse: Parser) -> Callable[[str], Token]:
    # What cannot be read matches nothing but the same text.
    return lambda text: text if parse(text) is None else ("moment",)


def _axis(parse: Parser) -> Callable[[str], float | None]:
    def axis(text: str) -> float | None:
        moment = parse(text)
        return None if moment is None else float(moment.nanoseconds)

    return axis


def _problem(parse: Parser) -> Callable[[str], str | None]:
    return lambda text: None if parse(text) is not None else _UNREADABLE


def epoch(written: TimeFormat) -> Step | None:
    """The step for the sides that count from 1970, if there are any."""
    old, new = written.epoch
    if old is None and new is None:
        return None
    change_old = _from_epoch(old) if old is not None else None
    change_new = change_old if new == old else _from_epoch(new) if new is not None else None
    return Step(change_old, change_new, changes_type=True)


def _from_epoch(unit: int) -> Change:
    """A count since 1970 becomes the ISO text of the date and time that it means."""

    def change(value: Value) -> Any:
        if value is None:
            return value
        try:
            return _iso_text(int(numeric_value(value) * unit))
        except (OverflowError, ArithmeticError):
            raise CastError("too large for a date") from None

    return change


def _iso_text(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    moment = (_EPOCH_START + timedelta(seconds=seconds)).isoformat()
    return f"{moment}.{rest:09d}Z" if rest else f"{moment}Z"

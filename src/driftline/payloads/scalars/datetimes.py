"""`x-migration-datetime-format` and `-tolerance`: texts as points in time, each side in its own format."""

from __future__ import annotations

from typing import Any

from driftline.payloads.datetimes import Parser, duration_text
from driftline.payloads.scalars.parts import Constants, End, Verdict, differ

_UNREADABLE = "cannot be read as a date and time"


def points_in_time(
    parse_old: Parser, parse_new: Parser, tolerance: int | None, format_rule: str | None, tolerance_rule: str | None
) -> End:
    """Dates and times that are the same, or at most the tolerance (nanoseconds) apart."""

    def verdict(left: str, right: str, old: Any, new: Any) -> Verdict | None:
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

    # Tokens and axes are asked for one side at a time; where the formats differ, `sided` gives each its own.
    return End(verdict, _token(parse_old), _coarse(parse_old), _axis(parse_old), float(tolerance or 0), code,
               _problem(parse_old))  # fmt: skip


def sided(end: End, parse: Parser) -> End:
    """The same end with the tokens of a side that has a format of its own."""
    return End(end.verdict, _token(parse), _coarse(parse), _axis(parse), end.width, end.code, _problem(parse))


def _token(parse: Parser) -> Any:
    def token(text: str) -> Any:
        moment = parse(text)
        return text if moment is None else ("moment", moment.nanoseconds)

    return token


def _coarse(parse: Parser) -> Any:
    # What cannot be read matches nothing but the same text.
    return lambda text: text if parse(text) is None else ("moment",)


def _axis(parse: Parser) -> Any:
    def axis(text: str) -> float | None:
        moment = parse(text)
        return None if moment is None else float(moment.nanoseconds)

    return axis


def _problem(parse: Parser) -> Any:
    return lambda text: None if parse(text) is not None else _UNREADABLE

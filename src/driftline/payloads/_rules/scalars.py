"""The rules of scalars (payloads §4): steps that prepare a value, and ends that decide about two of one JSON type.

`meaning.Meaning` puts the rules of a field together; the comparison, tokens and the pairing of unordered arrays all use
it, so that a rule is written once. To add one: a function here, its entry in `RULES`, and a paragraph in the guide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from driftline.payloads._values import values
from driftline.payloads._values.patterns import PatternError, PatternTimeoutError, SafePattern
from driftline.payloads._values.values import CastError, Json, Parser, Value, WrittenNumber, decimal_of, kind_of

Change = Callable[[Any], Any]  # steps and ends get values of the types they are for
Token: TypeAlias = object  # equal for values that match

_A_NUMBER = ("number",)
_EPOCH_START = datetime(1970, 1, 1)
_EPOCH_NANOSECONDS = _EPOCH_START.toordinal() * 86_400 * 1_000_000_000  # since year 1
_UNREADABLE = "cannot be read as a date and time"


class BadValueError(ValueError):
    """The value of an extension is not of the kind it takes."""


def reader(is_right: Callable[[Any], Any], needed: str, convert: Change | None = None) -> Change:
    """Reads the value of an extension that passes a test."""

    def read(value: object) -> Any:
        if not is_right(value):
            raise BadValueError(f"must be {needed}")
        return value if convert is None else convert(value)

    return read


def one_of(*words: str) -> Change:
    """Reads one of some words."""

    def read(value: object) -> str:
        if value not in words or not isinstance(value, str):
            near = get_close_matches(str(value), words, n=1)
            hint = f" (nearest: {near[0]})" if near else ""
            raise BadValueError(f"must be one of {', '.join(words)}{hint}")
        return value

    return read


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Step:
    """One preparation of a value; `old` and `new` are None where a side is left as it is, and may raise `CastError`."""

    old: Change | None
    new: Change | None
    keeps_equal: bool = False  # equal values stay equal without an entry in the report
    changes_type: bool = False  # then the schema's type says nothing about the raw value
    undo: Change | None = None  # a value of Old that becomes this one, where there is one


class Verdict(NamedTuple):
    """What an end reports; without a `type` it is only a warning."""

    type: str | None
    message: str
    rule: str | None
    warning: str | None = None
    warning_rule: str | None = None
    warns_once: str | None = None  # what makes the warning the same one


@dataclass(frozen=True, slots=True)
class End:
    """What decides about two prepared values of one JSON type.

    `verdict` gets the prepared and the raw values; None means that they match. Values with equal `token`s match (or
    differ alike from everything); values that match have equal `coarse` tokens. An end with a `width` is a tolerance:
    values match when their `axis` numbers are no further apart.
    """

    verdict: Callable[[Any, Any, Any, Any], Verdict | None]
    token: Change
    coarse: Change | None = None
    axis: Callable[[Any], float | None] | None = None
    width: float = 0.0
    problem: Callable[[Any], str | None] | None = None  # what is wrong with one value, whatever its partner is
    is_reflexive: bool = True  # a value matches itself
    for_new: End | None = None  # the tokens, axis and problems of New's values, where they are read otherwise

    @property
    def is_tolerant(self) -> bool:
        """Whether values with different tokens can match."""
        return self.coarse is not None


def differ(old: Value, new: Value, rule: str | None, warning: str | None = None) -> Verdict:
    """Two values that should be equal are not."""
    return Verdict("VALUE_MISMATCH", f"Values differ: {values.spelled(old)} != {values.spelled(new)}", rule, warning)


def scalar_token(value: Value) -> Token:
    """A token that distinguishes JSON types: 1 and 1.0 are equal, 1 and true are not."""
    if type(value) is bool:
        return ("boolean", value)
    return decimal_of(value) if isinstance(value, WrittenNumber) else value


# Small changes of text: the empty string as null, blanks at the ends, upper and lower case.
def _null_if_empty(value: Value) -> Any:
    return None if isinstance(value, str) and value == "" else value


# The first takes any value, the others only text.
EMPTY_STRING_AS_NULL = Step(_null_if_empty, _null_if_empty, keeps_equal=True)
TRIM, FOLD = str.strip, str.lower


# `x-migration-enum-map`: Old's words in New's vocabulary.
def enum_map(words: Mapping[str, Json]) -> Step:
    """The step on Old's side; numbers and booleans are looked up by their JSON spelling."""

    def change(value: Value) -> Any:
        if isinstance(value, dict | list):
            return value
        return words.get(value if isinstance(value, str) else values.to_string(value), value)

    def undo(value: Value) -> Any:
        return next((word for word, meant in words.items() if values.same_json(meant, value)), value)

    return Step(change, None, undo=undo)


# `x-migration-cast`: both values as one JSON type.
def cast(kind: str) -> Step:
    """The step on both sides; it fails where a value has no counterpart of the type."""
    return Step(values.CASTS[kind], values.CASTS[kind], changes_type=True)


# `x-migration-scale`: Old's numbers times a decimal, such as 100 where New counts cents.
def scale(factor: Decimal) -> Step:
    """The step on Old's side; what is no number is left alone."""
    return Step(lambda value: _scaled(value, factor), None, undo=lambda value: _scaled(value, 1 / factor))


def _scaled(value: Value, factor: Decimal) -> Any:
    return values.exact_product(value, factor) if kind_of(value) == "number" else value


# `x-migration-pattern`: both texts match a regular expression; they are not compared with each other.
def read_pattern(value: Value) -> SafePattern:
    """The regular expression that a schema gives."""
    if not isinstance(value, str):
        raise BadValueError("must be a regular expression")
    try:
        return SafePattern(value)
    except PatternError as error:
        raise BadValueError(f"must be a regular expression ({error})") from None


def pattern(given: SafePattern, rule: str | None) -> End:
    """Texts of one shape."""

    def verdict(left: str, right: str, old: Value, new: Value) -> Verdict | None:
        try:
            wrong = [side for side, text in (("Old", left), ("New", right)) if not given.match(text)]
        except PatternTimeoutError:
            slow = "The pattern took too long; the field is compared strictly"
            found = differ(old, new, None) if old != new else Verdict(None, "", rule)
            return found._replace(warning=slow, warning_rule=rule, warns_once=given.text)
        if not wrong:
            return None
        verb = "does" if len(wrong) == 1 else "do"
        message = f"{' and '.join(wrong)} {verb} not match the pattern {given.text}"
        return Verdict("PATTERN_MISMATCH", message, rule)

    def token(text: str) -> Any:
        try:
            return ("pattern",) if given.match(text) else text
        except PatternTimeoutError:
            return text

    return End(verdict, token, is_reflexive=False)


# `x-migration-precision`: numbers that are at most so far apart match, by the decimals that were written.
def precision(limit: Decimal, rule: str | None) -> End:
    """Numbers within a distance."""
    near = float(limit)

    def verdict(left: Value, right: Value, old: Value, new: Value) -> Verdict | None:
        # Away from the edge doubles decide; their error is below a few units in the last place.
        if type(left) is float is type(right) and abs(left - right) + (abs(left) + abs(right)) * 1e-15 < near:
            return None
        difference = values.exact_difference(left, right)
        if difference <= limit:
            return None
        shown, allowed = values.plain_decimal(difference), values.plain_decimal(limit)
        message = f"Value difference ({shown}) exceeds precision tolerance ({allowed})"
        return Verdict("PRECISION_EXCEEDED", message, rule)

    return End(verdict, scalar_token, lambda value: _A_NUMBER, as_float, near)


def as_float(number: Any) -> float:
    """A number for sorting; what is too large for a double is as large as one can be."""
    try:
        return max(min(float(number), 1e308), -1e308)
    except OverflowError:
        return 1e308 if number > 0 else -1e308


# `x-migration-datetime-format` and `-tolerance`: points in time, each side in its own format or as a count.
class TimeFormat(NamedTuple):
    """How each side writes points in time: a parser of texts, and the unit of a count from 1970; what is tolerated."""

    parse: tuple[Parser, Parser]
    epoch: tuple[int | None, int | None] = (None, None)
    tolerance: int | None = None  # nanoseconds
    tolerance_rule: str | None = None


def read_time_format(value: object) -> TimeFormat:
    """The formats that a schema gives."""
    sides = (value.get("old"), value.get("new")) if isinstance(value, dict) and len(value) == 2 else (value, value)
    units = [values.EPOCH_UNITS.get(side) if isinstance(side, str) else None for side in sides]
    # A count becomes ISO text before it is read (`epoch`).
    parsers = [
        values.parser_for("ISO8601" if unit is not None else side) if isinstance(side, str) else None
        for side, unit in zip(sides, units, strict=True)
    ]
    old, new = parsers
    new = old if sides[0] == sides[1] else new  # one format is one parser, by which equal texts are equal
    if old is None or new is None:
        raise BadValueError("must be ISO8601, epoch, epoch-ms or a strptime format, or one for old and one for new")
    return TimeFormat((old, new), (units[0], units[1]))


def read_duration(value: Value) -> int:
    """The tolerance that a schema gives, in nanoseconds."""
    nanoseconds = values.parse_duration(value.strip()) if isinstance(value, str) else None
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
            shown, allowed = values.duration_text(span), values.duration_text(tolerance)
            message = f"Time difference ({shown}) exceeds tolerance ({allowed})"
            return Verdict("DATETIME_EXCEEDED", message, tolerance_rule, warning, format_rule)
        return Verdict(None, "", format_rule, warning) if warning is not None else None

    # Tokens and axes are those of one side.
    def sided(parse: Parser, for_new: End | None = None) -> End:
        def axis(text: str) -> float | None:
            moment = parse(text)
            return None if moment is None else float(moment.nanoseconds)

        # What cannot be read matches nothing but the same text.
        return End(
            verdict,
            lambda text: text if (moment := parse(text)) is None else ("moment", moment.nanoseconds),
            lambda text: text if parse(text) is None else ("moment",),
            axis,
            float(tolerance or 0),
            lambda text: None if parse(text) is not None else _UNREADABLE,
            is_reflexive=parse_old is parse_new,
            for_new=for_new,
        )

    return sided(parse_old, None if parse_new is parse_old else sided(parse_new))


def epoch(written: TimeFormat) -> Step | None:
    """The step for the sides that count from 1970, if there are any."""
    old, new = written.epoch
    if old is None and new is None:
        return None
    change_old, change_new = (None if unit is None else partial(_from_epoch, unit) for unit in (old, new))
    return Step(change_old, change_new, changes_type=True, undo=None if old is None else partial(_to_epoch, old))


def _from_epoch(unit: int, value: Value) -> Any:
    """A count since 1970 becomes the ISO text of the date and time that it means."""
    if value is None:
        return value
    try:
        seconds, rest = divmod(int(values.numeric_value(value) * unit), 1_000_000_000)
        moment = (_EPOCH_START + timedelta(seconds=seconds)).isoformat()
    except (OverflowError, ArithmeticError):
        raise CastError("too large for a date") from None
    return f"{moment}.{rest:09d}Z" if rest else f"{moment}Z"


def _to_epoch(unit: int, value: Value) -> Any:
    """The count since 1970 of a date and time in ISO text."""
    moment = values.parse_iso(value) if isinstance(value, str) else None
    if moment is None:
        return value
    return values.exact_product(moment.nanoseconds - _EPOCH_NANOSECONDS, 1 / Decimal(unit))


class ExtensionKind(NamedTuple):
    """How the value of an extension is read, what it is for, and its field in `FieldRules`.

    A scalar rule has no field; it brings its meaning along: a step that prepares values, or the end for a JSON type.
    """

    read: Change
    scope: str
    field: str = ""
    is_value_rule: bool = False  # the field falls back to strict where it is wrong
    step: Callable[[Any], Step | None] | None = None
    end: tuple[str, Callable[[Any, str | None], End]] | None = None


_words = reader(lambda value: isinstance(value, dict), "an object of old and new values")
_distance = reader(lambda value: _is_number(value) and value >= 0, "a number that is not negative", decimal_of)
_factor = reader(lambda value: _is_number(value) and value != 0, "a number other than 0", decimal_of)
_rule = partial(ExtensionKind, is_value_rule=True)

# Steps are taken in this order; of two ends for one JSON type the later one decides.
RULES: dict[str, ExtensionKind] = {
    "enum-map": _rule(_words, "field", step=enum_map),
    "cast": _rule(one_of(*values.CASTS), "field", step=cast),
    "datetime-format": _rule(read_time_format, "string", step=epoch, end=("string", points_in_time)),
    "datetime-tolerance": _rule(read_duration, "string"),
    "scale": _rule(_factor, "number", step=scale),
    "pattern": _rule(read_pattern, "string", end=("string", pattern)),
    "precision": _rule(_distance, "number", end=("number", precision)),
}

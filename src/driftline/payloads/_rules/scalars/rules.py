"""The rules of scalars but those of dates: steps that prepare a value, and ends that decide about two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from driftline.payloads._rules.scalars.parts import (
    BadValueError,
    Constants,
    End,
    Step,
    Verdict,
    differ,
    scalar_token,
)
from driftline.payloads._values.patterns import QUICK_TEXT_LENGTH, PatternError, PatternTimeoutError, SafePattern
from driftline.payloads._values.values import (
    CASTS,
    Json,
    Value,
    decimal_of,
    exact_difference,
    exact_product,
    kind_of,
    plain_decimal,
    to_string,
)

_A_NUMBER = ("number",)


# Small changes of text: the empty string as null, blanks at the ends, upper and lower case.
def _null_if_empty(value: Value) -> Any:
    return None if isinstance(value, str) and value == "" else value


def _trimmed(text: str) -> str:
    return text.strip()


def _folded(text: str) -> str:
    return text.lower()


# The first takes any value, the others take text.
EMPTY_STRING_AS_NULL = Step(_null_if_empty, _null_if_empty, ("{x}", "{x}"))
TRIM = Step(_trimmed, _trimmed, ("{x}.strip()", "{x}.strip()"))
FOLD = Step(_folded, _folded, ("{x}.lower()", "{x}.lower()"))


# `x-migration-enum-map`: Old's words in New's vocabulary.
def read_enum_map(value: Value) -> dict[str, Json]:
    """The vocabulary that a schema gives."""
    if not isinstance(value, dict):
        raise BadValueError("must be an object of old and new values")
    return value


def enum_map(words: Mapping[str, Json]) -> Step:
    """The step on Old's side."""
    return Step(lambda value: mapped(words, value), None, ("{c}.get({x}, {x})", "{x}"), words)


def mapped(words: Mapping[str, Json], value: Value) -> Any:
    """The new value of an old enum value; numbers and booleans are looked up by their JSON spelling."""
    if isinstance(value, str):
        return words.get(value, value)
    if isinstance(value, dict | list):
        return value
    return words.get(to_string(value), value)


# `x-migration-cast`: both values as one JSON type.
def cast(kind: str) -> Step:
    """The step on both sides; it fails where a value has no counterpart of the type."""
    return Step(CASTS[kind], CASTS[kind], changes_type=True)


# `x-migration-scale`: Old's numbers times a decimal, such as 100 where New counts cents.
def read_scale(value: Value) -> Decimal:
    """The factor that a schema gives."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value == 0:
        raise BadValueError("must be a number other than 0")
    return decimal_of(value)


def scale(factor: Decimal) -> Step:
    """The step on Old's side; what is no number is left alone."""
    return Step(lambda value: _scaled(value, factor), None)


def _scaled(value: Value, factor: Decimal) -> Any:
    return exact_product(value, factor) if kind_of(value) == "number" else value


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

    def code(constants: Constants) -> str | None:
        if given.unlimited_match is None:
            return None
        match = constants.add(given.unlimited_match)
        short = f"len({{l}}) <= {QUICK_TEXT_LENGTH} >= len({{r}})"
        return f"{short} and {match}({{l}}) is not None and {match}({{r}}) is not None"

    return End(verdict, token, code=code, is_reflexive=False)


# `x-migration-precision`: numbers that are at most so far apart match, by the decimals that were written.


def read_precision(value: Value) -> Decimal:
    """The distance that a schema allows."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise BadValueError("must be a number that is not negative")
    return decimal_of(value)


def precision(limit: Decimal, rule: str | None) -> End:
    """Numbers within a distance."""
    near = float(limit)

    def is_within(left: float, right: float) -> bool:
        return exact_difference(left, right) <= limit

    def verdict(left: Value, right: Value, old: Value, new: Value) -> Verdict | None:
        # Away from the edge doubles decide; their error is below a few units in the last place.
        if type(left) is float is type(right) and abs(left - right) + (abs(left) + abs(right)) * 1e-15 < near:
            return None
        difference = exact_difference(left, right)
        if difference <= limit:
            return None
        shown, allowed = plain_decimal(difference), plain_decimal(limit)
        message = f"Value difference ({shown}) exceeds precision tolerance ({allowed})"
        return Verdict("PRECISION_EXCEEDED", message, rule)

    def code(constants: Constants) -> str:
        # Up to this size the error of doubles is far below the rest of the precision; at its edge decimals decide.
        low, high, least, far = map(constants.add, (-0.99 * near, 0.99 * near, -1e12 * near, 1e12 * near))
        lowest, highest, exact = map(constants.add, (-1.01 * near, 1.01 * near, is_within))
        inside = f"{low} < {{l}} - {{r}} < {high} and {least} < {{l}} < {far}"
        edge = f"{lowest} < {{l}} - {{r}} < {highest} and {exact}({{l}}, {{r}})"
        return f"type({{l}}) is float is type({{r}}) and ({inside} or {edge})"

    return End(verdict, scalar_token, lambda value: _A_NUMBER, as_float, near, code)


def as_float(number: Any) -> float:
    """A number for sorting; what is too large for a double is as large as one can be."""
    try:
        return max(min(float(number), 1e308), -1e308)
    except OverflowError:
        return 1e308 if number > 0 else -1e308

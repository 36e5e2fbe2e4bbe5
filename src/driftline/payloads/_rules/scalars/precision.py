"""`x-migration-precision`: numbers that are at most so far apart match, by the decimals that were written."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from driftline.payloads._rules.scalars.parts import BadValueError, Constants, End, Verdict, scalar_token
from driftline.payloads._values.values import Value, decimal_of, exact_difference, plain_decimal

_A_NUMBER = ("number",)


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

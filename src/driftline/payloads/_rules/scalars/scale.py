"""`x-migration-scale`: Old's numbers times a decimal, such as 100 where New counts cents."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from driftline.payloads._rules.scalars.parts import BadValueError, Step
from driftline.payloads._values.values import Value, decimal_of, exact_product, kind_of


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

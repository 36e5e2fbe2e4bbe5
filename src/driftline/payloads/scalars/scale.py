"""`x-migration-scale`: Old's numbers times a decimal, such as 100 where New counts cents."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from driftline.payloads.scalars.parts import Step
from driftline.payloads.values import exact_product, kind_of


def scale(factor: Decimal) -> Step:
    """The step on Old's side; what is no number is left alone."""
    return Step(lambda value: _scaled(value, factor), None)


def _scaled(value: Any, factor: Decimal) -> Any:
    return exact_product(value, factor) if kind_of(value) == "number" else value

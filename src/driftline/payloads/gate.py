"""Whether a batch passes in CI: `--fail-if` conditions on its totals (payloads §10.1).

>>> conditions = parse_conditions(["different > 1%"])
>>> fails({"pairs": 100, "matched": 99, "different": 1, "failed": 0, "missing": 0}, conditions)
[]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driftline.core._thresholds import Threshold, parse_threshold
from driftline.errors import PayloadError

NAMES = ("pairs", "matched", "different", "failed", "missing")
_FAILED = parse_threshold("failed > 0")
_SIGNS = (">", ">=", "<", "<=")


def parse_conditions(texts: Iterable[str]) -> list[Threshold]:
    """The conditions of a call; raises `VALIDATION_ERROR`."""
    found = []
    for text in texts:
        try:
            condition = parse_threshold(text)
        except ValueError:
            raise _bad(text, f'write it like "different > 1%", with one of {", ".join(NAMES)}') from None
        if condition.count not in NAMES:
            raise _bad(text, f"there is no {condition.count}; known are {', '.join(NAMES)}")
        if condition.sign not in _SIGNS:
            raise _bad(text, f"use one of {' '.join(_SIGNS)}")
        found.append(condition)
    return found


def _bad(text: str, reason: str) -> PayloadError:
    return PayloadError(f"--fail-if {text!r}: {reason}", details={"reason": reason, "flag": "--fail-if"})


def fails(totals: Mapping[str, int], conditions: list[Threshold]) -> list[str]:
    """Why a batch fails, in words; nothing where it passes. Raises where there was nothing to compare.

    Without conditions any difference fails. A pair that could not be compared fails unless a condition names `failed`.
    """
    if not totals["pairs"]:
        raise PayloadError("there are no pairs to compare", details={"reason": "no pairs"})
    if not conditions:
        conditions = [parse_threshold("different > 0")]
    if not any(condition.count == "failed" for condition in conditions):
        conditions = [*conditions, _FAILED]
    counts = {**totals, "total": totals["pairs"]}
    return [condition.describe(counts) for condition in conditions if condition.is_exceeded(counts)]

"""Thresholds that fail a run: `changed > 5%`, `removed >= 100`, `different > 0`.

>>> limit = parse_threshold("changed > 5%")
>>> limit.is_exceeded({"changed": 6, "total": 100}), limit.is_exceeded({"changed": 5, "total": 100})
(True, False)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

TABLE_COUNTS = ("added", "removed", "changed", "unchanged", "different")
PAYLOAD_COUNTS = ("different", "errors", "matching")
INDEX_COUNTS = ("events", "files", "chunks")

_TOTAL = "total"
_FORM = re.compile(r"\s*([a-z_]+)\s*(>=|<=|==|>|<)\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition on a stage's counts; a percentage is of the rows (pairs, files) that were there before."""

    text: str
    count: str
    sign: str
    limit: float
    is_share: bool

    def is_exceeded(self, counts: Mapping[str, int]) -> bool:
        """Whether the condition holds, so that the run fails."""
        return _OPERATORS[self.sign](self.measured(counts), self.limit)

    def measured(self, counts: Mapping[str, int]) -> float:
        """The count, or its share in percent."""
        value = counts.get(self.count, 0)
        if not self.is_share:
            return value
        return 100 * value / counts[_TOTAL] if counts.get(_TOTAL) else (100.0 if value else 0.0)

    def describe(self, counts: Mapping[str, int]) -> str:
        """What was measured against what was allowed."""
        measured = self.measured(counts)
        shown = f"{measured:.2f}%" if self.is_share else f"{measured:,.0f}"
        return f"{self.text} (measured {shown})"


def parse_threshold(text: str) -> Threshold:
    """The threshold of a text; `ValueError` says what a threshold looks like."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f'{text!r} is not a threshold: write it like "changed > 5%" or "removed >= 100"')
    count, sign, limit, share = match.groups()
    return Threshold(text.strip(), count, sign, float(limit), bool(share))

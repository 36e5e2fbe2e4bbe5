"""Thresholds that fail a run: `changed > 5%`, `removed >= 100`, `different > 0`. Diffs and pipelines share them.

>>> limit = parse_threshold("changed > 5%")
>>> limit.is_exceeded({"changed": 6, "total": 100}), limit.is_exceeded({"changed": 5, "total": 100})
(True, False)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

TABLE_COUNTS = ("added", "removed", "changed", "unchanged", "different")
PAYLOAD_COUNTS = ("different", "errors", "matching")
INDEX_COUNTS = ("events", "files", "chunks")

_TOTAL = "total"
_FORM = re.compile(r"\s*([a-z_]+)\s*(>=|<=|==|>|<)\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%|x\s+usual)?\s*", re.ASCII)
_OPERATORS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition on counts; a percentage is of the rows (pairs, files) that were there before."""

    text: str
    count: str
    sign: str
    limit: Fraction
    is_share: bool
    of_usual: bool = False  # the limit is so many times what is usual, which only a history knows

    def is_exceeded(self, counts: Mapping[str, int]) -> bool:
        """Whether the condition holds, so that the run fails."""
        return _OPERATORS[self.sign](self.measured(counts), self.limit)

    def measured(self, counts: Mapping[str, int]) -> Fraction:
        """The count, or its share in percent; exact, so that 1 of 3 is more than 33.33%."""
        value = counts.get(self.count, 0)
        if not self.is_share:
            return Fraction(value)
        total = counts.get(_TOTAL)
        return Fraction(100 * value, total) if total else Fraction(100 if value else 0)

    def against(self, usual: Mapping[str, Fraction]) -> Threshold | None:
        """The condition with its limit as a number; None where nothing is known to be usual."""
        if not self.of_usual:
            return self
        known = usual.get(self.count)
        if known is None:
            return None
        words = f"{self.text}, which is {float(known):,.0f}"
        return replace(self, text=words, limit=self.limit * known, of_usual=False)

    def describe(self, counts: Mapping[str, int]) -> str:
        """What was measured against what was allowed."""
        measured = float(self.measured(counts))
        shown = f"{measured:.2f}%" if self.is_share else f"{measured:,.0f}"
        return f"{self.text} (measured {shown})"


def parse_threshold(text: str, *, with_history: bool = False) -> Threshold:
    """The threshold of a text; `ValueError` says what a threshold looks like. Without a history nothing is usual."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f'{text!r} is not a threshold: write it like "changed > 5%" or "removed >= 100"')
    count, sign, limit, unit = match.groups()
    if unit is not None and unit != "%" and not with_history:
        raise ValueError(f"{text!r} asks for what is usual, which only the runs of a pipeline tell")
    number = Fraction(limit if limit[-1] != "." else limit[:-1])
    return Threshold(text.strip(), count, sign, number, unit == "%", unit is not None and unit != "%")

"""Thresholds that fail a diff or a pipeline run: `changed > 5%`, `removed >= 100`, `changed(price) > 1%`.

>>> limit = parse_threshold("changed > 5%")
>>> limit.is_exceeded({"changed": 6, "total": 100}), limit.is_exceeded({"changed": 5, "total": 100})
(True, False)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

TABLE_COUNTS = ("added", "removed", "changed", "unchanged", "different")
PAYLOAD_COUNTS = ("different", "errors", "matching")
INDEX_COUNTS = ("events", "files", "chunks")
AGE = "age"

_TOTAL = "total"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FORM = re.compile(
    r"\s*([a-z_]+)\s*(?:\((.+)\))?\s*(>=|<=|==|>|<)\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(%|x\s+usual|[smhd])?\s*",
    re.ASCII | re.DOTALL,
)
_OPERATORS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A condition on counts; a share is of the rows (pairs, files) of the old input, an age is in seconds."""

    text: str
    count: str
    sign: str
    limit: Fraction
    is_share: bool = False
    of_usual: bool = False  # the limit is so many times what is usual, which only a history contains
    column: str | None = None
    usual: Fraction | None = None  # what the limit was made of

    @property
    def name(self) -> str:
        """The name of the count: `changed`, or `changed(price)`."""
        return self.count if self.column is None else f"{self.count}({self.column})"

    def is_exceeded(self, counts: Mapping[str, int]) -> bool:
        """Whether the condition is true, so that the run fails."""
        return _OPERATORS[self.sign](self.measured(counts), self.limit)

    def measured(self, counts: Mapping[str, int]) -> Fraction:
        """The count, or its share in percent; exact, so that 1 of 3 is more than 33.33%."""
        from fractions import Fraction

        value = counts.get(self.name, 0)
        if not self.is_share:
            return Fraction(value)
        total = counts.get(_TOTAL)
        return Fraction(100 * value, total) if total else Fraction(100 if value else 0)

    def against(self, usual: Mapping[str, Fraction]) -> Threshold | None:
        """The condition with its limit as a number; None where the history has no usual value."""
        if not self.of_usual:
            return self
        known = usual.get(self.name)
        return None if known is None else replace(self, limit=self.limit * known, of_usual=False, usual=known)

    def describe(self, counts: Mapping[str, int]) -> str:
        """The measured value beside the threshold, as text."""
        measured = self.measured(counts)
        if self.count == AGE:
            shown = age_text(measured)
        else:
            shown = f"{float(measured):.2f}%" if self.is_share else f"{float(measured):,.0f}"
        if self.usual is not None:
            shown += f", limit {float(self.limit):,.10g}, usual {float(self.usual):,.10g}"
        return f"{self.text} (measured {shown})"


def parse_threshold(text: str, *, in_pipeline: bool = False) -> Threshold:
    """Parse a threshold; a `ValueError` says what one looks like. Only pipelines have history and ages."""
    from fractions import Fraction

    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f'{text!r} is not a threshold: write it like "changed > 5%" or "removed >= 100"')
    count, column, sign, limit, unit = match.groups()
    is_usual = unit is not None and unit.startswith("x")
    if is_usual and not in_pipeline:
        raise ValueError(f"{text!r} asks for what is usual, which only the runs of a pipeline tell")
    if column is not None and count != "changed":
        raise ValueError(f"{text!r}: only changed(COLUMN) is counted for a column")
    if (count == AGE) != (unit in _SECONDS):
        raise ValueError(f'{text!r}: an age has a unit and nothing else has: write it like "age > 26h" (s, m, h or d)')
    if count == AGE and not in_pipeline:
        raise ValueError(f"{text!r}: only a pipeline knows the age of its snapshots")
    number = Fraction(limit if limit[-1] != "." else limit[:-1]) * _SECONDS.get(unit, 1)
    return Threshold(text.strip(), count, sign, number, unit == "%", is_usual, column)


def age_text(seconds: Fraction | float) -> str:
    """An age in the largest unit that it fills.

    >>> age_text(90_000), age_text(59)
    ('25.0h', '59s')
    """
    for unit, least in (("d", 2 * 86400), ("h", 3600), ("m", 60)):
        if seconds >= least:
            return f"{float(seconds) / _SECONDS[unit]:,.1f}{unit}"
    return f"{float(seconds):,.0f}s"

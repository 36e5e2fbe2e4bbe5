"""Counts of a diff; parts add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from driftline.core._thresholds import Threshold
from driftline.errors import TableError

_ALWAYS = ("added", "removed", "changed", "unchanged")


@dataclass(frozen=True, slots=True)
class Stats:
    """How many rows were on both sides, added, removed, changed and unchanged, and how many were left out or dropped.

    >>> (Stats(added=1) + Stats(changed=2, unchanged=3)).compared
    5
    """

    added: int = 0
    removed: int = 0
    changed: int = 0
    unchanged: int = 0
    skipped_a: int = 0
    skipped_b: int = 0
    dropped_a: int = 0
    dropped_b: int = 0
    columns_differ: bool = False  # columns came or went: a difference even where no row is one
    shows_skipped: bool = False
    shows_dropped: bool = False
    columns: Mapping[str, int] = field(default_factory=dict, compare=False)  # how often each one changed, by A's names

    @property
    def compared(self) -> int:
        """Rows present on both sides."""
        return self.changed + self.unchanged

    @property
    def any_difference(self) -> bool:
        """Whether the two versions differ at all."""
        return bool(self.added or self.removed or self.changed or self.columns_differ)

    def with_equal(self, pairs: int) -> Stats:
        """The same, but some pairs that counted as changed turned out to be equal."""
        return replace(self, changed=self.changed - pairs, unchanged=self.unchanged + pairs)

    def __add__(self, other: Stats) -> Stats:
        values = {each.name: (getattr(self, each.name), getattr(other, each.name)) for each in fields(Stats)}
        ours, others = values.pop("columns")
        columns = {name: ours.get(name, 0) + others.get(name, 0) for name in {**ours, **others}}
        counts = {name: a or b if isinstance(a, bool) else a + b for name, (a, b) in values.items()}
        return Stats(**counts, columns=columns)

    @property
    def counts(self) -> dict[str, int]:
        """What thresholds are about; shares are of A's rows that were not left out or dropped."""
        different = self.added + self.removed + self.changed
        return {
            **{name: getattr(self, name) for name in _ALWAYS},
            "different": different,
            "total": self.compared + self.removed,
        }

    def counts_for(self, thresholds: Sequence[Threshold]) -> dict[str, int]:
        """The same with the columns that thresholds are about; one that was not compared is an error."""
        for one in thresholds:
            if one.column is not None and one.column not in self.columns:
                raise TableError(
                    f"{one.text!r} is about the column {one.column!r}, which is not compared "
                    f"(compared: {', '.join(self.columns)})",
                    code="unknown_column",
                    column=one.column,
                )
        return {**self.counts, **{one.name: self.columns[one.column] for one in thresholds if one.column is not None}}

    def exceeded(self, thresholds: Sequence[Threshold]) -> list[str]:
        """The conditions that hold, with what was measured."""
        counts = self.counts_for(thresholds)
        return [one.describe(counts) for one in thresholds if one.is_exceeded(counts)]

    @classmethod
    def of_event(cls, event: Mapping[str, Any]) -> Stats:
        """The counts that a stats event carries."""
        return cls(*(event[f"rows_{name}"] for name in _ALWAYS))

    def to_event(self) -> dict[str, Any]:
        """The last event of the stream."""
        event = {"type": "stats", "rows_total_compared": self.compared}
        event |= {f"rows_{name}": getattr(self, name) for name in _ALWAYS}
        if self.shows_skipped:
            event |= {"rows_skipped_a": self.skipped_a, "rows_skipped_b": self.skipped_b}
        if self.shows_dropped:
            event |= {"duplicates_dropped_a": self.dropped_a, "duplicates_dropped_b": self.dropped_b}
        return event

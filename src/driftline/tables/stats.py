"""Counts of a diff; parts add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from driftline.thresholds import Threshold

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

    @property
    def compared(self) -> int:
        """Rows present on both sides."""
        return self.changed + self.unchanged

    @property
    def any_difference(self) -> bool:
        """Whether the two versions differ at all."""
        return bool(self.added or self.removed or self.changed or self.columns_differ)

    def __add__(self, other: Stats) -> Stats:
        values = {each.name: (getattr(self, each.name), getattr(other, each.name)) for each in fields(Stats)}
        return Stats(**{name: a or b if isinstance(a, bool) else a + b for name, (a, b) in values.items()})

    @property
    def counts(self) -> dict[str, int]:
        """What thresholds are about; shares are of A's rows that were not left out or dropped."""
        different = self.added + self.removed + self.changed
        return {
            **{name: getattr(self, name) for name in _ALWAYS},
            "different": different,
            "total": self.compared + self.removed,
        }

    def exceeded(self, thresholds: Sequence[Threshold]) -> list[Threshold]:
        """The conditions that hold."""
        return [one for one in thresholds if one.is_exceeded(self.counts)]

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

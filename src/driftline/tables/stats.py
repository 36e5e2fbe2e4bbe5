"""Counts of a diff; parts add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Stats:
    """How many rows were on both sides, added, removed, changed and unchanged.

    >>> (Stats(added=1) + Stats(changed=2, unchanged=3)).compared
    5
    """

    added: int = 0
    removed: int = 0
    changed: int = 0
    unchanged: int = 0

    @property
    def compared(self) -> int:
        """Rows present on both sides."""
        return self.changed + self.unchanged

    @property
    def any_difference(self) -> bool:
        """Whether the two versions differ at all."""
        return bool(self.added or self.removed or self.changed)

    def __add__(self, other: Stats) -> Stats:
        return Stats(
            self.added + other.added,
            self.removed + other.removed,
            self.changed + other.changed,
            self.unchanged + other.unchanged,
        )

    @classmethod
    def of_event(cls, event: Mapping[str, Any]) -> Stats:
        """The counts that a stats event carries."""
        return cls(*(event[f"rows_{name}"] for name in ("added", "removed", "changed", "unchanged")))

    def to_event(self) -> dict[str, Any]:
        """The last event of the stream."""
        return {
            "type": "stats",
            "rows_total_compared": self.compared,
            "rows_added": self.added,
            "rows_removed": self.removed,
            "rows_changed": self.changed,
            "rows_unchanged": self.unchanged,
        }

"""The events of a table diff as plain dicts and JSON text, and its counts (tables §1)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from driftline.core import Threshold
from driftline.errors import TableError
from driftline.tables._columns import Column, Comparison
from driftline.tables._options import TableOptions
from driftline.tables._profile import Profile

Event = dict[str, Any]

_COUNTED = ("added", "removed", "changed", "unchanged")


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of rows: added, removed, changed, unchanged, left out and dropped; the counts of parts add up.

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
    columns_differ: bool = False  # columns were added or removed: a difference even without a different row
    shows_skipped: bool = False
    shows_dropped: bool = False
    columns: Mapping[str, int] = field(default_factory=dict, compare=False)  # how often each one changed, by A's names
    profile: Profile | None = field(default=None, compare=False)  # the kinds of change, where they were requested
    notes: tuple[str, ...] = field(default=(), compare=False)  # how columns of two types were compared
    options: TableOptions | None = field(default=None, compare=False)  # those of the job, by the names of columns

    @classmethod
    def of_diff(cls, compared: Comparison, options: TableOptions, *skipped: int, **counts: int) -> Self:
        """The counts of a diff, of which those of rows are added."""
        may_skip = options.ragged == "skip" or options.skip_blank_lines
        shown = {"shows_skipped": may_skip, "shows_dropped": options.counts_dropped}
        about: dict[str, Any] = {"columns_differ": compared.differs, **shown, **counts}
        return cls(skipped_a=skipped[0], skipped_b=skipped[1], **about)

    @property
    def compared(self) -> int:
        """Rows present on both sides."""
        return self.changed + self.unchanged

    @property
    def any_difference(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.columns_differ)

    def with_equal(self, pairs: int) -> Stats:
        """The counts after some pairs that counted as changed turned out to be equal."""
        return replace(self, changed=self.changed - pairs, unchanged=self.unchanged + pairs)

    def __add__(self, other: Stats) -> Stats:
        values = {each.name: (getattr(self, each.name), getattr(other, each.name)) for each in fields(Stats)}
        ours, others = values.pop("columns")
        for name in ("profile", "options"):  # of one diff: those of several would mix columns of the same name
            values.pop(name)
        notes = next(filter(None, values.pop("notes")), ())
        columns = {name: ours.get(name, 0) + others.get(name, 0) for name in {**ours, **others}}
        counts: dict[str, Any] = {name: a or b if isinstance(a, bool) else a + b for name, (a, b) in values.items()}
        return Stats(**counts, columns=columns, notes=notes)

    @property
    def counts(self) -> dict[str, int]:
        """The counts for thresholds; shares are of A's rows that were not left out or dropped."""
        different = self.added + self.removed + self.changed
        return {
            **{name: getattr(self, name) for name in _COUNTED},
            "different": different,
            "total": self.compared + self.removed,
        }

    def counts_for(self, thresholds: Sequence[Threshold]) -> dict[str, int]:
        """`counts` with those of columns in thresholds; a column that was not compared is an error."""
        for one in thresholds:
            if one.column is not None and one.column not in self.columns:
                what = f"{one.text!r} is about the column {one.column!r}, which is not compared"
                words = f"{what} (compared: {', '.join(self.columns)})"
                raise TableError(words, code="unknown_column", column=one.column)
        return {**self.counts, **{one.name: self.columns[one.column] for one in thresholds if one.column is not None}}

    def exceeded(self, thresholds: Sequence[Threshold]) -> list[str]:
        """The conditions that are true, with the measured values."""
        counts = self.counts_for(thresholds)
        return [one.describe(counts) for one in thresholds if one.is_exceeded(counts)]

    def to_event(self) -> dict[str, Any]:
        """The last event of the stream."""
        event = {"type": "stats", "rows_total_compared": self.compared}
        event |= {f"rows_{name}": getattr(self, name) for name in _COUNTED}
        if self.shows_skipped:
            event |= {"rows_skipped_a": self.skipped_a, "rows_skipped_b": self.skipped_b}
        if self.shows_dropped:
            event |= {"duplicates_dropped_a": self.dropped_a, "duplicates_dropped_b": self.dropped_b}
        return event


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def schema_event(compared: Comparison) -> Event:
    event: Event = {"type": "schema", "columns_a": list(compared.header_a), "columns_b": list(compared.header_b)}
    if compared.added is not None and compared.removed is not None:
        event |= {"columns_added": list(compared.added), "columns_removed": list(compared.removed)}
    if compared.renamed is not None:
        event["renamed"] = dict(compared.renamed)
    return event


def row_event(kind: str, place: Event, row: Event) -> Event:
    """An `added`, `removed` or `unchanged` row; `place` is its key, its row index or nothing."""
    return {"type": kind, **place, "row": dict(row)}


def changed_event(
    place: Event, before: Mapping[str, Any], after: Mapping[str, Any], changed: Sequence[Column]
) -> Event:
    """A row whose cells changed; `changed` is in comparison order."""
    return {
        "type": "changed",
        **place,
        "changed": [column.a for column in changed],
        "before": dict(before),
        "after": dict(after),
        "delta": {column.a: {"from": before[column.a], "to": after[column.b]} for column in changed},
    }


def column_stats_event(compared: Comparison, stats: Stats, changes: Mapping[str, int]) -> Event:
    """How often each compared column changed; `changes` by A's names."""
    counts = changes_by_column(compared, changes)
    columns = [{"name": name, "compared": stats.compared, "changed": count} for name, count in counts.items()]
    return {"type": "column_stats", "columns": columns}


def changes_by_column(compared: Comparison, changes: Mapping[str, int]) -> dict[str, int]:
    """How often each compared column changed, zeros included; by A's names, which rules use too."""
    return {column.a: changes.get(column.a, 0) for column in compared.columns}


def joined_profile(parts: Iterable[Profile | None], compared: Comparison, stats: Stats) -> Profile | None:
    """The profiles of the parts of the output, in order, as one; None where none was requested."""
    found = [part for part in (*parts, stats.profile) if part is not None]
    if not found:
        return None
    rules = {column.a: column.rule for column in compared.columns}
    ruled = frozenset(name for name, rule in rules.items() if rule.steps or rule.null_words or rule.kind)
    whole = Profile(ruled=ruled, compared=stats.compared)
    for part in found:
        whole.join(part)
    return whole


def count_changes(events: Iterable[Event]) -> Counter[str]:
    return Counter(name for event in events if event["type"] == "changed" for name in event["changed"])


def event_line(event: Event) -> bytes:
    """An event as a line of JSONL.

    >>> event_line(Stats().to_event())[:16]
    b'{"type":"stats",'
    """
    return (_encode(event) + "\n").encode()

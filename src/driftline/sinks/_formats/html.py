"""HTML: one self-contained page with the counts, match rates by column and the changes as aligned rows.

The number of changes of each kind and of columns is bounded; the counts are always complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from driftline.sinks._formats import FIRST, Seen, Title
from driftline.sinks._pages import page_bytes

MOST_COLUMNS = 50  # beside the key; columns that changed come first
MOST_RATES = 500

_SIGNS = {"added": "+", "removed": "−", "changed": "~"}

Event = dict[str, Any]


ColumnRate = tuple[str, int, float | None]


def column_rates(
    changes: Mapping[str, int], schema: Event, stats: Event, compared: Collection[str] | None
) -> list[ColumnRate]:
    """Columns with their number of changed rows and, if compared, the share of rows that match; most changed first.

    `compared` has the compared columns, by A's names; None: all of them.
    """
    olds = {new: old for old, new in schema.get("renamed", {}).items()}
    rows = stats.get("rows_total_compared", 0) or 1
    is_compared = {name: compared is None or name in compared or olds.get(name) in compared for name in changes}
    ordered = sorted(changes, key=lambda name: (-changes[name], not is_compared[name]))[:MOST_RATES]
    return [(name, changes[name], 100 * (1 - changes[name] / rows) if is_compared[name] else None) for name in ordered]


@dataclass
class _Page(Seen):
    """The data of the template."""

    heading: Title = field(default_factory=Title)
    requested: list[str] | None = None  # the requested columns; None: all
    judged: frozenset[str] | None = None  # the compared columns, by A's names; None: not known
    profile: Event = field(default_factory=dict)

    @property
    def kinds(self) -> list[tuple[str, str, int]]:
        """Each kind of change with its sign and its count."""
        return [(kind, sign, self.stats[f"rows_{kind}"]) for kind, sign in _SIGNS.items()]

    @property
    def all_columns(self) -> list[str]:
        """Every column but the key, those of A first."""
        sides = [*self.schema.get("columns_a", []), *self.schema.get("columns_b", [])]
        requested = dict.fromkeys(sides if self.requested is None else self.requested)
        return [name for name in requested if name not in self.key]

    @property
    def columns(self) -> list[str]:
        """The rendered columns: all, or where these are too many, those that changed most."""
        names = self.all_columns
        if len(names) <= MOST_COLUMNS + 1:  # a note takes as much space as a column
            return names
        chosen = set(sorted(names, key=lambda name: -self.changes[name])[:MOST_COLUMNS])
        return [name for name in names if name in chosen]

    @property
    def rates(self) -> list[ColumnRate]:
        changes = {name: self.changes[name] for name in self.all_columns}
        return column_rates(changes, self.schema, self.stats, self.judged)

    def left_out(self, row: Event, columns: set[str]) -> int:
        """How many cells of the event are in columns that are not rendered."""
        cells = row["delta"] if row["type"] == "changed" else row["row"]
        known = self.all_columns if self.requested is not None else None
        return sum(
            1 for name in cells if name not in columns and name not in self.key and (known is None or name in known)
        )


def write(lines: Iterable[bytes], out: BinaryIO, **settings: Any) -> None:
    """Write the page; `heading` is the title, `columns` limits the columns, `profile` has the kinds of change.

    `changes` says how often each column changed; without it the events are counted.
    """
    about: dict[str, Any] = {"heading": settings.get("heading", Title()), "profile": settings.get("profile") or {}}
    page = _Page(FIRST["html"], requested=settings.get("columns"), judged=settings.get("judged"), **about)
    page.read(lines, settings.get("changes"))
    shown = page.columns
    same = {name for name in shown if not page.changes[name]}
    rows = ((row, page.left_out(row, set(shown))) for row in page.rows)
    out.writelines(page_bytes("diff.html", page=page, key=page.key, columns=shown, rows=rows, same=same))

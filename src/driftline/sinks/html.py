"""HTML: one self-contained page with counts, changed columns and a table of changes that can be searched.

It lists a bounded number of changes of each kind; the counts are always complete.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from driftline.sinks.pages import page_bytes
from driftline.sinks.text import cell_text

MOST_LISTED = 2000  # of each kind; a browser stays quick with that
MOST_CELLS = 50  # of one row

_KINDS = ("added", "removed", "changed")
_COUNTS = (
    ("rows_total_compared", "on both sides"),
    ("rows_added", "added"),
    ("rows_removed", "removed"),
    ("rows_changed", "changed"),
    ("rows_unchanged", "unchanged"),
)


@dataclass
class _Page:
    """What the template shows."""

    stats: dict[str, Any] = field(default_factory=dict)
    columns: Counter[str] = field(default_factory=Counter)
    listed: Counter[str] = field(default_factory=Counter)
    rows: list[dict[str, Any]] = field(default_factory=list)
    truncated: bool = False
    shown: list[str] | None = None  # the columns that rows are shown with; None for all

    def note(self, event: dict[str, Any]) -> None:
        """Take an event into account."""
        kind = event["type"]
        if kind == "stats":
            self.stats = event
            self.truncated |= bool(event.get("truncated"))
        elif kind in _KINDS:
            self.columns.update(event.get("delta", {}).keys())
            self._list(kind, event)

    def _list(self, kind: str, event: dict[str, Any]) -> None:
        if self.listed[kind] >= MOST_LISTED:
            self.truncated = True
            return
        self.listed[kind] += 1
        cells = list(_cells(event, self.shown))
        left_out = len(cells) - MOST_CELLS if len(cells) > MOST_CELLS + 1 else 0  # a note takes as much room as a cell
        shown = cells[: len(cells) - left_out]
        self.rows.append({"kind": kind, "place": _place(event), "cells": shown, "left_out": left_out})

    @property
    def counts(self) -> list[tuple[str, str, int]]:
        """Each count with its words and the kind that colours it."""
        return [(name.removeprefix("rows_"), words, self.stats[name]) for name, words in _COUNTS]

    @property
    def column_bars(self) -> list[tuple[str, int, float]]:
        """Changed columns, most changed first, with their share of the most changed one."""
        ordered = sorted(self.columns.items(), key=lambda item: (-item[1], item[0]))
        most = ordered[0][1] if ordered else 1
        return [(name, count, round(100 * count / most, 1)) for name, count in ordered]


def write(lines: Iterable[bytes], out: BinaryIO, **settings: Any) -> None:
    """Write the page."""
    page = _Page(shown=settings.get("columns"))
    for line in lines:
        page.note(json.loads(line))
    out.writelines(page_bytes("diff.html", page=page, kinds=_KINDS))


def _place(event: dict[str, Any]) -> str:
    if "key" in event:
        return ", ".join(cell_text(part) for part in event["key"].values())
    return f"row {event['row_index']}" if "row_index" in event else ""


def _cells(event: dict[str, Any], shown: list[str] | None) -> Iterator[tuple[str, str | None, str | None]]:
    """Column, before and after of every cell that the event is about."""
    if event["type"] == "changed":
        for name, cell in event["delta"].items():
            yield name, cell_text(cell["from"]), cell_text(cell["to"])
        return
    for name, value in event["row"].items():
        if shown is None or name in shown:
            yield (name, cell_text(value), None) if event["type"] == "removed" else (name, None, cell_text(value))

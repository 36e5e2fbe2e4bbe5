"""Terminal: the counts, the columns by number of changes, and the first changes as aligned rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TextIO, cast

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from driftline.core import exact_loads
from driftline.sinks._formats import TextWriter, Title, cell_text
from driftline.sinks._pages import difference_in_words, missing_word

_CHANGED_ROWS = 6
_WHOLE_ROWS = 3  # of the added and of the removed
_LONGEST_CELL = 28
_MOST_COLUMNS_LISTED = 12
_BAR = 24
_GAP = 2
_WIDE = 100  # characters of a terminal that has room for shares
_STYLE = {"added": "green", "removed": "red", "changed": "yellow"}
_SIGN = {"added": "+", "removed": "−", "changed": "~"}

Event = dict[str, Any]
_NO_HEADING = Title()


@dataclass
class _Seen:
    """The schema and stats, how often each column changed, and the first events of each kind."""

    schema: Event = field(default_factory=dict)
    stats: Event = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[Event]] = field(default_factory=lambda: {kind: [] for kind in _SIGN})

    def note(self, event: Event) -> None:
        """Count an event."""
        kind = event["type"]
        if kind == "schema":
            self.schema = event
        elif kind == "stats":
            self.stats = event
        elif kind in self.first:
            self.changes.update(list(event.get("delta", {})))
            if len(self.first[kind]) < (_CHANGED_ROWS if kind == "changed" else _WHOLE_ROWS):
                self.first[kind].append(event)

    @property
    def columns(self) -> list[str]:
        """All columns, those of B first."""
        return list(dict.fromkeys([*self.schema.get("columns_b", []), *self.schema.get("columns_a", [])]))

    @property
    def key(self) -> list[str]:
        """The key columns of the events."""
        events = [event for listed in self.first.values() for event in listed]
        return next((list(event["key"]) for event in events if "key" in event), [])


def write(
    lines: Iterable[bytes], out: BinaryIO, *, heading: Title = _NO_HEADING, hints: bool = True, **settings: object
) -> None:
    """Write the first changes; `heading` is the title, `hints` name the ways to see the rest."""
    seen = _Seen()
    for line in lines:
        seen.note(exact_loads(line))
    text = TextWriter(out)
    force = True if out.isatty() else None
    console = Console(
        file=cast(TextIO, text), highlight=False, markup=False, emoji=False, soft_wrap=False, force_terminal=force
    )
    width = console.width
    counts = _counts(seen.stats, with_shares=width >= _WIDE)
    parts = (_heading(heading), counts, _columns(seen), _cells(seen), _rows(seen, width), _rest(seen, hints))
    for number, part in enumerate(part for part in parts if part is not None):
        if number:
            console.print()
        console.print(part)
    text.flush()


def _heading(heading: Title) -> Text | None:
    if not heading.compared:
        return None
    rules = f"\n{heading.rules}" if heading.rules else ""
    return Text.assemble((heading.compared, "bold"), "   ", (heading.how, "dim"), (rules, "dim"))


def _counts(stats: Event, *, with_shares: bool) -> Text:
    old_rows = stats["rows_total_compared"] + stats["rows_removed"]
    line = Text("  ")
    for kind, sign in _SIGN.items():
        count = stats[f"rows_{kind}"]
        share = f" ({count / old_rows:.1%})" if with_shares and count and old_rows else ""
        line.append(f"{sign} {count:,} {kind}", f"bold {_STYLE[kind]}" if count else "dim").append(share, "dim")
        line.append("   ")
    return line.append(f"{stats['rows_unchanged']:,} unchanged", "dim")


def _columns(seen: _Seen) -> Table | None:
    """Columns by changes, with the share of the compared rows that match."""
    compared = seen.stats["rows_total_compared"]
    if not seen.changes or not compared:
        return None
    table = _plain_table("column", "changed", "match", "")
    table.columns[2].justify = table.columns[3].justify = "right"
    ordered = sorted(seen.changes.items(), key=lambda item: (-item[1], item[0]))
    for name, count in ordered[:_MOST_COLUMNS_LISTED]:
        length = max(1, round(_BAR * count / compared))
        table.add_row("", _cell(name), f"{count:,}", f"{1 - count / compared:.1%}", Text("━" * length, "yellow"))
    more = len(ordered) - _MOST_COLUMNS_LISTED
    if more > 0:
        table.add_row("", Text(f"and {more} more columns", "dim"), "", "", "")
    return table


def _cells(seen: _Seen) -> Table | None:
    """The first changed rows, one line a cell."""
    events = seen.first["changed"]
    if not events:
        return None
    key = seen.key or ["row"]
    table = _plain_table(*key, "column", "before", "after", "")
    lines = 0
    for event in events:
        for name, cell in event["delta"].items():
            if lines == _CHANGED_ROWS:
                return table
            lines += 1
            moved = Text(difference_in_words(cell["from"], cell["to"]), "dim")
            place = [Text.assemble((part.plain, "yellow")) for part in _place(event, key)]
            values = (_cell(cell["from"], "red"), _cell(cell["to"], "green"))
            table.add_row(Text("~", "yellow"), *place, _cell(name), *values, moved)
    return table


def _rows(seen: _Seen, width: int) -> Group | None:
    """The first removed and added rows, as many columns as fit."""
    events = [*seen.first["removed"], *seen.first["added"]]
    if not events:
        return None
    key = seen.key or (["row"] if "row_index" in events[0] else [])
    others = [name for name in seen.columns if name not in key]
    names = _fitting(others, key, events, width)
    table = _plain_table(*key, *names)
    for event in events:
        style = _STYLE[event["type"]]
        cells = [_cell(event["row"].get(name), style) for name in names]
        table.add_row(Text(_SIGN[event["type"]], style), *(_tinted(part, style) for part in _place(event, key)), *cells)
    left_out = len(others) - len(names)
    return Group(table, *([Text(f"   … and {left_out:,} more columns", "dim")] if left_out else []))


def _fitting(names: list[str], key: Sequence[str], events: list[Event], width: int) -> list[str]:
    """The columns, from the left, that fit into the terminal."""
    left = (
        width
        - 3
        - sum(_GAP + max(len(_short(name)), *(len(_place(e, [name])[0].plain) for e in events)) for name in key)
    )
    chosen = []
    for name in names:
        left -= _GAP + max(len(_short(name)), *(len(_cell(event["row"].get(name)).plain) for event in events))
        if left < 0:
            break
        chosen.append(name)
    return chosen


def _rest(seen: _Seen, hints: bool) -> Text | None:
    """How many changes are left out, and how to see them."""
    shown = sum(map(len, seen.first.values()))
    total = sum(seen.stats[f"rows_{kind}"] for kind in _SIGN)
    if not total:
        return Text("  no differences", "bold green")
    left = total - shown
    if not hints:
        return Text(f"  … and {left:,} more", "dim") if left > 0 else None
    line = Text("  ").append(f"{left:,} more: " if left > 0 else "", "dim")
    ways = (("-o changes.jsonl", " all, "), ("-o report.html", " a page, "), ("driftline ui", " browse"))
    for command, words in ways:
        line.append(command, "cyan").append(words, "dim")
    return line


def _plain_table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
    table.add_column("", width=1, no_wrap=True)
    for name in names:
        table.add_column(Text(_short(name)), no_wrap=True, overflow="ellipsis", max_width=_LONGEST_CELL)
    return table


def _place(event: Event, key: Sequence[str]) -> list[Text]:
    if "key" in event:
        return [_cell(event["key"].get(name)) for name in key]
    return [Text(str(event.get("row_index", "")))] if key else []


def _tinted(text: Text, style: str) -> Text:
    return Text(text.plain, style)


def _cell(value: object, style: str = "") -> Text:
    word = missing_word(value)
    return Text(word, f"italic {style}".strip()) if word is not None else Text(_short(cell_text(value)), style)


def _short(text: str) -> str:
    """One line without control characters, cut to the width of a column."""
    plain = "".join(each if each.isprintable() else "␊" if each == "\n" else "·" for each in text[: _LONGEST_CELL * 2])
    return plain if len(plain) <= _LONGEST_CELL else plain[: _LONGEST_CELL - 1] + "…"

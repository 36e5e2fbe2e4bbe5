"""Summary: the counts, and the changed columns with counts and examples, as text tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TextIO, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from driftline.core import exact_loads
from driftline.sinks._formats import TextWriter, Title, cell_text

_EXAMPLES = 3
_LONGEST_CELL = 40
_COUNTS = {
    "rows_total_compared": "on both sides",
    "rows_added": "added",
    "rows_removed": "removed",
    "rows_changed": "changed",
    "rows_unchanged": "unchanged",
}


@dataclass
class _Seen:
    """The stats, how often each column changed, and its first examples."""

    stats: dict[str, Any] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)

    def note(self, event: dict[str, Any]) -> None:
        """Count an event."""
        if event["type"] == "stats":
            self.stats = event
        for name, cell in event.get("delta", {}).items():
            self.changes[name] += 1
            examples = self.examples.setdefault(name, [])
            if len(examples) < _EXAMPLES:
                examples.append((_place(event), _text(cell["from"]), _text(cell["to"])))


def write(lines: Iterable[bytes], out: BinaryIO, **settings: Any) -> None:
    """Write two tables: counts of rows, and changed columns."""
    seen = _Seen()
    for line in lines:
        seen.note(exact_loads(line))
    text = TextWriter(out)
    on_terminal = out.isatty()
    console = Console(
        file=cast(TextIO, text), highlight=False, width=None if on_terminal else 100, force_terminal=on_terminal
    )
    _print_heading(console, settings.get("heading", Title()))
    console.print(_counts_table(seen.stats))
    if seen.changes:
        profile = settings.get("profile") or {}
        console.print(_columns_table(seen, profile.get("columns", {})))
        for words in [*profile.get("blocks", ()), *(rule["sentence"] for rule in profile.get("suggestions", ()))]:
            console.print(Text(words))
    if seen.stats.get("truncated"):
        console.print("Columns and examples cover the listed changes only: the list was limited.")
    text.flush()


def _print_heading(console: Console, heading: Title) -> None:
    if heading.compared:
        console.print(Text(f"{heading.compared}, {heading.how}, {heading.when}"))
    if heading.rules:
        console.print(Text(f"rules: {heading.rules}"))


def _counts_table(stats: dict[str, Any]) -> Table:
    table = Table("rows", title="What changed", title_justify="left")
    table.add_column("count", justify="right")
    for name, words in _COUNTS.items():
        table.add_row(words, f"{stats[name]:,}")
    return table


def _columns_table(seen: _Seen, kinds: dict[str, Any]) -> Table:
    table = Table("column", title="Changed columns", title_justify="left")
    table.add_column("rows", justify="right")
    table.add_column("kind of change")
    table.add_column("examples")
    for name, count in sorted(seen.changes.items(), key=lambda item: (-item[1], item[0])):
        examples = "\n".join(f"{place}: {before} → {after}" for place, before, after in seen.examples[name])
        words = "\n".join(kinds.get(name, {}).get("words", ()))
        table.add_row(Text(name), f"{count:,}", Text(words), Text(examples))
    return table


def _place(event: dict[str, Any]) -> str:
    if "key" in event:
        return _short(", ".join(cell_text(part) for part in event["key"].values()))
    return f"row {event['row_index']}"


def _text(value: object) -> str:
    return _short(repr(value) if isinstance(value, str) else cell_text(value))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"

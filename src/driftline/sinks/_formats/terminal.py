"""Terminal: the counts, the columns by number and kind of changes, the first changes as aligned rows, and rules to try.

What does not fit is cut in this order: differences, values, names of columns; a key is shown whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, BinaryIO, TextIO, cast

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from driftline.sinks._formats import FIRST, Seen, TextWriter, Title, cell_text
from driftline.sinks._pages import common_start, difference_in_words, missing_word

_SHOWN_CELLS = 6
_LONGEST_CELL = 28
_SHORTEST_CELL = 8
_LEAD = 8  # characters of a long value before its first difference
_MOST_RULES = 3
_MOST_COLUMNS_LISTED = 12
_BAR, _SHORT_BAR = 24, 10
_GAP = 2
_WIDE = 100  # characters of a terminal that is wide enough for shares
_STYLE = {"added": "green", "removed": "red", "changed": "yellow"}
_SIGN = {"added": "+", "removed": "−", "changed": "~"}
_EXAMPLES = 3  # of a column in the summary
_LONGEST_EXAMPLE = 40
_COUNTS = {
    "rows_total_compared": "on both sides",
    "rows_added": "added",
    "rows_removed": "removed",
    "rows_changed": "changed",
    "rows_unchanged": "unchanged",
}

Event = dict[str, Any]
_NO_HEADING = Title()


def write(
    lines: Iterable[bytes],
    out: BinaryIO,
    *,
    heading: Title = _NO_HEADING,
    hints: bool = True,
    changes: Mapping[str, int] | None = None,
    profile: Event | None = None,
    **settings: object,
) -> None:
    """Write the first changes; `heading` is the title, `hints` name the ways to see the rest.

    `changes` says how often each column changed; without it the events are counted. `profile` has the kinds of change.
    """
    seen = Seen(FIRST["terminal"])
    seen.read(lines, changes)
    text = TextWriter(out)
    force = True if out.isatty() else None
    console = Console(
        file=cast(TextIO, text), highlight=False, markup=False, emoji=False, soft_wrap=False, force_terminal=force
    )
    width = console.width
    counts = _counts(seen.stats, with_shares=width >= _WIDE)
    parts = (
        _heading(heading),
        counts,
        _columns(seen, profile or {}, width),
        _cells(seen, width),
        _rows(seen, width),
        _rules(profile or {}) if hints else None,
        _rest(seen, hints),
    )
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


def _columns(seen: Seen, profile: Event, width: int) -> Table | None:
    """Columns by changes, with the share of the compared rows that match, and the kind of change."""
    compared = seen.stats["rows_total_compared"]
    if not seen.changes or not compared:
        return None
    kinds = {name: about["words"] for name, about in profile.get("columns", {}).items()}
    bar = _SHORT_BAR if kinds else _BAR
    table = _plain_table("column", "changed", "match", "", "kind of change" if kinds else "", longest=width)
    table.columns[2].justify = table.columns[3].justify = "right"
    ordered = sorted(seen.changes.items(), key=lambda item: (-item[1], item[0]))
    listed = ordered[:_MOST_COLUMNS_LISTED]
    names = max(len("column"), *(len(_name(name)) for name, _ in listed))
    bars = [max(1, round(bar * count / compared)) for _, count in listed]
    space = width - 1 - names - len("changed") - len("100.0%") - max(bars) - 6 * _GAP
    for (name, count), length in zip(listed, bars, strict=True):
        fitting = _fitting_words(kinds.get(name, []), space)
        cells = (f"{count:,}", f"{1 - count / compared:.1%}", Text("━" * length, "yellow"), Text(fitting, "dim"))
        table.add_row("", Text(_name(name)), *cells)
    more = len(ordered) - _MOST_COLUMNS_LISTED
    if more > 0:
        table.add_row("", Text(f"and {more} more columns", "dim"), "", "", "", "")
    return table


def _fitting_words(words: Sequence[str], space: int) -> str:
    """As many of the words as fit, whole."""
    longer = accumulate(words, lambda fitting, word: f"{fitting} · {word}")
    return max((text for text in longer if len(text) <= space), key=len, default="")


def _cells(seen: Seen, width: int) -> Table | None:
    """The first changed rows, one line a cell."""
    events = [row for row in seen.rows if row["type"] == "changed"]
    if not events:
        return None
    key = seen.key or ["row"]
    cells = [(event, name, cell) for event in events for name, cell in event["delta"].items()][:_SHOWN_CELLS]
    rows = []
    for event, name, cell in cells:
        moved = Text(difference_in_words(cell["from"], cell["to"]), "dim")
        place = [Text(part.plain, "yellow") for part in _place(event, key)]
        rows.append([*place, Text(_name(name)), *_changed(cell["from"], cell["to"]), moved])
    names = [*key, "column", "before", "after", ""]
    table = _plain_table(*names, whole=len(key))
    natural = [max(len(_name(name)), *(row[at].cell_len for row in rows)) for at, name in enumerate(names)]
    widths = _fitted(natural, len(key), width)
    for column, fitted in zip(table.columns[1:], widths, strict=True):
        column.width = column.max_width = fitted
    for row in rows:
        table.add_row(Text("~", "yellow"), *(row if widths[-1] else row[:-1]))  # a column of no width shows "…"
    return table


def _fitted(widths: list[int], keys: int, width: int) -> list[int]:
    """Widths that fit into the terminal: the difference goes first, then values and names; keys at last.

    >>> _fitted([6, 7, 20, 20, 24], 1, 80), _fitted([6, 7, 20, 20, 24], 1, 60)
    ([6, 7, 20, 20, 0], [6, 7, 20, 14, 0])
    """
    fitted = list(widths)
    over = sum(fitted) + 1 + _GAP * (len(fitted) + 1) - width
    order = [(len(fitted) - 1, 0), *((at, _SHORTEST_CELL) for at in range(len(fitted) - 2, keys - 1, -1))]
    for at, least in [*order, *((at, _SHORTEST_CELL) for at in range(keys))]:
        taken = max(0, min(over, fitted[at] - least))
        if at == len(fitted) - 1 and taken:
            taken = fitted[at]  # half a number says something else
        fitted[at] -= taken
        over -= taken
    return fitted


def _changed(old: object, new: object) -> tuple[Text, Text]:
    """Both values, long ones from shortly before their first difference on."""
    before, after = cell_text(old), cell_text(new)
    start = common_start(before, after) - _LEAD
    if start <= 0 or max(len(before), len(after)) <= _LONGEST_CELL or missing_word(old) or missing_word(new):
        return _cell(old, "red"), _cell(new, "green")
    return _cell("…" + before[start:], "red"), _cell("…" + after[start:], "green")


def _rules(profile: Event) -> Padding | None:
    """Blocks of rows, and rules that would hide many changes."""
    lines = [Text(_plain(words), "dim") for words in profile.get("blocks", ())]
    for rule in profile.get("suggestions", [])[:_MOST_RULES]:
        before, flag, after = rule["sentence"].partition(rule["flag"])
        lines.append(Text(_plain(before), "dim").append(_plain(flag), "cyan").append(_plain(after), "dim"))
    return Padding(Text("\n").join(lines), (0, 0, 0, 2)) if lines else None


def _rows(seen: Seen, width: int) -> Group | None:
    """The first removed and added rows, as many columns as fit."""
    events = [row for kind in ("removed", "added") for row in seen.rows if row["type"] == kind]
    if not events:
        return None
    key = seen.key or (["row"] if "row_index" in events[0] else [])
    columns = dict.fromkeys([*seen.schema.get("columns_b", []), *seen.schema.get("columns_a", [])])
    others = [name for name in columns if name not in key]
    names = _fitting(others, key, events, width)
    table = _plain_table(*key, *names, whole=len(key))
    for event in events:
        style = _STYLE[event["type"]]
        cells = [_cell(event["row"].get(name), style) for name in names]
        place = [Text(part.plain, style) for part in _place(event, key)]
        table.add_row(Text(_SIGN[event["type"]], style), *place, *cells)
    left_out = len(others) - len(names)
    return Group(table, *([Text(f"   … and {left_out:,} more columns", "dim")] if left_out else []))


def _fitting(names: list[str], key: Sequence[str], events: list[Event], width: int) -> list[str]:
    """The columns, from the left, that fit into the terminal."""
    keys = (max(len(_name(name)), *(len(_place(event, [name])[0].plain) for event in events)) for name in key)
    left = width - 3 - sum(_GAP + size for size in keys)
    chosen = []
    for name in names:
        left -= _GAP + max(len(_name(name)), *(len(_cell(event["row"].get(name)).plain) for event in events))
        if left < 0:
            break
        chosen.append(name)
    return chosen


def _rest(seen: Seen, hints: bool) -> Text | None:
    """How many changes are left out, and how to see them."""
    total = sum(seen.stats[f"rows_{kind}"] for kind in _SIGN)
    if not total:
        return Text("  no differences", "bold green")
    left = total - len(seen.rows)
    if not hints:
        return Text(f"  … and {left:,} more", "dim") if left > 0 else None
    line = Text("  ").append(f"{left:,} more: " if left > 0 else "", "dim")
    ways = (("-o changes.jsonl", " all, "), ("-o report.html", " a page, "), ("driftline ui", " browse"))
    for command, words in ways:
        line.append(command, "cyan").append(words, "dim")
    return line


def _plain_table(*names: str, whole: int = 0, longest: int = _LONGEST_CELL) -> Table:
    """A table without lines; the first `whole` columns are folded where they do not fit, the others cut."""
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
    table.add_column("", width=1, no_wrap=True)
    for number, name in enumerate(names):
        if number < whole:
            table.add_column(Text(_plain(name)), overflow="fold")
        else:
            table.add_column(Text(_name(name)), no_wrap=True, overflow="ellipsis", max_width=longest)
    return table


def _place(event: Event, key: Sequence[str]) -> list[Text]:
    if "key" in event:
        cells = (event["key"].get(name) for name in key)  # keys are never cut
        return [_cell(cell) if missing_word(cell) is not None else Text(_plain(cell_text(cell))) for cell in cells]
    return [Text(str(event.get("row_index", "")))] if key else []


def _cell(value: object, style: str = "") -> Text:
    word = missing_word(value)
    return Text(word, f"italic {style}".strip()) if word is not None else Text(_short(cell_text(value)), style)


def _short(text: str) -> str:
    """One line without control characters, cut to the width of a column."""
    plain = _plain(text[: _LONGEST_CELL * 2])
    return plain if len(plain) <= _LONGEST_CELL else plain[: _LONGEST_CELL - 1] + "…"


def _name(text: str) -> str:
    """The name of a column; of a long one both ends, which tell apart names that begin alike."""
    plain, half = _plain(text), _LONGEST_CELL // 2
    return plain if len(plain) <= _LONGEST_CELL else f"{plain[:half]}…{plain[1 - half :]}"


def _plain(text: str) -> str:
    """Text without control characters."""
    return "".join(each if each.isprintable() else "␊" if each == "\n" else "·" for each in text)


# The summary: counts, and the changed columns with counts and examples, as text tables.
def write_summary(lines: Iterable[bytes], out: BinaryIO, **settings: Any) -> None:
    """Write two tables: counts of rows, and changed columns."""
    seen = Seen(FIRST["summary"])
    seen.read(lines, settings.get("changes"))
    text = TextWriter(out)
    on_terminal = out.isatty()
    console = Console(
        file=cast(TextIO, text), highlight=False, width=None if on_terminal else 100, force_terminal=on_terminal
    )
    heading, profile = settings.get("heading", Title()), settings.get("profile") or {}
    if heading.compared:
        console.print(Text(f"{heading.compared}, {heading.how}, {heading.when}"))
    if heading.rules:
        console.print(Text(f"rules: {heading.rules}"))
    counts = Table("rows", title="What changed", title_justify="left")
    counts.add_column("count", justify="right")
    for count, words in _COUNTS.items():
        counts.add_row(words, f"{seen.stats[count]:,}")
    console.print(counts)
    if seen.changes:
        console.print(_columns_with_examples(seen, profile.get("columns", {})))
    for words in [*profile.get("blocks", ()), *(rule["sentence"] for rule in profile.get("suggestions", ()))]:
        console.print(Text(words))
    if seen.stats.get("truncated"):
        console.print("Examples cover the listed changes only: the list was limited.")
    text.flush()


def _columns_with_examples(seen: Seen, kinds: Event) -> Table:
    """How often each column changed, and examples from the first changed rows."""
    table = Table("column", title="Changed columns", title_justify="left")
    table.add_column("rows", justify="right")
    table.add_column("kind of change")
    table.add_column("examples")
    for name, count in sorted(seen.changes.items(), key=lambda item: (-item[1], item[0])):
        words = "\n".join(kinds.get(name, {}).get("words", ()))
        found = (_example(row, row["delta"][name]) for row in seen.rows if name in row["delta"])
        table.add_row(Text(name), f"{count:,}", Text(words), Text("\n".join(islice(found, _EXAMPLES))))
    return table


def _example(event: Event, cell: Event) -> str:
    """A changed cell: the key or the number of its row, the value before and the one after."""
    place = ", ".join(cell_text(part) for part in event["key"].values()) if "key" in event else ""
    sides = (repr(side) if isinstance(side, str) else cell_text(side) for side in (cell["from"], cell["to"]))
    before, after = map(_shortened, sides)
    return f"{_shortened(place) if 'key' in event else 'row ' + str(event['row_index'])}: {before} → {after}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_EXAMPLE else text[: _LONGEST_EXAMPLE - 1] + "…"

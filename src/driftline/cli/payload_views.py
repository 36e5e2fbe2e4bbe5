"""What people see of payload batches, suggestions and lints on a terminal; pipes get data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from driftline.payloads._values.values import spelled

if TYPE_CHECKING:
    from driftline.payloads import Finding
    from driftline.payloads._batch.view import BatchView, PlaceRow
    from driftline.payloads._suggest.evidence import Suggestion

_MOST_PLACES = 10
_MOST_FAILURES = 5
_LONGEST_VALUE = 40
_LEVELS = {"sure": "green", "review": "yellow", "finding": "red"}


def print_batch(view: BatchView, folder: str, console: Console) -> None:
    """Counts, endpoints, the most frequent places with an example, failed pairs, and where the rest is."""
    share = f"{view.matched / view.pairs:.1%}" if view.pairs else "–"
    head = Text.assemble((f"{view.pairs:,} pairs", "bold"), "  ", (f"{view.matched:,} match", "green"), f" ({share})  ")
    head.append(f"{view.different:,} differ", style="red" if view.different else "dim")
    head.append(f"  {view.failed:,} failed", style="yellow" if view.failed else "dim")
    console.print(head)
    if len(view.endpoints) > 1:
        console.print(_endpoints(view))
    if view.places:
        console.print(_places(view))
    for failure in view.failures[:_MOST_FAILURES]:
        line = f"line {failure['line']}" if failure["line"] else "no line"
        about = f"failed {spelled(failure['id'])} ({line}): {failure['message']}"
        console.print(Text(about, style="yellow"))
    left = [f"{len(view.places) - _MOST_PLACES} more places"] if len(view.places) > _MOST_PLACES else []
    left += [f"{view.failed - _MOST_FAILURES} more failed pairs"] if view.failed > _MOST_FAILURES else []
    words = f"{', '.join(left)}: " if left else ""
    console.print(Text(f"{words}look at {folder}/report.html", style="dim"), soft_wrap=True)


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold", no_wrap=name in right)
    return table


def _endpoints(view: BatchView) -> Padding:
    table = _table("endpoint", "match", "differ", "failed", right=("match", "differ", "failed"))
    for row in view.endpoints:
        table.add_row(row.name or "–", f"{row.matched:,}", f"{row.different:,}", f"{row.failed:,}")
    return Padding(table, (1, 0, 0, 0))


def _places(view: BatchView) -> Padding:
    table = _table("pairs", "share", "where", "what", "for example", right=("pairs", "share"))
    several = len(view.endpoints) > 1
    for place in view.places[:_MOST_PLACES]:
        where = Text(place.path, style="bold")
        where.append(f"\n{place.endpoint}" if several and place.endpoint else "", style="not bold dim")
        kind = Text(place.type, style="red" if place.severity == "ERROR" else "yellow")
        table.add_row(f"{place.pairs:,}", f"{place.rate:.1%}", where, kind, _example(place))
    return Padding(table, (1, 0, 1, 0))


def _example(place: PlaceRow) -> Text:
    if not place.examples:
        return Text("")
    one = place.examples[0]
    if place.severity != "ERROR" or "old_value" not in one:
        return Text(one.get("message", ""))
    old, new = _short(one["old_value"]), _short(one["new_value"])
    if place.type in ("MISSING_IN_NEW", "ARRAY_ITEM_MISSING"):
        return Text(f"{old} is gone")
    return Text(f"{new} is new" if place.type in ("EXTRA_IN_NEW", "ARRAY_ITEM_EXTRA") else f"{old} → {new}")


def _short(value: object) -> str:
    text = spelled(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def print_suggestions(found: list[Suggestion], chosen: list[Suggestion], pairs: str, console: Console) -> None:
    """Each suggestion with its evidence and what it would hide; those in force are marked."""
    taken = {id(one) for one in chosen}
    for one in found:
        head = Text.assemble((f"{one.level:<8}", _LEVELS[one.level]), (one.path, "bold"))
        head.append("  in force" if id(one) in taken else "", style="green")
        console.print(head, soft_wrap=True)
        for name, value in one.extensions.items():
            console.print(Text(f"        {name}: {spelled(value)}", style="cyan"), soft_wrap=True)
        console.print(Padding(Text(f"explains {one.explained} of {one.differing} differing; {one.why}"), (0, 0, 0, 8)))
        for old, new in one.examples[:1]:
            console.print(Padding(Text(f"for example {_shown(old)} → {_shown(new)}", style="dim"), (0, 0, 0, 8)))
        if one.hides and id(one) not in taken:
            console.print(Padding(Text(f"would hide {one.hides}", style="yellow"), (0, 0, 0, 8)))
    if found:
        hint = f"driftline payloads suggest {pairs} --accept ID --apply rules.yaml"
        console.print(Text(f"\nAn ID is a path and its rule, such as {found[0].id}: {hint}", style="dim"))
    else:
        console.print("The pairs do not differ: there is nothing to suggest.")


def _shown(value: object) -> str:
    from driftline.payloads._suggest.evidence import shown

    return _short(shown(value))


def print_lint(schema: str, findings: list[Finding], console: Console) -> None:
    """A line for each finding with its place, and a verdict."""
    for one in findings:
        line = Text.assemble((f"{schema}:{one.line}:{one.column}", "bold"), f": {one.message} ", (one.pointer, "dim"))
        console.print(line, soft_wrap=True)
    if findings:
        noun = "finding" if len(findings) == 1 else "findings"
        console.print(Text(f"{len(findings)} {noun}", style="bold red"))
    else:
        console.print(Text(f"{schema}: nothing to mend", style="green"), soft_wrap=True)

"""What `driftline index` says on a terminal: tables that fit its width, the important first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from driftline.cli.terminal import stderr_console

if TYPE_CHECKING:
    from rich.table import Table

    from driftline.codeindex import ApiReport, IndexDiff
    from driftline.codeindex._diff.files import Event

_MOST_ROWS = 40
_SIGNS = {
    "added": ("+", "green"),
    "removed": ("-", "red"),
    "modified": ("~", "yellow"),
    "renamed": ("→", "cyan"),
    "moved": ("→", "cyan"),
}


def show_diff(result: IndexDiff) -> None:
    """The summary, and what happened to which definition."""
    from driftline.codeindex import _view as render

    console = stderr_console()
    for line in render.summary_lines(result):
        console.print(line, markup=False)
    told = filter(_is_told, result.events)
    rows = [_event_row(event) for event in islice(told, _MOST_ROWS)]
    if rows:
        console.print(_table(("", "definition", "changed", "file"), rows, flexible=(1, 3)))
    hidden = sum(1 for _ in told)
    if hidden:
        console.print(f"{hidden} more: --format markdown, html or jsonl has them", style="dim")


def _is_told(event: Event) -> bool:
    """Definitions, and files that came, went or have another name; a modified file shows by its definitions."""
    return _kind(event) in _SIGNS and not event["kind"].startswith(("relation.", "file.modified"))


def _kind(event: Event) -> str:
    return str(event["kind"]).rpartition(".")[2]


def _event_row(event: Event) -> tuple[Any, ...]:
    from rich.text import Text

    sign, style = _SIGNS[_kind(event)]
    name = str(event.get("name") or ("" if event["kind"].startswith("file.") else "(rest of the file)"))
    before = event.get("before") or {}
    if _kind(event) in ("renamed", "moved") and before.get("name") not in (None, name):
        name = f"{before['name']} → {name}"
    changed = ", ".join(event.get("changes") or ()) or _kind(event)
    return Text(sign, style), name, changed, str(event.get("file", ""))


def show_api(report: ApiReport) -> None:
    """The changes of the public surface, the breaking ones first."""
    from rich.text import Text

    console = stderr_console()
    compatible = len(report.changes) - len(report.breaking)
    console.print(f"{report.labels[0]} → {report.labels[1]}", markup=False)
    console.print(f"[red]{len(report.breaking)} breaking[/red], {compatible} compatible")
    rows = [
        (
            Text(change.verdict, "red" if change.verdict == "breaking" else "green"),
            change.change,
            change.name,
            "; ".join(change.reasons),
            change.file,
        )
        for change in report.changes[:_MOST_ROWS]
    ]
    if rows:
        console.print(_table(("", "change", "name", "why", "file"), rows, flexible=(2, 3, 4)))
    if len(report.changes) > len(rows):
        console.print(f"{len(report.changes) - len(rows)} more: --format markdown or jsonl has them", style="dim")


def show_entries(entries: Sequence[dict[str, Any]]) -> None:
    """The diffs of a registry."""
    console = stderr_console()
    if not entries:
        console.print("no diffs are kept here")
        return
    rows = []
    for entry in entries:
        counts = entry["summary"] or {"filesChanged": "", "chunksChanged": ""}
        sides = " → ".join(_short(str(entry[side])) for side in ("from", "to"))
        cells = (entry["diffId"], entry["createdAt"][:16].replace("T", " "), ", ".join(entry["modes"]), sides)
        rows.append((*cells, str(counts["filesChanged"]), str(counts["chunksChanged"])))
    console.print(_table(("diff", "made", "modes", "sides", "files", "chunks"), rows, flexible=(3,)))


def _short(reference: str) -> str:
    """A reference by a tree's id, as short as git shows ids."""
    return reference[:16] if reference.startswith("git:") else reference


def _table(names: Sequence[str], rows: Iterable[Sequence[Any]], *, flexible: Sequence[int]) -> Table:
    """A table without frames; the flexible columns give way where the terminal is narrow."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, name in enumerate(names):
        table.add_column(name, overflow="fold" if number in flexible else "ellipsis", no_wrap=number not in flexible)
    for row in rows:
        # Names come from source code: no cell is markup.
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table

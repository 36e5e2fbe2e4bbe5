"""CSV and Markdown.

CSV has every row version of the diff as a row, with its kind of change; a changed row gives two rows, `before` and
`after`. Columns: `_change`, `_row` (positional diffs), then A's header and the columns that only B has. Where the table
has a column of such a name, this one gets another underscore. Markdown has one line for each added or removed row and
each changed cell, then the counts.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, BinaryIO

from driftline.core import exact_loads
from driftline.sinks._formats import TextWriter, cell_text

_SIDE_B = ("after", "added")
_COUNTS = ("rows_total_compared", "rows_added", "rows_removed", "rows_changed", "rows_unchanged")


def write_csv(lines: Iterable[bytes], out: BinaryIO, *, positional: bool | None = None, **settings: Any) -> None:
    """Write the row versions; the stats are left out."""
    events = map(exact_loads, lines)
    schema, first = next(events), next(events)
    with_row_number = "row_index" in first if positional is None else positional
    columns = _named_columns(schema)
    shown: list[str] | None = settings.get("columns")
    columns = [pair for pair in columns if shown is None or pair[0] in shown]
    names = [name for name, _ in columns]
    text = TextWriter(out)
    table = csv.writer(text, delimiter=settings.get("delimiter", ","), lineterminator="\n")
    table.writerow([*_own_names(with_row_number, names), *names])
    for event in chain([first], events):
        number = [event["row_index"]] if with_row_number and "row_index" in event else []
        for change, row in _versions(event):
            in_b = change in _SIDE_B
            cells = (row.get(of_b if in_b else name) for name, of_b in columns)
            table.writerow([change, *number, *("" if cell is None else cell_text(cell) for cell in cells)])
    text.flush()


def _named_columns(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """The name of every column, and its name in B's rows."""
    renamed = schema.get("renamed", {})
    columns = [(name, renamed.get(name, name)) for name in schema["columns_a"]]
    known = {of_b for _, of_b in columns}
    return [*columns, *((name, name) for name in schema["columns_b"] if name not in known)]


def _own_names(with_row_number: bool, taken: list[str]) -> Iterator[str]:
    for name in ["_change", *(["_row"] if with_row_number else [])]:
        while name in taken:
            name = "_" + name
        yield name


def _versions(event: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    if event["type"] == "changed":
        return [("before", event["before"]), ("after", event["after"])]
    return [(event["type"], event["row"])] if "row" in event else []


def write_markdown(lines: Iterable[bytes], out: BinaryIO, **settings: Any) -> None:
    """Write a table of changes, followed by the counts."""
    out.write(b"| change | row | column | from | to |\n|---|---|---|---|---|\n")
    shown: list[str] | None = settings.get("columns")
    stats: dict[str, Any] = {}
    for line in lines:
        event = exact_loads(line)
        if event["type"] == "stats":
            stats = event
        for cells in _table_rows(event, shown):
            out.write(_table_line(cells))
    out.write(b"\n| counted | rows |\n|---|---:|\n")
    for name in _COUNTS:
        out.write(_table_line([name.removeprefix("rows_").replace("_", " "), str(stats[name])]))
    _write_kinds(settings.get("profile") or {}, out)
    if stats.get("truncated"):
        out.write(b"\nNot every change is listed: the list was limited.\n")


def _write_kinds(profile: dict[str, Any], out: BinaryIO) -> None:
    """A table of the columns with the kind of change, and the findings."""
    if profile.get("columns"):
        out.write(b"\n| column | changed | kind of change |\n|---|---:|---|\n")
    for name, about in profile.get("columns", {}).items():
        out.write(_table_line([name, f"{about['changes']:,}", " · ".join(about["words"])]))
    findings = [*profile.get("blocks", ()), *(rule["sentence"] for rule in profile.get("suggestions", ()))]
    out.write(b"\n" if findings else b"")
    out.writelines(f"- {_escaped(words)}\n".encode() for words in findings)


def _table_rows(event: dict[str, Any], shown: list[str] | None) -> list[list[str]]:
    kind, place = event["type"], _row_text(event["key"]) if "key" in event else str(event.get("row_index", ""))
    if kind == "changed":
        cells = event["delta"].items()
        return [[kind, place, name, cell_text(cell["from"]), cell_text(cell["to"])] for name, cell in cells]
    if kind == "added":
        return [[kind, place, "", "", _row_text(event["row"], shown)]]
    if kind in ("removed", "unchanged"):
        return [[kind, place, "", _row_text(event["row"], shown), ""]]
    return []


def _row_text(row: dict[str, Any], shown: list[str] | None = None) -> str:
    return ", ".join(f"{name}={cell_text(value)}" for name, value in row.items() if shown is None or name in shown)


def _table_line(cells: list[str]) -> bytes:
    return f"| {' | '.join(map(_escaped, cells))} |\n".encode("utf-8", "backslashreplace")


def _escaped(text: str) -> str:
    # Where Markdown is shown, HTML in it is HTML.
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = escaped.replace("\\", "\\\\").replace("|", "\\|")
    return escaped.replace("\r\n", "<br>").replace("\n", "<br>").replace("\r", "<br>")

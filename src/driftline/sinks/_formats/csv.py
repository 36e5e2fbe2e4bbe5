"""CSV: every row version of the diff as a row, with its kind of change.

A changed row gives two rows, `before` and `after`. Columns: `_change`, `_row` (positional diffs), then A's header and
the columns that only B has. Where the table has a column of such a name, this one gets another underscore.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, BinaryIO

from driftline.core import exact_loads
from driftline.sinks._formats import TextWriter, cell_text

_SIDE_B = ("after", "added")


def write(lines: Iterable[bytes], out: BinaryIO, *, positional: bool | None = None, **settings: Any) -> None:
    """Write the row versions; the stats are left out."""
    events = map(exact_loads, lines)
    schema, first = next(events), next(events)
    with_row_number = "row_index" in first if positional is None else positional
    columns = _columns(schema)
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
            table.writerow([change, *number, *(_cell(row.get(of_b if in_b else name)) for name, of_b in columns)])
    text.flush()


def _columns(schema: dict[str, Any]) -> list[tuple[str, str]]:
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


def _cell(value: object) -> str:
    return "" if value is None else cell_text(value)

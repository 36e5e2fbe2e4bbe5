"""CSV: every row version of the diff as a row, marked with what happened to it.

A changed row gives two rows, `before` and `after`. Columns: `_change`, `_row` (positional diffs), then A's header.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO


def write(lines: Iterable[bytes], out: BinaryIO, **settings: Any) -> None:
    """Write the row versions; the stats have no place in this format."""
    events = map(json.loads, lines)
    columns = next(events)["columns_a"]
    text = io.TextIOWrapper(out, encoding="utf-8", newline="")
    table = csv.writer(text, lineterminator="\n")
    first = next(events)
    with_row_number = "row_index" in first
    table.writerow(["_change", *(["_row"] if with_row_number else []), *columns])
    for event in _chain(first, events):
        place = [event["row_index"]] if with_row_number and "row_index" in event else []
        for change, row in _versions(event):
            table.writerow([change, *place, *(_cell(row[name]) for name in columns)])
    text.flush()
    text.detach()


def _chain(first: dict[str, Any], rest: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield first
    yield from rest


def _versions(event: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    if event["type"] == "changed":
        return [("before", event["before"]), ("after", event["after"])]
    return [(event["type"], event["row"])] if "row" in event else []


def _cell(value: Any) -> str:
    """Text as it is; typed values as JSON, null as nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))

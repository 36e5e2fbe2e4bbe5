"""The formats a stream of events can be written in, by name.

A format is a function that takes the lines of the JSONL stream (schema first, stats last) and a binary file.
Its code is imported when it is first used; those of rooms above this one are offered by name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, BinaryIO, Protocol

from driftline.core._extras import load_function, offered
from driftline.core._files import StrPath
from driftline.errors import OptionError
from driftline.sinks.limits import limit_events

FORMATS: dict[str, str] = {
    "jsonl": "driftline.sinks.jsonl:write",
    "json": "driftline.sinks.json_array:write",
    "csv": "driftline.sinks.csv_rows:write",
    "markdown": "driftline.sinks.markdown:write",
    "summary": "driftline.sinks.summary:write",
    "terminal": "driftline.sinks.terminal:write",
    "html": "driftline.sinks.html:write",
    "parquet": "driftline.sinks.event_table:write",
    "delta": "driftline.sinks.event_table:write",
    **offered("event format"),
}


_ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".parquet": "parquet",
}


class EventWriter(Protocol):
    """Writes a stream of events in one format; `settings` are options of that format alone."""

    def __call__(self, lines: Iterable[bytes], out: BinaryIO, **settings: object) -> None:
        """Write all lines to `out`."""


def format_for(path: StrPath | None, name: str | None = None) -> str:
    """The format that was asked for, else the one that the output's ending means, else JSONL.

    >>> format_for("report.html"), format_for("report.html", "json"), format_for(None)
    ('html', 'json', 'jsonl')
    """
    if name is not None:
        return name
    return "jsonl" if path is None else _ENDINGS.get(os.path.splitext(os.fspath(path))[1].lower(), "jsonl")


def find_format(name: str) -> EventWriter:
    """The writer of that name."""
    if name not in FORMATS:
        raise OptionError(f'Unsupported format: "{name}" ({", ".join(FORMATS)})', code="invalid_format")
    writer: EventWriter = load_function(FORMATS[name])
    return writer


def write_events(
    lines: Iterable[bytes],
    out: BinaryIO,
    name: str = "jsonl",
    *,
    limit: int | None = None,
    changed_only: bool = False,
    **settings: object,
) -> None:
    """Write a stream of events in the format of that name, with at most `limit` events of each kind.

    With `changed_only` rows are shown with their key and the columns that differ somewhere.
    """
    writer = find_format(name)
    shown = lines if limit is None else limit_events(lines, limit)
    if not changed_only:
        writer(shown, out, **settings)
        return
    import tempfile

    with tempfile.TemporaryFile() as spool:  # looked at twice
        spool.writelines(shown)
        spool.seek(0)
        columns = _differing_columns(map(json.loads, spool))
        spool.seek(0)
        writer(spool, out, columns=columns, **settings)


def _differing_columns(events: Iterable[dict[str, Any]]) -> set[str]:
    """Key columns and columns that differ in some event, by the names that rows of either side have for them."""
    renamed: dict[str, str] = {}
    found: set[str] = set()
    for event in events:
        renamed.update(event.get("renamed", {}))
        found.update(event.get("key", ()), event.get("changed", ()))
    return found | {renamed[name] for name in found if name in renamed}

"""The formats a stream of events can be written in, by name.

A format is a function that takes the lines of the JSONL stream (schema first, stats last) and a binary file.
Its code is imported when it is first used; formats of packages above this one are named as text.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple, Protocol

from driftline.core import StrPath, load_function
from driftline.errors import OptionError

# JSON: the events as one array, an event a line.


def write_json(lines: Iterable[bytes], out: BinaryIO, **settings: object) -> None:
    """An array of all events; line breaks never occur inside an event."""
    opening = b"[\n"
    for line in lines:
        out.write(opening + line.rstrip(b"\n"))
        opening = b",\n"
    out.write(b"[]\n" if opening == b"[\n" else b"\n]\n")


# JSONL: the stream as it is.


def write_jsonl(lines: Iterable[bytes], out: BinaryIO, **settings: object) -> None:
    """One event a line."""
    out.writelines(lines)


# At most so many events of each kind; order and counts stay those of the whole diff.


_ALWAYS = ("schema", "stats")


def limit_events(lines: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """Pass on the first `limit` events of each kind; if any was held back, the stats say `truncated`.

    >>> events = [b'{"type":"added","row":{}}\\n', b'{"type":"added","row":{}}\\n', b'{"type":"stats"}\\n']
    >>> list(limit_events(events, 1))
    [b'{"type":"added","row":{}}\\n', b'{"type":"stats","truncated":true}\\n']
    """
    seen: Counter[str] = Counter()
    for line in lines:
        kind = kind_of(line)
        seen[kind] += 1
        if kind in _ALWAYS:
            truncated = any(count > limit for name, count in seen.items() if name not in _ALWAYS)
            yield _marked(line) if kind == "stats" and truncated else line
        elif seen[kind] <= limit:
            yield line


def kind_of(line: bytes) -> str:
    """The type of an event, which is always its first member."""
    return line.split(b'"', 4)[3].decode()


def _marked(line: bytes) -> bytes:
    event = json.loads(line)
    event["truncated"] = True
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


# Text to a binary stream that belongs to somebody else, and cells as text.


_BLOCK_CHARACTERS = 1 << 16


class Title(NamedTuple):
    """What stands above a view for people: what was compared, by what rows meet, which rules held, and when."""

    compared: str = ""
    how: str = ""
    rules: str = ""
    when: str = ""


class TextWriter:
    """Writes UTF-8 in blocks. Unlike `io.TextIOWrapper` it never closes the stream, nor tries again what failed."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._parts: list[str] = []
        self._held = 0

    def write(self, text: str) -> int:
        """Take some text."""
        self._parts.append(text)
        self._held += len(text)
        if self._held > _BLOCK_CHARACTERS:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Pass on what was taken; half a character has no UTF-8 and is written as an escape."""
        text, self._parts, self._held = "".join(self._parts), [], 0
        self._out.write(text.encode("utf-8", "backslashreplace"))


def cell_text(value: object) -> str:
    """Text as it is, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


FORMATS: dict[str, str] = {
    "jsonl": "driftline.sinks._formats:write_jsonl",
    "json": "driftline.sinks._formats:write_json",
    "csv": "driftline.sinks._formats.csv:write",
    "markdown": "driftline.sinks._formats.markdown:write",
    "summary": "driftline.sinks._formats.summary:write",
    "terminal": "driftline.sinks._formats.terminal:write",
    "html": "driftline.sinks._formats.html:write",
    "parquet": "driftline.sinks._formats.table:write",
    "delta": "driftline.sinks._formats.table:write",
    "changeset": "driftline.changesets:write_changeset",
    "patchset": "driftline.changesets:write_patchset",
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

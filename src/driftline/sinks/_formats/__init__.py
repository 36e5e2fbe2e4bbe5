"""The registry of event formats, with the plain ones (JSONL, JSON), and what all of them share.

A format is a function that takes the lines of the JSONL stream (schema first, stats last) and a binary file. It is
imported when it is first used; formats of the packages above this one are named as text. A file of this folder that the
list does not name is a format too: its `write`, for files whose suffix is its name (`yaml.py` writes `*.yaml`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import groupby
from typing import Any, BinaryIO, NamedTuple, Protocol

from driftline.core import FILE_SUFFIXES, StrPath, exact_dumps, exact_loads, load_function
from driftline.errors import OptionError


class EventFormat(NamedTuple):
    """One format: where its writer is, which files have it, and where it is offered."""

    writer: str  # module:function, imported when it is first used
    suffixes: tuple[str, ...] = ()
    media_type: str | None = None  # of its downloads; None: the console does not offer it
    is_plain: bool = False  # needs nothing but the events: pipelines write it
    about: str = ""  # in the help of `driftline diff`


# The one list: help, pipeline, template and console derive from it.
FORMATS: dict[str, EventFormat] = {
    "jsonl": EventFormat(f"{__name__}:write_jsonl", (".jsonl", ".ndjson"), "application/x-ndjson", is_plain=True),
    "json": EventFormat(f"{__name__}:write_json", (".json",), "application/json", is_plain=True),
    "csv": EventFormat(f"{__name__}.text:write_csv", (".csv", ".tsv", ".tab"), "text/csv", is_plain=True),
    "markdown": EventFormat(f"{__name__}.text:write_markdown", (".md", ".markdown"), "text/markdown", is_plain=True),
    "summary": EventFormat(f"{__name__}.terminal:write_summary"),
    "terminal": EventFormat(f"{__name__}.terminal:write", about="what a terminal shows"),
    "html": EventFormat(f"{__name__}.html:write", (".html", ".htm"), "text/html", about="one self-contained page"),
    "parquet": EventFormat(f"{__name__}.table:write", (".parquet",), is_plain=True, about="a table of events"),
    "delta": EventFormat(f"{__name__}.table:write", is_plain=True, about="a table of events"),
    "changeset": EventFormat("driftline.changesets:write_changeset", about="for SQLite"),
    "patchset": EventFormat("driftline.changesets:write_patchset", about="for SQLite"),
}
_TABBED = (".tsv", ".tab")
_PACKINGS = {".gz": "gzip:GzipFile", ".bz2": "bz2:BZ2File", ".xz": "lzma:LZMAFile", ".zst": "backports.zstd:ZstdFile"}
_UNPACKED = ("parquet", "delta", "changeset", "patchset")
_ALWAYS = ("schema", "stats")
# Formats that show the first events of each kind alone, if they get how often each column changed.
FIRST: dict[str, dict[str, int]] = {
    "terminal": {"added": 3, "removed": 3, "changed": 6},
    "html": dict.fromkeys(("added", "removed", "changed"), 2000),
    "summary": {"changed": 1000},
}
_BLOCK_CHARACTERS = 1 << 16


class EventWriter(Protocol):
    """Writes a stream of events in one format; `settings` are options of that format alone."""

    def __call__(self, lines: Iterable[bytes], out: BinaryIO, **settings: object) -> None:
        """Write all lines to `out`."""


def format_for(path: StrPath | None, name: str | None = None) -> str:
    """The format `name`, else the one of the output's suffix, else JSONL; a suffix of another kind of file is refused.

    >>> format_for("report.html"), format_for("report.html", "json"), format_for("changes.csv.gz"), format_for(None)
    ('html', 'json', 'csv', 'jsonl')
    """
    if path is None:
        return name or "jsonl"
    stem, suffix = _suffixes(path)
    packing = os.fspath(path)[len(stem) :].lower()
    chosen = name or next((key for key, each in event_formats(suffix).items() if suffix in each.suffixes), None)
    known = ", ".join(suffix for each in FORMATS.values() for suffix in each.suffixes)
    if packing and chosen in _UNPACKED:
        raise OptionError(f"{os.fspath(path)}: {chosen} is not written compressed: leave {packing} out", code="usage")
    if chosen is None and (suffix in FILE_SUFFIXES or (packing and not suffix)):
        raise OptionError(
            f"{os.fspath(path)}: no events are written as {suffix or packing}: use one of {known}, or name a --format",
            code="invalid_format",
        )
    return chosen or "jsonl"


def _suffixes(path: StrPath) -> tuple[str, str]:
    """A path without the suffix of a compression, and its own suffix."""
    stem, suffix = os.path.splitext(os.fspath(path))
    plain = stem if suffix.lower() in _PACKINGS else os.fspath(path)
    return plain, os.path.splitext(plain)[1].lower()


def settings_for(path: StrPath | None) -> dict[str, str]:
    """What an output's suffix says beside its format."""
    return {"delimiter": "\t"} if path is not None and _suffixes(path)[1] in _TABBED else {}


@contextmanager
def packed(out: BinaryIO, path: StrPath | None) -> Iterator[BinaryIO]:
    """The same output, compressed where the suffix of its path says so."""
    suffix = "" if path is None else os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in _PACKINGS:
        yield out
        return
    module, opener = _PACKINGS[suffix].split(":")
    # A file name or time in the archive would make equal results different.
    about = {"filename": "", "mtime": 0, "fileobj": out, "mode": "wb"} if suffix == ".gz" else {}
    make = getattr(import_module(module), opener)
    with make(**about) if about else make(out, "wb") as archive:
        yield archive


def event_formats(suffix: str | None = None) -> Mapping[str, EventFormat]:
    """All formats, those of further files of this folder too; they are looked for unless the list has the suffix."""
    if suffix is not None and (not suffix or any(suffix in each.suffixes for each in FORMATS.values())):
        return FORMATS
    from pkgutil import iter_modules

    listed = {each.writer.partition(":")[0].rpartition(".")[2] for each in FORMATS.values()}
    added = [found.name for found in iter_modules(__path__) if found.name not in listed]
    plain = (EventFormat(f"{__name__}.{name}:write", (f".{name}",), "text/plain", is_plain=True) for name in added)
    return {**FORMATS, **dict(zip(added, plain, strict=True))}


def formats_text() -> str:
    """The formats for a help page: those that share what is to be said about them together.

    >>> formats_text().endswith("parquet or delta (a table of events), changeset or patchset (for SQLite)")
    True
    """
    groups = groupby(FORMATS.items(), key=lambda each: each[1].about)
    texts = (([name for name, _ in group], about) for about, group in groups)
    return ", ".join(f"{' or '.join(names)} ({about})" if about else ", ".join(names) for names, about in texts)


def plain_formats() -> tuple[str, ...]:
    """The formats that need nothing but the events."""
    return tuple(name for name, each in event_formats().items() if each.is_plain)


def find_format(name: str) -> EventWriter:
    """The writer of a format."""
    known = FORMATS if name in FORMATS else event_formats()
    if name not in known:
        raise OptionError(f'Unsupported format: "{name}" ({", ".join(known)})', code="invalid_format")
    writer: EventWriter = load_function(known[name].writer)
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
    """Write a stream of events in a format, with at most `limit` events of each kind.

    With `changed_only` rows are written with their key and the columns that differ in some row.
    """
    writer = find_format(name)
    shown = lines if limit is None else limit_events(lines, limit)
    if not changed_only:
        writer(shown, out, **settings)
        return
    import tempfile

    with tempfile.TemporaryFile() as spool:  # read twice
        spool.writelines(shown)
        spool.seek(0)
        columns = _differing_columns(map(exact_loads, spool))
        spool.seek(0)
        writer(spool, out, columns=columns, **settings)


def _differing_columns(events: Iterable[dict[str, Any]]) -> set[str]:
    """Key columns and columns that differ in some event, by their names in both inputs."""
    renamed: dict[str, str] = {}
    found: set[str] = set()
    for event in events:
        renamed.update(event.get("renamed", {}))
        found.update(event.get("key", ()), event.get("changed", ()))
    return found | {renamed[name] for name in found if name in renamed}


def write_json(lines: Iterable[bytes], out: BinaryIO, **settings: object) -> None:
    """One array of all events, one event a line: an event never contains a line break."""
    opening = b"[\n"
    for line in lines:
        out.write(opening + line.rstrip(b"\n"))
        opening = b",\n"
    out.write(b"[]\n" if opening == b"[\n" else b"\n]\n")


def write_jsonl(lines: Iterable[bytes], out: BinaryIO, **settings: object) -> None:
    out.writelines(lines)


def limit_events(lines: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """The first `limit` events of each kind, in order; if any is left out, the stats have `truncated`.

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
            mark = b',"truncated":true}\n' if kind == "stats" and truncated else None
            yield line if mark is None else line.rstrip().removesuffix(b"}") + mark
        elif seen[kind] <= limit:
            yield line


class FirstEvents:
    """A place for the stream of an engine that keeps the first events of each kind, and those of which there is one.

    A summary needs no more: the counts are known to the engine.

    >>> kept = FirstEvents({"added": 1})
    >>> _ = [kept.write(piece) for piece in (b'{"type":"added","row":{}}\\n{"type":"ad', b'ded","row":{}}\\n')]
    >>> kept.lines()
    [b'{"type":"added","row":{}}\\n']
    """

    def __init__(self, most: dict[str, int]) -> None:
        self._left = {**dict.fromkeys((*_ALWAYS, "column_stats"), 1), **most}
        self._kept: list[tuple[int, bytes]] = []
        self._rest = b"\n"  # a line break before the first line
        self._position = 0

    def write(self, data: bytes | memoryview) -> int:
        """Take a piece of the stream, which may end inside a line."""
        block = self._rest + bytes(data)
        end = block.rfind(b"\n")
        for kind, left in self._left.items():
            at, mark = -1, b'\n{"type":"%s"' % kind.encode()
            while left and (at := block.find(mark, at + 1, end)) >= 0:
                stop = block.index(b"\n", at + 1) + 1
                self._kept.append((self._position + at, block[at + 1 : stop]))
                left -= 1
            self._left[kind] = left
        self._position += end
        self._rest = block[end:]
        return len(data)

    def lines(self) -> list[bytes]:
        """The events that were kept, in their order."""
        return [line for _, line in sorted(self._kept)]


def kind_of(line: bytes) -> str:
    """The type of an event, which is always its first member."""
    return line.split(b'"', 4)[3].decode()


class Title(NamedTuple):
    """The title of a rendered diff: the inputs, how rows are matched, the rules, and the time."""

    compared: str = ""
    how: str = ""
    rules: str = ""
    when: str = ""


@dataclass
class Seen:
    """What is shown of a diff: schema, stats, how often each column changed, and the first events of each kind."""

    most: Mapping[str, int]  # events of each kind that are kept
    schema: dict[str, Any] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def read(self, lines: Iterable[bytes], changes: Mapping[str, int] | None = None) -> None:
        """Take the events; `changes` says how often each column changed, without it that is counted."""
        left = dict(self.most)
        for event in map(exact_loads, lines):
            kind = event["type"]
            if kind == "schema":
                self.schema = event
            elif kind == "stats":
                self.stats = event
            elif kind in left:
                self.changes.update(list(event.get("delta", {})))
                if left[kind]:
                    left[kind] -= 1
                    self.rows.append(event)
        if changes is not None:
            self.changes = +Counter(changes)

    @property
    def key(self) -> list[str]:
        return next((list(row["key"]) for row in self.rows if "key" in row), [])


class TextWriter:
    """Writes UTF-8 in blocks; unlike `io.TextIOWrapper` it never closes the stream nor repeats a failed write."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._parts: list[str] = []
        self._held = 0

    def write(self, text: str) -> int:
        self._parts.append(text)
        self._held += len(text)
        if self._held > _BLOCK_CHARACTERS:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Write the buffered text; a lone surrogate has no UTF-8 and is written as an escape."""
        text, self._parts, self._held = "".join(self._parts), [], 0
        self._out.write(text.encode("utf-8", "backslashreplace"))


def cell_text(value: object) -> str:
    """A value as text: text as it is, other values as JSON."""
    return value if isinstance(value, str) else exact_dumps(value)

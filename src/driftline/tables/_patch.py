"""A CSV table with the changes of a diff (`patch`), written again in the style of its file."""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from driftline.core import StrPath, Workspace, open_output, read_lines
from driftline.errors import InputError, PatchConflict, TableError
from driftline.sources import CsvSource, TextTable, decoded, exact_encoding, open_source
from driftline.tables._options import check_options

Event = dict[str, Any]
Cells = list[str]

_KINDS = ("added", "removed", "changed")
_BLOCK_ROWS = 1000
_FIRST_LINE_END = re.compile(r"\r\n|\r|\n")


# Reading a table, and writing it in the style of the file (tables §7.1).


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """How rows are written: minimal quotes, a line end after every row, no byte order mark."""

    delimiter: str
    encoding: str
    line_end: str

    @classmethod
    def of(cls, source: CsvSource) -> CsvStyle:
        """The style of a side's first file."""
        file, reading = source.files[0], source.reading
        with file.open() as stream:
            start = stream.read(4)
            line_end = _line_end(decoded(stream, reading.encoding))
        return cls(reading.delimiter, exact_encoding(reading.encoding, start), line_end)

    def write(self, rows: Iterable[Sequence[str] | str], out: BinaryIO) -> None:
        """Write rows; a text is a line of its own."""
        block: list[str] = []
        for row in rows:
            block.append(self._line(row))
            if len(block) >= _BLOCK_ROWS:
                out.write(self._encoded("".join(block)))
                block = []
        out.write(self._encoded("".join(block)))

    def _line(self, row: Sequence[str] | str) -> str:
        if isinstance(row, str):
            return row + self.line_end
        if len(row) == 1 and not row[0]:
            return '""' + self.line_end  # an empty line would be a blank line
        return self.delimiter.join(map(self._field, row)) + self.line_end

    def _field(self, cell: str) -> str:
        if any(letter in cell for letter in (self.delimiter, '"', "\r", "\n")) or cell.startswith("\ufeff"):
            return f'"{cell.replace(chr(34), chr(34) * 2)}"'
        return cell

    def _encoded(self, text: str) -> bytes:
        try:
            return text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise TableError(
                f"{text[error.start : error.end]!r} cannot be written in {self.encoding}: name another --encoding",
                code="invalid_encoding",
            ) from None


def _line_end(pieces: Iterable[str]) -> str:
    """The first line end outside quotes."""
    inside, text = False, ""
    for piece in pieces:
        text += piece
        if text.endswith("\r"):
            continue  # a line feed may follow
        for part in re.split('(")', text):
            inside ^= part == '"'
            found = None if inside else _FIRST_LINE_END.search(part)
            if found:
                return found[0]
        text = ""
    found = _FIRST_LINE_END.search(text)
    return found[0] if found and not inside else "\n"


# Patch: a table with the changes of a diff (tables §7.2).


def patch(a: StrPath, events: StrPath | Iterable[bytes], output: StrPath | None = None, **reading: Any) -> None:
    """Write the CSV table A with the events of a diff applied, to a file or to standard output.

    `events` is a file of JSON Lines or their lines (`diff(…).lines()`); `reading` are the options of `diff` that say
    how a file is read.

    >>> import pathlib, tempfile
    >>> from driftline import diff
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name, text in {"a.csv": "1,x", "b.csv": "1,y"}.items():
    ...     _ = (folder / name).write_text(f"id,v\\n{text}\\n")
    >>> patch(folder / "a.csv", diff(folder / "a.csv", folder / "b.csv", key="id").lines(), folder / "c.csv")
    >>> (folder / "c.csv").read_text()
    'id,v\\n1,y\\n'
    """
    path = os.fspath(events) if isinstance(events, (str, os.PathLike)) else None
    lines = cast("Iterable[bytes]", events) if path is None else read_lines(path)
    with Workspace() as workspace:
        source = open_source(a, workspace, check_options(**reading).reading("A"))
        if not isinstance(source, CsvSource):
            words = f"{os.fspath(a)} is {source.format}: only CSV tables can be patched"
            raise InputError(words, code="unsupported_format")
        table, first = source.text_table("A"), [] if source.reading.no_header else [source.first_record("A")]
        rows = patch_table(table, lines, path or "the events")
        with open_output(None if output is None else os.fspath(output), (a, *([path] if path else []))) as out:
            CsvStyle.of(source).write([*first, *rows], out)


@dataclass
class _Patch:
    """The events of a diff, checked to be complete."""

    schema: Event
    changes: list[Event] = field(default_factory=list)


def patch_table(table: TextTable, lines: Iterable[bytes], name: str = "the events") -> Iterator[Cells]:
    """The rows of A in A's order with the changes applied, then added rows in the order of events.

    Raises before the first row if anything does not fit.
    """
    patch = _read(lines, name)
    if patch.schema["columns_a"] != table.header:
        made_of, has = (json.dumps(names, ensure_ascii=False) for names in (patch.schema["columns_a"], table.header))
        raise TableError(f"{name} were made of the columns {made_of}, the table has {has}", code="header_mismatch")
    _check_columns(patch, table.header)
    replaced, added = _applied(table, patch)
    kept = (replaced.get(at, row) for at, (_, row) in enumerate(table.rows))
    return iter([row for row in kept if row is not None] + added)


def _read(lines: Iterable[bytes], name: str) -> _Patch:
    patch: _Patch | None = None
    stats: Event | None = None
    for number, line in enumerate(lines, 1):
        event = _event(line, number, name)
        if event["type"] == "schema":
            patch = _Patch(event)
        elif event["type"] == "stats":
            stats = event
        elif patch is not None and event["type"] in _KINDS:
            patch.changes.append(event)
    if patch is None or stats is None:
        raise _incomplete(f"{name} have no {'schema' if patch is None else 'stats'} event")
    counts = Counter(event["type"] for event in patch.changes)
    for kind in _KINDS:
        expected = stats.get(f"rows_{kind}")
        if counts[kind] != expected:
            raise _incomplete(f"{name} hold {counts[kind]} {kind} events, their stats count {expected}")
    return patch


def _event(line: bytes, number: int, name: str) -> Event:
    try:
        event = json.loads(line)
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            raise ValueError("no event")
    except ValueError as error:
        raise InputError(f"{name}, line {number}: {error}", code="invalid_jsonl", line=number) from None
    return event


def _check_columns(patch: _Patch, header: Sequence[str]) -> None:
    renamed = {new: old for old, new in patch.schema.get("renamed", {}).items()}
    unknown = [column for column in patch.schema["columns_b"] if renamed.get(column, column) not in header]
    if unknown:
        raise _incomplete(f"column {json.dumps(unknown[0], ensure_ascii=False)} is not in the table")
    for event in patch.changes:
        for row in (event.get(part) for part in ("before", "after", "row")):
            if row is not None and not all(isinstance(cell, str) for cell in row.values()):
                raise _incomplete("the events hold typed values, the table text")


def _applied(table: TextTable, patch: _Patch) -> tuple[dict[int, Cells | None], list[Cells]]:
    """New rows by their positions in the table, None for removed ones, and the added rows."""
    positions = _Positions(table)
    renamed = {new: old for old, new in patch.schema.get("renamed", {}).items()}
    replaced: dict[int, Cells | None] = {}
    added: list[Cells] = []
    for event in patch.changes:
        if event["type"] == "added":
            own = {renamed.get(name, name): cell for name, cell in event["row"].items()}
            added.append([own.get(name, "") for name in table.header])
            continue
        old = event["before"] if event["type"] == "changed" else event["row"]
        at = positions.take([old.get(name, "") for name in table.header], event)
        if event["type"] == "removed":
            replaced[at] = None
        else:
            new = {renamed.get(name, name): cell for name, cell in event["after"].items()}
            replaced[at] = [new.get(name, old.get(name, "")) for name in table.header]
    return replaced, added


class _Positions:
    """Positions of rows: each is used once, of equal rows the first one; without a key the last one."""

    def __init__(self, table: TextTable) -> None:
        self._by_number = {number: at for at, (number, _) in enumerate(table.rows)}
        self._rows = [row for _, row in table.rows]
        self._by_cells: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for at, row in enumerate(self._rows):
            self._by_cells[tuple(row)].append(at)
        self._used: set[int] = set()

    def take(self, row: Cells, event: Event) -> int:
        if "row_index" in event:
            at = self._by_number.get(event["row_index"])
            if at is None or self._rows[at] != row or at in self._used:
                raise _conflict(event)
            self._used.add(at)
            return at
        free = self._by_cells[tuple(row)]
        if not free:
            raise _conflict(event)
        return free.pop(0) if "key" in event else free.pop()


def _conflict(event: Event) -> PatchConflict:
    place = event.get("key", {"row_index": event["row_index"]} if "row_index" in event else event.get("row"))
    shown = json.dumps(place, ensure_ascii=False, separators=(",", ":"))
    return PatchConflict(f"the table does not hold the row that was {event['type']}: {shown}", key=place)


def _incomplete(words: str) -> TableError:
    return TableError(f"{words}: patch with all events of a diff of this table", code="patch_incomplete")

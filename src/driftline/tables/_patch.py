"""CSV tables that are written again: with the changes of a diff (`patch`), or merged from three versions (`merge`)."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal

from driftline.core import StrPath, Workspace
from driftline.errors import InputError, OptionError, PatchConflict, TableError
from driftline.sources import CsvReading, CsvSource, TextTable, decoded, exact_encoding, open_source
from driftline.tables._columns import column_rules, duplicate_key_problem, missing_key_problem, width_problem
from driftline.tables._options import TableOptions
from driftline.tables._rules.cells import CellRule

Event = dict[str, Any]
Cells = list[str]
Row = dict[str, str]
Key = tuple[str, ...]
Prefer = Literal["ours", "theirs"]

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

    def write(self, rows: Iterable[Sequence[str]], out: BinaryIO) -> None:
        """Write rows."""
        block: list[str] = []
        for row in rows:
            block.append(self._line(row))
            if len(block) >= _BLOCK_ROWS:
                out.write(self._encoded("".join(block)))
                block = []
        out.write(self._encoded("".join(block)))

    def _line(self, row: Sequence[str]) -> str:
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


def header_row(reading: CsvReading, header: Sequence[str]) -> list[Sequence[str]]:
    """The line of names, where the file has one."""
    return [] if reading.no_header else [header]


def open_text(
    given: StrPath, side: str, options: TableOptions, workspace: Workspace
) -> tuple[CsvSource, TextTable, list[list[str]]]:
    """A CSV source, its table, and its header record as it is in the file."""
    source = open_source(given, workspace, options.reading(side))
    if not isinstance(source, CsvSource):
        raise InputError(f"{given} is {source.format}: only CSV tables can be written again", code="unsupported_format")
    table = source.text_table(side)
    return source, table, [] if source.reading.no_header else [source.first_record(side)]


# Patch: a table with the changes of a diff (tables §7.2).


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


# Merge: three versions of a table to one, row by row and cell by cell (tables §7.3).


@dataclass
class Merged:
    """The merged table, and its conflicts."""

    header: list[str]
    rows: list[Row] = field(default_factory=list)
    conflicts: list[dict[str, Any]] = field(default_factory=list)

    def records(self) -> Iterator[list[str]]:
        """The rows as cells; a cell that no version has is empty."""
        return ([row.get(name, "") for name in self.header] for row in self.rows)


def merge_tables(
    base: TextTable, ours: TextTable, theirs: TextTable, options: TableOptions, prefer: Prefer | None = None
) -> Merged:
    """Merge two successors of a table; conflicts are listed, and resolved if `prefer` is set."""
    _check_options(options)
    rules = column_rules([base.header, ours.header, theirs.header], options)
    before = _Version("BASE", base, options, rules)
    mine, other = _Version("OURS", ours, options, rules), _Version("THEIRS", theirs, options, rules)
    return _Merge(before, mine, other, rules, options, prefer).run()


def _check_options(options: TableOptions) -> None:
    if options.mode != "keyed":
        raise TableError("Missing key column: a merge needs at least one key column", code="missing_key_column")
    if options.duplicates != "error" or options.rename:
        raise OptionError("a merge takes neither duplicates nor rename", code="invalid_option_combination")


class _Version:
    """One of the three tables: its columns, and its rows by the normalized values of their keys."""

    def __init__(self, name: str, table: TextTable, options: TableOptions, rules: dict[str, CellRule]) -> None:
        self.columns = set(table.header)
        self.header = table.header
        self.rows: dict[Key, Row] = {}
        if len(self.columns) < len(table.header):
            raise TableError(f"Duplicate column name in {name}", code="duplicate_column_name", side=name)
        for column in options.key_columns:
            if column not in self.columns:
                raise TableError(f'Missing key column "{column}" in {name}', code="missing_key_column", side=name)
        numbers: dict[Key, int] = {}
        side: Any = name
        for number, record in table.rows:
            if len(record) != len(table.header):
                raise width_problem(side, number, len(table.header), len(record)).to_error()
            row = dict(zip(table.header, record, strict=True))
            key = tuple(rules[column].form(row[column]) for column in options.key_columns)
            for column, form in zip(options.key_columns, key, strict=True):
                if options.empty_key == "error" and form in rules[column].missing_forms(typed=False):
                    raise missing_key_problem(side, number, column).to_error()
            if key in self.rows:
                named = {column: row[column] for column in options.key_columns}
                raise duplicate_key_problem(side, number, numbers[key], named).to_error()
            numbers[key] = number
            self.rows[key] = row


class _Merge:
    """One merge."""

    def __init__(
        self,
        base: _Version,
        ours: _Version,
        theirs: _Version,
        rules: dict[str, CellRule],
        options: TableOptions,
        prefer: Prefer | None,
    ) -> None:
        self.base, self.ours, self.theirs = base, ours, theirs
        self._rules = rules
        self._keys = options.key_columns
        self._prefer = prefer
        gone = base.columns - theirs.columns
        new = [name for name in theirs.header if name not in base.columns and name not in ours.columns]
        self.merged = Merged([name for name in ours.header if name not in gone] + new)
        removed = [name for name in base.header if name not in self.merged.header]
        self._order = [*self.merged.header, *removed]

    def run(self) -> Merged:
        """Merge every key; rows in OURS' order, then those that only THEIRS has."""
        found: dict[Key, Row | None] = {}
        for key in sorted(self.base.rows.keys() | self.ours.rows.keys() | self.theirs.rows.keys()):
            found[key] = self._row(self.base.rows.get(key), self.ours.rows.get(key), self.theirs.rows.get(key))
        order = [*self.ours.rows, *(key for key in self.theirs.rows if key not in self.ours.rows)]
        self.merged.rows = [row for key in order if (row := found[key]) is not None]
        return self.merged

    def _row(self, base: Row | None, ours: Row | None, theirs: Row | None) -> Row | None:
        if ours is not None and theirs is not None:
            return self._cells(base, ours, theirs) if base is not None else self._both_added(ours, theirs)
        kept = ours if ours is not None else theirs
        if base is None or kept is None:
            return kept
        if not self._changed(base, kept):
            return None
        self._note(base, ours, theirs)
        return ours if self._prefer == "ours" else theirs

    def _both_added(self, ours: Row, theirs: Row) -> Row | None:
        whole = {**theirs, **ours}
        if not self._changed(ours, theirs):
            return whole
        self._note(None, ours, theirs)
        return {**ours, **theirs} if self._prefer == "theirs" else whole

    def _cells(self, base: Row, ours: Row, theirs: Row) -> Row:
        row = {}
        for name in self._order:
            cell = self._cell(name, base, ours, theirs)
            if cell is not None:
                row[name] = cell
        return row

    def _cell(self, name: str, base: Row, ours: Row, theirs: Row) -> str | None:
        """One cell of a row that all three have: the changed one wins; None where no version has it."""
        before, mine, other = base.get(name), ours.get(name), theirs.get(name)
        if not self._differ(name, before, other) or name not in self._rules:
            return mine if mine is not None or name in self.base.columns else other
        if not self._differ(name, before, mine):
            return other
        if not self._differ(name, mine, other):
            return mine
        self._note(base, ours, theirs, name)
        return other if self._prefer == "theirs" else mine

    def _differ(self, name: str, one: str | None, other: str | None) -> bool:
        if one is None or other is None or name not in self._rules:
            return one != other
        rule = self._rules[name]
        return not rule.equal(rule.form(one), rule.form(other))

    def _changed(self, one: Row, other: Row) -> bool:
        shared = (name for name in one if name in other and name in self._rules)
        return any(self._differ(name, one[name], other[name]) for name in shared)

    def _note(self, base: Row | None, ours: Row | None, theirs: Row | None, column: str | None = None) -> None:
        row = base or ours or theirs or {}
        shown: Sequence[Any] = (base, ours, theirs)
        if column is not None:
            shown = [None if one is None else one.get(column) for one in shown]
        values = dict(zip(("base", "ours", "theirs"), shown, strict=True))
        key = {name: row[name] for name in self._keys}
        self.merged.conflicts.append({"type": "conflict", "key": key, "column": column, **values})

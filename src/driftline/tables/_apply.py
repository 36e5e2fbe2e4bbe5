"""Tables that are written again in the style of their file: merged from three versions, or patched with a diff.

    merged = merge("base.csv", "ours.csv", "theirs.csv", "merged.csv", key="id", conflicts="markers")

A merge goes row by row and cell by cell (tables §7.3) over CSV, JSON Lines, Parquet and Arrow. Cells are texts: those
of CSV as they are, typed ones as JSON. A cell that a version does not have is missing in its row. With
`conflicts="markers"` a row in conflict is written in both versions, between the lines of Git: `<<<<<<< ours`, `=======`
and `>>>>>>> theirs`. Parquet and Arrow have no lines: there two files are written beside the output (tables §7.4).
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar, cast

from driftline.core import StrPath, Workspace, atomic_write, exact_dumps, exact_loads, open_output, read_lines
from driftline.errors import InputError, OptionError, PatchConflict, TableError
from driftline.sinks import packed
from driftline.sources import CsvSource, TextTable, decoded, exact_encoding, open_source
from driftline.tables import _columns
from driftline.tables._events import Event, event_line
from driftline.tables._options import TableOptions, check_options
from driftline.tables._rules import CellRule

if TYPE_CHECKING:
    from driftline.tables._merge_columns import ColumnsStyle

Row = dict[str, str]
Versions = tuple[Row | None, Row | None]  # of a row in conflict: in OURS and in THEIRS
Key = tuple[str, ...]
Prefer = Literal["ours", "theirs"]
Record = TypeVar("Record")

OURS_MARK, MIDDLE_MARK, THEIRS_MARK = "<<<<<<< ours", "=======", ">>>>>>> theirs"
_CHANGES = ("added", "removed", "changed")
_BLOCK_ROWS = 1000
_FIRST_LINE = re.compile(r'(?:[^"\r\n]|"[^"]*")*+(\r\n|\r|\n)')
_LINE_PIECES = 16  # of a file, in which its first line ends


def merge(
    base: StrPath,
    ours: StrPath,
    theirs: StrPath,
    output: StrPath | None = None,
    *,
    prefer: Prefer | None = None,
    conflicts: Literal["list", "markers"] = "list",
    beside: StrPath | None = None,
    **rules: Any,
) -> Merged:
    """Merge the changes that two files made to a third one, and write the result; `output` may be `ours`.

    Conflicts are listed in the result. `prefer` decides them; without it nothing is written if there are any, except
    with `conflicts="markers"`, which writes both versions of their rows; Parquet and Arrow have no place for these, so
    a merged file, in which OURS decides, and the list of conflicts are written beside the output or the path `beside`.
    The rules are those of `diff`.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name, text in {"base": "1,a,x", "ours": "1,b,x", "theirs": "1,a,y"}.items():
    ...     _ = (folder / name).write_text(f"id,v,w\\n{text}\\n")
    >>> merged = merge(folder / "base", folder / "ours", folder / "theirs", folder / "merged.csv", key="id")
    >>> merged.conflicts, (folder / "merged.csv").read_text()
    ([], 'id,v,w\\n1,b,y\\n')
    """
    options = check_options(**rules)
    if options.mode != "keyed":
        raise TableError("Missing key column: a merge needs at least one key column", code="missing_key_column")
    of_one_side = options.types[0] != options.types[1] or options.no_header[0] != options.no_header[1]
    if options.duplicates != "error" or options.rename or options.inside or options.ignore_column_case or of_one_side:
        words = "a merge takes no duplicates, renamed columns and members, and types and headers for all versions alike"
        raise OptionError(words, code="invalid_option_combination")
    with Workspace() as workspace:
        mine = _read("OURS", ours, options, workspace, prefer)
        options = _columns.named_options(options, mine.header, mine.header)
        before = _read("BASE", base, options, workspace, prefer, mine)
        other = _read("THEIRS", theirs, options, workspace, prefer, mine)
        rules = _columns.column_rules(
            [one.header for one in (before, mine, other)], options, _columns.Sides(mine.typed, mine.typed)
        )
        merged = _Merge(rules, options, prefer, conflicts == "markers", before, mine, other).run()
        if output is not None and (not merged.conflicts or merged.is_written):
            if merged.conflicts and prefer is None and not isinstance(mine.style, (CsvStyle, LinesStyle)):
                place = PurePath(os.fspath(beside or output))
                output = place.with_suffix(f".merged{place.suffix}")
                merged.beside = str(output), f"{place}.conflicts.jsonl"
            with atomic_write(output, (base, theirs)) as file, packed(file, output) as out:
                mine.style.write_merged(merged, out)
            if merged.beside is not None:
                with atomic_write(merged.beside[1], (base, theirs)) as out:
                    out.writelines(map(event_line, merged.conflicts))
    return merged


# Versions of a table.


@dataclass(frozen=True)
class MergeTable:
    """One version: its columns, its rows with their numbers in the file, and how it is written."""

    name: str
    header: list[str]
    rows: list[tuple[int, Row]]
    style: CsvStyle | LinesStyle | ColumnsStyle

    @property
    def typed(self) -> bool:
        return not isinstance(self.style, CsvStyle)

    def by_key(self, options: TableOptions, rules: dict[str, CellRule]) -> dict[Key, Row]:
        """The rows by the normalized values of their keys."""
        name: Any = self.name
        if len(set(self.header)) < len(self.header):
            raise TableError(f"Duplicate column name in {name}", code="duplicate_column_name", side=name)
        for column in options.key_columns:
            if self.header and column not in self.header:
                raise TableError(f'Missing key column "{column}" in {name}', code="missing_key_column", side=name)
        found: dict[Key, tuple[int, Row]] = {}
        for number, row in self.rows:
            key = tuple(form_of(rules[column], row.get(column), self.typed) for column in options.key_columns)
            for column, form in zip(options.key_columns, key, strict=True):
                if options.empty_key == "error" and form in rules[column].missing_forms(typed=self.typed):
                    raise _columns.missing_key_problem(name, number, column).to_error()
            if key in found:
                named = {column: _shown(row.get(column), self.typed) for column in options.key_columns}
                raise _columns.duplicate_key_problem(name, number, found[key][0], named).to_error()
            found[key] = number, row
        return {key: row for key, (_, row) in found.items()}


def _read(
    name: str, given: StrPath, options: TableOptions, workspace: Workspace, prefer: Prefer | None, *like: MergeTable
) -> MergeTable:
    """One version; `like` is OURS, in whose style an empty one is written."""
    if like and os.path.isfile(given) and not os.path.getsize(given):
        return MergeTable(name, [], [], like[0].style)  # Git's version of a file that was not there
    source = open_source(given, workspace, options.reading("B" if name == "THEIRS" else "A"))
    if isinstance(source, CsvSource):
        table = _read_csv(name, source, prefer)
    elif source.format == "jsonl":
        table = _read_lines(name, source.files[0].path, prefer)
    elif source.format in ("parquet", "arrow", "arrow stream"):
        from driftline.tables._merge_columns import ColumnsStyle  # brings Arrow

        style = like[0].style if like and isinstance(like[0].style, ColumnsStyle) else ColumnsStyle(source)
        table = MergeTable(name, *style.read(name, source, workspace), style)
    else:
        words = f"{os.fspath(given)} is {source.format}: only CSV, JSON Lines, Parquet and Arrow files can be merged"
        raise InputError(f"{words}; export its tables to one of these", code="unsupported_format")
    if like and type(like[0].style) is not type(table.style):
        raise InputError(f"{like[0].name} and {name} are of different formats", code="mixed_inputs")
    return table


def _read_csv(name: str, source: CsvSource, prefer: Prefer | None) -> MergeTable:
    table, delimiter = source.text_table("B" if name == "THEIRS" else "A"), source.reading.delimiter
    width = len(table.header)

    def mark(record: list[str]) -> str:
        return delimiter.join(record) if len(record) != width or width == 1 else ""

    side: Any = name
    rows: list[tuple[int, Row]] = []
    for number, record in without_markers(table.rows, mark, prefer, name):
        if len(record) != width:
            raise _columns.width_problem(side, number, width, len(record)).to_error()
        rows.append((number, dict(zip(table.header, record, strict=True))))
    return MergeTable(name, table.header, rows, CsvStyle.of(source))


def _read_lines(name: str, path: str, prefer: Prefer | None) -> MergeTable:
    lines = [(number, line) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    rows: list[tuple[int, Row]] = []
    for number, line in without_markers(lines, lambda line: line.decode("utf-8", "replace"), prefer, name):
        try:
            value = exact_loads(line)
        except ValueError as error:
            raise InputError(f"{name}, line {number}: not JSON: {error}", code="invalid_jsonl", line=number) from None
        if not isinstance(value, dict):
            raise InputError(f"{name}, line {number}: not an object", code="invalid_jsonl", line=number)
        rows.append((number, {column: exact_dumps(cell) for column, cell in value.items()}))
    header = list(dict.fromkeys(column for _, row in rows for column in row))
    return MergeTable(name, header, rows, LinesStyle.like([line for _, line in lines]))


def without_markers(
    records: Iterable[tuple[int, Record]], text_of: Callable[[Record], str], prefer: Prefer | None, name: str
) -> Iterator[tuple[int, Record]]:
    """The records outside conflict markers and, inside them, those of the preferred version."""
    version: Prefer | None = None
    for number, record in records:
        text = text_of(record).rstrip("\r\n")
        if version is None and text.startswith("<<<<<<< "):
            if prefer is None:
                what = f"{name} has an undecided conflict at row {number}"
                words = f"{what}: keep one version of the rows and remove the marker lines, or give --prefer ours or"
                raise TableError(f"{words} --prefer theirs", code="undecided_conflict", side=name, row=number)
            version = "ours"
        elif version == "ours" and text == MIDDLE_MARK:
            version = "theirs"
        elif version == "theirs" and text.startswith(">>>>>>> "):
            version = None
        elif version is None or version == prefer:
            yield number, record


# The style of a file (tables §7.1).


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """How rows are written: minimal quotes, a line end after every row, no byte order mark."""

    delimiter: str
    encoding: str
    line_end: str
    no_header: bool

    @classmethod
    def of(cls, source: CsvSource) -> CsvStyle:
        file, reading = source.files[0], source.reading
        with file.open() as stream:
            start = stream.read(4)
            found = _FIRST_LINE.match("".join(islice(decoded(stream, reading.encoding), _LINE_PIECES)))
        encoding = exact_encoding(reading.encoding, start)
        return cls(reading.delimiter, encoding, found[1] if found else "\n", reading.no_header)

    def write_merged(self, merged: Merged, out: BinaryIO) -> None:
        header = merged.header
        rows: Iterable[Sequence[str] | str] = (
            row if isinstance(row, str) else [row.get(name, "") for name in header] for row in merged.lines()
        )
        self.write([*([] if self.no_header else [header]), *rows], out)

    def write(self, rows: Iterable[Sequence[str] | str], out: BinaryIO) -> None:
        """Write rows; a text is a line of its own."""
        lines = map(self._line, rows)
        while block := "".join(islice(lines, _BLOCK_ROWS)):
            try:
                out.write(block.encode(self.encoding))
            except UnicodeEncodeError as error:
                letters = repr(block[error.start : error.end])
                words = f"{letters} cannot be written in {self.encoding}: name another --encoding"
                raise TableError(words, code="invalid_encoding") from None

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


@dataclass(frozen=True)
class LinesStyle:
    """Writes merged rows as JSON Lines, with spaces and escapes as in OURS."""

    comma: str = ","
    colon: str = ":"
    ascii_only: bool = False

    @classmethod
    def like(cls, lines: Sequence[bytes]) -> LinesStyle:
        first = next((line for line in lines if line.lstrip().startswith(b"{")), b"")
        escaped = all(line.isascii() for line in lines) and any(b"\\u" in line for line in lines)
        return cls(", " if b'", "' in first or b', "' in first else ",", ": " if b'": ' in first else ":", escaped)

    def write_merged(self, merged: Merged, out: BinaryIO) -> None:
        """Write an object a line, without the members that no version has."""
        for row in merged.lines():
            text = row if isinstance(row, str) else self._object(row, merged.header)
            out.write(f"{text}\n".encode())

    def _object(self, row: Row, header: Sequence[str]) -> str:
        members = (f"{exact_dumps(name)}{self.colon}{row[name]}" for name in header if name in row)
        text = f"{{{self.comma.join(members)}}}"
        if self.ascii_only and not text.isascii():  # letters that are not ASCII are in strings alone
            text = "".join(letter if letter.isascii() else json.dumps(letter)[1:-1] for letter in text)
        return text


# The merge.


@dataclass
class Merged:
    """The merged table, and its conflicts."""

    header: list[str]
    rows: list[Row | Versions] = field(default_factory=list)  # both versions, where undecided
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    is_written: bool = False  # in spite of conflicts: they are decided, or marked
    beside: tuple[str, str] | None = None  # where files have no lines: the merged file and the list of conflicts

    def lines(self) -> Iterator[Row | str]:
        """Rows and marker lines."""
        for row in self.rows:
            ours, theirs = (row, row) if isinstance(row, dict) else row
            marks = (ours,) if ours is theirs else (OURS_MARK, ours, MIDDLE_MARK, theirs, THEIRS_MARK)
            yield from (one for one in marks if one is not None)


def form_of(rule: CellRule, cell: str | None, typed: bool) -> str:
    """The normalized value of a cell; a missing one is null or empty."""
    if typed:
        return rule.form_of_json("null" if cell is None else cell)
    return rule.form(cell or "")


def _shown(cell: str | None, typed: bool) -> Any:
    return cell if cell is None or not typed else exact_loads(cell)


class _Merge:
    """One merge."""

    def __init__(
        self,
        rules: dict[str, CellRule],
        options: TableOptions,
        prefer: Prefer | None,
        marked: bool,
        base: MergeTable,
        ours: MergeTable,
        theirs: MergeTable,
    ) -> None:
        self._base, self._ours, self._theirs = (table.by_key(options, rules) for table in (base, ours, theirs))
        self._old, self._typed = set(base.header), ours.typed
        self._rules = rules
        self._keys = options.key_columns
        self._prefer = prefer
        gone = self._old - set(theirs.header) if theirs.header else set()
        new = [name for name in theirs.header if name not in self._old and name not in ours.header]
        self.merged = Merged([name for name in ours.header if name not in gone] + new)
        self.merged.is_written = marked or prefer is not None
        removed = [name for name in base.header if name not in self.merged.header]
        self._order = [*self.merged.header, *removed]

    def run(self) -> Merged:
        """Merge every key; rows in OURS' order, then those that only THEIRS has."""
        found: dict[Key, Row | Versions | None] = {}
        for key in sorted(self._base.keys() | self._ours.keys() | self._theirs.keys()):
            found[key] = self._row(self._base.get(key), self._ours.get(key), self._theirs.get(key))
        order = list(self._ours | self._theirs)
        self.merged.rows = [row for key in order if (row := found[key]) is not None]
        if self._prefer is None:
            self._restore_columns(order, found)
        return self.merged

    def _restore_columns(self, order: Sequence[Key], found: dict[Key, Any]) -> None:
        """Keep a removed column whose cells are in conflict, so that both versions can be seen."""
        names = {one["column"] for one in self.merged.conflicts} - {None, *self.merged.header}
        self.merged.header += [name for name in self._order if name in names]
        for key in order:
            row = found[key]
            if isinstance(row, dict):
                for name in names:
                    cell = self._ours.get(key, {}).get(name, self._theirs.get(key, {}).get(name))
                    row.update({} if cell is None else {name: cell})

    def _row(self, base: Row | None, ours: Row | None, theirs: Row | None) -> Row | Versions | None:
        if ours is not None and theirs is not None:
            return self._cells(base, ours, theirs) if base is not None else self._both_added(ours, theirs)
        kept = ours if ours is not None else theirs
        if base is None or kept is None:
            return kept
        nothing = "null" if self._typed else ""
        if not any(self._differ(name, base.get(name, nothing), cell) for name, cell in kept.items()):
            return None  # no change in any column that the row still has, ignored and new ones included
        self._note(base, ours, theirs)
        return self._decided(ours, theirs)

    def _decided(self, ours: Row | None, theirs: Row | None) -> Row | Versions | None:
        if self._prefer is None:
            return ours, theirs
        return ours if self._prefer == "ours" else theirs

    def _both_added(self, ours: Row, theirs: Row) -> Row | Versions | None:
        shared = (name for name in ours if name in theirs and name in self._rules)
        if not any(self._differ(name, ours[name], theirs[name]) for name in shared):
            return {**theirs, **ours}
        self._note(None, ours, theirs)
        return self._decided({**theirs, **ours}, {**ours, **theirs})

    def _cells(self, base: Row, ours: Row, theirs: Row) -> Row | Versions | None:
        """A row that all three have, cell by cell: the changed one wins, and different changes are a conflict."""
        mine: Row = {}
        other: Row = {}
        conflicts = len(self.merged.conflicts)
        for name in self._order:
            chosen = self._cell(name, base, ours, theirs)
            for version, cell in zip((mine, other), chosen, strict=True):
                if cell is not None:
                    version[name] = cell
        return mine if len(self.merged.conflicts) == conflicts else self._decided(mine, other)

    def _cell(self, name: str, base: Row, ours: Row, theirs: Row) -> tuple[str | None, str | None]:
        """The cell of one column for OURS and for THEIRS; None where no version has it."""
        before, mine, other = base.get(name), ours.get(name), theirs.get(name)
        if not self._differ(name, before, other):
            cell = mine if mine is not None or name in self._old else other
            return cell, cell
        if not self._differ(name, before, mine):
            return other, other
        # No rule compares an ignored column, so different changes of it are no conflict.
        if not self._differ(name, mine, other) or (name not in self._rules and mine is not None):
            return mine, mine
        self._note(base, ours, theirs, name)
        return mine, other

    def _differ(self, name: str, one: str | None, other: str | None) -> bool:
        if one is None or other is None or name not in self._rules:
            return one != other
        rule, typed = self._rules[name], self._typed
        return not rule.equal(form_of(rule, one, typed), form_of(rule, other, typed))

    def _note(self, base: Row | None, ours: Row | None, theirs: Row | None, column: str | None = None) -> None:
        row = base or ours or theirs or {}
        typed = self._typed
        shown: Sequence[Any] = [
            None if one is None else {name: _shown(cell, typed) for name, cell in one.items()}
            for one in (base, ours, theirs)
        ]
        if column is not None:
            shown = [None if one is None else one.get(column) for one in shown]
        values = dict(zip(("base", "ours", "theirs"), shown, strict=True))
        key = {name: _shown(row.get(name), typed) for name in self._keys}
        self.merged.conflicts.append({"type": "conflict", "key": key, "column": column, **values})


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
        first = [] if source.reading.no_header else [source.first_record("A")]
        rows = _patched(source.text_table("A"), lines, path or "the events")
        with open_output(None if output is None else os.fspath(output), (a, *([path] if path else []))) as out:
            CsvStyle.of(source).write([*first, *rows], out)


def _patched(table: TextTable, lines: Iterable[bytes], name: str) -> list[list[str]]:
    """The rows of A in A's order with the changes applied, then added rows in the order of events."""
    schema, changes = _complete_events(lines, name)
    if schema["columns_a"] != table.header:
        made_of, has = (json.dumps(names, ensure_ascii=False) for names in (schema["columns_a"], table.header))
        raise TableError(f"{name} were made of the columns {made_of}, the table has {has}", code="header_mismatch")
    renamed = {new: old for old, new in schema.get("renamed", {}).items()}
    for column in schema["columns_b"]:
        if renamed.get(column, column) not in table.header:
            raise _incomplete(f"column {json.dumps(column, ensure_ascii=False)} is not in the table")
    for event in changes:
        rows = (event.get(part) or {} for part in ("before", "after", "row"))
        if not all(isinstance(cell, str) for row in rows for cell in row.values()):
            raise _incomplete("the events hold typed values, the table text")
    replaced, added = _applied(table, changes, renamed)
    kept = (replaced.get(at, row) for at, (_, row) in enumerate(table.rows))
    return [row for row in kept if row is not None] + added


def _complete_events(lines: Iterable[bytes], name: str) -> tuple[Event, list[Event]]:
    """The schema and the changes of a diff, all of them."""
    schema: Event | None = None
    stats: Event | None = None
    changes: list[Event] = []
    for number, line in enumerate(lines, 1):
        try:
            event: Event = json.loads(line)
            kind = str(event["type"])
        except (ValueError, TypeError, KeyError):
            raise InputError(f"{name}, line {number} is no event", code="invalid_jsonl", line=number) from None
        if kind == "schema":
            schema, changes = event, []
        elif kind == "stats":
            stats = event
        elif schema is not None and kind in _CHANGES:
            changes.append(event)
    if schema is None or stats is None:
        raise _incomplete(f"{name} have no {'schema' if schema is None else 'stats'} event")
    counts = Counter(event["type"] for event in changes)
    for kind in _CHANGES:
        expected = stats.get(f"rows_{kind}")
        if counts[kind] != expected:
            raise _incomplete(f"{name} hold {counts[kind]} {kind} events, their stats count {expected}")
    return schema, changes


def _applied(
    table: TextTable, changes: Iterable[Event], renamed: dict[str, str]
) -> tuple[dict[int, list[str] | None], list[list[str]]]:
    """New rows by their positions in the table, None for removed ones, and the added rows."""
    by_number = {number: at for at, (number, _) in enumerate(table.rows)}
    free: defaultdict[tuple[str, ...], dict[int, None]] = defaultdict(dict)  # places of rows by their cells
    for at, (_, row) in enumerate(table.rows):
        free[tuple(row)][at] = None
    replaced: dict[int, list[str] | None] = {}
    added: list[list[str]] = []
    for event in changes:
        new = event.get("after") or (event["row"] if event["type"] == "added" else {})
        new = {renamed.get(name, name): cell for name, cell in new.items()}
        if event["type"] == "added":
            added.append([new.get(name, "") for name in table.header])
            continue
        old = event["before"] if event["type"] == "changed" else event["row"]
        places = free[tuple(old.get(name, "") for name in table.header)]
        place = next(iter(places) if "key" in event else reversed(places), None)  # without a key the last one
        place = by_number.get(event["row_index"]) if "row_index" in event else place
        if place not in places:
            raise _conflict(event)
        del places[place]
        changed = [new.get(name, old.get(name, "")) for name in table.header]
        replaced[place] = changed if event["type"] == "changed" else None
    return replaced, added


def _conflict(event: Event) -> PatchConflict:
    place = event.get("key", {"row_index": event["row_index"]} if "row_index" in event else event.get("row"))
    shown = json.dumps(place, ensure_ascii=False, separators=(",", ":"))
    return PatchConflict(f"the table does not hold the row that was {event['type']}: {shown}", key=place)


def _incomplete(words: str) -> TableError:
    return TableError(f"{words}: patch with all events of a diff of this table", code="patch_incomplete")

"""Operations as text: an aligned table per table, a JSON object per line, or SQL statements."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, islice
from typing import IO, Any

from driftline.changesets._format.table import UNDEFINED, Field, Operation, Row, Table, Value, folded, quoted, refused
from driftline.core import write_all

_SIGNS = {"insert": "+", "update": "~", "delete": "-"}
_WIDEST = 60  # characters of a cell; longer ones are cut
_BLOCK = 1000  # rows that are aligned together, so that large files are shown while they are read


def text_lines(operations: Iterable[Operation], counts: Iterable[int] | None = None) -> Iterator[str]:
    """A heading per table, then a line per operation with its columns below their names.

    `counts` say how many operations follow each other under one name; with them, no table is held in memory.
    """
    if counts is None:
        operations = list(operations)
        counts = [len(list(group)) for _, group in groupby(operations, key=lambda operation: operation.table.name)]
    rest = iter(operations)
    for count in counts:
        first = next(rest)
        yield f"table {first.table.name} ({count} {'change' if count == 1 else 'changes'})"
        yield from _aligned(chain([first], islice(rest, count - 1)))


def _aligned(operations: Iterator[Operation]) -> Iterator[str]:
    heading: list[list[str]] | None = None
    while block := list(islice(operations, _BLOCK)):
        if heading is None:
            table = block[0].table
            flagged = zip(table.column_names, table.key_flags, strict=True)
            heading = [["", *(f"{name}*" if flag else name for name, flag in flagged)]]
        rows = heading + [
            [_SIGNS[op.kind] + " (indirect)" * bool(op.indirect), *(_cut(_cell(*pair)) for pair in _pairs(op))]
            for op in block
        ]
        heading = []
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cell(old: Field, new: Field) -> str:
    if new is UNDEFINED:
        return "" if old is UNDEFINED else sql_literal(old)
    return sql_literal(new) if old is UNDEFINED else f"{sql_literal(old)} → {sql_literal(new)}"


def _cut(text: str) -> str:
    visible = text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return visible if len(visible) <= _WIDEST else visible[: _WIDEST - 1] + "…"


def json_lines(operations: Iterable[Operation]) -> Iterator[str]:
    """One JSON object per operation; blobs are `{"blob": hex}`, infinities `{"real": text}`, text that is not UTF-8
    `{"text_hex": hex}`."""
    for operation in operations:
        yield json.dumps(plain_operation(operation), ensure_ascii=False, separators=(",", ":"))


def json_array_lines(operations: Iterable[Operation]) -> Iterator[str]:
    """The same objects as one JSON array, an element a line."""
    opening = "["
    for line in json_lines(operations):
        yield f"{opening}{line}"
        opening = ","
    yield "[]" if opening == "[" else "]"


def operation_text(operation: Operation) -> str:
    """An operation in one line: its sign, table and key, and its other values."""
    key = _key_text(operation)
    flags = operation.table.key_flags
    pairs = zip(operation.table.column_names, _pairs(operation), flags, strict=True)
    cells = [f"{name}: {_cut(_cell(*pair))}" for name, pair, flag in pairs if not flag and set(pair) != {UNDEFINED}]
    return f"{_SIGNS[operation.kind]} {operation.table.name} {key}" + (f": {', '.join(cells)}" if cells else "")


def value_rows(operation: Operation) -> Iterator[tuple[str | None, ...]]:
    """A row for each value before or after: table, kind, key, column, both values."""
    key = _key_text(operation)
    for name, pair in zip(operation.table.column_names, _pairs(operation), strict=True):
        before, after = (None if value is UNDEFINED else sql_literal(value) for value in pair)
        if before is not None or after is not None:
            yield operation.table.name, operation.kind, key, name, before, after


def _key_text(operation: Operation) -> str:
    names = (operation.table.column_names[index] for index in operation.table.key_indexes)
    return ", ".join(f"{name}={sql_literal(value)}" for name, value in zip(names, operation.key, strict=True))


def _pairs(operation: Operation) -> Iterator[tuple[Field, Field]]:
    nothing = (UNDEFINED,) * operation.table.width
    return zip(*(nothing if row is None else row for row in (operation.old, operation.new)), strict=True)


def plain_operation(operation: Operation | None) -> dict[str, Any] | None:
    """An operation as plain data; None for one that is not known."""
    if operation is None:
        return None
    return {
        "table": operation.table.name,
        "op": operation.kind,
        "indirect": bool(operation.indirect),
        "old": None if operation.old is None else {name: _json_value(v) for name, v in operation.old_values.items()},
        "new": None if operation.new is None else {name: _json_value(v) for name, v in operation.new_values.items()},
    }


def _json_value(value: Value) -> Any:
    if isinstance(value, bytes):
        return {"blob": value.hex()}
    if isinstance(value, float) and math.isinf(value):
        return {"real": "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, str) and not _is_unicode(value):
        return {"text_hex": value.encode(errors="surrogateescape").hex()}
    return value


CHECK = "driftline_check"  # the temporary table by which a script checks foreign keys
_MOVED = "driftline_moved"
_SAFE_DIGITS, _SAFE_EXPONENT = 15, 22  # of reals that every version reads exactly
_BEYOND_REALS = "9e999"  # SQLite reads a literal beyond the range of reals as infinity


def to_sql(operations: Iterable[Operation]) -> Iterator[str]:
    """One statement per operation, in file order."""
    for operation in operations:
        check_named(operation.table)
        yield RowStatements(operation.table, literal=sql_literal).of(operation.old, operation.new)


def check_named(table: Table) -> None:
    """Refuse a table whose columns have no names: statements need them, and a file does not hold them."""
    if not table.is_named:
        raise refused(
            "schema_needed", f"table {table.name}: column names are not in the file, give a schema or a database"
        )


def _defined(table: Table, row: Row) -> Iterator[tuple[str, Field]]:
    return ((name, value) for name, value in zip(table.column_names, row, strict=True) if value is not UNDEFINED)


@dataclass(frozen=True)
class RowStatements:
    """Statements that change single rows of one table, by their keys.

    `unique` are the columns of further UNIQUE indexes, in small letters; "*" stands for all of them. `exact` is for
    keys with a collation, which would find rows whose keys are only equal for it.
    """

    table: Table
    literal: Callable[[Field], str]
    unique: frozenset[str] = frozenset()
    exact: bool = False

    def of(self, old: Row | None, new: Row | None) -> str:
        if old is None:
            values = ", ".join(map(self.literal, new or ()))
            return f"INSERT INTO {self._name} ({self._columns}) VALUES ({values});"  # noqa: S608
        if new is None:
            return f"DELETE FROM {self._name} WHERE {self._where(old)};"  # noqa: S608
        return self._update(self._name, old, new)

    def write_to(self, out: IO[bytes], changes: Iterable[tuple[Row | None, Row | None]]) -> int:
        """Write changes in an order that runs: what is deleted goes first, what is inserted comes last."""
        count = 0
        moved: list[tuple[Row, Row]] = []
        import tempfile  # only scripts need it

        with tempfile.TemporaryFile() as updates, tempfile.TemporaryFile() as inserts:
            for old, new in changes:
                count += 1
                if old is not None and new is not None and self._is_unique(new):
                    moved.append((old, new))
                else:
                    place = inserts if old is None else out if new is None else updates
                    write_line(place, self.of(old, new))
            append(out, updates)
            for statement in self._moves(moved):
                write_line(out, statement)
            append(out, inserts)
        return count

    def _is_unique(self, new: Row) -> bool:
        return bool(self.unique) and (
            "*" in self.unique or any(folded(name) in self.unique for name, _ in _defined(self.table, new))
        )

    def _moves(self, moved: list[tuple[Row, Row]]) -> Iterator[str]:
        """Updates that may exchange values of a UNIQUE index: the rows leave the table while they change."""
        if len(moved) < 2:
            yield from (self.of(old, new) for old, new in moved)
            return
        copy = f"temp.{_MOVED}"
        aliased = ", ".join(f"{name} AS {name}" for name in map(quoted, self.table.column_names))
        yield f"CREATE TEMP TABLE {_MOVED} AS SELECT {aliased} FROM {self._name} WHERE 0;"  # noqa: S608
        for old, _ in moved:
            yield f"INSERT INTO {copy} SELECT {self._columns} FROM {self._name} WHERE {self._where(old)};"  # noqa: S608
            yield self.of(old, None)
        yield from (self._update(copy, old, new) for old, new in moved)
        yield f"INSERT INTO {self._name} ({self._columns}) SELECT {self._columns} FROM {copy};"  # noqa: S608
        yield f"DROP TABLE {copy};"

    def _update(self, name: str, old: Row, new: Row) -> str:
        changes = [f"{quoted(column)} = {self.literal(value)}" for column, value in _defined(self.table, new)]
        return f"UPDATE {name} SET {', '.join(changes)} WHERE {self._where(old)};"  # noqa: S608

    @property
    def _name(self) -> str:
        return quoted(self.table.name)

    @cached_property
    def _columns(self) -> str:
        return ", ".join(map(quoted, self.table.column_names))

    def _where(self, old: Row) -> str:
        parts = []
        for index in self.table.key_indexes:
            equal = f"{quoted(self.table.column_names[index])} = {self.literal(old[index])}"
            parts += [equal, f"{equal} COLLATE BINARY"] if self.exact else [equal]
        return " AND ".join(parts)


def append(out: IO[bytes], waiting: IO[bytes]) -> None:
    """Write all that a temporary file holds."""
    waiting.seek(0)
    while block := waiting.read(1 << 20):
        write_all(out, block)


def write_line(out: IO[bytes], line: str) -> None:
    write_all(out, f"{line}\n".encode(errors="surrogateescape"))


def script_literals(encoding: str) -> Callable[[Field], str]:
    """How values are written for any SQLite of the last years to read them back as they are.

    Its shell drops a carriage return at the end of a line, and before 3.47 it rounds some reals of many digits.
    `CAST(x'…' AS TEXT)` takes bytes in the encoding of the database.
    """

    def literal(value: Field) -> str:
        if isinstance(value, str) and ("\r" in value or "\0" in value or not _is_unicode(value)):
            errors = "surrogateescape" if encoding == "UTF-8" else "surrogatepass"
            return f"CAST(x'{value.encode(encoding, errors).hex()}' AS TEXT)"
        return _exact_real(value) if isinstance(value, float) and math.isfinite(value) else sql_literal(value)

    return literal


def _exact_real(value: float) -> str:
    """A real as its shortest literal, or as a product of powers of two that no rounding can touch."""
    text = _real_literal(value)
    digits, _, exponent = text.partition("e")
    if (
        sum(char.isdigit() for char in digits.lstrip("-0.")) <= _SAFE_DIGITS
        and abs(int(exponent or 0)) <= _SAFE_EXPONENT
    ):
        return text
    fraction, power = math.frexp(value)
    number, power = int(fraction * (1 << 53)), power - 53
    sign = "*" if power > 0 else "/"
    factors = [62] * (abs(power) // 62) + [abs(power) % 62]
    return f"({number}.0" + "".join(f" {sign} {1 << factor}.0" for factor in factors if factor) + f" /* {text} */)"


def sql_literal(value: Field) -> str:
    """A value as an SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _real_literal(value)
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        # SQL text ends at a NUL, and bytes that are not UTF-8 have no place in it.
        if "\0" in value or not _is_unicode(value):
            return f"CAST(x'{value.encode(errors='surrogateescape').hex()}' AS TEXT)"
        return "'" + value.replace("'", "''") + "'"
    raise refused("undefined_value", "a field that the record leaves out has no literal")


def _real_literal(value: float) -> str:
    if math.isinf(value):
        return _BEYOND_REALS if value > 0 else f"-{_BEYOND_REALS}"
    text = repr(value)
    return text if "." in text or "e" in text else f"{text}.0"


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


# The formats of lines, by name.
LINES: dict[str, Callable[[Iterable[Operation]], Iterator[str]]] = {
    "text": text_lines,
    "jsonl": json_lines,
    "json": json_array_lines,
    "sql": to_sql,
}

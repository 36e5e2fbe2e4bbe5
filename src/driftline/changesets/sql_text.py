"""Operations as SQL text that SQLite reads back identically.

>>> literal("it's"), literal(b"\\x00"), literal(float("inf")), literal("a\\0b")
("'it''s'", "x'00'", '9e999', "CAST(x'610062' AS TEXT)")
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from driftline.changesets.format import UNDEFINED, Field, Row
from driftline.changesets.operations import Operation
from driftline.changesets.schema import quoted
from driftline.changesets.table import Table
from driftline.errors import ChangesetError

_BEYOND_REALS = "9e999"  # SQLite reads a literal beyond the range of reals as infinity


def statements(operations: Iterable[Operation]) -> Iterator[str]:
    """One statement per operation, in file order."""
    for operation in operations:
        table = operation.table
        if not table.is_named:
            raise ChangesetError(
                f"table {table.name}: column names are not in the file, give a schema or a database",
                code="schema_needed",
            )
        yield _statement(operation)


def _statement(operation: Operation) -> str:
    table = operation.table
    if operation.old is None:
        columns = ", ".join(map(quoted, table.column_names))
        values = ", ".join(literal(value) for value in operation.new or ())
        return f"INSERT INTO {quoted(table.name)} ({columns}) VALUES ({values});"  # noqa: S608
    where = " AND ".join(_key_conditions(table, operation.old))
    if operation.new is None:
        return f"DELETE FROM {quoted(table.name)} WHERE {where};"  # noqa: S608
    changes = [f"{quoted(name)} = {literal(value)}" for name, value in _defined(table, operation.new)]
    return f"UPDATE {quoted(table.name)} SET {', '.join(changes)} WHERE {where};"  # noqa: S608


def _key_conditions(table: Table, old: Row) -> Iterator[str]:
    for index in table.key_indexes:
        yield f"{quoted(table.column_names[index])} = {literal(old[index])}"


def _defined(table: Table, row: Row) -> Iterator[tuple[str, Field]]:
    return ((name, value) for name, value in zip(table.column_names, row, strict=True) if value is not UNDEFINED)


def literal(value: Field) -> str:
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
        return _text_literal(value)
    raise ChangesetError("a field that the record leaves out has no literal", code="undefined_value")


def _real_literal(value: float) -> str:
    if math.isinf(value):
        return _BEYOND_REALS if value > 0 else f"-{_BEYOND_REALS}"
    text = repr(value)
    return text if "." in text or "e" in text else f"{text}.0"


def _text_literal(text: str) -> str:
    # SQL text ends at a NUL, and bytes that are not UTF-8 have no place in it.
    if "\0" in text or not _is_unicode(text):
        return f"CAST(x'{text.encode(errors='surrogateescape').hex()}' AS TEXT)"
    return "'" + text.replace("'", "''") + "'"


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)

"""Schemas of tables, and cells of text files converted to the declared types, the same way for the lake and SQLite.

>>> TableSchema(table="todos", columns=[{"name": "title", "type": "string"}]).names
('title',)
>>> typed_row({"id": "7", "price": "1.50", "sold": "true"}, {"price": "number", "sold": "boolean"})
{'id': '7', 'price': 1.5, 'sold': True}
>>> typed_row({"id": "1834567890123456769", "price": "1.50"}, {"id": "integer", "price": "decimal(4)"})
{'id': '1834567890123456769', 'price': '1.5'}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, TypeAlias, cast

from driftline.core import Json, JsonObject, decimal_text, exact_dumps, exact_loads, exact_number as read_number
from driftline.deltas._deltas import abbreviate, check_column_names, check_table_name
from driftline.deltas._numbers import (
    DEFAULT_SCALE,
    as_double,
    decimal_of,
    decimal_scale,
    exact_number,
    exact_wire,
    integer_of,
    survives,
)
from driftline.errors import DeltaError

ColumnType: TypeAlias = str  # one of these words, or `decimal(S)` with S digits behind the point
COLUMN_TYPES = ("string", "number", "boolean", "json", "integer", "decimal")
Types = Mapping[str, ColumnType]

_FITS: dict[str, Callable[[Json], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "json": lambda value: True,
    "integer": lambda value: _is_read_by(integer_of, value),
}
_WORDS = {**dict.fromkeys(("true", "1", "yes", "t"), True), **dict.fromkeys(("false", "0", "no", "f"), False)}


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """One column: its name and the type of its values; `decimal` is `decimal(18)`."""

    name: str
    type: ColumnType

    def __post_init__(self) -> None:
        if self.type == "decimal":
            object.__setattr__(self, "type", f"decimal({DEFAULT_SCALE})")

    @property
    def scale(self) -> int | None:
        """The digits behind the point of a decimal column; None for all others."""
        return decimal_scale(self.type)

    @property
    def kind(self) -> str:
        """The type without the digits of a decimal."""
        return self.type if self.scale is None else "decimal"

    @property
    def sqlite_type(self) -> str:
        """What SQLite declares such a column as; a decimal is text, which keeps its digits."""
        return {"number": "REAL", "boolean": "INTEGER", "integer": "INTEGER"}.get(self.kind, "TEXT")

    @property
    def is_exact(self) -> bool:
        """Whether values are exact numbers, which deltas carry in their wire form."""
        return self.kind in ("integer", "decimal")

    def accepts(self, value: Json) -> bool:
        """Whether a value is null or of this column's type."""
        if value is None:
            return True
        scale = self.scale
        return _FITS[self.type](value) if scale is None else _is_read_by(decimal_of, value, scale)


def is_column_type(word: object) -> bool:
    """Whether a word names a type."""
    return isinstance(word, str) and (word in COLUMN_TYPES or decimal_scale(word) is not None)


def _is_read_by(read: Callable[..., object], *value: Json) -> bool:
    try:
        read(*value)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class TableSchema:
    """A table's columns in order, and the columns that make its key where they are known.

    Without `key` the row id alone identifies a row.
    """

    table: str
    columns: tuple[ColumnSchema, ...]
    key: tuple[str, ...] = ()

    def __init__(
        self, table: str, columns: Iterable[ColumnSchema | Mapping[str, Any]], key: Iterable[str] = ()
    ) -> None:
        check_table_name(table)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "columns", tuple(_column(table, entry) for entry in columns))
        object.__setattr__(self, "key", (key,) if isinstance(key, str) else tuple(key))
        check_column_names(self.names)
        for name in self.key:
            if name not in self.by_name:
                raise DeltaError(f"key column {abbreviate(name)} is not a column of table {self.table}", field="key")
        if len(set(self.key)) < len(self.key):
            raise DeltaError(f"the key of table {self.table} names a column twice", field="key")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The column names in order."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def by_name(self) -> dict[str, ColumnSchema]:
        """The columns by their name."""
        return {column.name: column for column in self.columns}

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    @classmethod
    def from_wire(cls, data: Json) -> TableSchema:
        """The schema of a JSON object `{table, columns: [{name, type}], key?}`."""
        if not isinstance(data, Mapping):
            raise DeltaError("a table schema is an object with table and columns", field="schema")
        unknown = sorted(set(data) - {"table", "columns", "key"})
        if unknown:
            raise DeltaError(f"a table schema has no member {abbreviate(unknown[0])}", field="schema")
        columns, key = data.get("columns"), data.get("key", [])
        if not isinstance(columns, list):
            raise DeltaError("columns of a table schema is a list of {name, type}", field="columns")
        if not isinstance(key, list) or not all(isinstance(name, str) for name in key):
            raise DeltaError("key of a table schema is a list of column names", field="key")
        return cls(cast(str, data.get("table")), columns, key)

    def to_wire(self) -> JsonObject:
        """The schema as JSON data."""
        columns = [{"name": column.name, "type": column.type} for column in self.columns]
        wire: JsonObject = {"table": self.table, "columns": columns}
        return {**wire, "key": list(self.key)} if self.key else wire


def _column(table: str, entry: ColumnSchema | Mapping[str, Any]) -> ColumnSchema:
    if isinstance(entry, ColumnSchema):
        name, kind = entry.name, entry.type
    elif isinstance(entry, Mapping) and set(entry) == {"name", "type"}:
        name, kind = entry["name"], entry["type"]
    else:
        raise DeltaError(f"a column of table {table} is {{name, type}}, not {abbreviate(entry)}", field="columns")
    if not is_column_type(kind):
        requested = ", ".join(COLUMN_TYPES) + " or decimal(S) with S from 0 to 38"
        raise DeltaError(
            f"column {abbreviate(name)} has type {abbreviate(kind)}: use one of {requested}", field="columns"
        )
    if not isinstance(name, str):
        raise DeltaError(f"a column name of table {table} is text, not {abbreviate(name)}", field="columns")
    return ColumnSchema(name, kind)


# Typed rows.
def typed_row(row: Mapping[str, Any], types: Types, nulls: Collection[str] = ()) -> JsonObject:
    """The row with its declared columns converted; an empty cell of such a column is null, and `nulls` always are."""
    return {name: None if name in nulls else _typed(name, value, types.get(name)) for name, value in row.items()}


def typed_event(
    event: Mapping[str, Any], types: Types, nulls: Collection[str] = (), *, for_sqlite: bool = False
) -> JsonObject:
    """A data event of a table diff whose rows have typed values, and whose key has exact numbers in their wire form.

    For SQLite an integer is one whatever its size, and a number with more digits than a double's is text.
    """
    if not types and not nulls and not for_sqlite:
        return dict(event)
    typed = dict(event)
    if "key" in event:
        typed["key"] = {name: typed_key(name, value, types.get(name)) for name, value in event["key"].items()}
    for part in ("row", "before", "after"):
        if part in event:
            typed[part] = typed_row(event[part], types, nulls)
    for part in ("key", "row", "before", "after") if for_sqlite else ():
        for name, value in typed.get(part, {}).items():
            if types.get(name) == "integer" and value is not None:
                typed[part][name] = integer_of(value)
            elif isinstance(value, Decimal):
                typed[part][name] = decimal_text(value)
    return typed


def typed_events(
    events: Iterable[Mapping[str, Any]], types: Types, *, for_sqlite: bool = False
) -> Iterator[JsonObject]:
    """The data events of a table diff with typed rows; schema and stats are left out."""
    data = (event for event in events if event["type"] not in ("schema", "stats", "column_stats", "unchanged"))
    return (typed_event(event, types, for_sqlite=for_sqlite) for event in data)


def typed_key(name: str, value: Json, kind: ColumnType | None) -> Json:
    """The value of a key column as the row id has it: exact numbers in their wire form, which every source shares."""
    if value is None or kind is None or (kind != "integer" and decimal_scale(kind) is None):
        return _digits(value) if kind == "string" else value
    wire = _typed(name, value, kind)
    if isinstance(value, str) and value != str(wire):
        raise DeltaError(
            f"key column {name!r} holds {value[:40]!r}, which {kind} writes as {wire}: two spellings would be one row: "
            f'correct the data or declare columns = {{ {name} = "string" }}',
            code="wrong_type",
            column=name,
        )
    return wire


def with_doubles(event: Mapping[str, Any], numbers: Mapping[str, bool]) -> JsonObject:
    """The event with doubles in these columns; a number that this would change is refused, True: by any digit."""
    found = dict(event)
    for part in ("key", "row", "before", "after"):
        row = dict(event.get(part) or {})
        for name in row.keys() & numbers:
            if not survives(row[name], shortest=numbers[name]):
                raise _inexact(name, row[name])
            row[name] = as_double(row[name])
        found |= {part: row} if row else {}
    return found


def _typed(name: str, value: Json, kind: ColumnType | None) -> Json:
    if value is None or kind is None:
        return value
    if kind == "string":
        return _digits(value)
    if value == "":
        return None
    if kind == "integer" or decimal_scale(kind) is not None:
        read: Callable[[Any], Any] = partial(exact_wire, kind)
    elif not isinstance(value, str):
        return value
    else:
        read = _READERS[kind]
    try:
        found = read(value)
    except (ValueError, KeyError, RecursionError) as error:
        article = "an" if kind == "integer" else "a"
        problem = f"column {name!r} holds {_shown(value)}, which is not {article} {kind}"
        hint = "correct the data or declare another type"
        raise DeltaError(f"{problem}: {hint}", code="wrong_type", column=name) from error
    if not survives(found):
        raise _inexact(name, found)
    return as_double(found)


def _inexact(name: str, value: Json) -> DeltaError:
    word = "decimal" if isinstance(value, Decimal) else "integer"
    declaring = f'declare columns = {{ {name} = "{word}" }}'
    hint = "write such numbers as text in the source" if isinstance(value, dict | list) else declaring
    problem = f"column {name!r} holds numbers as doubles, which would change {_shown(value)}"
    return DeltaError(f"{problem}: {hint}", code="inexact_number", column=name)


def _digits(value: Json) -> Json:
    """A number in a column of text: its digits."""
    number = exact_number(value) if isinstance(value, int | float | Decimal) else None
    return value if number is None else decimal_text(number)


def _shown(value: Json) -> str:
    return repr(value[:40]) if isinstance(value, str) else exact_dumps(value)[:60]


def _number(text: str) -> float | Decimal:
    value = float(text)
    if not math.isfinite(value) or "_" in text:
        raise ValueError(text)
    plain = text.strip().removeprefix("+")
    if len(plain) > 15:
        return int(plain) if plain.lstrip("-").isdecimal() else read_number(plain)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


_READERS: dict[str, Callable[[str], Any]] = {
    "number": _number,
    "boolean": lambda text: _WORDS[text.strip().lower()],
    "json": exact_loads,
}

"""Schemas of tables, and cells of text files converted to the declared types, the same way for the lake and SQLite.

>>> TableSchema(table="todos", columns=[{"name": "title", "type": "string"}]).names
('title',)
>>> typed_row({"id": "7", "price": "1.50", "sold": "true"}, {"price": "number", "sold": "boolean"})
{'id': '7', 'price': 1.5, 'sold': True}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast, get_args

from driftline.core import Json, JsonObject
from driftline.deltas._deltas import abbreviate, check_column_names, check_table_name
from driftline.errors import DeltaError

ColumnType = Literal["string", "number", "boolean", "json"]
COLUMN_TYPES: tuple[str, ...] = get_args(ColumnType)
Types = Mapping[str, ColumnType]

_FITS: dict[str, Callable[[Json], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "json": lambda value: True,
}
_TRUE, _FALSE = frozenset({"true", "1", "yes", "t"}), frozenset({"false", "0", "no", "f"})


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """One column: its name and the type of its values."""

    name: str
    type: ColumnType

    def accepts(self, value: Json) -> bool:
        """Whether a value is null or of this column's type."""
        return value is None or _FITS[self.type](value)


@dataclass(frozen=True)
class TableSchema:
    """A table's columns in order, and the columns that make its key where they are known.

    Without `key` the row id alone identifies a row.
    """

    table: str
    columns: tuple[ColumnSchema, ...]
    key: tuple[str, ...] = ()

    def __init__(
        self,
        table: str,
        columns: Iterable[ColumnSchema | Mapping[str, Any]],
        key: Iterable[str] = (),
    ) -> None:
        check_table_name(table)
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "columns", tuple(_column(table, entry) for entry in columns))
        object.__setattr__(self, "key", (key,) if isinstance(key, str) else tuple(key))
        check_column_names(self.names)
        self._check_key()

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

    def _check_key(self) -> None:
        for name in self.key:
            if name not in self.by_name:
                raise DeltaError(f"key column {abbreviate(name)} is not a column of table {self.table}", field="key")
        if len(set(self.key)) < len(self.key):
            raise DeltaError(f"the key of table {self.table} names a column twice", field="key")


def _column(table: str, entry: ColumnSchema | Mapping[str, Any]) -> ColumnSchema:
    if isinstance(entry, ColumnSchema):
        name, kind = entry.name, entry.type
    elif isinstance(entry, Mapping) and set(entry) == {"name", "type"}:
        name, kind = entry["name"], entry["type"]
    else:
        raise DeltaError(f"a column of table {table} is {{name, type}}, not {abbreviate(entry)}", field="columns")
    if not isinstance(kind, str) or kind not in COLUMN_TYPES:
        wanted = ", ".join(COLUMN_TYPES)
        raise DeltaError(f"column {abbreviate(name)} has type {abbreviate(kind)}: use one of {wanted}", field="columns")
    if not isinstance(name, str):
        raise DeltaError(f"a column name of table {table} is text, not {abbreviate(name)}", field="columns")
    return ColumnSchema(name, kind)


# Typed rows.
def typed_row(row: Mapping[str, Any], types: Types, nulls: Collection[str] = ()) -> JsonObject:
    """The row with its declared columns converted; an empty cell of such a column is null, and `nulls` always are."""
    return {name: None if name in nulls else _typed(name, value, types.get(name)) for name, value in row.items()}


def typed_event(event: Mapping[str, Any], types: Types, nulls: Collection[str] = ()) -> JsonObject:
    """A data event of a table diff whose rows have typed values."""
    if not types and not nulls:
        return dict(event)
    typed = dict(event)
    for part in ("row", "before", "after"):
        if part in event:
            typed[part] = typed_row(event[part], types, nulls)
    return typed


def typed_events(events: Iterable[Mapping[str, Any]], types: Types) -> Iterator[JsonObject]:
    """The data events of a table diff with typed rows; schema and stats are left out."""
    return (
        typed_event(event, types)
        for event in events
        if event["type"] not in ("schema", "stats", "column_stats", "unchanged")
    )


def _typed(name: str, value: Json, kind: ColumnType | None) -> Json:
    if kind is None or kind == "string" or not isinstance(value, str):
        return value
    if value == "":
        return None
    try:
        return _READERS[kind](value)
    except ValueError as error:
        raise DeltaError(
            f"column {name!r} holds {value[:40]!r}, which is not a {kind}: correct the data or declare another type",
            code="wrong_type",
            column=name,
        ) from error


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or "_" in text:
        raise ValueError(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(text)


_READERS: dict[str, Callable[[str], Any]] = {"number": _number, "boolean": _boolean, "json": json.loads}

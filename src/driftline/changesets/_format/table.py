"""The tables that changes are about: names, declared types and the primary key.

>>> users = Table("users", columns=[("id", "INTEGER"), ("name", "TEXT")], primary_key=["id"])
>>> users.key_flags, users.column_names
((1, 0), ('id', 'name'))
>>> Table.from_sql("CREATE TABLE t (a TEXT, b INT, PRIMARY KEY (b, a))").key_flags
(2, 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from driftline.changesets.affinity import Affinity, affinity_of
from driftline.changesets.format import MAX_COLUMNS, UNDEFINED, Field, Row, Undefined, Value, encode_varint
from driftline.changesets.names import folded
from driftline.errors import ChangesetError

if TYPE_CHECKING:
    from driftline.changesets.database import Database

AnyRow = Mapping[str, Any] | Sequence[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its declared type and the value an INSERT gives it when it is left out."""

    name: str
    declared_type: str = ""
    affinity: Affinity = Affinity.BLOB
    default: Field = None


@dataclass(frozen=True, init=False)
class Table:
    """A table with a primary key, as a session sees it (generated columns are not part of it)."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    generated: frozenset[str] = field(compare=False)
    is_named: bool = field(compare=False)
    rowid_key: bool = field(compare=False)

    def __init__(
        self,
        name: str,
        columns: Iterable[str | tuple[str, str | None] | Column],
        primary_key: Sequence[str],
        *,
        generated: Iterable[str] = (),
        rowid_key: bool = False,
    ) -> None:
        made = tuple(_as_column(column) for column in columns)
        known = {folded(column.name): column.name for column in made}
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "columns", made)
        set_field(self, "primary_key", tuple(known.get(folded(part), part) for part in primary_key))
        set_field(self, "generated", frozenset(map(folded, generated)))
        set_field(self, "is_named", True)
        set_field(self, "rowid_key", rowid_key)
        self._check(known)

    def _check(self, known: Mapping[str, str]) -> None:
        if not self.name or "\0" in self.name:
            raise ChangesetError("a table needs a name without NUL", code="invalid_table")
        if not 0 < len(self.columns) <= MAX_COLUMNS or len(known) != len(self.columns):
            raise ChangesetError(
                f"table {self.name}: columns must be 1 to {MAX_COLUMNS} distinct names", code="invalid_table"
            )
        unknown = [part for part in self.primary_key if folded(part) not in known]
        if unknown:
            raise ChangesetError(f'table {self.name} has no column "{unknown[0]}" for its key', code="invalid_table")
        if not self.primary_key or len(set(self.primary_key)) != len(self.primary_key):
            raise ChangesetError(
                f"table {self.name} needs a primary key of distinct columns: sessions skip tables without one",
                code="no_primary_key",
            )

    @classmethod
    def from_sql(cls, text: str) -> Table:
        """The table that a `CREATE TABLE` statement makes."""
        from driftline.changesets.schema import table_from_sql

        return table_from_sql(text)

    @classmethod
    def from_database(cls, database: Database, name: str) -> Table:
        """A table of a database file or of an open apsw connection."""
        from driftline.changesets.schema import table_from_database

        return table_from_database(database, name)

    @classmethod
    def from_header(cls, name: str, key_flags: Sequence[int]) -> Table:
        """A table known from a changeset alone: its columns have no names or types."""
        table = cls.__new__(cls)
        names = [f"column{number}" for number in range(1, len(key_flags) + 1)]
        keys = sorted((flag, index) for index, flag in enumerate(key_flags) if flag)
        set_field = object.__setattr__
        set_field(table, "name", name)
        set_field(table, "columns", tuple(Column(column) for column in names))
        set_field(table, "primary_key", tuple(names[index] for _, index in keys))
        set_field(table, "generated", frozenset())
        set_field(table, "is_named", False)
        set_field(table, "rowid_key", False)
        # Flags of foreign files are kept as they are, whatever their numbering.
        table.__dict__["key_flags"] = tuple(key_flags)
        return table

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Names in column order."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def affinities(self) -> tuple[Affinity, ...]:
        """Affinities in column order."""
        return tuple(column.affinity for column in self.columns)

    @cached_property
    def key_flags(self) -> tuple[int, ...]:
        """For each column its 1-based place in the primary key, 0 if it has none."""
        return tuple(self.primary_key.index(name) + 1 if name in self.primary_key else 0 for name in self.column_names)

    @cached_property
    def key_indexes(self) -> tuple[int, ...]:
        """The key columns in column order, in which keys are hashed and written."""
        return tuple(index for index, flag in enumerate(self.key_flags) if flag)

    @cached_property
    def width(self) -> int:
        """The number of columns."""
        return len(self.columns)

    @cached_property
    def column_index(self) -> dict[str, int]:
        """The position of each column by its folded name."""
        return {folded(name): index for index, name in enumerate(self.column_names)}

    def is_generated(self, column: str) -> bool:
        """Whether SQLite computes this column, so that rows need no value for it."""
        return bool(self.generated) and folded(column) in self.generated

    def header(self, marker: int) -> bytes:
        """The header of this table's section."""
        return b"%c%b%b%b\0" % (
            marker,
            encode_varint(self.width),
            bytes(self.key_flags),
            self.name.encode(errors="surrogateescape"),
        )

    def index_of(self, column: str) -> int:
        """The position of a column, by its name in any case."""
        try:
            return self.column_index[folded(column)]
        except KeyError:
            raise ChangesetError(f'table {self.name} has no column "{column}"', code="unknown_column") from None

    def row(self, row: AnyRow, *, partial: bool = False) -> Row:
        """A whole row as a tuple in column order, from a mapping by name or a sequence.

        A `partial` row may have `UNDEFINED` in columns that are not part of the key.
        """
        made = row if type(row) is tuple else self._as_tuple(row)
        if len(made) != self.width:
            raise ChangesetError(
                f"table {self.name} has {self.width} columns, the row has {len(made)} values", code="row_width_mismatch"
            )
        if _PLAIN_TYPES.issuperset(map(type, made)):
            return made
        return tuple(self._value(index, value, partial) for index, value in enumerate(made))

    def _value(self, index: int, value: object, partial: bool) -> Field:
        if partial and isinstance(value, Undefined):
            return value
        try:
            return plain_value(value)
        except ChangesetError as error:
            raise ChangesetError(
                f'table {self.name}, column "{self.column_names[index]}": {error.message}', code=error.code
            ) from None

    def _as_tuple(self, row: AnyRow) -> Row:
        if isinstance(row, str | bytes):
            raise ChangesetError(f"table {self.name}: a row is a mapping or a sequence of values", code="invalid_row")
        if not isinstance(row, Mapping):
            return tuple(row)
        fields = self.fields(row)
        if UNDEFINED in fields:
            missing = self.column_names[fields.index(UNDEFINED)]
            raise ChangesetError(
                f'table {self.name}: the row has no value for column "{missing}"', code="missing_column"
            )
        return fields

    def fields(self, values: Mapping[str, Any]) -> Row:
        """Some values by column name as a tuple in column order, `UNDEFINED` where nothing was given."""
        fields: list[Field] = [UNDEFINED] * self.width
        for name, value in values.items():
            if not self.is_generated(name):
                index = self.index_of(name)
                fields[index] = self._value(index, value, True)
        return tuple(fields)

    def key(self, key: object) -> Row:
        """A key alone as a tuple in column order: a mapping, a sequence in the order of the primary key, or a value."""
        if not isinstance(key, Mapping):
            parts = (key,) if isinstance(key, str | bytes) or not isinstance(key, Sequence) else key
            if len(parts) != len(self.primary_key):
                raise ChangesetError(
                    f"the key of table {self.name} has {len(self.primary_key)} columns, {len(parts)} values were given",
                    code="invalid_key",
                )
            key = dict(zip(self.primary_key, parts, strict=True))
        fields = self.fields(key)
        if any((fields[index] is UNDEFINED) == bool(flag) for index, flag in enumerate(self.key_flags)):
            raise ChangesetError(f"the key of table {self.name} is ({', '.join(self.primary_key)})", code="invalid_key")
        return fields


_PLAIN_TYPES = frozenset({int, float, str, bytes, type(None)})


def plain_value(value: Any) -> Value:
    """A Python value as one that SQLite stores: bool, NumPy numbers and buffers included."""
    if type(value) in _PLAIN_TYPES:
        return value  # type: ignore[no-any-return]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value)
    if hasattr(value, "__index__"):
        return int(value)
    if hasattr(value, "dtype") and value.dtype.kind == "f":
        return float(value)
    raise ChangesetError(
        f"SQLite has no type for {type(value).__name__}: give an int, float, str, bytes or None", code="invalid_value"
    )


def _as_column(column: str | tuple[str, str | None] | Column) -> Column:
    if isinstance(column, Column):
        return column
    name, declared = (column, "") if isinstance(column, str) else column
    return Column(name, declared or "", affinity_of(declared))

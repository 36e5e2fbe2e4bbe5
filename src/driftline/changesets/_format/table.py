"""Tables as changes see them, the affinities of their columns, and the operations on their rows.

>>> users = Table("users", columns=[("id", "INTEGER"), ("name", "TEXT")], primary_key=["id"])
>>> users.key_flags, users.column_names
((1, 0), ('id', 'name'))
>>> Table.from_sql("CREATE TABLE t (a TEXT, b INT, PRIMARY KEY (b, a))").key_flags
(2, 1)
>>> born = Operation(users, "insert", None, (1, "Alice"))
>>> renamed = Operation(users, "update", (1, "Alice"), (UNDEFINED, "Alicia"))
>>> renamed.old_values, renamed.new_values
({'id': 1, 'name': 'Alice'}, {'name': 'Alicia'})
>>> renamed.reverse()
<update of users: {'id': 1, 'name': 'Alicia'} -> {'name': 'Alice'}>
>>> born + renamed
<insert of users: {'id': 1, 'name': 'Alicia'}>
>>> print(born + born.reverse())
None
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from driftline.changesets._format.encoding import (
    CHANGESET_MARKER,
    DELETE,
    INSERT,
    MAX_COLUMNS,
    MAX_INTEGER,
    MIN_INTEGER,
    PATCHSET_MARKER,
    UNDEFINED,
    UPDATE,
    Field,
    Row,
    Undefined,
    Value,
    encode_value,
    encode_varint,
    folded,
    integer_too_large,
)
from driftline.errors import ChangesetError

if TYPE_CHECKING:
    import apsw

    from driftline.changesets._format.database import Database

AnyRow = Mapping[str, Any] | Sequence[Any]
Kind = Literal["insert", "update", "delete"]

_KIND_CODES: dict[str, int] = {"insert": INSERT, "update": UPDATE, "delete": DELETE}
_PLAIN_TYPES = frozenset({int, float, str, bytes, type(None)})
_BLANKS = " \t\n\v\f\r"
_NUMBER = re.compile(rf"[{_BLANKS}]*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[{_BLANKS}]*")
_MOST_INTEGER_DIGITS = 19
_MOST_EXACT_CHARACTERS = 15
_TWO_TO_63 = float(1 << 63)


class Affinity(enum.Enum):
    """The type that a column prefers for its values (sqlite.org/datatype3.html, section 3)."""

    BLOB = "BLOB"
    TEXT = "TEXT"
    NUMERIC = "NUMERIC"
    INTEGER = "INTEGER"
    REAL = "REAL"


# The first matching word decides (datatype3.html, section 3.1).
_RULES = (
    (("int",), Affinity.INTEGER),
    (("char", "clob", "text"), Affinity.TEXT),
    (("blob",), Affinity.BLOB),
    (("real", "floa", "doub"), Affinity.REAL),
)


def affinity_of(declared_type: str | None, *, strict: bool = False) -> Affinity:
    """The affinity of a declared type; `strict` is for columns of STRICT tables, where ANY means none.

    >>> [affinity_of(name).value for name in ("BIGINT", "varchar(10)", "", "double", "decimal(9, 2)")]
    ['INTEGER', 'TEXT', 'BLOB', 'REAL', 'NUMERIC']
    """
    name = folded(declared_type or "")
    if not name or (strict and name == "any"):
        return Affinity.BLOB
    for words, affinity in _RULES:
        if any(word in name for word in words):
            return affinity
    return Affinity.NUMERIC


def apply_affinity(value: Field, affinity: Affinity) -> Field:
    """The value as a column of this affinity stores it.

    >>> apply_affinity("12", Affinity.INTEGER), apply_affinity(3, Affinity.REAL), apply_affinity(12, Affinity.TEXT)
    (12, 3.0, '12')
    """
    if isinstance(value, float) and value != value:
        return None
    if affinity is Affinity.BLOB or not isinstance(value, int | float | str):
        return value
    if affinity is Affinity.TEXT:
        # SQLite itself prints reals, because it rounds in its own way.
        return value if isinstance(value, str) else str(int(value)) if isinstance(value, int) else _cast(value, "TEXT")
    number = _text_as_number(value) if isinstance(value, str) else value
    if isinstance(number, str):
        return number
    if affinity is Affinity.REAL:
        if isinstance(number, int) and not MIN_INTEGER <= number <= MAX_INTEGER:
            raise integer_too_large(number)
        return float(number) + 0.0  # -0.0 is stored as integer 0 and read back as 0.0
    is_whole = isinstance(number, float) and -_TWO_TO_63 < number < _TWO_TO_63 and number.is_integer()
    return int(number) if is_whole else number


def _text_as_number(text: str) -> int | float | str:
    """The number a text looks like, or the text itself; only the part before a NUL counts."""
    visible, nul, _ = text.partition("\0")
    if not _NUMBER.fullmatch(visible):
        return text
    digits = visible.strip(_BLANKS)
    # Python refuses to read integers of thousands of digits; those are reals for SQLite anyway, as are texts with NUL.
    unsigned = digits.lstrip("+-")
    if not nul and unsigned.isdigit() and len(unsigned.lstrip("0")) <= _MOST_INTEGER_DIGITS:
        number = int(unsigned.lstrip("0") or 0) * (-1 if digits.startswith("-") else 1)
        if MIN_INTEGER <= number <= MAX_INTEGER:
            return number
    # SQLite rounds long reals in its own way.
    return float(digits if len(digits) <= _MOST_EXACT_CHARACTERS else _cast(digits, "REAL"))


def _cast(value: object, kind: str) -> Any:
    return next(_sqlite().execute(f"SELECT CAST(? AS {kind})", (value,)))[0]


@cache
def _sqlite() -> apsw.Connection:
    import apsw

    return apsw.Connection(":memory:")


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
        key = tuple(known.get(folded(part), part) for part in primary_key)
        hidden = frozenset(map(folded, generated))
        self._set(name=name, columns=made, primary_key=key, generated=hidden, is_named=True, rowid_key=rowid_key)
        self._check(known)

    def _set(self, **fields: object) -> None:
        self.__dict__.update(fields)

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
        from driftline.changesets._format.database import table_from_sql

        return table_from_sql(text)

    @classmethod
    def from_database(cls, database: Database, name: str) -> Table:
        """A table of a database file or of an open apsw connection."""
        from driftline.changesets._format.database import table_from_database

        return table_from_database(database, name)

    @classmethod
    def from_header(cls, name: str, key_flags: Sequence[int]) -> Table:
        """A table known from a changeset alone: its columns have no names or types."""
        table = cls.__new__(cls)
        names = [f"column{number}" for number in range(1, len(key_flags) + 1)]
        keys = sorted((flag, index) for index, flag in enumerate(key_flags) if flag)
        columns, key = tuple(map(Column, names)), tuple(names[index] for _, index in keys)
        table._set(name=name, columns=columns, primary_key=key, generated=frozenset(), is_named=False, rowid_key=False)
        # Flags of foreign files are kept as they are, whatever their numbering.
        table._set(key_flags=tuple(key_flags))
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


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One change: `old` and `new` are rows in column order, with `UNDEFINED` for fields the record leaves out.

    An insert has no `old`, a delete no `new`. In patchsets `old` holds the key only.
    """

    table: Table
    kind: Kind
    old: Row | None
    new: Row | None
    indirect: int = 0
    patchset: bool = False

    @property
    def key(self) -> Row:
        """The key values in column order."""
        row = self.new if self.old is None else self.old
        assert row is not None
        return tuple(row[index] for index in self.table.key_indexes)

    @property
    def old_values(self) -> dict[str, Value]:
        """The values before, by column name; columns that the record leaves out are absent."""
        return _by_name(self.table, self.old)

    @property
    def new_values(self) -> dict[str, Value]:
        """The values after, by column name; columns that the record leaves out are absent."""
        return _by_name(self.table, self.new)

    def reverse(self) -> Operation:
        """The operation that undoes this one; a patchset's cannot be undone (changesets §3.3)."""
        if self.patchset:
            raise patchset_not_invertible()
        if self.kind != "update":
            kind: Kind = "delete" if self.kind == "insert" else "insert"
            return Operation(self.table, kind, self.new, self.old, self.indirect)
        old, new = self.old or (), self.new or ()
        flags = self.table.key_flags
        before = tuple(o if flag else n for o, n, flag in zip(old, new, flags, strict=True))
        after = tuple(UNDEFINED if flag else o for o, flag in zip(old, flags, strict=True))
        return Operation(self.table, "update", before, after, self.indirect)

    def __add__(self, other: Operation) -> Operation | None:
        """What both do one after the other, by the rules of a changegroup (changesets §3.1); None for nothing."""
        if not isinstance(other, Operation):
            return NotImplemented
        from driftline.changesets._format.streams import iterate, merged

        self._check_same_row(other)
        header = self.table.header(PATCHSET_MARKER if self.patchset else CHANGESET_MARKER)
        record = merged(header, self.encode(), other.encode())
        return None if record is None else next(iterate(header + record, [self.table]))

    def _check_same_row(self, other: Operation) -> None:
        same_table = folded(self.table.name) == folded(other.table.name)
        if not same_table or self.table.key_flags != other.table.key_flags or self.patchset != other.patchset:
            raise ChangesetError(
                f"operations on {self.table.name} and {other.table.name}: only changes of one format and one table "
                "have a sum",
                code="schema_mismatch",
            )
        if list(map(encode_value, self.key)) != list(map(encode_value, other.key)):
            raise ChangesetError(
                f"table {self.table.name}: operations on the rows {self.key} and {other.key} have no sum",
                code="different_rows",
            )

    def encode(self, *, patchset: bool | None = None) -> bytes:
        """The record of this operation, in its own format by default."""
        head = bytes([_KIND_CODES[self.kind], self.indirect])
        return head + b"".join(map(encode_value, self._fields(self.patchset if patchset is None else patchset)))

    def _fields(self, patchset: bool) -> Row:
        if self.old is None:
            return self.new or ()
        if self.new is None:
            return self.key if patchset else self.old
        if not patchset:
            return self.old + self.new
        flags = self.table.key_flags
        return tuple(old if flag else new for old, new, flag in zip(self.old, self.new, flags, strict=True))

    def __repr__(self) -> str:
        sides = [str(side) for side in (self.old_values, self.new_values) if side]
        return f"<{self.kind} of {self.table.name}: {' -> '.join(sides)}{', indirect' if self.indirect else ''}>"


def patchset_not_invertible() -> ChangesetError:
    """The error for undoing what does not hold the old values."""
    return ChangesetError(
        "a patchset cannot be inverted: it does not hold the old values", code="patchset_not_invertible"
    )


def _by_name(table: Table, row: Row | None) -> dict[str, Value]:
    pairs = zip(table.column_names, row or (), strict=row is not None)
    return {name: value for name, value in pairs if value is not UNDEFINED}

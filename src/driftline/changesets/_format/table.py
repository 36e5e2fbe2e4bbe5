"""The bytes of changesets (markers, operation codes, varints and values), their tables and their operations.

A file is a row of sections; a section is a table header followed by change records (changesets §1).

>>> encode_value("hi").hex(), encode_value(None).hex(), encode_varint(300).hex()
('03026869', '05', '822c')

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
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from driftline.errors import ChangesetError, CorruptChangesetError

if TYPE_CHECKING:
    import apsw

    from driftline.changesets._format.database import Database

CHANGESET_MARKER: Final = 0x54  # "T"
PATCHSET_MARKER: Final = 0x50  # "P"

INSERT: Final = 0x12
DELETE: Final = 0x09
UPDATE: Final = 0x17
KIND_NAMES: Final = {INSERT: "insert", DELETE: "delete", UPDATE: "update"}


class Tag:
    """The type byte of a field."""

    UNDEFINED: Final = 0
    INTEGER: Final = 1
    REAL: Final = 2
    TEXT: Final = 3
    BLOB: Final = 4
    NULL: Final = 5


FIRST_BUCKETS: Final = 256  # of the session's hash table (changesets §2.1)
HASH_MASK: Final = 0xFFFFFFFF
MAX_COLUMNS: Final = 65536
MAX_VARINT_BYTES: Final = 5
MIN_INTEGER: Final = -(1 << 63)
MAX_INTEGER: Final = (1 << 63) - 1

_LOWER_ASCII = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def refused(code: str, text: str) -> ChangesetError:
    """The error for what cannot be done, by its code and in words."""
    return ChangesetError(text, code=code)


class TruncatedChangesetError(CorruptChangesetError):
    """The bytes end too early: damage in a file, the end of a block in a stream."""


class Undefined(enum.Enum):
    """The type of `UNDEFINED`, the value of a field that a record leaves out."""

    UNDEFINED = 0

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __bool__(self) -> bool:
        return False


UNDEFINED: Final = Undefined.UNDEFINED

Value = int | float | str | bytes | None
Field = Value | Undefined
Row = tuple[Field, ...]

_pack_integer = struct.Struct(">Bq").pack
_pack_real = struct.Struct(">Bd").pack
_ENCODED_NULL, _TEXT, _BLOB = (bytes([tag]) for tag in (Tag.NULL, Tag.TEXT, Tag.BLOB))
ENCODED_UNDEFINED: Final = bytes([Tag.UNDEFINED])


def encode_varint(number: int) -> bytes:
    """Big-endian groups of seven bits, the high bit set on all but the last."""
    groups = [number & 0x7F]
    number >>= 7
    while number:
        groups.append((number & 0x7F) | 0x80)
        number >>= 7
    return bytes(reversed(groups))


def decode_varint(data: bytes, offset: int) -> tuple[int, int]:
    """The number at `offset` and the offset behind it."""
    number = 0
    for position in range(offset, min(offset + MAX_VARINT_BYTES, len(data))):
        byte = data[position]
        number = (number << 7) | (byte & 0x7F)
        if byte < 0x80:
            return number, position + 1
    if offset + MAX_VARINT_BYTES > len(data):
        raise TruncatedChangesetError("the data ends inside a length", offset=len(data))
    raise CorruptChangesetError("a length of more than five bytes", offset=offset)


def encode_value(value: Field) -> bytes:
    """One field: a type byte and its payload; NaN becomes NULL as in SQLite."""
    if value is None or value != value:
        return _ENCODED_NULL
    if isinstance(value, int):
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            raise integer_too_large(value)
        return _pack_integer(Tag.INTEGER, value)
    if isinstance(value, float):
        return _pack_real(Tag.REAL, value)
    if isinstance(value, str):
        data = encode_text(value)
        return _TEXT + encode_varint(len(data)) + data
    if isinstance(value, bytes):
        return _BLOB + encode_varint(len(value)) + value
    return ENCODED_UNDEFINED


def encode_text(text: str) -> bytes:
    """UTF-8, refusing what is not Unicode text; bytes that were read and are not UTF-8 come back as they were."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise refused("invalid_text", f"text with a lone surrogate at character {error.start}") from error


def integer_too_large(value: int) -> ChangesetError:
    return refused("integer_too_large", f"{value} does not fit into 64 bits")


def decode_text(data: bytes) -> str:
    """Text as stored; bytes that are not UTF-8 survive as lone surrogates, as files may hold them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode(errors="surrogateescape")


# The row order of a session: the state of its hash table, in closed form.
#
# SQLite keeps changed keys in a hash table and writes them bucket by bucket. The table starts with 256 buckets, doubles
# before an event that finds it half full, and growth turns the chains around (changesets §2.1). Keys in first-touch
# order fall into stages that end at 128, 256, 512, … keys; a chain holds the keys of the last stage, the last but two,
# … from young to old, then the keys of the other stages from old to young. So a key's place is a sort key: its bucket,
# then a signed sequence number. `records.py` does the same for many keys at once.


def bucket_count(keys: int, *, event_after_last_key: bool) -> int:
    """How many buckets the table ends with, for a number of distinct keys.

    >>> bucket_count(128, event_after_last_key=False), bucket_count(128, event_after_last_key=True)
    (256, 512)
    >>> bucket_count(129, event_after_last_key=False)
    512
    """
    buckets = FIRST_BUCKETS
    while keys > buckets // 2 or (event_after_last_key and keys == buckets // 2):
        buckets *= 2
    return buckets


def hash_step(value: int, addend: int) -> int:
    """The hash with one more byte or word."""
    return ((value << 3) ^ value ^ addend) & HASH_MASK


def folded(name: str) -> str:
    """The form in which two names are the same: SQLite folds ASCII letters only (changesets §1.4).

    >>> folded("Users") == folded("USERS"), folded("Ä") == folded("ä")
    (True, False)
    """
    return name.translate(_LOWER_ASCII)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


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
            raise refused("invalid_table", "a table needs a name without NUL")
        if not 0 < len(self.columns) <= MAX_COLUMNS or len(known) != len(self.columns):
            raise refused("invalid_table", f"table {self.name}: columns must be 1 to {MAX_COLUMNS} distinct names")
        unknown = [part for part in self.primary_key if folded(part) not in known]
        if unknown:
            raise refused("invalid_table", f'table {self.name} has no column "{unknown[0]}" for its key')
        if not self.primary_key or len(set(self.primary_key)) != len(self.primary_key):
            raise refused(
                "no_primary_key",
                f"table {self.name} needs a primary key of distinct columns: sessions skip tables without one",
            )

    @classmethod
    def from_sql(cls, text: str) -> Table:
        """The table that a `CREATE TABLE` statement makes."""
        from driftline.changesets._format.database import ROWID, tables_from_sql

        tables = tables_from_sql(text)
        if len(tables) != 1:
            raise refused("invalid_schema", f"one CREATE TABLE statement is wanted, {len(tables)} were found")
        if tables[0].primary_key == (ROWID,):
            raise refused("no_primary_key", f"table {tables[0].name} has no primary key")
        return tables[0]

    @classmethod
    def from_database(cls, database: Database, name: str) -> Table:
        """A table of a database file or of an open apsw connection."""
        from driftline.changesets._format.database import tables_from_database

        for table in tables_from_database(database):
            if folded(table.name) == folded(name):
                return table
        raise refused("unknown_table", f'the database has no table "{name}"')

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
            raise refused("unknown_column", f'table {self.name} has no column "{column}"') from None

    def row(self, row: AnyRow, *, partial: bool = False) -> Row:
        """A whole row as a tuple in column order, from a mapping by name or a sequence.

        A `partial` row may have `UNDEFINED` in columns that are not part of the key.
        """
        made = row if type(row) is tuple else self._as_tuple(row)
        if len(made) != self.width:
            raise refused(
                "row_width_mismatch", f"table {self.name} has {self.width} columns, the row has {len(made)} values"
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
            raise refused(
                error.code, f'table {self.name}, column "{self.column_names[index]}": {error.message}'
            ) from None

    def _as_tuple(self, row: AnyRow) -> Row:
        if isinstance(row, str | bytes):
            raise refused("invalid_row", f"table {self.name}: a row is a mapping or a sequence of values")
        if not isinstance(row, Mapping):
            return tuple(row)
        fields = self.fields(row)
        if UNDEFINED in fields:
            missing = self.column_names[fields.index(UNDEFINED)]
            raise refused("missing_column", f'table {self.name}: the row has no value for column "{missing}"')
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
                raise refused(
                    "invalid_key",
                    f"the key of table {self.name} has {len(self.primary_key)} columns, {len(parts)} values were given",
                )
            key = dict(zip(self.primary_key, parts, strict=True))
        fields = self.fields(key)
        if any((fields[index] is UNDEFINED) == bool(flag) for index, flag in enumerate(self.key_flags)):
            raise refused("invalid_key", f"the key of table {self.name} is ({', '.join(self.primary_key)})")
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
    raise refused(
        "invalid_value", f"SQLite has no type for {type(value).__name__}: give an int, float, str, bytes or None"
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

        same_table = folded(self.table.name) == folded(other.table.name)
        if not same_table or self.table.key_flags != other.table.key_flags or self.patchset != other.patchset:
            raise refused(
                "schema_mismatch",
                f"operations on {self.table.name} and {other.table.name}: only changes of one format and one table "
                "have a sum",
            )
        if list(map(encode_value, self.key)) != list(map(encode_value, other.key)):
            raise refused(
                "different_rows",
                f"table {self.table.name}: operations on the rows {self.key} and {other.key} have no sum",
            )
        header = self.table.header(PATCHSET_MARKER if self.patchset else CHANGESET_MARKER)
        record = merged(header, self.encode(), other.encode())
        return None if record is None else next(iterate(header + record, [self.table]))

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
    return refused("patchset_not_invertible", "a patchset cannot be inverted: it does not hold the old values")


def _by_name(table: Table, row: Row | None) -> dict[str, Value]:
    pairs = zip(table.column_names, row or (), strict=row is not None)
    return {name: value for name, value in pairs if value is not UNDEFINED}

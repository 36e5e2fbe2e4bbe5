"""Tables and queries of PostgreSQL databases, through ADBC (sources §6).

All connections of one source read one exported snapshot, which the planning process keeps open. A table with one
integer primary key is cut into ranges of it, read in its order; everything else is copied into batches once, because a
second read might give the rows in another order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from driftline.core import Workspace
from driftline.errors import InputError
from driftline.sources._addresses import Address, InputFile
from driftline.sources._source import (
    Counted,
    FileFingerprint,
    Opening,
    ParsedRange,
    RecordIndex,
    RecordNumbers,
    SplitSide,
    TypedCells,
    reads_input,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pyarrow as pa

_QUERY = re.compile(r"\s*(select|with|values|table)\b", re.IGNORECASE)
_MOST_SPLITS = 256
_HEAD_ROWS = 2000

# How a column of a type is selected: as it is, as text, or as the text of a JSON value.
_PLAIN = {"bool", "int2", "int4", "int8", "float4", "float8", "text", "varchar", "bpchar", "name", "bytea", "date",
          "timestamp", "timestamptz"}  # fmt: skip
_AS_TEXT = {"uuid", "interval", "time", "timetz"}
_AS_JSON = {"json", "jsonb"}
_INTEGERS = {"int2", "int4", "int8"}
# How text of the other input is parsed for a column: a CSV file has no types.
_KINDS = {
    **dict.fromkeys((*_INTEGERS, "float4", "float8", "numeric"), "number"),
    "bool": "boolean",
    "date": "date",
    **dict.fromkeys(("timestamp", "timestamptz"), "datetime"),
}
_FORMS = {
    "plain": "{0}",
    "text": "{0}::text AS {0}",
    "json": "{0}::text AS {0}",
    "array": "to_json({0})::text AS {0}",
    # NaN and the infinities have no digits; as everywhere they are strings.
    "number": "CASE WHEN {0}::text ~ '^-?[0-9]' THEN trim_scale({0})::text ELSE to_json({0}::text)::text END AS {0}",
}

_COLUMNS = """
SELECT a.attname::text, COALESCE(b.typname, t.typname)::text, t.typtype::text, t.typcategory::text,
  CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_KEY = """
SELECT a.attname::text, t.typname::text
FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
JOIN pg_type t ON t.oid = a.atttypid
WHERE i.indrelid = $1::regclass AND i.indisprimary AND i.indnkeyatts = 1
"""
_SIZE = "SELECT pg_table_size($1::regclass), greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = $1::regclass"


def open_input(address: Address, opening: Opening) -> PostgresSource:
    """The table in its current state, the same for all readers of this run."""
    if not address.table:
        raise InputError(
            f"{address.path}: name a table too, as {address.path}::SCHEMA.TABLE, or a query",
            code="missing_table_name",
        )
    from urllib.parse import urlsplit

    if urlsplit(address.path).password:
        raise InputError(
            "a password does not belong into an address, where others see it: set PGPASSWORD or use ~/.pgpass",
            code="password_in_address",
        )
    return _planned(address.path, address.table, opening.workspace)


@reads_input
@dataclass(frozen=True, slots=True)
class PostgresSource(TypedCells):
    """One table or query, at one snapshot."""

    uri: str
    relation: str  # after FROM
    names: tuple[str, ...]
    selected: str
    as_json: frozenset[str]  # columns that are selected as the text of a JSON value
    as_number: frozenset[str]  # columns that are selected as the digits of a number
    kinds: tuple[tuple[str, str], ...]  # of columns that are not text
    numbers: tuple[tuple[str, str, int], ...]  # columns of numbers, by type and its modifier
    snapshot: str
    size: int | None  # None: a query, whose rows nobody has counted
    rows: int
    key: str | None = None
    key_range: tuple[int, int] = (0, -1)
    format: str = "postgresql"
    typed: bool = True
    ordered: bool = False

    @property
    def seekable(self) -> bool:
        """Whether there is a key to cut it by."""
        return self.key is not None

    @property
    def files(self) -> tuple[InputFile, ...]:
        """None."""
        return ()

    def header(self, side: str) -> tuple[str, ...]:
        """The columns of the table or query."""
        return self.names

    def types(self) -> pa.Schema:
        """Of its numbers, by the catalog; the other cells are JSON values."""
        import pyarrow as pa

        return pa.schema([(name, _number_type(kind, modifier)) for name, kind, modifier in self.numbers])

    def fingerprint(self, of_file: FileFingerprint) -> None:
        """None: the content is read every time."""

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Executor | None = None) -> SplitSide:
        """Ranges of the key, or batches of a copy."""
        if self.key is None:
            from driftline.sources._cells import spool_tables

            with _reading(self.uri, self.snapshot) as connection:
                copied = spool_tables(self._tables(connection), self.names, workspace)
            return replace(copied, kinds=dict(self.kinds))
        pieces = max(1, min(_MOST_SPLITS, -(-(self.size or 0) // max(1, split_bytes))))
        first, last = self.key_range
        step = max(1, -(-(last - first + 1) // pieces))
        bounds = [(low, min(low + step - 1, last)) for low in range(first, last + 1, step)]
        splits = [KeyRange(self, low, high, (self.size or 0) // len(bounds)) for low, high in bounds]
        return SplitSide(self.names, splits, self.rows, typed=True, kinds=dict(self.kinds))

    def _tables(self, connection: Any) -> Iterator[pa.Table]:
        import pyarrow as pa

        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {self.selected} FROM {self.relation} AS source")  # noqa: S608 - the user's own
            for batch in cursor.fetch_record_batch():
                yield self.cells(pa.Table.from_batches([batch]))

    def cells(self, table: pa.Table) -> pa.Table:
        """Every cell as JSON text; some are JSON text already."""
        import pyarrow as pa

        return pa.Table.from_arrays([self._cells(table, name) for name in self.names], list(self.names))

    def _cells(self, table: pa.Table, name: str) -> pa.Array:
        from driftline.sources._cells import compact_json, json_columns

        if name in self.as_number:
            return table.column(name).fill_null("null").cast("large_string")
        if name in self.as_json:
            return compact_json(table.column(name))
        return json_columns(table.select([name])).column(0)

    def sample(self, side: str, rows: int) -> dict[str, list[str]]:
        """Some rows."""
        with _reading(self.uri, self.snapshot) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {self.selected} FROM {self.relation} AS source LIMIT {int(rows)}")  # noqa: S608
            table = self.cells(cursor.fetch_arrow_table())
        return {name: table.column(at).to_pylist() for at, name in enumerate(self.names)}

    def with_absolute_paths(self) -> PostgresSource:
        """As it is: an address is the same everywhere."""
        return self


@reads_input
@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows whose key is between two numbers, in the order of the key."""

    source: PostgresSource
    low: int
    high: int
    size: int

    @property
    def files(self) -> tuple[InputFile, ...]:
        """None."""
        return ()

    def read(self) -> ParsedRange:
        """All rows."""
        table = self._read()
        return ParsedRange(table.num_rows, table)

    def pick(self, records: RecordNumbers, known: RecordIndex | None = None) -> pa.Table:
        """Some rows."""
        from driftline.sources._csv.parse import take_records

        return take_records(self._read(), records)

    def count(self) -> Counted:
        """The number of rows."""
        rows = int(self._read().num_rows)
        return Counted(rows, rows)

    def head(self) -> pa.Table | None:
        """Some of the first rows."""
        return self._read(f"LIMIT {_HEAD_ROWS}")

    def _read(self, limit: str = "") -> pa.Table:
        one, key = self.source, _quoted(self.source.key or "")
        query = f"SELECT {one.selected} FROM {one.relation} AS source WHERE {key} BETWEEN {self.low} AND {self.high} "  # noqa: S608
        with _reading(one.uri, one.snapshot) as connection, connection.cursor() as cursor:
            cursor.execute(f"{query} ORDER BY {key} {limit}")
            return one.cells(cursor.fetch_arrow_table())


def _planned(uri: str, what: str, workspace: Workspace) -> PostgresSource:
    is_query = _QUERY.match(what) is not None
    relation = f"({what})" if is_query else ".".join(_quoted(part) for part in what.split("."))
    holder = _connected(uri)
    workspace.keep_open(holder)  # the snapshot exists as long as the transaction that exported it
    with _explained(uri, what):
        _begin(holder, None)
        if is_query:
            # The columns of a query are those of a view that is rolled back.
            _run(holder, f"CREATE TEMPORARY VIEW driftline_query AS SELECT * FROM {relation} AS source")  # noqa: S608
            columns = _rows(holder, _COLUMNS, "driftline_query")
            holder.rollback()
            _begin(holder, None)
        else:
            columns = _rows(holder, _COLUMNS, relation)
        selected, as_json, as_number = _selection(columns)
        source = PostgresSource(
            uri,
            relation,
            tuple(name for name, *_ in columns),
            selected,
            as_json,
            as_number,
            tuple((name, _KINDS[kind]) for name, kind, *_ in columns if kind in _KINDS),
            tuple((name, kind, modifier) for name, kind, *_, modifier in columns if _KINDS.get(kind) == "number"),
            str(_rows(holder, "SELECT pg_export_snapshot()")[0][0]),
            *((None, 0) if is_query else _rows(holder, _SIZE, relation)[0]),
        )
        return source if is_query else _with_key(source, holder)


def _with_key(source: PostgresSource, holder: Any) -> PostgresSource:
    keys = [name for name, kind in _rows(holder, _KEY, source.relation) if kind in _INTEGERS]
    if not keys:
        return source
    key = _quoted(keys[0])
    low, high = _rows(holder, f"SELECT min({key})::bigint, max({key})::bigint FROM {source.relation}")[0]  # noqa: S608
    return source if low is None else replace(source, key=keys[0], key_range=(low, high))


def _number_type(kind: str, modifier: int) -> pa.DataType:
    """The Arrow type; without a declared scale a numeric has 18 digits behind the point."""
    import pyarrow as pa

    if kind != "numeric":
        return pa.int64() if kind in _INTEGERS else pa.float64()
    if modifier < 0:
        return pa.decimal128(38, 18)
    # precision in the high bits, the scale in eleven low ones with a sign, four too many
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (((modifier - 4) & 0x7FF) ^ 1024) - 1024
    return pa.decimal256(max(1, min(precision, 76)), max(0, min(scale, 76)))


def _selection(columns: Sequence[Sequence[Any]]) -> tuple[str, frozenset[str], frozenset[str]]:
    """The columns of a SELECT, and the names of those that are selected as JSON values and as digits."""
    forms = {name: _form(name, kind, form, category) for name, kind, form, category, _ in columns}
    parts = [_FORMS[form].format(_quoted(name)) for name, form in forms.items()]
    as_json = frozenset(name for name, form in forms.items() if form in ("json", "array"))
    return ", ".join(parts), as_json, frozenset(name for name, form in forms.items() if form == "number")


def _form(name: str, kind: str, form: str, category: str) -> str:
    if kind in _PLAIN:
        return "plain"
    if kind in _AS_TEXT or form == "e":
        return "text"
    if kind in _AS_JSON:
        return "json"
    if kind == "numeric":
        return "number"
    if category == "A":
        return "array"
    raise InputError(
        f"column {name} is {kind}: cast it to text in a query (…::SELECT {name}::text, …)",
        code="unsupported_type",
        column=name,
    )


@contextmanager
def _reading(uri: str, snapshot: str) -> Iterator[Any]:
    """A connection that sees the snapshot."""
    connection = _connected(uri)
    try:
        with _explained(uri, ""):
            _begin(connection, snapshot)
            yield connection
    finally:
        connection.close()


def _connected(uri: str) -> Any:
    from adbc_driver_postgresql import dbapi

    with _explained(uri, ""):
        return dbapi.connect(uri)


def _begin(connection: Any, snapshot: str | None) -> None:
    """Settings that make texts the same everywhere, in a transaction that reads one state of the database."""
    _run(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    if snapshot is not None:
        _run(connection, f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    for setting in ("intervalstyle = 'iso_8601'", "timezone = 'UTC'", "datestyle = 'ISO'", "extra_float_digits = 1"):
        _run(connection, f"SET LOCAL {setting}")


def _run(connection: Any, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _rows(connection: Any, query: str, *values: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, list(values) if values else None)
        return list(cursor.fetchall())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _explained(uri: str, what: str) -> Iterator[None]:
    """Exceptions of the driver as one clear line."""
    from urllib.parse import urlsplit

    from adbc_driver_manager import Error

    try:
        yield
    except Error as error:
        words = _server_message(str(error))
        place = urlsplit(uri).hostname or "the database"
        if "does not exist" in words and what:
            raise InputError(f"{place}: {words}", code="no_such_table", table=what) from error
        if "authentication failed" in words or "permission denied" in words or "no password supplied" in words:
            raise InputError(f"{place}: {words}: check the user and PGPASSWORD", code="access_denied") from error
        if "snapshot" in words:
            raise InputError(f"{place}: the snapshot of this run is gone: run again", code="snapshot_lost") from error
        if "could not connect" in words or "connection" in words.lower():
            raise InputError(f"{place}: {words}", code="database_unreachable") from error
        raise InputError(f"{place}: {words}", code="invalid_query") from error


def _server_message(text: str) -> str:
    """The server's message in the driver's text."""
    found = re.search(r"(?:ERROR|FATAL):\s*(.+)", text)
    line = found[1] if found else next(iter(text.splitlines()), "no answer")
    return line.strip().rstrip(".")

"""Tables and queries of PostgreSQL databases, through ADBC (sources §6).

All connections of one source read one exported snapshot, which the planning process keeps open. A table with one
integer primary key is cut into ranges of it, read in its order; everything else is copied into batches once, because a
second read might give the rows in another order.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from driftline.core import Workspace
from driftline.errors import InputError
from driftline.sources._addresses import Address
from driftline.sources._source import Opening, ParsedRange, Pool, RowPart, Source, Split, SplitSide, quoted

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY = re.compile(r"\s*(select|with|values|table)\b", re.IGNORECASE)
_MOST_SPLITS = 256
_HEAD_ROWS = 2000

_INTEGERS = {"int2", "int4", "int8"}
_DATA = tomllib.loads(resources.files(__package__).joinpath("postgresql.toml").read_text())  # types, queries, errors
_KINDS, _QUERIES = _DATA["kinds"], _DATA["queries"]


class _Column(NamedTuple):
    """A column: its type in the catalog, and how it is selected."""

    name: str
    kind: str
    form: str
    modifier: int


def open_input(address: Address, opening: Opening) -> PostgresSource:
    """The table in its current state, the same for all readers of this run."""
    if not address.table:
        words = f"{address.path}: name a table too, as {address.path}::SCHEMA.TABLE, or a query"
        raise InputError(words, code="missing_table_name")
    return _planned(address.path, address.table, opening.workspace)


def tables_beside(address: Address) -> list[str]:
    """The tables and views of the schema that the address names, else of those on the search path."""
    schema, mark, _ = (address.table or "").rpartition(".")
    with closing(_connected(address.path)) as connection, _explained(address.path, ""):
        rows = _rows(connection, _QUERIES["names"], schema)
    return [f"{address.path}::{schema}{mark}{name}" for (name,) in rows]


@dataclass(frozen=True, slots=True)
class PostgresSource(Source):
    """One table or query, at one snapshot."""

    uri: str
    relation: str  # after FROM
    columns: tuple[_Column, ...]
    snapshot: str
    size: int | None = field()  # None: a query, whose rows are not counted
    rows: int
    key: str | None = None  # by which it is cut into splits
    key_range: tuple[int, int] = (0, -1)
    format: str = "postgresql"
    ordered: bool = False
    seekable: bool = False

    def header(self, side: str) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def types(self) -> pa.Schema:
        """Of its numbers, by the catalog; the other cells are JSON values."""
        import pyarrow as pa

        numbers = (column for column in self.columns if _KINDS.get(column.kind) == "number")
        return pa.schema([(column.name, _number_type(column.kind, column.modifier)) for column in numbers])

    def lay_out(self, side: str, split_bytes: int, workspace: Workspace, pool: Pool = None) -> SplitSide:
        """Ranges of the key, or batches of a copy."""
        kinds = {column.name: _KINDS[column.kind] for column in self.columns if column.kind in _KINDS}
        if self.key is None:
            from driftline.sources._cells import spool_tables

            with _reading(self.uri, self.snapshot) as connection:
                return replace(spool_tables(self._tables(connection), self.header(side), workspace), kinds=kinds)
        pieces = max(1, min(_MOST_SPLITS, -(-(self.size or 0) // max(1, split_bytes))))
        first, last = self.key_range
        step = max(1, -(-(last - first + 1) // pieces))
        bounds = [(low, min(low + step - 1, last)) for low in range(first, last + 1, step)]
        splits = [KeyRange(self, low, high, (self.size or 0) // len(bounds)) for low, high in bounds]
        return SplitSide(self.header(side), splits, self.rows, typed=True, kinds=kinds)

    @property
    def query(self) -> str:
        selected = ", ".join(_DATA["forms"][column.form].format(quoted(column.name)) for column in self.columns)
        return f"SELECT {selected} FROM {self.relation} AS source"  # noqa: S608 - the user's own

    def _tables(self, connection: Any) -> Iterator[pa.Table]:
        import pyarrow as pa

        with connection.cursor() as cursor:
            cursor.execute(self.query)
            for batch in cursor.fetch_record_batch():
                yield self._cells(pa.Table.from_batches([batch]))

    def fetched(self, condition: str) -> pa.Table:
        with _reading(self.uri, self.snapshot) as connection, connection.cursor() as cursor:
            cursor.execute(f"{self.query} {condition}")
            return self._cells(cursor.fetch_arrow_table())

    def _cells(self, table: pa.Table) -> pa.Table:
        """Every cell as JSON text; some are JSON text already."""
        import pyarrow as pa

        from driftline.sources._cells import compact_json, json_columns

        cells = []
        for name, _, form, _ in self.columns:
            if form == "number":
                cells.append(table.column(name).fill_null("null").cast("large_string"))
            elif form in ("json", "array"):
                cells.append(compact_json(table.column(name)))
            else:
                cells.append(json_columns(table.select([name])).column(0))
        return pa.Table.from_arrays(cells, list(self.header("")))

    def sample(self, side: str, rows: int) -> dict[str, list[str]]:
        table = self.fetched(f"LIMIT {int(rows)}")
        return {name: table.column(at).to_pylist() for at, name in enumerate(table.column_names)}


@dataclass(frozen=True, slots=True)
class KeyRange(Split):
    """The rows whose key is between two numbers, in the order of the key."""

    source: PostgresSource
    low: int
    high: int
    size: int = field()

    def read(self, part: RowPart | None = None) -> ParsedRange:
        table = self._fetched()
        return ParsedRange(table.num_rows, table)

    def head(self) -> pa.Table | None:
        return self._fetched(f"LIMIT {_HEAD_ROWS}")

    def _fetched(self, limit: str = "") -> pa.Table:
        key = quoted(self.source.key or "")
        return self.source.fetched(f"WHERE {key} BETWEEN {self.low} AND {self.high} ORDER BY {key} {limit}")


def _planned(uri: str, what: str, workspace: Workspace) -> PostgresSource:
    is_query = _QUERY.match(what) is not None
    relation = f"({what})" if is_query else ".".join(quoted(part) for part in what.split("."))
    holder = _connected(uri)
    workspace.keep_open(holder)  # the snapshot exists as long as the transaction that exported it
    with _explained(uri, what):
        _begin(holder, None)
        if is_query:
            # The columns of a query are those of a view that is rolled back.
            _run(holder, f"CREATE TEMPORARY VIEW driftline_query AS SELECT * FROM {relation} AS source")  # noqa: S608
            columns = _columns(holder, "driftline_query")
            holder.rollback()
            _begin(holder, None)
        else:
            columns = _columns(holder, relation)
        snapshot = str(_rows(holder, "SELECT pg_export_snapshot()")[0][0])
        if is_query:
            return PostgresSource(uri, relation, columns, snapshot, None, 0)
        source = PostgresSource(uri, relation, columns, snapshot, *_rows(holder, _QUERIES["size"], relation)[0])
        keys = [name for name, kind in _rows(holder, _QUERIES["key"], relation) if kind in _INTEGERS]
        if not keys:
            return source
        key = quoted(keys[0])
        low, high = _rows(holder, f"SELECT min({key})::bigint, max({key})::bigint FROM {relation}")[0]  # noqa: S608
        return source if low is None else replace(source, key=keys[0], key_range=(low, high), seekable=True)


def _columns(holder: Any, relation: str) -> tuple[_Column, ...]:
    rows = _rows(holder, _QUERIES["columns"], relation)
    return tuple(
        _Column(name, kind, _form(name, kind, form, category), most) for name, kind, form, category, most in rows
    )


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


def _form(name: str, kind: str, form: str, category: str) -> str:
    """How a column is selected: as it is, as text, as the text of a JSON value, or as the digits of a number."""
    if kind in _DATA["form_of"]:
        return str(_DATA["form_of"][kind])
    if form == "e":
        return "text"
    if category == "A":
        return "array"
    words = f"column {name} is {kind}: cast it to text in a query (…::SELECT {name}::text, …)"
    raise InputError(words, code="unsupported_type", column=name)


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


@contextmanager
def _explained(uri: str, what: str) -> Iterator[None]:
    """Exceptions of the driver as one clear line."""
    from urllib.parse import urlsplit

    from adbc_driver_manager import Error

    try:
        yield
    except Error as error:
        said = re.search(r"(?:ERROR|FATAL):\s*(.+)", str(error))  # by the server, in the driver's text
        words = (said[1] if said else next(iter(str(error).splitlines()), "no answer")).strip().rstrip(".")
        place = urlsplit(uri).hostname or "the database"
        for known in _DATA["errors"]:
            code = known["code"]
            if any(mark in words.lower() for mark in known["holds"]) and (code != "no_such_table" or what):
                about = {"table": what} if code == "no_such_table" else {}
                raise InputError(f"{place}: {known['words'].format(words)}", code=code, **about) from error
        raise InputError(f"{place}: {words}", code="invalid_query") from error

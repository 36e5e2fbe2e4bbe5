"""Results as Arrow tables with the types of the inputs: rows that were added or removed, cells that changed.

Rows are kept while they are fetched (`KeptRows`), as they are stored. Those of small files of text, and those that
Spark fetches, are read from the events (`TextRows`). Where the two inputs have different types for a column, a table
with rows of both has a type that holds all their values, or their text.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core import exact_loads, io_errors
from driftline.sources import arrow_column, json_columns, take_rows
from driftline.tables._kernels.match import RowKind
from driftline.tables._kernels.output import ROW_NUMBER, RowChunk

if TYPE_CHECKING:
    from driftline.sources import SplitSide

_MOST_BYTES = 256 << 20  # of rows in memory; more are stored in files
_TEXT = pa.large_string()
_SIDES: dict[str, tuple[str, RowKind]] = {
    "added": ("B", RowKind.ADDED),
    "removed": ("A", RowKind.REMOVED),
    "before": ("A", RowKind.BEFORE),
    "after": ("B", RowKind.AFTER),
    "unchanged": ("A", RowKind.UNCHANGED),
}


class Rows(NamedTuple):
    """Rows of one kind: their cells, and their places in the order of the output."""

    cells: pa.Table
    order: pl.Series
    numbers: pl.Series | None = None  # in the file


@dataclass
class _Chunk:
    kinds: pl.Series
    order: pl.Series
    numbers: pl.Series | None
    cells: pa.Table | Path

    def read(self) -> pa.Table:
        if isinstance(self.cells, Path):
            with io_errors(self.cells), pa.OSFile(str(self.cells)) as file:
                return pa.ipc.open_file(file).read_all()
        return self.cells


class KeptRows:
    """The rows of a diff's events as their inputs store them, in memory up to a limit and on disk beyond it.

    `by_record`: pairs with equal cells may be among those that changed.
    """

    def __init__(self, a: SplitSide, b: SplitSide, *, by_record: bool) -> None:
        self.schemas: dict[str, pa.Schema] = {}
        self._chunks: dict[str, list[_Chunk]] = {"A": [], "B": []}
        self._kinds: dict[str, dict[str, str]] = {}  # of sides whose cells are JSON text
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._bytes = 0
        self._by_record = by_record
        for name, side in (("A", a), ("B", b)):
            if side.schema is not None:
                self.schemas[name] = side.schema
            else:
                kinds = {column: side.kinds.get(column, "text") for column in side.header} if side.typed else {}
                self._kinds[name] = kinds
                types = {column: arrow_column([], kinds.get(column, "")).type for column in side.header}
                self.schemas[name] = pa.schema(list(types.items()))

    def add_from(self, side: str, sorted_chunk: RowChunk, chunk: RowChunk, cells: pa.Table) -> RowChunk:
        """Keep the rows of a split; returns them in output order."""
        numbers = chunk.rows[ROW_NUMBER] if ROW_NUMBER in chunk.rows.columns else None
        self._bytes += cells.nbytes
        place: pa.Table | Path = cells
        if self._bytes > _MOST_BYTES:
            self._folder = self._folder or tempfile.TemporaryDirectory(prefix="driftline-rows-")
            place = Path(self._folder.name) / f"{side}{len(self._chunks[side])}.arrow"
            with io_errors(place), pa.ipc.new_file(str(place), cells.schema) as out:
                out.write_table(cells)
        self._chunks[side].append(_Chunk(chunk.kinds, chunk.order, numbers, place))
        return sorted_chunk

    def close(self) -> None:
        self._chunks = {"A": [], "B": []}
        if self._folder is not None:
            self._folder.cleanup()

    def rows(self, change: str) -> Rows:
        """All rows of one kind, in the order of the output."""
        if not self._by_record or change not in ("before", "after"):
            return self._fetched(change)
        before, after = self._fetched("before"), self._fetched("after")
        columns = zip(before.cells.columns, after.cells.columns, strict=True)
        differs = reduce(pc.or_, (pc.not_equal(one, other) for one, other in columns))
        at = pl.Series(pl.from_arrow(differs)).arg_true()
        cells, order, numbers = before if change == "before" else after
        return Rows(take_rows(cells, at), order.gather(at), None if numbers is None else numbers.gather(at))

    def _fetched(self, change: str) -> Rows:
        side, kind = _SIDES[change]
        tables: list[pa.Table] = []
        orders: list[pl.Series] = []
        numbers: list[pl.Series] = []
        for chunk in self._chunks[side]:
            mask = chunk.kinds == int(kind)
            if mask.any():
                at = mask.arg_true()
                tables.append(take_rows(chunk.read(), at))
                orders.append(chunk.order.gather(at))
                numbers += [] if chunk.numbers is None else [chunk.numbers.gather(at)]
        if not tables:
            return Rows(self.schemas[side].empty_table(), pl.Series([], dtype=pl.String), None)
        order = pl.concat(orders)
        index = order.arg_sort()
        cells = take_rows(pa.concat_tables(self._typed(table, side) for table in tables), index)
        return Rows(cells, order.gather(index), pl.concat(numbers).gather(index) if numbers else None)

    def _typed(self, table: pa.Table, side: str) -> pa.Table:
        """A table of a side's schema; cells that are JSON text become values."""
        schema = self.schemas[side]
        kinds = self._kinds.get(side)
        if kinds is None or not kinds:
            return table.cast(schema) if table.schema != schema else table
        columns = [arrow_column(table.column(name), kinds[name]) for name in schema.names]
        return pa.table(columns, schema=schema)


# Text, from the events.


class TextRows:
    """The rows of events whose cells are text; cells that are no text become JSON text."""

    def __init__(self, content: bytes) -> None:
        ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n")) + 1
        offsets = pa.py_buffer(np.concatenate([[0], ends]).astype(np.int64))
        lines = pa.Array.from_buffers(_TEXT, len(ends), [None, offsets, pa.py_buffer(content)])
        self._lines = pl.Series(pl.from_arrow(lines))
        schema = exact_loads(self._lines[0])
        columns = {"A": schema["columns_a"], "B": schema["columns_b"]}
        self.schemas = {side: pa.schema([(name, _TEXT) for name in names]) for side, names in columns.items()}

    def rows(self, change: str) -> Rows:
        """All rows of one kind, in the order of the output."""
        side, _ = _SIDES[change]
        member = change if change in ("before", "after") else "row"
        at = self._lines.str.starts_with(f'{{"type":"{"changed" if member == change else change}"').arg_true()
        names = self.schemas[side].names
        kind = pl.Struct({member: pl.Struct(dict.fromkeys(names, pl.String)), "row_index": pl.UInt64})
        events = self._lines.gather(at).str.json_decode(kind).struct.unnest()
        cells = [events[member].struct.field(name) for name in names]
        arrays = [cell.to_arrow(compat_level=pl.CompatLevel.oldest()) for cell in cells]
        numbers = events["row_index"]
        table = pa.table(arrays, schema=self.schemas[side])
        return Rows(table, at.cast(pl.UInt64), None if numbers.null_count() else numbers)


ResultRows = KeptRows | TextRows


# Tables of a result.


def versions(rows: ResultRows, *, numbered: bool, unchanged: bool) -> pa.Table:
    """Every row version with its kind of change, in the order of the output; `before` is followed by `after`."""
    kinds = ["removed", "before", "after", "added", *(["unchanged"] if unchanged else [])]
    parts = {kind: rows.rows(kind) for kind in kinds}
    parts["after"] = parts["after"]._replace(numbers=parts["before"].numbers)  # A's, as in the events
    a, b = rows.schemas["A"], rows.schemas["B"]
    shared = (pa.field(one.name, _wider(one.type, b.field(one.name).type)) if one.name in b.names else one for one in a)
    schema = pa.schema([*shared, *(one for one in b if one.name not in a.names)])
    own = [*_own_names(["_change", *(["_row"] if numbered else [])], schema.names)]
    tables = []
    for kind, part in parts.items():
        columns: list[Any] = [pa.repeat(pa.scalar(kind, _TEXT), part.cells.num_rows)]
        if numbered:
            columns.append(pa.array([], pa.uint64()) if part.numbers is None else part.numbers.to_arrow())
        cells = [_cast(part.cells, one) for one in schema]
        names = [*own, *schema.names]
        tables.append(pa.table([*columns, *cells], names=names))
    filled = [(kind, part) for kind, part in parts.items() if part.cells.num_rows]
    if not filled:
        return tables[0]
    order = pl.DataFrame(
        {
            "order": pl.concat([part.order for _, part in filled]),
            "turn": pl.concat([pl.repeat(kind == "after", part.cells.num_rows, eager=True) for kind, part in filled]),
        }
    )
    index = order.select(pl.arg_sort_by("order", "turn")).to_series()
    return take_rows(pa.concat_tables(tables), index)


def changed_cells(
    rows: ResultRows, lines: Iterable[bytes], keys: Sequence[str], renamed: dict[str, str], *, numbered: bool
) -> pa.Table:
    """A row for every cell that changed: the key or row number, the column, and its values before and after."""
    before, after = rows.rows("before"), rows.rows("after")
    schema_a, schema_b = rows.schemas["A"], rows.schemas["B"]
    names = [name for name in schema_a.names if renamed.get(name, name) in schema_b.names and name not in keys]
    types = {schema_a.field(name).type for name in names}
    types |= {schema_b.field(renamed.get(name, name)).type for name in names}
    shared = types.pop() if len(types) == 1 else _TEXT
    decode = msgspec.json.Decoder(_Changed).decode
    changes = [decode(line).changed for line in lines if line.startswith(b'{"type":"changed"')]
    at = np.repeat(np.arange(len(changes)), [len(one) for one in changes])
    columns = [name for one in changes for name in one]
    places = pl.Series(at, dtype=pl.UInt32)
    found: dict[str, Any] = {name: take_rows(before.cells.select([name]), places).column(0) for name in keys}
    if numbered:
        found["row"] = (before.numbers if before.numbers is not None else places).gather(places).to_arrow()
    found["column"] = pa.array(columns, _TEXT)
    found["before"] = _cells_at(before.cells, columns, at, shared)
    found["after"] = _cells_at(after.cells, [renamed.get(name, name) for name in columns], at, shared)
    return pa.table(list(found.values()), names=list(found))


class _Changed(msgspec.Struct):
    changed: list[str]


def _cells_at(table: pa.Table, columns: Sequence[str], at: np.ndarray[Any, Any], kind: pa.DataType) -> pa.ChunkedArray:
    """Cells of several columns, one after the other."""
    if not columns:
        return pa.chunked_array([], kind)
    names = np.array(columns, dtype=object)
    parts, positions = [], []
    for name in dict.fromkeys(columns):
        chosen = np.flatnonzero(names == name)
        cells = take_rows(table.select([name]), pl.Series(at[chosen], dtype=pl.UInt32))
        parts.append(_cast(cells, pa.field(name, kind)))
        positions.append(chosen)
    joined = pa.chunked_array([chunk for part in parts for chunk in part.chunks], kind)
    order = pl.Series(np.argsort(np.concatenate(positions)), dtype=pl.UInt32)
    return take_rows(pa.table({"x": joined}), order).column(0)


def _own_names(names: Iterable[str], taken: Sequence[str]) -> Iterator[str]:
    for name in names:
        while name in taken:
            name = "_" + name
        yield name


def _wider(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if a == b:
        return a
    for one, other in ((a, b), (b, a)):
        if pa.types.is_null(one):
            return other
        if pa.types.is_float64(one) and (pa.types.is_floating(other) or _bits(other) <= 32):
            return one
        if pa.types.is_int64(one) and _bits(other) <= 63:
            return one
    return _TEXT


def _bits(kind: pa.DataType) -> int:
    """How many bits of value an integer has; many for what is no integer."""
    if not pa.types.is_integer(kind):
        return 1000
    return int(kind.bit_width) - int(pa.types.is_signed_integer(kind))


def _cast(cells: pa.Table, needed: pa.Field) -> pa.ChunkedArray:
    """A column of a table as a wider type, or as text; a missing one is null."""
    if needed.name not in cells.column_names:
        return pa.chunked_array([pa.nulls(cells.num_rows, needed.type)], needed.type)
    column = cells.column(needed.name)
    if column.type == needed.type:
        return column
    if needed.type != _TEXT or pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
        return column.cast(needed.type)
    texts = json_columns(pa.table({"x": column})).column(0)
    plain = pl.Series(pl.from_arrow(texts))
    decoded = plain.str.starts_with('"').arg_true()
    if len(decoded):
        plain = plain.scatter(decoded, pl.Series([exact_loads(text) for text in plain.gather(decoded)]))
    nulls = pl.Series(pl.from_arrow(pc.is_null(column)))
    shown = pl.DataFrame({"x": plain, "n": nulls}).select(pl.when(~pl.col("n")).then(pl.col("x"))).to_series()
    return pa.chunked_array([shown.to_arrow(compat_level=pl.CompatLevel.oldest())], _TEXT)

"""From selected rows to event lines in order (tables §1): order values, chunks in memory or on disk, vectorized JSON.

Typed values sort as null, booleans, numbers by value, strings by code point, then lists and objects (`json_order`).
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from driftline.core import SpillStore, Workspace, io_errors
from driftline.sources import polars_column
from driftline.tables._columns import Comparison
from driftline.tables._kernels.match import ROW_HASH, RowHashes, RowKind, column_name
from driftline.tables._kernels.profiles import profile_changes, runs_of
from driftline.tables._profile import Profile
from driftline.tables._rule_columns import differing, form_column
from driftline.tables._rules import sortable_text

if TYPE_CHECKING:
    from driftline.tables._kernels.stages import DiffPlan

# In a composite order value parts are divided by two NULs, and a NUL inside a part is written as NUL SOH.
# So a part sorts before every longer part that starts with it, and different tuples have different values.
_PART_END = "\x00\x00"
_NUL, _ESCAPED_NUL = "\x00", "\x00\x01"
_TURN_DIGITS = 20
_SHIFT = 1 << 63
_WIDTH = 20
_FRACTION_DIGITS = 17
ROW_NUMBER = "#"  # a column beside the user's, whose names start with "="
_BATCH_ROWS = 4096
_GROUPS = ("removed", "added", "unchanged", "changed")

_Part = str | pl.Series


# Order values: every row has one, and ranges of them are ranges of the output.


@dataclass(frozen=True)
class RowChunk:
    """Rows of one side for events: their cells, what each is needed for, and their order values."""

    rows: pl.DataFrame
    kinds: pl.Series
    order: pl.Series

    @property
    def height(self) -> int:
        return self.rows.height

    def of_kind(self, kind: RowKind) -> RowChunk:
        return self.filter(self.kinds == int(kind))

    def _each(self, change: Callable[[Any], Any]) -> RowChunk:
        return RowChunk(change(self.rows), change(self.kinds), change(self.order))

    def filter(self, mask: pl.Series) -> RowChunk:
        return self._each(lambda part: part.filter(mask))

    def sorted(self) -> RowChunk:
        index = self.order.arg_sort()
        return self._each(lambda part: part[index])

    def slice(self, start: int, end: int) -> RowChunk:
        return self._each(lambda part: part.slice(start, end - start))


def order_values(
    frame: pl.DataFrame, compared: Comparison, side: str, turns: npt.NDArray[np.uint64] | None = None
) -> pl.Series:
    """One text for each row that sorts, by code point, as its key does, or, without a key, as all compared cells do.

    Rows with the same cells follow each other by their turns, if there are any.
    """
    columns = compared.keys or compared.columns
    names = compared.names(columns, side)
    typed = compared.typed(side)
    texts = []
    for name, column in zip(names, columns, strict=True):
        cells, rule = frame[column_name(name)], column.rule_of(side)
        by_value = typed and rule.is_exact
        texts.append(json_order(cells) if by_value else form_column(cells, rule, typed=typed))
    if len(texts) == 1 and turns is None:
        return texts[0]
    parts = [text.str.replace_all(_NUL, _ESCAPED_NUL, literal=True) for text in texts]
    if turns is not None:
        parts.append(polars_column(turns).cast(pl.String).str.zfill(_TURN_DIGITS))
    return joined_order(parts, frame.height)


def joined_order(parts: Sequence[pl.Series], height: int) -> pl.Series:
    """The parts of order values as one text, in which a part sorts before every longer one that starts with it.

    >>> joined_order([pl.Series(["x", "x\\x00\\x01"]), pl.Series(["2", "1"])], 2).is_sorted()
    True
    """
    if not parts:
        return pl.Series([""] * height, dtype=pl.String)
    named = pl.DataFrame([part.alias(str(number)) for number, part in enumerate(parts)])
    return named.select(pl.concat_str(pl.all(), separator=_PART_END)).to_series()


def choose_bounds(samples: pl.Series, ranges: int) -> pl.Series:
    """Order values that cut the sampled values into `ranges` parts of about equal size (fewer if values repeat)."""
    ordered = samples.sort()
    positions = [len(ordered) * number // ranges for number in range(1, ranges)] if len(ordered) else []
    return ordered.gather(positions).unique(maintain_order=True)


def cut_points(order: pl.Series, bounds: pl.Series) -> list[int]:
    """The positions at which bounds cut sorted order values, ends included; a value equal to a bound follows it.

    >>> cut_points(pl.Series(["a", "b", "d"]), pl.Series(["b", "c"]))
    [0, 1, 2, 3]
    """
    found = order.search_sorted(bounds, side="left").to_list() if len(bounds) else []
    return [0, *found, len(order)]


def join_chunks(chunks: Sequence[RowChunk]) -> RowChunk:
    """Several chunks as one."""
    if len(chunks) == 1:
        return chunks[0]
    parts = ([getattr(chunk, name) for chunk in chunks] for name in ("rows", "kinds", "order"))
    return RowChunk(*map(pl.concat, parts))


def json_order(cells: pl.Series) -> pl.Series:
    """One text for each JSON text that sorts, by code point, as the values do.

    >>> cells = pl.Series(["null", "-2", "9", "10", "10.5", '"a"'])
    >>> json_order(cells).is_sorted()
    True
    """
    cell = pl.col("x")
    first = cell.str.slice(0, 1)
    is_number = first.str.contains_any(list("-0123456789"))
    text = (
        pl.when(cell == "null")
        .then(pl.lit("0"))
        .when(cell.is_in(["false", "true"]))
        .then(pl.lit("1") + cell)
        .when(is_number)
        .then(pl.lit("2") + _number_text(pl.when(is_number).then(cell)) + cell)
        .when(first == '"')
        .then(pl.lit("3") + _string_content(cells))
        .otherwise(pl.lit("4") + cell)
    )
    return cells.alias("x").to_frame().select(text).to_series()


def _number_text(cell: pl.Expr) -> pl.Expr:
    """The integer part shifted to be positive and padded, then the fraction; beyond 64 bits it is clipped."""
    number = cell.cast(pl.Float64, strict=False)
    whole = cell.cast(pl.Int128, strict=False).fill_null(
        number.floor().clip(-_SHIFT, _SHIFT).cast(pl.Int128, strict=False)
    )
    fraction = (number - number.floor()).fill_null(0.0)
    shifted = (whole.clip(-_SHIFT, _SHIFT) + _SHIFT).cast(pl.String).str.zfill(_WIDTH)
    digits = (fraction * 10**_FRACTION_DIGITS).cast(pl.UInt64, strict=False).fill_null(0).cast(pl.String)
    text: pl.Expr = shifted + digits.str.zfill(_FRACTION_DIGITS + 1)
    return text


def _string_content(cells: pl.Series) -> pl.Series:
    """The characters of JSON strings; only those with escapes need decoding one by one."""
    content = cells.str.strip_prefix('"').str.strip_suffix('"')
    escaped = (cells.str.contains("\\", literal=True) & cells.str.starts_with('"')).arg_true()
    if not len(escaped):
        return content
    decoded = pl.Series([sortable_text(json.loads(text)) for text in cells.gather(escaped)], dtype=pl.String)
    return content.scatter(escaped, decoded)


# Row hashes and sorted rows, in memory up to a limit and on disk beyond it.


class HashCodec:
    """Row hashes in their layout in memory."""

    def __init__(self, kind: np.dtype[np.void] = ROW_HASH) -> None:
        self._kind = kind

    def size(self, piece: RowHashes) -> int:
        return piece.nbytes

    def write(self, pieces: Sequence[RowHashes], out: BinaryIO) -> None:
        for piece in pieces:
            piece.tofile(out)

    def read(self, path: Path) -> list[RowHashes]:
        return [np.fromfile(path, self._kind)]


HashStore = SpillStore[tuple[str, int], RowHashes]  # by side and bucket


class SpilledChunk:
    """A sorted row chunk in an Arrow file, read back batch by batch."""

    def __init__(self, chunk: RowChunk, file: Path) -> None:
        self._file = file
        self.height = chunk.height
        frame = pl.DataFrame([chunk.kinds.alias("kinds"), chunk.order.alias("order"), *chunk.rows.get_columns()])
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        with io_errors(file), pa.ipc.new_file(str(file), table.schema) as out:
            out.write_table(table, max_chunksize=_BATCH_ROWS)

    @property
    def order(self) -> pl.Series:
        """The order values of all rows, alone."""
        with io_errors(self._file), pa.memory_map(str(self._file)) as mapped:
            options = pa.ipc.IpcReadOptions(included_fields=[1])
            table = pa.ipc.open_file(mapped, options=options).read_all()
            return pl.Series(pl.from_arrow(table.column("order")))

    def slice(self, start: int, end: int) -> RowChunk:
        first, last = start // _BATCH_ROWS, -(-end // _BATCH_ROWS)
        with io_errors(self._file), pa.memory_map(str(self._file)) as mapped:
            file = pa.ipc.open_file(mapped)
            table = pa.Table.from_batches([file.get_batch(number) for number in range(first, last)], file.schema)
        frame = pl.DataFrame(pl.from_arrow(table)).slice(start - first * _BATCH_ROWS, end - start)
        return RowChunk(frame.drop("kinds", "order"), frame["kinds"], frame["order"])


StoredChunk = RowChunk | SpilledChunk


class ChunkStore:
    """Sorted row chunks of one side, in memory up to a limit and in files beyond it."""

    def __init__(self, workspace: Workspace, limit_bytes: int) -> None:
        self._workspace = workspace
        self._limit = limit_bytes
        self._held = 0
        self.bytes = 0
        self.chunks: list[StoredChunk] = []

    def add(self, chunk: RowChunk) -> None:
        size = int(chunk.rows.estimated_size())
        self.bytes += size
        if self._held + size > self._limit:
            self.chunks.append(SpilledChunk(chunk, self._workspace.new_file("rows.arrow")))
        else:
            self._held += size
            self.chunks.append(chunk)


# Event lines.


@dataclass(frozen=True, slots=True)
class Encoded:
    """Event lines, and how often each compared column changed in them."""

    lines: memoryview
    changes: tuple[int, ...]
    equal: int = 0  # pairs of rows without a different cell, though the texts of their records differ
    profile: Profile | None = None


def encode_events(a: RowChunk, b: RowChunk, plan: DiffPlan) -> Encoded:
    """The event lines of one range of the output, in order, as bytes."""
    before, after = a.of_kind(RowKind.BEFORE).sorted(), b.of_kind(RowKind.AFTER).sorted()
    pairs, differs = before.height, _differing(before, after, plan.compared)
    if plan.by_record:
        before, after, differs = _really_changed(before, after, differs)
    groups = [
        _row_events("removed", a.of_kind(RowKind.REMOVED), "A", plan),
        _row_events("added", b.of_kind(RowKind.ADDED), "B", plan),
        _row_events("unchanged", a.of_kind(RowKind.UNCHANGED), "A", plan),
        _changed_events(before, after, differs, plan),
    ]
    changes = tuple(int(mask.sum() or 0) for mask in differs)
    equal = pairs - before.height
    heights = [len(lines) for lines, _ in groups]
    profile = profile_changes(before.rows, after.rows, differs, plan.compared) if plan.profile else None
    if not any(heights):
        return Encoded(memoryview(b""), changes, equal, profile)
    lines = pl.concat([lines for lines, _ in groups if len(lines)])
    index = pl.concat([order for _, order in groups if len(order)]).arg_sort()
    lines = lines.gather(index)
    if profile is not None:
        kinds = np.repeat(np.arange(len(_GROUPS), dtype=np.uint8), heights)[index.to_numpy()]
        listed = kinds != _GROUPS.index("unchanged")
        profile.runs = runs_of(kinds[listed], _GROUPS, lines if listed.all() else lines.filter(pl.Series(listed)))
    return Encoded(_as_bytes(lines), changes, equal, profile)


def _really_changed(
    before: RowChunk, after: RowChunk, differs: list[pl.Series]
) -> tuple[RowChunk, RowChunk, list[pl.Series]]:
    """The pairs with a different cell: before, only the texts of their records were compared."""
    changed = reduce(operator.or_, differs)
    if changed.all():
        return before, after, differs
    return before.filter(changed), after.filter(changed), [mask.filter(changed) for mask in differs]


def _differing(before: RowChunk, after: RowChunk, compared: Comparison) -> list[pl.Series]:
    """For each compared column the rows in which it changed."""
    assert before.height == after.height, "every changed row has both versions"
    typed = compared.typed_a, compared.typed_b
    found = []
    for column in compared.columns:
        old, new = before.rows[column_name(column.a)], after.rows[column_name(column.b)]
        found.append(differing(old, new, column.rule_of("A"), column.rule_of("B"), typed=typed))
    return found


def _row_events(kind: str, chunk: RowChunk, side: str, plan: DiffPlan) -> tuple[pl.Series, pl.Series]:
    row = _objects(chunk.rows, typed=plan.compared.typed(side))
    parts: list[_Part] = [f'{{"type":"{kind}",', *_place(chunk, side, plan), '"row":', row, "}\n"]
    return _joined(parts, chunk.height), chunk.order


def _changed_events(
    before: RowChunk, after: RowChunk, differs: Sequence[pl.Series], plan: DiffPlan
) -> tuple[pl.Series, pl.Series]:
    names, deltas = _changes(before.rows, after.rows, differs, plan.compared)
    parts: list[_Part] = ['{"type":"changed",', *_place(before, "A", plan), '"changed":[', names]
    parts += ['],"before":', _objects(before.rows, typed=plan.compared.typed_a)]
    parts += [',"after":', _objects(after.rows, typed=plan.compared.typed_b), ',"delta":{', deltas, "}}\n"]
    return _joined(parts, before.height), before.order


def _place(chunk: RowChunk, side: str, plan: DiffPlan) -> list[_Part]:
    """`"key":{…},` or `"row_index":n,` or nothing; keys go by A's names."""
    compared = plan.compared
    if plan.options.mode == "keyed":
        own = compared.names(compared.keys, side)
        cells = [chunk.rows[column_name(name)] for name in own]
        pairs = zip(cells, compared.keys, strict=True)
        keys = pl.DataFrame([cell.alias(column_name(column.a)) for cell, column in pairs])
        return ['"key":', _objects(keys, typed=compared.typed(side)), ","]
    if plan.options.ignore_row_order:
        return []
    return ['"row_index":', chunk.rows[ROW_NUMBER].cast(pl.String), ","]


def _changes(
    before: pl.DataFrame, after: pl.DataFrame, differing_rows: Sequence[pl.Series], compared: Comparison
) -> tuple[pl.Series, pl.Series]:
    """For each row the names of its changed columns and their deltas, both as comma-separated JSON text."""
    names: list[pl.Series] = []
    deltas: list[pl.Series] = []
    for column, differs in zip(compared.columns, differing_rows, strict=True):
        at = differs.arg_true()
        if len(at):
            label = "," + json.dumps(column.a, ensure_ascii=False)
            old = _values(before[column_name(column.a)].gather(at), typed=compared.typed_a)
            new = _values(after[column_name(column.b)].gather(at), typed=compared.typed_b)
            delta = _joined([label + ':{"from":', old, ',"to":', new, "}"], len(at))
            number = differs.cum_sum() * differs  # of the row among those that differ, 0 for others
            names.append(pl.Series(["", label]).gather(differs.cast(pl.UInt32)))
            deltas.append(pl.concat([pl.Series([""]), delta]).rechunk().gather(number))
    if not names:
        nothing = pl.Series([""] * before.height, dtype=pl.String)
        return nothing, nothing
    # Every item starts with a comma, so the first one is removed.
    return _joined(names, before.height).str.slice(1), _joined(deltas, before.height).str.slice(1)


def _values(cells: pl.Series, *, typed: bool) -> pl.Series:
    """Cells as JSON text."""
    if typed:
        return cells
    return _objects(cells.alias(column_name("x")).to_frame(), typed=False).str.slice(len('{"x":')).str.head(-1)


def _objects(rows: pl.DataFrame, *, typed: bool) -> pl.Series:
    """Each row as a JSON object; Polars escapes strings exactly as Python's json does."""
    rows = rows.drop(ROW_NUMBER, strict=False)
    names = [name[1:] for name in rows.columns]
    if not typed:
        return rows.select(pl.struct(pl.all()).struct.rename_fields(names).struct.json_encode()).to_series()
    parts: list[_Part] = []
    for name, cells in zip(names, rows.get_columns(), strict=True):
        parts += [f"{',' if parts else '{'}{json.dumps(name, ensure_ascii=False)}:", cells]
    return _joined([*parts, "}"], rows.height)


def _joined(parts: Sequence[_Part], height: int) -> pl.Series:
    """Literal texts and columns side by side, as one column."""
    if not height:
        return pl.Series([], dtype=pl.String)
    columns = [part.alias(str(number)) for number, part in enumerate(parts) if isinstance(part, pl.Series)]
    pieces = [pl.lit(part) if isinstance(part, str) else pl.col(str(number)) for number, part in enumerate(parts)]
    return pl.DataFrame(columns).select(pl.concat_str(pieces)).to_series()


def _as_bytes(lines: pl.Series) -> memoryview:
    """The bytes of all lines, without a loop over them."""
    array = lines.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets, text = array.buffers()
    last = memoryview(offsets).cast("B").cast("q")[array.offset + len(array)]
    first = memoryview(offsets).cast("B").cast("q")[array.offset]
    return memoryview(text)[first:last]

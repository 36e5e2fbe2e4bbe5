"""Kernel: rows to event lines, whole columns at a time (tables §1)."""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import polars as pl

from driftline.tables.cell_columns import differing
from driftline.tables.columns import Comparison
from driftline.tables.matching import RowKind
from driftline.tables.options import DiffOptions
from driftline.tables.ordering import ROW_NUMBER, RowChunk
from driftline.tables.row_hashes import column_name

_Part = str | pl.Series


@dataclass(frozen=True, slots=True)
class EventShape:
    """What the encoder must know of a diff: how rows are named in events, and what is compared."""

    options: DiffOptions
    compared: Comparison
    by_record: bool = False  # rows count as changed where their records are written otherwise


@dataclass(frozen=True, slots=True)
class Encoded:
    """Event lines, and how often each compared column changed in them."""

    lines: memoryview
    changes: tuple[int, ...]
    equal: int = 0  # pairs of rows that do not differ in any cell, though their records are written otherwise


def encode_events(a: RowChunk, b: RowChunk, shape: EventShape) -> Encoded:
    """The event lines of one range of the output, in order, as bytes."""
    before, after = a.of_kind(RowKind.BEFORE).sorted(), b.of_kind(RowKind.AFTER).sorted()
    pairs, differs = before.height, _differing(before, after, shape.compared)
    if shape.by_record:
        before, after, differs = _really_changed(before, after, differs)
    groups = [
        _row_events("removed", a.of_kind(RowKind.REMOVED), "A", shape),
        _row_events("added", b.of_kind(RowKind.ADDED), "B", shape),
        _row_events("unchanged", a.of_kind(RowKind.UNCHANGED), "A", shape),
        _changed_events(before, after, differs, shape),
    ]
    groups = [group for group in groups if len(group[0])]
    changes = tuple(int(mask.sum() or 0) for mask in differs)
    equal = pairs - before.height
    if not groups:
        return Encoded(memoryview(b""), changes, equal)
    lines = pl.concat([lines for lines, _ in groups])
    order = pl.concat([order for _, order in groups])
    return Encoded(_as_bytes(lines.gather(order.arg_sort())), changes, equal)


def _really_changed(
    before: RowChunk, after: RowChunk, differs: list[pl.Series]
) -> tuple[RowChunk, RowChunk, list[pl.Series]]:
    """The pairs with a cell that differs: all that was known is that their records are written otherwise."""
    changed = reduce(operator.or_, differs)
    if changed.all():
        return before, after, differs
    return before.filter(changed), after.filter(changed), [mask.filter(changed) for mask in differs]


def _differing(before: RowChunk, after: RowChunk, compared: Comparison) -> list[pl.Series]:
    """For each compared column the rows in which it changed."""
    assert before.height == after.height, "every changed row has both versions"
    typed = compared.typed_a, compared.typed_b
    return [
        differing(before.rows[column_name(column.a)], after.rows[column_name(column.b)], column.rule, typed=typed)
        for column in compared.columns
    ]


def _row_events(kind: str, chunk: RowChunk, side: str, shape: EventShape) -> tuple[pl.Series, pl.Series]:
    row = _objects(chunk.rows, typed=shape.compared.typed(side))
    parts: list[_Part] = [f'{{"type":"{kind}",', *_place(chunk, side, shape), '"row":', row, "}\n"]
    return _joined(parts, chunk.height), chunk.order


def _changed_events(
    before: RowChunk, after: RowChunk, differs: Sequence[pl.Series], shape: EventShape
) -> tuple[pl.Series, pl.Series]:
    names, deltas = _changes(before.rows, after.rows, differs, shape.compared)
    parts: list[_Part] = ['{"type":"changed",', *_place(before, "A", shape), '"changed":[', names]
    parts += [
        '],"before":',
        _objects(before.rows, typed=shape.compared.typed_a),
        ',"after":',
        _objects(after.rows, typed=shape.compared.typed_b),
        ',"delta":{',
        deltas,
        "}}\n",
    ]
    return _joined(parts, before.height), before.order


def _place(chunk: RowChunk, side: str, shape: EventShape) -> list[_Part]:
    """`"key":{…},` or `"row_index":n,` or nothing; keys go by A's names."""
    compared = shape.compared
    if shape.options.mode == "keyed":
        own = compared.names(compared.keys, side)
        cells = [chunk.rows[column_name(name)] for name in own]
        keys = pl.DataFrame([
            cell.alias(column_name(column.a)) for cell, column in zip(cells, compared.keys, strict=True)
        ])  # fmt: skip
        return ['"key":', _objects(keys, typed=compared.typed(side)), ","]
    if shape.options.ignore_row_order:
        return []
    return ['"row_index":', chunk.rows[ROW_NUMBER].cast(pl.String), ","]


def _changes(
    before: pl.DataFrame, after: pl.DataFrame, differing_rows: Sequence[pl.Series], compared: Comparison
) -> tuple[pl.Series, pl.Series]:
    """For each row the names of its changed columns and their deltas, both as comma-separated JSON text."""
    names: list[pl.Expr] = []
    deltas: list[pl.Expr] = []
    cells: list[pl.Series] = []
    for number, (column, differs) in enumerate(zip(compared.columns, differing_rows, strict=True)):
        if differs.any():
            label = "," + json.dumps(column.a, ensure_ascii=False)
            delta = _joined(
                [
                    '{"from":',
                    _values(before[column_name(column.a)], typed=compared.typed_a),
                    ',"to":',
                    _values(after[column_name(column.b)], typed=compared.typed_b),
                    "}",
                ],
                before.height,
            )
            cells += [differs.alias(f"differs{number}"), delta.alias(f"delta{number}")]
            mask = pl.col(f"differs{number}")
            names.append(_only_where(mask, pl.lit(label)))
            deltas.append(_only_where(mask, pl.concat_str(pl.lit(label + ":"), pl.col(f"delta{number}"))))
    if not cells:
        return pl.Series([""] * before.height, dtype=pl.String), pl.Series([""] * before.height, dtype=pl.String)
    texts = pl.DataFrame(cells).select(pl.concat_str(names).alias("names"), pl.concat_str(deltas).alias("deltas"))
    # Every item begins with a comma, so the first one goes.
    return texts["names"].str.slice(1), texts["deltas"].str.slice(1)


def _only_where(mask: pl.Expr, text: pl.Expr) -> pl.Expr:
    return pl.when(mask).then(text).otherwise(pl.lit(""))


def _values(cells: pl.Series, *, typed: bool) -> pl.Series:
    """Cells as JSON text."""
    if typed:
        return cells
    return _objects(cells.alias(column_name("x")).to_frame(), typed=False).str.slice(len('{"x":')).str.head(-1)


def _objects(rows: pl.DataFrame, *, typed: bool) -> pl.Series:
    """Each row as a JSON object; Polars escapes strings exactly as Python's json does."""
    rows = rows.drop(ROW_NUMBER, strict=False)
    names = [name[1:] for name in rows.columns]
    if typed:
        return _objects_of_json(rows, names)
    return rows.select(pl.struct(pl.all()).struct.rename_fields(names).struct.json_encode()).to_series()


def _objects_of_json(rows: pl.DataFrame, names: Sequence[str]) -> pl.Series:
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
    """The bytes of all lines one after the other, without a loop over them."""
    array = lines.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets, text = array.buffers()
    last = memoryview(offsets).cast("B").cast("q")[array.offset + len(array)]
    first = memoryview(offsets).cast("B").cast("q")[array.offset]
    return memoryview(text)[first:last]

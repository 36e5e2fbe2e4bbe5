"""Kernel: rows to event lines, whole columns at a time (specification: "Event Shapes")."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from driftline.tables.matching import RowKind
from driftline.tables.options import DiffOptions
from driftline.tables.ordering import RowChunk
from driftline.tables.prints import column_name
from driftline.tables.rules import cells_differ, comparison_columns

_Part = str | pl.Series


@dataclass(frozen=True, slots=True)
class EventShape:
    """What the encoder must know of a diff: how rows are named in events, and the comparison order."""

    options: DiffOptions
    columns: tuple[str, ...]
    typed: bool = False  # cells are JSON text already

    @classmethod
    def of(cls, header_a: Sequence[str], options: DiffOptions, *, typed: bool = False) -> EventShape:
        """The shape of a diff's events."""
        return cls(options, tuple(comparison_columns(header_a, options)), typed)


def encode_events(a: RowChunk, b: RowChunk, shape: EventShape) -> memoryview:
    """The event lines of one range of the output, in order, as bytes."""
    groups = [
        _row_events("removed", a.of_kind(RowKind.REMOVED), shape),
        _row_events("added", b.of_kind(RowKind.ADDED), shape),
        _row_events("unchanged", a.of_kind(RowKind.UNCHANGED), shape),
        _changed_events(a.of_kind(RowKind.BEFORE).sorted(), b.of_kind(RowKind.AFTER).sorted(), shape),
    ]
    groups = [group for group in groups if len(group[0])]
    if not groups:
        return memoryview(b"")
    lines = pl.concat([lines for lines, _ in groups])
    order = pl.concat([order for _, order in groups])
    return _as_bytes(lines.gather(order.arg_sort()))


def _row_events(kind: str, chunk: RowChunk, shape: EventShape) -> tuple[pl.Series, pl.Series]:
    parts: list[_Part] = [f'{{"type":"{kind}",', *_place(chunk, shape), '"row":', _objects(chunk.rows, shape), "}\n"]
    return _joined(parts, chunk.height), chunk.order


def _changed_events(before: RowChunk, after: RowChunk, shape: EventShape) -> tuple[pl.Series, pl.Series]:
    assert before.height == after.height, "every changed row has both versions"
    names, deltas = _changes(before.rows, after.rows, shape)
    parts: list[_Part] = ['{"type":"changed",', *_place(before, shape), '"changed":[', names]
    parts += [
        '],"before":',
        _objects(before.rows, shape),
        ',"after":',
        _objects(after.rows, shape),
        ',"delta":{',
        deltas,
        "}}\n",
    ]
    return _joined(parts, before.height), before.order


def _place(chunk: RowChunk, shape: EventShape) -> list[_Part]:
    """`"key":{…},` or `"row_index":n,` or nothing."""
    if shape.options.mode == "keyed":
        keys = chunk.rows.select([column_name(name) for name in shape.options.key_columns])
        return ['"key":', _objects(keys, shape), ","]
    if shape.options.ignore_row_order:
        return []
    return ['"row_index":', chunk.order.cast(pl.String), ","]


def _changes(before: pl.DataFrame, after: pl.DataFrame, shape: EventShape) -> tuple[pl.Series, pl.Series]:
    """For each row the names of its changed columns and their deltas, both as comma-separated JSON text."""
    names: list[pl.Expr] = []
    deltas: list[pl.Expr] = []
    cells: list[pl.Series] = []
    for number, name in enumerate(shape.columns):
        old, new = before[column_name(name)], after[column_name(name)]
        differs = cells_differ(old, new)
        if differs.any():
            label = "," + json.dumps(name, ensure_ascii=False)
            values = pl.DataFrame([old.alias(column_name("from")), new.alias(column_name("to"))])
            cells += [differs.alias(f"differs{number}"), _objects(values, shape).alias(f"delta{number}")]
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


def _objects(rows: pl.DataFrame, shape: EventShape) -> pl.Series:
    """Each row as a JSON object; Polars escapes strings exactly as Python's json does."""
    names = [name[1:] for name in rows.columns]
    if shape.typed:
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

"""The events and counts of paired rows, as DataFrames with the user's names and types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql import types as t

from driftline.spark.arrow_functions import arrow_function
from driftline.spark.frame_columns import FrameColumn, FrameColumns, same_type, struct
from driftline.tables._options import DiffOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_COUNTED = ("added", "removed", "changed", "unchanged")


def with_types(paired: DataFrame, columns: FrameColumns) -> DataFrame:
    """Pairs with what became of them."""
    exact = [column.compared for column in columns.compared if not column.is_tolerant]
    before, after = (struct(f"{side}.{cell} AS {cell}" for cell in exact) for side in "ab")
    differs = [f"NOT ({before} <=> {after})"] if exact else []
    differs += [column.differs() for column in columns.tolerant]
    changed = " OR ".join(differs) or "false"
    kind = (
        f"CASE WHEN a IS NULL THEN 'added' WHEN b IS NULL THEN 'removed' WHEN {changed} THEN 'changed' "
        "ELSE 'unchanged' END"
    )
    return paired.withColumn("type", f.expr(kind))


def events_of(typed: DataFrame, columns: FrameColumns, shown: Sequence[FrameColumn]) -> DataFrame:
    """The events; rows show some of the columns."""
    options = columns.options
    rows = typed if options.emit_unchanged and not options.ignore_row_order else typed.where("type <> 'unchanged'")
    order = [name for name in ("place", "nth") if name in typed.columns]
    ordered = rows.orderBy(*order) if columns.ordered else rows
    if options.ignore_row_order:
        return ordered.select("type", _own_row(shown).alias("row"))
    place = f.col("place").alias("row_index") if options.mode == "positional" else _key(columns).alias("key")
    changed = f.col("type") == "changed"
    deltas = [column for column in columns.compared if column in shown]
    return ordered.select(
        "type",
        place,
        f.when(~changed, _own_row(shown)).alias("row"),
        f.when(changed, _changed_names(columns)).alias("changed"),
        f.when(changed, _side_row("a", shown)).alias("before"),
        f.when(changed, _side_row("b", shown)).alias("after"),
        f.when(changed, _delta(deltas)).alias("delta"),
    )


def _own_row(shown: Sequence[FrameColumn]) -> Column:
    """The row of the side that has one, under its own names; a name that only the other side has is null."""
    in_a = {column.name_a: column for column in shown if column.name_a is not None}
    in_b = {column.name_b: column for column in shown if column.name_b is not None}
    names = list(dict.fromkeys([*in_a, *in_b]))
    fields = [t.StructField(name, _common_type(in_a.get(name), in_b.get(name))) for name in names]
    cells = (_own_cell(in_a.get(name), in_b.get(name)) for name in names)
    return f.expr(struct(f"{cell} AS f{at}" for at, cell in enumerate(cells))).cast(t.StructType(fields))


def _key(columns: FrameColumns) -> Column:
    """A's cells, B's of added rows, under A's names."""
    fields = [t.StructField(column.name, _common_type(column, column)) for column in columns.keys]
    cells = (_own_cell(column, column) for column in columns.keys)
    return f.expr(struct(f"{cell} AS f{at}" for at, cell in enumerate(cells))).cast(t.StructType(fields))


def _common_type(in_a: FrameColumn | None, in_b: FrameColumn | None) -> t.DataType:
    """The type of cells that come from either side: text where the sides do not agree."""
    kind_a, kind_b = in_a and in_a.kind_a, in_b and in_b.kind_b
    if kind_a is None or kind_b is None or same_type(kind_a, kind_b):
        return kind_a or kind_b or t.NullType()
    return t.StringType()


def _own_cell(in_a: FrameColumn | None, in_b: FrameColumn | None) -> str:
    both = in_a is not None and in_b is not None
    form = "CAST({} AS STRING)" if both and isinstance(_common_type(in_a, in_b), t.StringType) else "{}"
    cell_a = "NULL" if in_a is None else form.format(f"a.{in_a.plain}")
    cell_b = "NULL" if in_b is None else form.format(f"b.{in_b.plain}")
    return f"if(a IS NULL, {cell_b}, {cell_a})"


def _side_row(side: str, shown: Sequence[FrameColumn]) -> Column:
    fields, cells = [], []
    for column in shown:
        name, kind = (column.name_a, column.kind_a) if side == "a" else (column.name_b, column.kind_b)
        if name is not None and kind is not None:
            fields.append(t.StructField(name, kind))
            cells.append(f"{side}.{column.plain} AS {column.plain}")
    return f.expr(struct(cells)).cast(t.StructType(fields))


def _changed_names(columns: FrameColumns) -> Column:
    numbers = (f"CASE WHEN {column.differs()} THEN {at} END" for at, column in enumerate(columns.compared))
    names = _names(columns.compared)
    return f.transform(f.expr(f"array_compact(array({', '.join(numbers)}))"), lambda number: names[number])


def _names(columns: Iterable[FrameColumn]) -> Column:
    # As literals: the user's names are never part of an expression's text.
    return f.array(*(f.lit(column.name) for column in columns)).cast("array<string>")


def _delta(columns: Sequence[FrameColumn]) -> Column:
    """A struct with a member for every column, null where it did not change."""
    parts = (
        f"CASE WHEN {column.differs()} THEN named_struct('from', a.{column.plain}, 'to', b.{column.plain}) END "
        f"AS d{column.position}"
        for column in columns
    )
    fields = [
        t.StructField(column.name, t.StructType([t.StructField("from", kind_a), t.StructField("to", kind_b)]))
        for column in columns
        if (kind_a := column.kind_a) is not None and (kind_b := column.kind_b) is not None
    ]
    return f.expr(struct(parts)).cast(t.StructType(fields))


def stats_of(typed: DataFrame, columns: FrameColumns) -> DataFrame:
    """One row of counts; `rows` says how many pairs a row of `typed` stands for, if it is there."""
    weight = "rows" if "rows" in typed.columns else "1"
    sums = [f"coalesce(sum(if(type = '{kind}', {weight}, 0)), 0L) AS rows_{kind}" for kind in _COUNTED]
    for side in "ab" if columns.options.counts_dropped else "":
        sums.append(f"coalesce(sum(dropped_{side}), 0L) AS duplicates_dropped_{side}")
    if columns.options.column_stats or columns.options.fail_if:
        sums.append(f"CAST(array({', '.join(_changes(columns))}) AS array<long>) AS changes")
    counted = typed.selectExpr(*sums).select(f.expr("rows_changed + rows_unchanged").alias("rows_total_compared"), "*")
    return _with_answers(counted, columns)


def _changes(columns: FrameColumns) -> Iterable[str]:
    if columns.options.ignore_row_order:
        return ("0L" for _ in columns.compared)
    return (f"coalesce(sum(if(type = 'changed' AND {column.differs()}, 1, 0)), 0L)" for column in columns.compared)


def _with_answers(counted: DataFrame, columns: FrameColumns) -> DataFrame:
    """What the options ask for beside the counts."""
    options, settled = columns.options, columns.settled
    result = counted.drop("changes")
    extra: list[Column] = []
    if settled.added is not None and settled.removed is not None:
        for name, names in (("columns_added", settled.added), ("columns_removed", settled.removed)):
            extra.append(f.array(*map(f.lit, names)).cast("array<string>").alias(name))
    if options.column_stats:
        extra.append(
            f.zip_with(
                _names(columns.compared),
                "changes",
                lambda name, changed: f.struct(
                    name.alias("name"), f.col("rows_total_compared").alias("compared"), changed.alias("changed")
                ),
            ).alias("column_stats")
        )
    if options.fail_if:
        exceeded = _exceeded(options, [column.name_b or "" for column in columns.compared])
        extra.append(exceeded(*(f"rows_{kind}" for kind in _COUNTED), "changes").alias("exceeded"))
    return counted.select(*result.columns, *extra) if extra else result


def _exceeded(options: DiffOptions, names: Sequence[str]) -> Callable[..., Column]:
    thresholds = options.fail_if

    def exceeded(
        added: pa.Array, removed: pa.Array, changed: pa.Array, unchanged: pa.Array, changes: pa.Array
    ) -> pa.Array:
        from driftline.tables._events import Stats

        counts = zip(*(one.to_pylist() for one in (added, removed, changed, unchanged)), strict=True)
        stats = [
            Stats(**dict(zip(_COUNTED, row, strict=True)), columns=dict(zip(names, each, strict=True)))
            for row, each in zip(counts, changes.to_pylist(), strict=True)
        ]
        return pa.array([one.exceeded(thresholds) for one in stats], pa.list_(pa.string()))

    return arrow_function("array<string>", exceeded)

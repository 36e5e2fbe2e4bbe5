"""DataFrame in, DataFrame out: the table diff for typed columns of any Spark type.

    changes = driftline.spark.diff(before, after, key=["id"])
    changes.events.where("type = 'changed'").show()
    changes.stats.first()

Meaning and names are those of `driftline.diff`. Values keep their types: `before`, `after` and `row` are structs in
the column order of A. Both results are lazy; only the keys are checked at once, in one job, because a null, an empty
string or a duplicate in them is an error and not an event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as f
from pyspark.sql import types as t

from driftline.errors import TableError
from driftline.spark.comparable import comparable, is_comparable
from driftline.tables.columns import Comparison, settle_columns
from driftline.tables.options import DiffOptions, check_options

_FIRST_ROW = 2  # rows count as in a CSV file of the same table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class DataFrameDiff(NamedTuple):
    """The events in order, without schema and stats events, and one row of counts."""

    events: DataFrame
    stats: DataFrame


class _Shape(NamedTuple):
    """Columns by position (`c0`, `c1`, …), because Spark gives a meaning to dots, backticks and letter case."""

    names: list[str]
    kinds: list[t.DataType]
    options: DiffOptions
    ordered: bool
    settled: Comparison

    @property
    def key_positions(self) -> list[int]:
        return [self.names.index(name) for name in self.options.key_columns]

    @property
    def compared(self) -> list[int]:
        """Positions in comparison order."""
        return [self.names.index(column.a) for column in self.settled.columns]


def diff(
    a: DataFrame,
    b: DataFrame,
    *,
    key: Iterable[str] | str = (),
    mode: str | None = None,
    header_mode: str = "strict",
    emit_unchanged: bool = False,
    ignore_row_order: bool = False,
    ordered: bool = True,
) -> DataFrameDiff:
    """Compare two DataFrames; they are read more than once, so cache what is dear to compute.

    Without `ordered` the events come in no order, which spares a sort of all of them.
    """
    options = check_options(
        mode=mode,
        key_columns=key,
        header_mode=header_mode,
        emit_unchanged=emit_unchanged,
        ignore_row_order=ignore_row_order,
    )
    settled = settle_columns(a.columns, b.columns, options)
    shape = _Shape(a.columns, [field.dataType for field in a.schema.fields], options, ordered, settled)
    _check_types(shape, b.schema)
    rows_a, rows_b = _positioned(a, shape), _positioned(b, shape)
    if options.ignore_row_order:
        return _diff_multisets(rows_a, rows_b, shape)
    if options.mode == "positional":
        return _diff_pairs(_numbered(rows_a, "a"), _numbered(rows_b, "b"), shape)
    _check_keys(rows_a, rows_b, shape)
    return _diff_pairs(_keyed(rows_a, "a", shape), _keyed(rows_b, "b", shape), shape)


def _positioned(frame: DataFrame, shape: _Shape) -> DataFrame:
    """The columns in A's order, named by position, and beside them the comparable form of those that need one.

    From here on expressions are written as SQL over such names: one call for a table of any width, where a call for
    each column took a minute for hundreds of them.
    """
    own = frame.toDF(*(f"c{shape.names.index(name)}" for name in frame.columns))
    kinds = {field.name: field.dataType for field in own.schema.fields}
    plain = [f"c{p}" for p in _all(shape)]
    extra = [comparable(f.col(c), kinds[c]).alias(f"k{c[1:]}") for c in plain if not is_comparable(kinds[c])]
    return own.select(*plain, *extra)


def _check_types(shape: _Shape, other: t.StructType) -> None:
    for name, kind in zip(shape.names, shape.kinds, strict=True):
        field = other[name]
        if kind.simpleString() != field.dataType.simpleString():
            raise TableError(
                f"Type mismatch in column {json.dumps(name, ensure_ascii=False)}: {kind.simpleString()} in A, "
                f"{field.dataType.simpleString()} in B; cast one of them",
                code="type_mismatch",
                column=name,
            )


def _cell(position: int, shape: _Shape) -> str:
    """The column that a cell is compared by."""
    return f"{'c' if is_comparable(shape.kinds[position]) else 'k'}{position}"


def _struct(cells: Iterable[str]) -> str:
    # A struct, because its null fields are equal to each other, unlike null columns in a join.
    return f"struct({', '.join(cells)})"


def _place(positions: list[int], shape: _Shape) -> Column:
    return f.expr(_struct(f"{_cell(p, shape)} AS k{p}" for p in positions)).alias("place")


def _keyed(rows: DataFrame, side: str, shape: _Shape) -> DataFrame:
    return rows.select(_place(shape.key_positions, shape), f.struct("*").alias(side))


def _numbered(rows: DataFrame, side: str) -> DataFrame:
    row = f.struct(*rows.columns).alias(side)
    return rows.zipWithIndex("place").select((f.col("place") + _FIRST_ROW).alias("place"), row)


def _diff_pairs(a: DataFrame, b: DataFrame, shape: _Shape) -> DataFrameDiff:
    """Rows that meet in the same place, by key or by position."""
    sides = [_struct(f"{side}.{_cell(p, shape)} AS k{p}" for p in shape.compared) for side in "ab"]
    kind = (
        f"CASE WHEN a IS NULL THEN 'added' WHEN b IS NULL THEN 'removed' WHEN {sides[0]} <=> {sides[1]} "
        "THEN 'unchanged' ELSE 'changed' END"
    )
    paired = a.join(b, "place", "full_outer").withColumn("type", f.expr(kind))
    shown = paired if shape.options.emit_unchanged else paired.where("type <> 'unchanged'")
    changed = f.col("type") == "changed"
    placed = shown.withColumn("row", f.coalesce("a", "b"))
    place = (
        f.col("place").alias("row_index")
        if shape.options.mode == "positional"
        else _named("row", shape.key_positions, shape).alias("key")
    )
    ordered = placed.orderBy("place") if shape.ordered else placed
    events = ordered.select(
        "type",
        place,
        f.when(~changed, _named("row", _all(shape), shape)).alias("row"),
        f.when(changed, _changed_names(shape)).alias("changed"),
        f.when(changed, _named("a", _all(shape), shape)).alias("before"),
        f.when(changed, _named("b", _all(shape), shape)).alias("after"),
        f.when(changed, _delta(shape)).alias("delta"),
    )
    return DataFrameDiff(events, _stats(paired.select("type", f.lit(1).alias("rows"))))


def _differs(position: int, shape: _Shape) -> str:
    cell = _cell(position, shape)
    return f"NOT (a.{cell} <=> b.{cell})"


def _changed_names(shape: _Shape) -> Column:
    numbers = (f"CASE WHEN {_differs(p, shape)} THEN {n} END" for n, p in enumerate(shape.compared))
    names = f.array(*(f.lit(shape.names[p]) for p in shape.compared))
    return f.transform(f.expr(f"array_compact(array({', '.join(numbers)}))"), lambda number: names[number])


def _delta(shape: _Shape) -> Column:
    """A struct with a member for every column, null where it did not change."""
    parts = (
        f"CASE WHEN {_differs(p, shape)} THEN named_struct('from', a.c{p}, 'to', b.c{p}) END AS d{p}"
        for p in shape.compared
    )
    kinds = [
        t.StructField(shape.names[p], t.StructType().add("from", shape.kinds[p]).add("to", shape.kinds[p]))
        for p in shape.compared
    ]
    return f.expr(_struct(parts)).cast(t.StructType(kinds))


def _named(row: str, positions: list[int], shape: _Shape) -> Column:
    """Some cells of a row as a struct with the user's names, which are never part of an expression's text."""
    kind = t.StructType([t.StructField(shape.names[p], shape.kinds[p]) for p in positions])
    return f.expr(_struct(f"{row}.c{p} AS c{p}" for p in positions)).cast(kind)


def _all(shape: _Shape) -> list[int]:
    return list(range(len(shape.names)))


def _diff_multisets(a: DataFrame, b: DataFrame, shape: _Shape) -> DataFrameDiff:
    """Equal rows meet one to one; what is left over on either side was removed or added."""
    joined = _counted(a, "a", shape).join(_counted(b, "b", shape), "place", "full_outer")
    counts = joined.select(
        "place",
        f.coalesce("a", "b").alias("row"),
        f.coalesce("rows_a", f.lit(0)).alias("rows_a"),
        f.coalesce("rows_b", f.lit(0)).alias("rows_b"),
    )
    kinds = counts.select(
        "place",
        "row",
        f.explode(
            f.array(
                f.struct(f.lit("removed").alias("type"), f.greatest(f.lit(0), f.expr("rows_a - rows_b")).alias("rows")),
                f.struct(f.lit("added").alias("type"), f.greatest(f.lit(0), f.expr("rows_b - rows_a")).alias("rows")),
                f.struct(f.lit("unchanged").alias("type"), f.least("rows_a", "rows_b").alias("rows")),
            )
        ).alias("kind"),
    ).select("place", "row", "kind.type", "kind.rows")
    surplus = kinds.where("type <> 'unchanged' and rows > 0")
    repeated = surplus.select("place", "type", "row", f.explode(f.expr("sequence(1, rows)")).alias("nth"))
    ordered = repeated.orderBy("place", f.col("type").desc()) if shape.ordered else repeated
    events = ordered.select("type", _named("row", _all(shape), shape).alias("row"))
    return DataFrameDiff(events, _stats(kinds.select("type", "rows")))


def _counted(rows: DataFrame, side: str, shape: _Shape) -> DataFrame:
    placed = rows.select(_place(shape.compared, shape), f.struct("*").alias("row"))
    return placed.groupBy("place").agg(f.first("row").alias(side), f.count("*").alias(f"rows_{side}"))


def _stats(kinds: DataFrame) -> DataFrame:
    def total(*names: str) -> Column:
        return f.coalesce(f.sum(f.when(f.col("type").isin(*names), f.col("rows"))), f.lit(0))

    return kinds.agg(
        total("changed", "unchanged").alias("rows_total_compared"),
        *(total(name).alias(f"rows_{name}") for name in ("added", "removed", "changed", "unchanged")),
    )


def _check_keys(a: DataFrame, b: DataFrame, shape: _Shape) -> None:
    """Raise for the first missing key value or duplicate key, A before B, missing before duplicate."""
    keys = _key_cells(a, "A", shape).unionAll(_key_cells(b, "B", shape))
    counted = keys.groupBy("side", "missing", "place").agg(f.count("*").alias("rows"), f.first("text").alias("text"))
    problems = counted.where("missing is not null or rows > 1").orderBy(
        "side", f.col("missing").asc_nulls_last(), "place"
    )
    for problem in problems.limit(1).collect():
        if problem["missing"] is not None:
            name = json.dumps(shape.names[problem["missing"]], ensure_ascii=False)
            message = f"Missing key value in {problem['side']}: column {name} of {problem['text']}"
            raise TableError(message, code="missing_key_value", side=problem["side"])
        message = f"Duplicate key in {problem['side']}: {problem['text']} ({problem['rows']} rows)"
        raise TableError(message, code="duplicate_key", side=problem["side"])


def _key_cells(rows: DataFrame, side: str, shape: _Shape) -> DataFrame:
    missing = (f.when(_is_missing(p, shape), f.lit(p)) for p in shape.key_positions)
    named = f.struct(*(f.col(f"c{p}").alias(shape.names[p]) for p in shape.key_positions))
    return rows.select(
        f.lit(side).alias("side"),
        f.coalesce(*missing).alias("missing"),
        _place(shape.key_positions, shape),
        f.to_json(named, {"ignoreNullFields": "false"}).alias("text"),
    )


def _is_missing(position: int, shape: _Shape) -> Column:
    cell = f.col(f"c{position}")
    is_text = isinstance(shape.kinds[position], t.StringType)
    return cell.isNull() | (cell == "") if is_text else cell.isNull()

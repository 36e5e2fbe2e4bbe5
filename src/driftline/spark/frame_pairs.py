"""Which rows of two DataFrames meet: by key, by position, or because they are alike.

Every way gives a DataFrame of pairs: `a` and `b` are the rows by position (one of them may be null), `place` and
`nth` the order of events. Rows of a DataFrame stand in its own order, as Spark numbers them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as f

from driftline.spark.arrow_functions import arrow_function
from driftline.spark.frame_columns import FrameColumns, place_of, struct
from driftline.spark.runtime.workers import settle_worker
from driftline.tables._rules.cells import CellRule

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FIRST_ROW = 2  # rows count as in a CSV file of the same table
_IN_ORDER = "array_sort(filter(rows, row -> {}row.is_a), (x, y) -> CASE WHEN x.number < y.number THEN -1 ELSE 1 END)"
_TOLD = (
    "transform({}, row -> named_struct('number', row.number, 'equal', row.equal, 'near', row.near, 'soft', row.soft))"
)
_PAIRS = "array<struct<a:int,b:int>>"


def pair_by_key(a: DataFrame, b: DataFrame, columns: FrameColumns) -> DataFrame:
    """Rows with the same key; of several rows of one key those that the policy says (tables §5.3)."""
    policy = columns.options.duplicates
    if policy == "match":
        return _match_alike(a, b, columns)
    if policy == "error":
        sides = [rows.select(place_of(columns.keys), f.struct("*").alias(side)) for rows, side in ((a, "a"), (b, "b"))]
    else:
        sides = [_one_of_each_key(rows, side, columns) for rows, side in ((a, "a"), (b, "b"))]
    return sides[0].join(sides[1], "place", "full_outer")


def _one_of_each_key(rows: DataFrame, side: str, columns: FrameColumns) -> DataFrame:
    chosen = f.min_by if columns.options.duplicates == "first" else f.max_by
    placed = rows.zipWithIndex("number").select(place_of(columns.keys), "number", _row(rows, side))
    return placed.groupBy("place").agg(chosen(side, "number").alias(side), (f.count("*") - 1).alias(f"dropped_{side}"))


def pair_by_position(a: DataFrame, b: DataFrame) -> DataFrame:
    """The first row with the first one, and so on."""
    sides = [
        rows.zipWithIndex("place").select((f.col("place") + _FIRST_ROW).alias("place"), _row(rows, side))
        for rows, side in ((a, "a"), (b, "b"))
    ]
    return sides[0].join(sides[1], "place", "full_outer")


def pair_equal_rows(a: DataFrame, b: DataFrame, columns: FrameColumns) -> DataFrame:
    """Rows that are equal under the rules, the n-th with the n-th."""
    alike = Window.partitionBy("place").orderBy("number")
    sides = [
        rows.zipWithIndex("number")
        .select(place_of(columns.compared), "number", _row(rows, side))
        .select("place", f.row_number().over(alike).alias("nth"), side)
        for rows, side in ((a, "a"), (b, "b"))
    ]
    return sides[0].join(sides[1], ["place", "nth"], "full_outer")


def _row(rows: DataFrame, side: str) -> Column:
    return f.struct(*rows.columns).alias(side)


def _match_alike(a: DataFrame, b: DataFrame, columns: FrameColumns) -> DataFrame:
    """All rows of a key at once, and `tables.matching_rows` says which of them meet.

    What equality needs are numbers that Spark gives to equal rows of one key: one with all cells, one with those
    that no tolerance is about; and the forms of the others.
    """
    exact = [column for column in columns.compared if not column.is_tolerant]
    soft = [column.compared for column in columns.tolerant]
    sides = [
        rows.zipWithIndex("number").select(
            place_of(columns.keys),
            f.lit(side == "a").alias("is_a"),
            "number",
            f.expr(struct(f"{column.compared} AS k{column.position}" for column in columns.compared)).alias("cells"),
            f.expr(struct(f"{column.compared} AS k{column.position}" for column in exact)).alias("exact"),
            f.array(*soft).cast("array<string>").alias("soft"),
            _row(rows, side),
        )
        for rows, side in ((a, "a"), (b, "b"))
    ]
    both = sides[0].unionByName(sides[1], allowMissingColumns=True)
    same_key = Window.partitionBy("place")
    row = f.struct(
        "is_a",
        "number",
        f.dense_rank().over(same_key.orderBy("cells")).alias("equal"),
        f.dense_rank().over(same_key.orderBy("exact")).alias("near"),
        "soft",
        "a",
        "b",
    )
    groups = both.select("place", row.alias("row")).groupBy("place").agg(f.collect_list("row").alias("rows"))
    ordered = groups.select(
        "place", f.expr(_IN_ORDER.format("")).alias("a"), f.expr(_IN_ORDER.format("NOT ")).alias("b")
    )
    pairs = _match_function([column.rule for column in columns.tolerant if column.rule is not None])
    matched = ordered.select("*", pairs(f.expr(_TOLD.format("a")), f.expr(_TOLD.format("b"))).alias("pairs"))
    return matched.select("place", "a", "b", f.posexplode("pairs").alias("nth", "pair")).select(
        "place", "nth", f.expr("get(a, pair.a).a").alias("a"), f.expr("get(b, pair.b).b").alias("b")
    )


def _match_function(tolerant: list[CellRule]) -> Callable[[Column, Column], Column]:
    def pairs(a: pa.Array, b: pa.Array) -> pa.Array:
        settle_worker()
        found = [_pairs_of_key(x, y, tolerant) for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)]
        return pa.array(found, pa.list_(pa.struct([("a", pa.int32()), ("b", pa.int32())])))

    return arrow_function(_PAIRS, pairs)


class _KeyedRow:
    """A row of one key as the matching asks for it."""

    __slots__ = ("at", "forms", "near", "number", "soft")

    def __init__(self, at: int, told: dict[str, Any]) -> None:
        self.at = at
        self.number: int = told["number"]
        self.forms: tuple[int, ...] = (told["equal"],)
        self.near: int = told["near"]
        self.soft: list[str] = told["soft"]


def _pairs_of_key(a: list[dict[str, Any]], b: list[dict[str, Any]], tolerant: list[CellRule]) -> list[dict[str, Any]]:
    from driftline.tables._reference import match_alike

    def equal(one: _KeyedRow, other: _KeyedRow) -> bool:
        forms = zip(tolerant, one.soft, other.soft, strict=True)
        return one.near == other.near and all(rule.equal(x, y) for rule, x, y in forms)

    rows_a, rows_b = ([_KeyedRow(at, row) for at, row in enumerate(side)] for side in (a, b))
    return [
        {"a": None if x is None else x.at, "b": None if y is None else y.at}
        for x, y in match_alike(rows_a, rows_b, equal)
    ]

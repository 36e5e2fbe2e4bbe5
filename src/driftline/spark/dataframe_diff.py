"""DataFrame in, DataFrame out: the table diff for typed columns of any Spark type.

    changes = driftline.spark.diff(before, after, key=["id"], tolerance={"price": "0.01"})
    changes.events.where("type = 'changed'").show()
    changes.stats.first()

Meaning, names and rules are those of `driftline.diff`. Values keep their types: `before`, `after` and `row` are
structs in the column order of A. Both results are lazy; only the keys are checked at once, in one job, because a null,
an empty string or a duplicate in them is an error and not an event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from pyspark.sql import functions as f
from pyspark.sql import types as t

from driftline.errors import OptionError, TableError
from driftline.spark.frame_columns import (
    FrameColumn,
    FrameColumns,
    place_of,
    positioned,
    settle_frame_columns,
    with_verdicts,
)
from driftline.spark.frame_events import events_of, stats_of, with_types
from driftline.spark.frame_pairs import pair_by_key, pair_by_position, pair_equal_rows
from driftline.spark.runtime.shipping import ship_to_tasks
from driftline.tables._columns import Sides, settle_columns
from driftline.tables._options import READING_OPTIONS, FrameRules, check_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class DataFrameDiff:
    """The events in order, without schema and stats events, and one row of counts."""

    events: DataFrame
    stats: DataFrame
    whole_rows: bool = True  # False where `changed_columns_only` took columns away

    def __iter__(self) -> Iterator[DataFrame]:
        return iter((self.events, self.stats))


def diff(a: DataFrame, b: DataFrame, *, ordered: bool = True, **rules: Unpack[FrameRules]) -> DataFrameDiff:
    """Compare two DataFrames; they are read more than once, so cache what is dear to compute.

    The rules are those of `driftline.diff`, without the ones about reading files. Without `ordered` the events come
    in no order, which spares a sort of all of them.
    """
    for name in sorted(set(rules) & READING_OPTIONS):
        raise OptionError(f"{name} is about reading files: DataFrames are read already", code="invalid_option")
    options = check_options(**rules)
    settled = settle_columns(a.columns, b.columns, options, Sides(typed_a=True, typed_b=True))
    columns = settle_frame_columns(a, b, settled, options, ordered=ordered)
    if columns.need_tasks:
        ship_to_tasks(a.sparkSession)
    rows_a, rows_b = positioned(a, "a", columns), positioned(b, "b", columns)
    if options.ignore_row_order and _compares_whole_rows(columns):
        return _diff_multisets(rows_a, rows_b, columns)
    if options.ignore_row_order:
        paired = pair_equal_rows(rows_a, rows_b, columns)
    elif options.mode == "positional":
        paired = pair_by_position(rows_a, rows_b)
    else:
        _check_keys(rows_a, rows_b, columns)
        paired = pair_by_key(rows_a, rows_b, columns)
    typed = with_types(with_verdicts(paired, columns), columns)
    shown = _shown_columns(typed, columns)
    return DataFrameDiff(events_of(typed, columns, shown), stats_of(typed, columns), len(shown) == len(columns.all))


def _shown_columns(typed: DataFrame, columns: FrameColumns) -> tuple[FrameColumn, ...]:
    """All columns, or, found by one job, the key and those that differ somewhere (tables §6.3)."""
    if not columns.options.changed_columns_only:
        return columns.all
    differs = [f"bool_or(type = 'changed' AND {column.differs()})" for column in columns.compared]
    [found] = typed.selectExpr(*differs).collect() if differs else [()]
    changed = [column for column, differs in zip(columns.compared, found, strict=True) if differs]
    return tuple(column for column in columns.all if column in changed or column in columns.keys)


def _compares_whole_rows(columns: FrameColumns) -> bool:
    """Whether rows that are equal are also the same, so that it is enough to count them."""
    is_exact = not any(column.has_form for column in columns.compared)
    return is_exact and len(columns.compared) == len(columns.all) and not columns.settled.renamed


def _diff_multisets(a: DataFrame, b: DataFrame, columns: FrameColumns) -> DataFrameDiff:
    """Equal rows meet one to one; what is left over on either side was removed or added."""
    joined = _counted(a, "a", columns).join(_counted(b, "b", columns), "place", "full_outer")
    numbers = "coalesce(rows_a, 0L)", "coalesce(rows_b, 0L)"
    kinds = joined.select(
        "place",
        "a",
        "b",
        f.expr(
            "explode(array("
            f"named_struct('type', 'removed', 'rows', greatest(0L, {numbers[0]} - {numbers[1]})), "
            f"named_struct('type', 'added', 'rows', greatest(0L, {numbers[1]} - {numbers[0]})), "
            f"named_struct('type', 'unchanged', 'rows', least({numbers[0]}, {numbers[1]}))))"
        ).alias("kind"),
    ).select("place", "a", "b", "kind.type", "kind.rows")
    surplus = kinds.where("rows > 0").select("*", f.expr("explode(sequence(1L, rows))").alias("nth"))
    return DataFrameDiff(events_of(surplus, columns, columns.all), stats_of(kinds, columns))


def _counted(rows: DataFrame, side: str, columns: FrameColumns) -> DataFrame:
    placed = rows.select(place_of(columns.compared), f.struct("*").alias("row"))
    return placed.groupBy("place").agg(f.first("row").alias(side), f.count("*").alias(f"rows_{side}"))


def _check_keys(a: DataFrame, b: DataFrame, columns: FrameColumns) -> None:
    """Raise for the first missing key value or duplicate key, A before B, missing before duplicate."""
    options = columns.options
    if options.empty_key == "allow" and options.duplicates != "error":
        return
    keys = _key_cells(a, "A", columns).unionAll(_key_cells(b, "B", columns))
    counted = keys.groupBy("side", "missing", "place").agg(f.count("*").alias("rows"), f.first("text").alias("text"))
    wrong = "missing is not null" + (" or rows > 1" if options.duplicates == "error" else "")
    problems = counted.where(wrong).orderBy("side", f.col("missing").asc_nulls_last(), "place")
    for problem in problems.limit(1).collect():
        side, text = problem["side"], problem["text"]
        if problem["missing"] is not None:
            column = columns.keys[problem["missing"]]
            name = json.dumps(column.name_a if side == "A" else column.name_b, ensure_ascii=False)
            message = f"Missing key value in {side}: column {name} of {text}"
            raise TableError(message, code="missing_key_value", side=side)
        raise TableError(f"Duplicate key in {side}: {text} ({problem['rows']} rows)", code="duplicate_key", side=side)


def _key_cells(rows: DataFrame, side: str, columns: FrameColumns) -> DataFrame:
    """The keys of a side: which column is missing, if one is, and how they are shown."""
    asks = columns.options.empty_key == "error"
    missing = [f.when(_is_missing(column), f.lit(at)) for at, column in enumerate(columns.keys)] if asks else []
    named = f.struct(*(f.col(column.plain).alias(column.name) for column in columns.keys))
    return rows.select(
        f.lit(side).alias("side"),
        f.coalesce(*missing, f.lit(None).cast("int")).alias("missing"),
        place_of(columns.keys),
        f.to_json(named, {"ignoreNullFields": "false"}).alias("text"),
    )


def _is_missing(column: FrameColumn) -> Column:
    cell = f.col(column.compared)
    if column.has_form and column.rule is not None:
        return cell.isin(*column.rule.missing_forms(typed=True))
    return cell.isNull() | (cell == "") if isinstance(column.kind_a, t.StringType) else cell.isNull()

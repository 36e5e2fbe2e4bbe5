"""DataFrame in, DataFrame out: the table diff for typed columns of any Spark type.

    changes = driftline.spark.diff(before, after, key=["id"], tolerance={"price": "0.01"})
    changes.events.where("type = 'changed'").show()
    changes.stats.first()

Semantics, names and rules are those of `driftline.diff`. Values keep their types: `before`, `after` and `row` are
structs in the column order of A. Both results are lazy; only the keys are checked at once, in one job, because a null,
an empty string or a duplicate in them is an error and not an event.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import pyarrow as pa
from pyspark.sql import Window, functions as f, types as t

from driftline.core import DiffMembers, StrPath, exact_loads, format_of
from driftline.errors import OptionError, TableError
from driftline.spark._frames.columns import (
    FrameColumn,
    FrameColumns,
    place_of,
    positioned,
    resolve_frame_columns,
    same_type,
    struct,
    with_verdicts,
)
from driftline.spark._runtime.pyspark_internals import with_row_numbers
from driftline.spark._runtime.session import ship_to_tasks
from driftline.spark._tasks import arrow_function, prepare_worker
from driftline.tables import Profile, Stats, TableOptions, check_options, kernels
from driftline.tables.kernels import READING_OPTIONS, CellRule, DiffRules, Sides, named_options, resolve_columns

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import Column, DataFrame, Row

_COUNTED = ("added", "removed", "changed", "unchanged")
_PLACES = ("key", "row_index")
_SUFFIXES = {".parquet": "parquet", ".orc": "orc", ".json": "json", ".jsonl": "json"}
_FIRST_ROW = 2  # rows are numbered as in a CSV file of the same table
_IN_ORDER = "array_sort(filter(rows, row -> {}row.is_a), (x, y) -> CASE WHEN x.number < y.number THEN -1 ELSE 1 END)"
_MATCHED_BY = (
    "transform({}, row -> named_struct('number', row.number, 'equal', row.equal, 'near', row.near, 'soft', row.soft))"
)
_PAIRS = "array<struct<a:int,b:int>>"


@dataclass(frozen=True)
class DataFrameDiff(DiffMembers):
    """The result of a diff of DataFrames: a `Diff` of events in order, with one row of counts in `stats`.

    Both are lazy. The members of the result itself run Spark: its truth, length, counts and exit code share one job;
    `changes`, `to_dict` and the frames bring all events to the driver; `write` does not.
    """

    events: DataFrame
    stats: DataFrame
    comparison: kernels.Comparison
    whole_rows: bool = True  # False where `changed_columns_only` took columns away
    repeats: DataFrame | None = None  # the rows of each key on both sides, where a key may have several

    def __iter__(self) -> Iterator[DataFrame]:
        """Unpack into events and stats, as in version 0.2."""
        message = "unpacking a DataFrameDiff is removed in driftline 0.4; use: events, stats = diff.frames"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return iter(self.frames)

    @property
    def frames(self) -> tuple[DataFrame, DataFrame]:
        """The events and the counts."""
        return self.events, self.stats

    @cached_property
    def _stats(self) -> Row:
        found = self.stats.first()
        assert found is not None, "the counts are one row"
        return found

    @property
    def counts(self) -> dict[str, int]:
        """Rows added, removed, changed and unchanged."""
        return {kind: self._stats[f"rows_{kind}"] for kind in _COUNTED}

    def __len__(self) -> int:
        return sum(self.counts.values()) - self.counts["unchanged"]

    def __bool__(self) -> bool:
        return self.comparison.differs or len(self) > 0  # columns may have come or gone without a different row

    @property
    def exit_code(self) -> int:
        """What `driftline diff` returns with the same options: 1 if a condition of `fail_if` is true, or without any if
        there are differences."""
        return int(bool(self._stats["exceeded"])) if "exceeded" in self.stats.columns else int(bool(self))

    def profile(self) -> Profile:
        """The kinds of change, as `driftline.diff(…).profile()` has them; all events pass the driver, one by one."""
        found = Profile()
        for (text,) in self._different.select(_as_json("*")).toLocalIterator():
            found.add(exact_loads(text), typed=True)
        repeats = () if self.repeats is None else self.repeats.where("rows_a > 1 OR rows_b > 1").toLocalIterator()
        for row in repeats:
            found.add_key(exact_loads(row["text"]), row["text"], (row["rows_a"], row["rows_b"]))
        stats = Stats(changed=self.counts["changed"], unchanged=self.counts["unchanged"], profile=found)
        return kernels.joined_profile((), self.comparison, stats) or found

    @property
    def _different(self) -> DataFrame:
        return self.events.where("type != 'unchanged'")

    def changes(self) -> Iterator[Row]:
        """The events of rows that were added, removed or changed, in the order of the output."""
        return self._different.toLocalIterator()

    def to_dict(self) -> dict[str, Any]:
        """The events and the counts as data; values are written as Spark writes JSON."""
        changes = [json.loads(text) for (text,) in self._different.select(_as_json("*")).collect()]
        return {"changes": changes, "stats": self._stats.asDict(recursive=True)}

    def to_polars(self) -> pl.DataFrame:
        """The events of differences, typed."""
        import polars as pl

        return pl.DataFrame(self.to_arrow())

    def to_arrow(self) -> pa.Table:
        """As `to_polars`, in Arrow."""
        return self._different.toArrow()

    def _headline(self) -> str:
        return ", ".join(f"{count:,} {kind}" for kind, count in self.counts.items())

    def _change_lines(self) -> Iterator[str]:
        for row in self.changes():
            event = row.asDict(recursive=True)
            yield " ".join(
                [event["type"], *(f"{name}={event[name]}" for name in _PLACES if event.get(name) is not None)]
            )

    def write(self, path: StrPath, format: str | None = None) -> None:  # noqa: A002
        """Write the events to a new folder, in parallel: `parquet`, `orc` or `json` (lines), else by its suffix."""
        name = format or format_of(path, _SUFFIXES)
        if name not in _SUFFIXES.values():
            known = ", ".join(dict.fromkeys(_SUFFIXES.values()))
            raise OptionError(f'Unsupported format: "{name}" ({known})', code="invalid_format")
        self.events.write.format(name).save(os.fspath(path))


def diff(a: DataFrame, b: DataFrame, *, ordered: bool = True, **rules: Unpack[DiffRules]) -> DataFrameDiff:
    """Compare two DataFrames; they are read more than once, so cache what is expensive to compute.

    The rules are those of `driftline.diff`, without the ones about reading files. Without `ordered` the events have no
    order, which saves a sort of all of them.
    """
    for side, frame in (("A", a), ("B", b)):
        if not hasattr(frame, "sparkSession"):
            raise OptionError(
                f"{side} is a {type(frame).__name__}, not a DataFrame of Spark: driftline.diff compares files and "
                "other tables",
                code="unsupported_input",
            )
    for name in sorted(set(rules) & READING_OPTIONS):
        raise OptionError(f"{name} is about reading files: DataFrames are read already", code="invalid_option")
    options = named_options(check_options(**rules), a.columns, b.columns)
    comparison = resolve_columns(a.columns, b.columns, options, Sides(typed_a=True, typed_b=True))
    columns = resolve_frame_columns(a, b, comparison, options, ordered=ordered)
    if columns.need_tasks:
        ship_to_tasks(a.sparkSession)
    rows_a, rows_b = positioned(a, "a", columns), positioned(b, "b", columns)
    if options.ignore_row_order:
        is_exact = not any(column.has_form for column in columns.compared)
        if is_exact and len(columns.compared) == len(columns.all) and not comparison.renamed:
            return _diff_multisets(rows_a, rows_b, columns)  # equal rows are identical: it is enough to count them
        paired = pair_equal_rows(rows_a, rows_b, columns)
    elif options.mode == "positional":
        paired = pair_by_position(rows_a, rows_b)
    else:
        _check_keys(rows_a, rows_b, columns)
        paired = pair_by_key(rows_a, rows_b, columns)
    typed = with_types(with_verdicts(paired, columns), columns)
    shown = _shown_columns(typed, columns)
    repeats = None
    if options.duplicates != "error":
        keys = _key_cells(rows_a, "A", columns).unionAll(_key_cells(rows_b, "B", columns))
        counts = [f.count(f.when(f.col("side") == side.upper(), 1)).alias(f"rows_{side}") for side in "ab"]
        repeats = keys.groupBy("place").agg(*counts, f.min("text").alias("text"))
    frames, is_whole = (events_of(typed, columns, shown), stats_of(typed, columns)), len(shown) == len(columns.all)
    return DataFrameDiff(*frames, comparison, is_whole, repeats)


def _shown_columns(typed: DataFrame, columns: FrameColumns) -> tuple[FrameColumn, ...]:
    """All columns, or, found by one job, the key and those that differ somewhere (tables §6.3)."""
    if not columns.options.changed_columns_only:
        return columns.all
    differs = [f"bool_or(type = 'changed' AND {column.differs()})" for column in columns.compared]
    [found] = typed.selectExpr(*differs).collect() if differs else [()]
    changed = [column for column, differs in zip(columns.compared, found, strict=True) if differs]
    return tuple(column for column in columns.all if column in changed or column in columns.keys)


def _diff_multisets(a: DataFrame, b: DataFrame, columns: FrameColumns) -> DataFrameDiff:
    """Equal rows are matched one to one; the rest of either side was removed or added."""
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
    return DataFrameDiff(events_of(surplus, columns, columns.all), stats_of(kinds, columns), columns.comparison)


def _as_json(*names: str) -> Column:
    return f.to_json(f.struct(*names), {"ignoreNullFields": "false"})


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
    """The keys of a side: the column that is missing, if any, and the key as text."""
    is_checked = columns.options.empty_key == "error"
    missing = [f.when(_is_missing(column), f.lit(at)) for at, column in enumerate(columns.keys)] if is_checked else []
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


# Pairs of rows: by key, by position, or equal ones.
# `a` and `b` are the rows by position (one of them may be null), `place` and `nth` the order of events. Rows are in the
# order in which Spark numbers them.


def pair_by_key(a: DataFrame, b: DataFrame, columns: FrameColumns) -> DataFrame:
    """Rows with the same key; of several rows of one key those of the policy (tables §5.3)."""
    policy = columns.options.duplicates
    if policy == "match":
        return _match_alike(a, b, columns)

    def keyed(rows: DataFrame, side: str) -> DataFrame:
        if policy == "error":
            return rows.select(place_of(columns.keys), _row(rows, side))
        chosen = f.min_by if policy == "first" else f.max_by
        placed = with_row_numbers(rows, "number").select(place_of(columns.keys), "number", _row(rows, side))
        dropped = (f.count("*") - 1).alias(f"dropped_{side}")
        return placed.groupBy("place").agg(chosen(side, "number").alias(side), dropped)

    return keyed(a, "a").join(keyed(b, "b"), "place", "full_outer")


def pair_by_position(a: DataFrame, b: DataFrame) -> DataFrame:
    """The first row with the first one, and so on."""
    place = (f.col("place") + _FIRST_ROW).alias("place")
    numbered_a, numbered_b = (with_row_numbers(rows, "place", dense=True) for rows in (a, b))
    sides = numbered_a.select(place, _row(a, "a")), numbered_b.select(place, _row(b, "b"))
    return sides[0].join(sides[1], "place", "full_outer")


def pair_equal_rows(a: DataFrame, b: DataFrame, columns: FrameColumns) -> DataFrame:
    """Rows that are equal under the rules, the n-th with the n-th."""
    alike = Window.partitionBy("place").orderBy("number")
    sides = [
        with_row_numbers(rows, "number")
        .select(place_of(columns.compared), "number", _row(rows, side))
        .select("place", f.row_number().over(alike).alias("nth"), side)
        for rows, side in ((a, "a"), (b, "b"))
    ]
    return sides[0].join(sides[1], ["place", "nth"], "full_outer")


def _row(rows: DataFrame, side: str) -> Column:
    return f.struct(*rows.columns).alias(side)


def _match_alike(a: DataFrame, b: DataFrame, columns: FrameColumns) -> DataFrame:
    """All rows of a key at once, paired by `match_similar`.

    It needs numbers that Spark gives to equal rows of one key: one for all cells, one for those without a tolerance;
    and the normalized values of the others.
    """
    exact = [column for column in columns.compared if not column.is_tolerant]
    soft = [column.compared for column in columns.tolerant]
    sides = [
        with_row_numbers(rows, "number").select(
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
    tolerant = [column.rule for column in columns.tolerant if column.rule is not None]

    def pairs(a: pa.Array, b: pa.Array) -> pa.Array:
        prepare_worker()
        found = [_pairs_of_key(x, y, tolerant) for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)]
        return pa.array(found, pa.list_(pa.struct([("a", pa.int32()), ("b", pa.int32())])))

    sides_of_key = (f.expr(_MATCHED_BY.format(side)) for side in "ab")
    matched = ordered.select("*", arrow_function(_PAIRS, pairs)(*sides_of_key).alias("pairs"))
    # Rows are put into the pairs first: exploded beside them, all rows of a key would be copied for each pair.
    paired = "transform(pairs, pair -> named_struct('a', get(a, pair.a).a, 'b', get(b, pair.b).b))"
    exploded = matched.select("place", f.posexplode(f.expr(paired)).alias("nth", "pair"))
    return exploded.select("place", "nth", "pair.a", "pair.b")


class _KeyedRow(NamedTuple):
    """A row of one key, as `match_similar` takes it."""

    at: int
    number: int
    forms: tuple[int, ...]
    near: int
    soft: list[str]


def _pairs_of_key(a: list[dict[str, Any]], b: list[dict[str, Any]], tolerant: list[CellRule]) -> list[dict[str, Any]]:
    from driftline.tables.kernels import match_similar

    def near(one: _KeyedRow, other: _KeyedRow) -> bool:
        forms = zip(tolerant, one.soft, other.soft, strict=True)
        return one.near == other.near and all(rule.equal(x, y) for rule, x, y in forms)

    rows_a, rows_b = (
        [_KeyedRow(at, row["number"], (row["equal"],), row["near"], row["soft"]) for at, row in enumerate(side)]
        for side in (a, b)
    )
    return [
        {"a": None if x is None else x.at, "b": None if y is None else y.at}
        for x, y in match_similar(rows_a, rows_b, near if tolerant else None)
    ]


# Events and counts of paired rows, with the user's names and types.


def with_types(paired: DataFrame, columns: FrameColumns) -> DataFrame:
    """Pairs with the type of their event."""
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
    """The events, with the columns `shown` in their rows."""
    options = columns.options
    rows = typed if options.emit_unchanged and not options.ignore_row_order else typed.where("type <> 'unchanged'")
    order = [name for name in ("place", "nth") if name in typed.columns]
    ordered = rows.orderBy(*order) if columns.ordered else rows
    if options.ignore_row_order:
        return ordered.select("type", _own_row(shown).alias("row"))
    key = _own_struct({column.name: (column, column) for column in columns.keys})  # A's cells, B's of added rows
    place = f.col("place").alias("row_index") if options.mode == "positional" else key.alias("key")
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
    return _own_struct({name: (in_a.get(name), in_b.get(name)) for name in dict.fromkeys([*in_a, *in_b])})


def _own_struct(cells: Mapping[str, tuple[FrameColumn | None, FrameColumn | None]]) -> Column:
    fields = [t.StructField(name, _common_type(*pair)) for name, pair in cells.items()]
    texts = (f"{_own_cell(*pair)} AS f{at}" for at, pair in enumerate(cells.values()))
    return f.expr(struct(texts)).cast(t.StructType(fields))


def _common_type(in_a: FrameColumn | None, in_b: FrameColumn | None) -> t.DataType:
    """The type of cells of either side: text where the types differ."""
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
        name, kind = column.on(side)
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
    """One row of counts; a row of `typed` counts `rows` times, if there is such a column."""
    weight = "rows" if "rows" in typed.columns else "1"
    sums = [f"coalesce(sum(if(type = '{kind}', {weight}, 0)), 0L) AS rows_{kind}" for kind in _COUNTED]
    for side in "ab" if columns.options.counts_dropped else "":
        sums.append(f"coalesce(sum(dropped_{side}), 0L) AS duplicates_dropped_{side}")
    if columns.options.column_stats or columns.options.fail_if:
        differs = (column.differs() for column in columns.compared)
        changes = [f"coalesce(sum(if(type = 'changed' AND {each}, 1, 0)), 0L)" for each in differs]
        if columns.options.ignore_row_order:
            changes = ["0L"] * len(changes)
        sums.append(f"CAST(array({', '.join(changes)}) AS array<long>) AS changes")
    counted = typed.selectExpr(*sums).select(f.expr("rows_changed + rows_unchanged").alias("rows_total_compared"), "*")
    return _with_options(counted, columns)


def _with_options(counted: DataFrame, columns: FrameColumns) -> DataFrame:
    """The counts with what the options add."""
    options, comparison = columns.options, columns.comparison
    result = counted.drop("changes")
    extra: list[Column] = []
    if comparison.added is not None and comparison.removed is not None:
        for name, names in (("columns_added", comparison.added), ("columns_removed", comparison.removed)):
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


def _exceeded(options: TableOptions, names: Sequence[str]) -> Callable[..., Column]:
    thresholds = options.fail_if

    def exceeded(
        added: pa.Array, removed: pa.Array, changed: pa.Array, unchanged: pa.Array, changes: pa.Array
    ) -> pa.Array:
        from driftline.tables import Stats

        counts = zip(*(one.to_pylist() for one in (added, removed, changed, unchanged)), strict=True)
        stats = [
            Stats(**dict(zip(_COUNTED, row, strict=True)), columns=dict(zip(names, each, strict=True)))
            for row, each in zip(counts, changes.to_pylist(), strict=True)
        ]
        return pa.array([one.exceeded(thresholds) for one in stats], pa.list_(pa.string()))

    return arrow_function("array<string>", exceeded)

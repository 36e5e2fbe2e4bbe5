"""The columns of two DataFrames by position, and the values by which their cells are compared.

Inside the diff a column is called `c0`, `c1`, … on both sides, because Spark interprets dots, backticks and letter
case; columns that only B has follow A's. A column `k0`, `k1`, … is added where a cell is not compared as it is: a type
that Spark cannot compare, or a column with a rule, whose normalized value an Arrow function computes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as f, types as t

from driftline.errors import OptionError, TableError
from driftline.spark._runtime.pyspark_internals import newer_type
from driftline.spark._tasks import arrow_function, prepare_worker
from driftline.tables import TableOptions
from driftline.tables.kernels import CellRule, Comparison

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PLAIN = (
    t.BooleanType,
    t.NumericType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
    t.BinaryType,
    t.NullType,
    t.DayTimeIntervalType,
    t.YearMonthIntervalType,
    newer_type("TimeType"),
)
# JSON writes these without quotes: rules for text alone leave them as they are (tables §4.6).
_UNQUOTED = (t.IntegralType, t.DecimalType, t.BooleanType)
_SIGNED = (t.DoubleType, t.FloatType)  # whose zeros have a sign
_INTERVALS = (t.DayTimeIntervalType, t.YearMonthIntervalType)  # Arrow or Polars lack them, or print them otherwise
_VARIANT = newer_type("VariantType")
_NESTED = (t.ArrayType, t.MapType, t.StructType, _VARIANT)


class FrameColumn(NamedTuple):
    """A column: its names and types on the sides that have it, and its rule if it is compared."""

    position: int
    name_a: str | None
    name_b: str | None
    kind_a: t.DataType | None
    kind_b: t.DataType | None
    rule: CellRule | None = None
    rule_b: CellRule | None = None  # the rule of B's cells

    @property
    def name(self) -> str:
        """A's name, B's where only B has it."""
        return self.name_a if self.name_a is not None else self.name_b or ""

    def on(self, side: str) -> tuple[str | None, t.DataType | None]:
        """The name and type of the column on a side; None where it has none."""
        return (self.name_a, self.kind_a) if side == "a" else (self.name_b, self.kind_b)

    @property
    def plain(self) -> str:
        """The name of the original cells."""
        return f"c{self.position}"

    @property
    def has_form(self) -> bool:
        """Whether cells are compared by the normalized value of their rule."""
        if self.rule is None or self.rule.is_exact:
            return False
        only_text = self.rule.kind is None
        return not (only_text and isinstance(self.kind_a, (*_UNQUOTED, *_NESTED)))

    @property
    def compared(self) -> str:
        """The name of the compared cells."""
        as_they_are = self.kind_a is not None and is_comparable(self.kind_a) and not self.has_form
        return f"{'c' if as_they_are else 'k'}{self.position}"

    @property
    def is_tolerant(self) -> bool:
        """Whether cells may be equal although their normalized values are not."""
        return self.rule is not None and self.rule.tolerance is not None

    def differs(self) -> str:
        """The expression for whether the cells of `a` and `b` differ."""
        return f"d{self.position}" if self.is_tolerant else f"NOT (a.{self.compared} <=> b.{self.compared})"


@dataclass(frozen=True)
class FrameColumns:
    """All columns, those that are compared in comparison order, and the keys among them."""

    all: tuple[FrameColumn, ...]
    compared: tuple[FrameColumn, ...]
    keys: tuple[FrameColumn, ...]
    comparison: Comparison
    options: TableOptions
    ordered: bool

    @property
    def tolerant(self) -> list[FrameColumn]:
        """Compared columns that need more than equality."""
        return [column for column in self.compared if column.is_tolerant]

    @property
    def need_tasks(self) -> bool:
        """Whether driftline must be importable on the executors."""
        by_row = self.options.duplicates == "match" or bool(self.options.fail_if)
        return by_row or any(column.has_form for column in self.compared)

    def of_side(self, side: str) -> list[FrameColumn]:
        """The columns that a side has."""
        return [column for column in self.all if column.on(side)[0] is not None]


def resolve_frame_columns(
    a: DataFrame, b: DataFrame, comparison: Comparison, options: TableOptions, *, ordered: bool
) -> FrameColumns:
    """Columns by position; those that are compared must have one type on both sides, or a declared one."""
    in_b = {name: name for name in a.columns if name in b.columns} | dict(comparison.renamed or ())
    only_b = [name for name in b.columns if name not in in_b.values()]
    names = [*((name, in_b.get(name)) for name in a.columns), *((None, name) for name in only_b)]
    rules: dict[str | None, Iterable[CellRule | None]] = {
        column.a: map(column.rule_of, "AB") for column in comparison.columns
    }
    kinds_a, kinds_b = (_kinds(frame) for frame in (a, b))
    columns = tuple(
        FrameColumn(at, name_a, name_b, kinds_a.get(name_a), kinds_b.get(name_b), *rules.get(name_a, ()))
        for at, (name_a, name_b) in enumerate(names)
    )
    by_name = {column.name_a: column for column in columns if column.name_a is not None}
    compared = tuple(by_name[column.a] for column in comparison.columns)
    for column in compared:
        _check(column, options)
    keys = tuple(by_name[column.a] for column in comparison.keys)
    return FrameColumns(columns, compared, keys, comparison, options, ordered)


def _kinds(frame: DataFrame) -> dict[str | None, t.DataType]:
    return {one.name: one.dataType for one in frame.schema.fields}


def _check(column: FrameColumn, options: TableOptions) -> None:
    """Refuse two types under one rule, and a tolerance of a column of structs, arrays or maps: it would do nothing."""
    kind_a, kind_b, name = column.kind_a, column.kind_b, json.dumps(column.name, ensure_ascii=False)
    assert column.rule is not None, "a compared column has a rule"
    assert kind_a is not None, "both sides have a compared column"
    assert kind_b is not None, "both sides have a compared column"
    if column.rule.kind is None and not same_type(kind_a, kind_b):
        raise TableError(
            f"Type mismatch in column {name}: {kind_a.simpleString()} in A, {kind_b.simpleString()} in B; cast one of "
            "them, or say with types={…} what they hold",
            code="type_mismatch",
            column=column.name,
        )
    if isinstance(kind_a, _NESTED) and any(each == column.name for each, _ in options.tolerance):
        raise OptionError(
            f"column {name} is {kind_a.simpleString()}, which has no tolerance: select its fields as columns of their "
            "own",
            code="invalid_option",
        )


def same_type(one: t.DataType, other: t.DataType) -> bool:
    """Whether two types are the same, apart from nullability."""
    return one.simpleString() == other.simpleString()


def positioned(frame: DataFrame, side: str, columns: FrameColumns) -> DataFrame:
    """The cells of a side by position, and the compared values where these are others.

    From here on expressions are written as SQL over such names: one call for a table of any width, where one call a
    column took a minute for hundreds of columns.
    """
    own = {column.on(side)[0]: column for column in columns.of_side(side)}
    renamed = frame.toDF(*(own[name].plain for name in frame.columns))
    extra = [
        _compared_cells(column, kind, side).alias(column.compared)
        for column in columns.compared
        if column.compared != column.plain and (kind := column.on(side)[1]) is not None
    ]
    return renamed.select(*(column.plain for column in columns.of_side(side)), *extra)


def _compared_cells(column: FrameColumn, kind: t.DataType, side: str) -> Column:
    cells, rule = f.col(column.plain), column.rule if side == "a" else column.rule_b
    if not column.has_form or rule is None:
        return comparable(cells, kind)
    if isinstance(kind, _VARIANT):
        return _form_function(rule, is_json=True)(f.to_json(cells))
    if isinstance(kind, _NESTED):
        texts = f.to_json(comparable(cells, kind), {"ignoreNullFields": "false"})
        return _form_function(rule, is_json=True)(texts)
    plain = cells.cast("string") if isinstance(kind, _INTERVALS) else comparable(cells, kind)
    return _form_function(rule, is_json=False)(plain)


def _form_function(rule: CellRule, *, is_json: bool) -> Callable[[Column], Column]:
    """The normalized values of cells, by the rules of `driftline.tables`; a null has one too."""

    def form(cells: pa.Array) -> pa.Array:
        import polars as pl

        from driftline.sources import json_columns
        from driftline.tables.kernels import form_column

        prepare_worker()
        is_text = not is_json and (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type))
        table = pa.table({"cells": cells})
        texts = pl.Series(pl.from_arrow((table if is_text or is_json else json_columns(table)).column(0)))
        if is_json:
            texts = texts.fill_null("null")
        forms = form_column(texts.fill_null(""), rule, typed=not is_text)
        null = pl.Series([rule.form_of_json("null")])
        formed = forms.zip_with(texts.is_not_null(), null) if texts.null_count() else forms
        return formed.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())

    return arrow_function("string", form)


def with_verdicts(paired: DataFrame, columns: FrameColumns) -> DataFrame:
    """Pairs of rows with `d0`, `d1`, …: whether the cells of a tolerant column differ."""
    verdicts = [
        _verdict_function(column.rule)(f.col(f"a.{column.compared}"), f.col(f"b.{column.compared}")).alias(
            f"d{column.position}"
        )
        for column in columns.tolerant
        if column.rule is not None
    ]
    return paired.select("*", *verdicts) if verdicts else paired


def _verdict_function(rule: CellRule) -> Callable[[Column, Column], Column]:
    def differs(a: pa.Array, b: pa.Array) -> pa.Array:
        import polars as pl

        from driftline.tables.kernels import forms_differ

        prepare_worker()
        # A pair without one of its rows is no change: the result for its cells is not used.
        nothing = rule.form_of_json("null")
        before, after = (pl.Series(pl.from_arrow(side.fill_null(nothing))) for side in (a, b))
        return forms_differ(before, after, rule).to_arrow()

    return arrow_function("boolean", differs)


def struct(cells: Iterable[str]) -> str:
    """The expression of a struct; its null fields are equal to each other, unlike null columns in a join."""
    return f"struct({', '.join(cells)})"


def place_of(columns: Sequence[FrameColumn]) -> Column:
    """The struct by which rows are matched and sorted."""
    return f.expr(struct(f"{column.compared} AS k{column.position}" for column in columns)).alias("place")


# Spark values as ones that Spark can compare, sort and join by, equal where the cells of files are.
# Most types can stay. Maps become their entries in order, variants JSON text, intervals of months and days text, and
# strings with a collation are compared by their bytes. A zero keeps its sign inside of a value: Spark's own comparison
# drops it everywhere, files only where it is the cell itself.


def is_comparable(kind: t.DataType, *, inside: bool = False) -> bool:
    """Whether Spark compares, sorts and joins values of a type, or values inside of others, as they are."""
    if isinstance(kind, t.StringType):
        return getattr(kind, "collation", "UTF8_BINARY") == "UTF8_BINARY"
    if isinstance(kind, t.ArrayType):
        return is_comparable(kind.elementType, inside=True)
    if isinstance(kind, t.StructType):
        return all(is_comparable(field.dataType, inside=True) for field in kind.fields)
    return isinstance(kind, _PLAIN) and not (inside and isinstance(kind, _SIGNED))


def comparable(value: Column, kind: t.DataType, *, inside: bool = False) -> Column:
    """A value as one that Spark can compare."""
    if is_comparable(kind, inside=inside):
        return value
    if isinstance(kind, t.StringType):
        return f.collate(value, "UTF8_BINARY")
    if isinstance(kind, _SIGNED):
        return f.struct(value.alias("value"), f.when(value == 0, value.cast("string")).alias("zero"))
    if isinstance(kind, t.ArrayType):
        element = kind.elementType
        return f.transform(value, lambda one: comparable(one, element, inside=True))
    if isinstance(kind, t.MapType):
        entry = t.StructType([t.StructField("key", kind.keyType), t.StructField("value", kind.valueType)])
        return f.transform(f.map_entries(value), lambda one: _comparable_fields(one, entry))
    if isinstance(kind, t.StructType):
        return f.when(value.isNotNull(), _comparable_fields(value, kind))
    if isinstance(kind, _VARIANT):
        return f.to_json(value)
    return value.cast("string")


def _comparable_fields(value: Column, kind: t.StructType) -> Column:
    fields = ((field.name, field.dataType) for field in kind.fields)
    return f.struct(*(comparable(value[name], type_, inside=True).alias(name) for name, type_ in fields))

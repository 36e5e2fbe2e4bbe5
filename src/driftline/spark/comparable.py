"""Spark values in a form that Spark can compare, sort and join by: the same for equal values of any type.

Most types are that form already. Maps become sorted entries, variants JSON text, intervals of months and days text,
and strings with a collation are taken by their bytes, because a diff asks whether values are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql import types as t

if TYPE_CHECKING:
    from pyspark.sql import Column

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
    t.TimeType,
)


def is_comparable(kind: t.DataType) -> bool:
    """Whether Spark compares, sorts and joins values of a type as they are."""
    if isinstance(kind, t.StringType):
        return kind.collation == "UTF8_BINARY"
    if isinstance(kind, t.ArrayType):
        return is_comparable(kind.elementType)
    if isinstance(kind, t.StructType):
        return all(is_comparable(field.dataType) for field in kind.fields)
    return isinstance(kind, _PLAIN)


def comparable(value: Column, kind: t.DataType) -> Column:
    """A value in its comparable form."""
    if is_comparable(kind):
        return value
    if isinstance(kind, t.StringType):
        return f.collate(value, "UTF8_BINARY")
    if isinstance(kind, t.ArrayType):
        element = kind.elementType
        return f.transform(value, lambda one: comparable(one, element))
    if isinstance(kind, t.MapType):
        return f.array_sort(f.transform(f.map_entries(value), lambda entry: _entry(entry, kind)))
    if isinstance(kind, t.StructType):
        fields = [comparable(value[field.name], field.dataType).alias(field.name) for field in kind.fields]
        return f.when(value.isNotNull(), f.struct(*fields))
    if isinstance(kind, t.VariantType):
        return f.to_json(value)
    return value.cast("string")


def _entry(entry: Column, kind: t.MapType) -> Column:
    return f.struct(
        comparable(entry["key"], kind.keyType).alias("key"), comparable(entry["value"], kind.valueType).alias("value")
    )

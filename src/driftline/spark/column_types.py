"""Schemas of the frames that tasks exchange, as objects: Spark's parser for their words takes long to start."""

from __future__ import annotations

from functools import cache

from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

_TYPES: dict[str, type[DataType]] = {
    "int": IntegerType,
    "bigint": LongType,
    "string": StringType,
    "binary": BinaryType,
}


@cache
def frame_schema(words: str) -> StructType:
    """Columns of plain types.

    >>> frame_schema("number int, result binary").simpleString()
    'struct<number:int,result:binary>'
    """
    columns = (column.split() for column in words.split(","))
    return StructType([StructField(name, _TYPES[kind]()) for name, kind in columns])

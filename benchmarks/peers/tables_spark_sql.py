"""A table diff as hand-written Spark SQL: `tables_spark_sql.py union|hash A B KEY OUT`.

Both plans write the same ordered JSONL events; they check neither quoting nor encoding nor row widths.
"""

from __future__ import annotations

import glob
import shutil
import sys

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr
from stock_session import stock_session

plan, path_a, path_b, key, out = sys.argv[1:6]
spark = stock_session(spark_sql_files_maxPartitionBytes="64m", spark_sql_files_openCostInBytes="0")
with open(path_a, encoding="utf-8-sig") as file:
    header = file.readline().strip().split(",")
schema = ", ".join(f"`{name}` string" for name in header)
others = [name for name in header if name != key]
row = "named_struct(" + ", ".join(f"'{name}', `{name}`" for name in header) + ")"
differs = " or ".join(f"a.`{name}` <> b.`{name}`" for name in others)


def read(path: str) -> DataFrame:
    return spark.read.schema(schema).csv(
        path, header=True, escape='"', quote='"', nullValue="\u0001never", emptyValue="", enforceSchema=False
    )


def joined() -> DataFrame:
    """Rows of both sides by key, only where they differ."""
    if plan == "hash":
        a = read(path_a).selectExpr(f"`{key}` k", f"{row} a")
        b = read(path_b).selectExpr(f"`{key}` k", f"{row} b")
        return a.hint("shuffle_hash").join(b, "k", "full_outer").where(f"a is null or b is null or {differs}")
    both = (
        read(path_a)
        .selectExpr(f"`{key}` k", "0 s", f"{row} r")
        .union(read(path_b).selectExpr(f"`{key}` k", "1 s", f"{row} r"))
    )
    grouped = both.groupBy("k").agg(
        expr("count_if(s = 0) ca"),
        expr("count_if(s = 1) cb"),
        expr("max(if(s = 0, r, null)) a"),
        expr("max(if(s = 1, r, null)) b"),
    )
    return grouped.where(f"ca <> 1 or cb <> 1 or {differs}")


def events(frame: DataFrame) -> DataFrame:
    keyed = f"named_struct('{key}', k)"
    changed = ", ".join(f"if(a.`{name}` <> b.`{name}`, '{name}', null)" for name in others)
    delta = ", ".join(
        f"'{name}', if(a.`{name}` <> b.`{name}`, named_struct('from', a.`{name}`, 'to', b.`{name}`), null)"
        for name in others
    )
    return frame.selectExpr(
        "k",
        f"""case
        when b is null then to_json(named_struct('type', 'removed', 'key', {keyed}, 'row', a))
        when a is null then to_json(named_struct('type', 'added', 'key', {keyed}, 'row', b))
        else to_json(named_struct('type', 'changed', 'key', {keyed}, 'changed', array_compact(array({changed})),
            'before', a, 'after', b, 'delta', named_struct({delta}))) end value""",
    )


events(joined()).orderBy("k").select("value").write.mode("overwrite").text(out + ".parts")
with open(out, "wb") as joined_file:
    for part in sorted(glob.glob(out + ".parts/part-*")):
        with open(part, "rb") as stream:
            shutil.copyfileobj(stream, joined_file, 1 << 20)
shutil.rmtree(out + ".parts")
spark.stop()

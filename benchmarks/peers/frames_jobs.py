"""A diff of two DataFrames in a plain session, its events into nowhere: `frames_jobs.py driftline|join A B LOG`.

`join` is what Spark's own full outer join costs with the same result: the type of each difference and both rows.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession, functions as f

KEY = "id"


def main() -> None:
    which, a, b, log = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", f"file://{log}")
    spark = builder.config("spark.eventLog.compress", "false").config("spark.sql.shuffle.partitions", "8").getOrCreate()
    before, after = (spark.read.parquet(path) for path in (a, b))
    events = by_driftline(before, after) if which == "driftline" else by_join(before, after)
    events.write.format("noop").mode("overwrite").save()
    spark.stop()


def by_driftline(before, after):
    import driftline.spark

    return driftline.spark.diff(before, after, key=KEY, ordered=False).events


def by_join(before, after):
    sides = [
        frame.select(f.col(KEY), f.struct(*(name for name in frame.columns)).alias(side))
        for frame, side in ((before, "a"), (after, "b"))
    ]
    joined = sides[0].join(sides[1], KEY, "full_outer")
    kind = f.expr(
        "CASE WHEN a IS NULL THEN 'added' WHEN b IS NULL THEN 'removed' WHEN NOT (a <=> b) THEN 'changed' END"
    )
    return joined.withColumn("type", kind).where("type IS NOT NULL")


if __name__ == "__main__":
    main()

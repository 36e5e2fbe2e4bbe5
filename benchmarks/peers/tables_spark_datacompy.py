"""datacompy on Spark: `tables_spark_datacompy.py A B KEY OUT`; it reports counts and samples, not all events."""

from __future__ import annotations

import sys

import datacompy
from stock_session import stock_session

path_a, path_b, key, out = sys.argv[1:5]
spark = stock_session()
a, b = (spark.read.csv(path, header=True, escape='"', quote='"') for path in (path_a, path_b))
if hasattr(datacompy, "SparkSQLCompare"):
    report = datacompy.SparkSQLCompare(spark, a, b, join_columns=[key]).report()
else:
    comparison = datacompy.LegacySparkCompare(spark, a, b, join_columns=[key])
    with open(out, "w", encoding="utf-8") as file:
        comparison.report(file)
    report = ""
if report:
    with open(out, "w", encoding="utf-8") as file:
        file.write(report)
spark.stop()

"""datacompy on Spark: `tables_spark_datacompy.py A B KEY OUT`; it reports counts and samples, not all events."""

from __future__ import annotations

import sys

import datacompy
from pyspark.sql import SparkSession

path_a, path_b, key, out = sys.argv[1:5]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.memory", "6g")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "ERROR")
    .config("spark.sql.shuffle.partitions", "4")
    .getOrCreate()
)
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

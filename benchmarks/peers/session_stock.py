"""A stock PySpark session with one trivial job."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").getOrCreate()
assert spark.range(1000).count() == 1000
spark.stop()

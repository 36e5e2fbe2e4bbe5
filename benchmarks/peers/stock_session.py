"""The Spark session of the peers: what a user would set on two cores, and nothing else."""

from __future__ import annotations

from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.driver.memory": "6g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
}


def stock_session(**more: str) -> SparkSession:
    """A session on two cores; further settings are named with `_` for `.`."""
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**_SETTINGS, **{key.replace("_", "."): text for key, text in more.items()}}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()

"""Fixtures of the tests on Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def two_partitions(spark) -> Iterator[None]:
    """The session with two partitions after a shuffle: enough to have an order to keep, and quick for a few rows."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)

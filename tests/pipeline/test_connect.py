"""A pipeline through Spark Connect gives the same bytes as on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.shop import (
    DAYS,
    PIPELINE,
    lake_rows,
    last_record,
    make_shop,
    output_bytes,
    run,
    snapshot_rows,
    start_cli,
)
from support.spark import connect_server

# The suite goes through Spark Connect once, in spark/test_table_diff_cluster; starting its server is most of the time.
pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.cluster]

CUSTOMERS = PIPELINE.partition("[tables.orders]")[0]
DELIVERED = CUSTOMERS.replace("compact = true\n", 'compact = true\npatchset = "out/{table}-{to}.patchset"\n')


def test_the_same_bytes_through_spark_connect(tmp_path: Path) -> None:
    here, there = tmp_path / "local", tmp_path / "connect"
    assert run(make_shop(here, DELIVERED), engine="local").exit_code == 0
    with connect_server(tmp_path) as master:
        process = start_cli(make_shop(there, DELIVERED), "--master", master)
        shown, words = process.communicate()
    assert process.returncode == 0, shown + words
    assert output_bytes(there) == output_bytes(here)
    for day in DAYS:
        assert lake_rows(there, "customers", day) == snapshot_rows(there, "customers", day, ("price",))
    assert last_record(there)["engine"] == "spark"

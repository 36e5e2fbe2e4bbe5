"""A real cluster (master and two workers on loopback) gives the same bytes as this machine, also when a worker dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.spark.standalone import StandaloneCluster
from pipeline.shop import (
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

# One table, two days: each Spark job costs seconds on a cluster that has just started.
SMALL = PIPELINE.partition("[tables.orders]")[0]
ROWS = 2000


@pytest.fixture(scope="module")
def cluster() -> Iterator[StandaloneCluster]:
    with StandaloneCluster(workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def local_bytes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("local")
    assert run(shop(directory), engine="local").exit_code == 0
    return output_bytes(directory)


def shop(directory: Path) -> Path:
    file = make_shop(directory, SMALL, rows=ROWS)
    (directory / f"data/customers-{DAYS[2]}.csv").unlink()
    return file


def assert_same(directory: Path, local_bytes: dict[str, str]) -> None:
    assert output_bytes(directory) == local_bytes
    assert lake_rows(directory, "customers") == snapshot_rows(directory, "customers", DAYS[1], ("price",))
    assert last_record(directory)["engine"] == "spark"


def test_a_cluster_gives_the_same_bytes(cluster: StandaloneCluster, tmp_path: Path, local_bytes) -> None:
    process = start_cli(shop(tmp_path), "--master", cluster.url)
    _, words = process.communicate()
    assert process.returncode == 0, words
    assert_same(tmp_path, local_bytes)
    executors = [number for number in (0, 1) if list(cluster.work_directory(number).rglob("stderr"))]
    assert executors == [0, 1], "both workers took part"


def test_a_worker_that_dies_in_the_middle_changes_nothing(
    cluster: StandaloneCluster, tmp_path: Path, local_bytes
) -> None:
    before = tasks_begun(cluster)
    process = start_cli(shop(tmp_path), "--master", cluster.url)
    while tasks_begun(cluster) < before + 4:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    cluster.kill_worker(0)
    assert process.poll() is None, "the run was over before the worker died"
    _, words = process.communicate()
    assert process.returncode == 0, words
    assert_same(tmp_path, local_bytes)


def tasks_begun(cluster: StandaloneCluster) -> int:
    """How many tasks the executors of worker 0 have begun, by their logs."""
    logs = cluster.work_directory(0).rglob("stderr")
    return sum(log.read_text(errors="replace").count("Running task ") for log in logs)

"""A real cluster (master and two workers on loopback) gives the same bytes as this machine, also when a worker dies.

Starting things takes longest, so both cases share one cluster and one session: the first run is left in peace, in the
middle of the second one a worker is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from local_cluster import StandaloneCluster

from support.processes import PATIENCE, start_process
from support.shop import DAYS, PIPELINE, SOURCE, lake_rows, last_record, make_shop, output_bytes, run, snapshot_rows

pytestmark = pytest.mark.cluster

# One table, two days, no states, one payload set: each Spark job costs seconds on a cluster that has just started.
SMALL = PIPELINE.partition("[[tables.customers.state]]")[0] + 'patchset = "out/{table}-{to}.patchset"\n'
SMALL += '[payloads.api]\npairs = "pairs.jsonl"\nschema = "schema.yaml"\nreport = "out/api"\n'
ROWS = 2000
SCRIPT = Path(__file__).parents[1] / "support" / "cluster_runs.py"


@dataclass(frozen=True)
class Runs:
    """What two runs on one cluster left behind."""

    peaceful: Path
    disturbed: Path
    workers_used: list[int]
    exit_codes: list[str]
    was_in_the_middle: bool


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    peaceful, disturbed = both = [tmp_path_factory.mktemp(name) for name in ("peaceful", "disturbed")]
    with StandaloneCluster(workers=2) as cluster:
        process = start_process(
            # Relative paths, as people type them: tasks must not look for files where they happen to run.
            [sys.executable, SCRIPT, cluster.url, *(shop(each).relative_to(peaceful.parent) for each in both)],
            cwd=peaceful.parent,
            env={**os.environ, "PYTHONPATH": SOURCE},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdin is not None
        first = [process.stdout.readline().strip() for _ in range(2)][1:]
        used = [number for number in (0, 1) if tasks_begun(cluster, number)]
        before = tasks_begun(cluster, 0)
        process.stdin.write("go on\n")
        process.stdin.flush()
        process.stdout.readline()
        while tasks_begun(cluster, 0) < before + 4:
            assert process.poll() is None
            time.sleep(0.02)
        cluster.kill_worker(0)
        in_the_middle = not (disturbed / ".driftline/shop/runs").exists()
        rest, _ = process.communicate()
        yield Runs(peaceful, disturbed, used, [*first, *rest.split()], in_the_middle)


@pytest.fixture(scope="module")
def local_bytes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("local")
    assert run(shop(directory), engine="local").exit_code == 0
    return output_bytes(directory)


def shop(directory: Path) -> Path:
    file = make_shop(directory, SMALL, rows=ROWS)
    (directory / f"data/customers-{DAYS[2]}.csv").unlink()
    (directory / "pairs.jsonl").write_text('{"id": "1", "old": {"a": 1}, "new": {"a": 2}}\n' * 20)
    (directory / "schema.yaml").write_text("type: object\nproperties:\n  a: {type: integer}\n")
    return file


def tasks_begun(cluster: StandaloneCluster, worker: int) -> int:
    """How many tasks the executors of a worker have begun, by their logs."""
    logs = cluster.work_directory(worker).rglob("stderr")
    return sum(log.read_text(errors="replace").count("Running task ") for log in logs)


def text_files(outputs: dict[str, str]) -> dict[str, str]:
    """Parquet files are the same in content and not in bytes."""
    return {name: digest for name, digest in outputs.items() if ".parquet" not in name}


def assert_same(directory: Path, local_bytes: dict[str, str]) -> None:
    assert len(local_bytes) > 3
    assert text_files(output_bytes(directory)) == text_files(local_bytes)
    assert lake_rows(directory, "customers") == snapshot_rows(directory, "customers", DAYS[1], ("price",))
    assert last_record(directory)["engine"] == "spark"


def test_a_cluster_gives_the_same_bytes(runs: Runs, local_bytes: dict[str, str]) -> None:
    assert runs.exit_codes[0] == "0"
    assert_same(runs.peaceful, local_bytes)
    assert runs.workers_used == [0, 1], "both workers took part"


def test_a_worker_that_dies_in_the_middle_changes_nothing(runs: Runs, local_bytes: dict[str, str]) -> None:
    assert runs.was_in_the_middle, "the run was over before the worker died"
    assert runs.exit_codes == ["0", "0"]
    assert_same(runs.disturbed, local_bytes)


@pytest.mark.faults
def test_the_script_runs_a_command_against_a_cluster_of_its_own() -> None:
    with script("--", "sh", "-c", "echo $SPARK_MASTER; exit 3") as running:
        told, words = running.communicate()
        assert running.returncode == 3, words
        assert told.startswith("spark://127.0.0.1:")
        assert words == f"cluster: {told.strip()}, 1 workers\n"


def test_a_script_that_is_ended_leaves_nothing_running() -> None:
    with script() as running:
        assert running.stderr is not None
        assert [running.stderr.readline() for _ in range(2)][1] == "Ctrl-C ends it\n"
        cluster = psutil.Process(running.pid).children(recursive=True)
        assert cluster
        running.terminate()
        assert running.wait(PATIENCE) == 128 + signal.SIGTERM
    _, alive = psutil.wait_procs(cluster, timeout=PATIENCE)
    assert not alive


def script(*command: str) -> subprocess.Popen[str]:
    """The script that starts a cluster of one worker on this machine."""
    file = Path(__file__).parents[2] / "scripts" / "local_cluster.py"
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    given = [sys.executable, str(file), "--workers", "1", *command]
    return start_process(given, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

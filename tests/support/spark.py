"""Spark's own programs as processes on loopback, for tests that need more than a local session."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftline.spark._runtime.jvm import class_path, find_java
from support.processes import PATIENCE, start_process, wait_until

SOURCE = str(Path(__file__).parents[2] / "src")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def spark_process(folder: Path, *arguments: str, wait_for: str) -> Iterator[None]:
    """One of Spark's own programs, running until the end of the block."""
    log = folder / f"{arguments[0].rpartition('.')[2]}.log"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK")},
        "PYTHONPATH": SOURCE,
        "PYSPARK_PYTHON": sys.executable,
        "POLARS_MAX_THREADS": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOG_DIR": str(folder),
        "SPARK_WORKER_DIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder),
    }
    opens = [
        f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.nio", "sun.nio.ch", "java.lang", "java.util")
    ]
    quick = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command = [str(find_java().executable), *quick, *opens, "-cp", class_path(), *arguments]
    with open(log, "wb") as out:
        process = start_process(command, env=environment, stdout=out, stderr=out, cwd=folder, start_new_session=True)
    try:

        def is_up() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            return wait_for in log.read_text(errors="replace")

        wait_until(is_up, wait_for)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(PATIENCE)


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    port = free_port()
    arguments = (
        "org.apache.spark.deploy.SparkSubmit",
        "--master", "local[2]",
        "--conf", f"spark.connect.grpc.binding.port={port}",
        "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf", "spark.driver.bindAddress=127.0.0.1",
        "--conf", "spark.driver.host=127.0.0.1",
        "--conf", "spark.ui.enabled=false",
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    )  # fmt: skip
    with spark_process(folder, *arguments, wait_for="Spark Connect server started"):
        yield f"sc://127.0.0.1:{port}"

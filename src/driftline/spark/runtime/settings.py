"""Settings of Spark sessions: what driftline's jobs need, what suits them, and what the user says (configuration)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from driftline.errors import OptionError
from driftline.spark.runtime.jvm import HADOOP_VARIABLES, spark_home
from driftline.spark.runtime.masters import is_local, is_loopback

_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
_QUICK_JIT = "-XX:TieredStopAtLevel=1"  # executors only move blobs too

# driftline's tasks exchange few rows with large blobs, in partitions that mean something: these cannot be changed.
SQL_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    # Compiling code for a few rows takes longer than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_USUAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.catalogImplementation": "in-memory",
    # Workers that differ in this only would be kept apart: those that start early are then of no use to DataFrames.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.sql.defaultUrlStreamHandlerFactory.enabled": "false",  # for `ADD JAR`; it reads Hadoop's settings
}
_NEAR = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_LOCAL = {"spark.shuffle.compress": "false"}  # blobs are compact already, and no network is spared
_OURS = {"spark.master", "spark.app.name", "spark.remote", *SQL_SETTINGS}

TASK_ENVIRONMENT = {
    # One task, one thread: Spark already runs a task per core.
    "POLARS_MAX_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_DEFAULT_THREADS": "1",
    "PYTHONWARNINGS": "ignore::FutureWarning",
    # Tasks hash nothing by object identity; a fixed seed keeps any set order the same in every worker.
    "PYTHONHASHSEED": "0",
    "DRIFTLINE_OWN_WORKERS": "1",  # `workers.OWN_WORKERS`, which is not imported here: Arrow comes with it
}


def checked_settings(given: Mapping[str, str]) -> dict[str, str]:
    """The user's settings, without those that driftline must set itself."""
    for name in given:
        if name in _OURS:
            remedy = "use --master" if name in ("spark.master", "spark.remote") else "leave it out"
            raise OptionError(f"{name} is set by driftline: {remedy}", code="invalid_spark_setting", setting=name)
    return dict(given)


def needs_home(master: str) -> bool:
    """Whether the JVM must know where Spark lives: for clusters, a Python without pyspark, or settings there."""
    own_python = os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    return not (is_local(master) and own_python) or (spark_home() / "conf").exists()


def is_plain(master: str, given: Mapping[str, str]) -> bool:
    """Whether nobody asked for more than Spark on this machine: then a part of its jars will do."""
    said = [os.environ.get(name) for name in (*HADOOP_VARIABLES, "SPARK_CONF_DIR")]
    return not (needs_home(master) or given or any(said))


def session_settings(master: str, given: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Everything that a classic session is opened with; what the user gave wins over what is usual."""
    usual = {**_USUAL, "spark.local.dir": str(scratch), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    if is_local(master) or is_loopback(master):
        usual |= _NEAR
    if is_local(master):
        usual |= _LOCAL
    return {**usual, **given, **SQL_SETTINGS, **({} if is_local(master) else _executor_settings(given))}


def _executor_settings(given: Mapping[str, str]) -> dict[str, str]:
    """What the executors of a cluster get; the user's own Java options come last and win."""
    environment = {f"spark.executorEnv.{name}": value for name, value in TASK_ENVIRONMENT.items()}
    return {**environment, _EXECUTOR_OPTIONS: f"{_QUICK_JIT} {given.get(_EXECUTOR_OPTIONS, '')}".strip()}

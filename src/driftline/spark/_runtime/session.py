"""Spark sessions: local, on a cluster, or through Spark Connect, with their settings and driftline in their tasks.

    with open_session() as spark:
        spark.range(3).count()

A session that is already active in this process (a notebook, a test, an outer `open_session`) is used as it is and
left running.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import weakref
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import driftline
from driftline.core import setting_text, sha256_hex, spark_settings
from driftline.errors import Cancelled, EngineError, OptionError
from driftline.spark._jobs import is_connect_session
from driftline.spark._runtime import masters, pyspark_internals as internals
from driftline.spark._runtime.jvm import HADOOP_VARIABLES, SETTINGS, Jvm, begin_jvm, end_running_jvm, spark_home
from driftline.tables import Stats, TableDiffJob, Write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
_QUICK_JIT = "-XX:TieredStopAtLevel=1"  # executors only move blobs, too

_OURS = {"spark.master", "spark.app.name", "spark.remote", *SETTINGS["fixed"]}
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LEFT_OUT = frozenset({".pyc", ".pyo"})
_CHECKED_ROWS = 1000

# The session that an outer `open_session` gave: Spark's own active session is one of a thread.
_opened: SparkSession | None = None
_shipped: weakref.WeakSet[SparkSession] = weakref.WeakSet()


@contextmanager
def open_session(
    master: str | None = None, *, app_name: str = "driftline", config: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A Spark session for `master` (see `chosen_master`), with the user's settings and over them those in `config`."""
    existing = active_session()
    if existing is not None:
        yield existing
        return
    target = masters.chosen_master(master)
    masters.check_master(target)
    given = checked_settings({**spark_settings(), **(config or {})})
    session = _connect(target, app_name, given) if masters.is_connect(target) else _classic(target, app_name, given)
    global _opened
    _opened = session
    try:
        yield session
    except (KeyboardInterrupt, Cancelled, SystemExit):
        # A cancelled job stops at once: the running tasks end with the JVM.
        if not masters.is_connect(target):
            internals.quieten_accumulators(session)
            end_running_jvm(keep_class_list=False)
        raise
    finally:
        _opened = None
        _stop(session, target)


def active_session() -> SparkSession | None:
    """The session that is already active in this process, if any."""
    if _opened is not None:
        return _opened
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _connect(target: str, app_name: str, given: dict[str, str]) -> SparkSession:
    internals.silence_pandas_warnings()
    from pyspark.sql import SparkSession

    try:
        session: SparkSession = SparkSession.builder.remote(target).appName(app_name).create()
        for key, value in {**SETTINGS["fixed"], **given}.items():
            if not session.conf.isModifiable(key):
                raise OptionError(f"{key} is a setting of the server at {target}: set it there", code="server_setting")
            session.conf.set(key, value)
        session.range(1).count()
        with tempfile.TemporaryDirectory(prefix="driftline-ship-") as folder:
            ship_driftline(session, Path(folder))
    except OptionError:
        raise
    except Exception as error:
        raise masters.unreachable(target, _first_line(error)) from error
    return session


def begin_session(master: str | None = None) -> None:
    """Start the JVM of a classic session in the background; `open_session` uses it."""
    target = masters.chosen_master(master)
    if active_session() is None and not masters.is_connect(target):
        masters.check_master(target)
        _begin_jvm(target, checked_settings(spark_settings()))


def _begin_jvm(target: str, given: dict[str, str]) -> Jvm:
    return begin_jvm(given, _jvm_environment(target), lean=is_plain(target, given))


def _jvm_environment(target: str) -> dict[str, str]:
    environment = dict(SETTINGS["tasks"])
    if masters.is_local(target) or masters.is_loopback(target):
        # Local workers get the driftline of this process, also when it runs from a source tree.
        paths = [str(Path(driftline.__file__).parent.parent), os.environ.get("PYTHONPATH")]
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if needs_home(target):
        environment["SPARK_HOME"] = str(spark_home())
    return environment


def _classic(target: str, app_name: str, given: dict[str, str]) -> SparkSession:
    jvm = _begin_jvm(target, given)
    internals.silence_pandas_warnings()
    internals.silence_py4j()
    from pyspark import SparkConf, SparkContext  # while the JVM starts
    from pyspark.sql import SparkSession

    from driftline.spark._tasks import start_workers

    internals.spare_pandas()
    jvm.await_gateway()
    settings = SparkConf().setMaster(target).setAppName(app_name)
    settings.setAll(list(session_settings(target, given, jvm.scratch).items()))
    with internals.gateway_variables(jvm), internals.own_interrupt_handler():
        try:
            with masters.giving_up_on_silence(target, jvm):
                context = SparkContext.getOrCreate(settings)
                if masters.is_local(target):
                    start_workers(context)
                session: SparkSession = SparkSession.builder.config(conf=settings).getOrCreate()
        except Exception as error:
            reason = _first_line(error)  # the text of a Java error is read while the JVM runs
            end_running_jvm(keep_class_list=False)
            internals.drop_gateway()
            if isinstance(error, EngineError):
                raise
            raise EngineError(f"Spark did not start on {target}: {reason}", code="spark_failed") from error
    if not masters.is_local(target):
        masters.tell_of_missing_workers(target, jvm)
        ship_driftline(session, jvm.scratch)
    return session


def _stop(session: SparkSession, target: str) -> None:
    from driftline.spark._runtime import jvm

    if masters.is_local(target):
        # A local session is used by this process alone, and a graceful stop takes a second.
        internals.quieten_accumulators(session)
        end_running_jvm()
    if not masters.is_connect(target) and jvm._running is None:
        internals.drop_gateway()
        return
    session.stop()


def _first_line(error: BaseException) -> str:
    """The reason of an error; for one of Java the line after py4j's introduction."""
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return lines[1].rpartition("Exception: ")[2]
    return lines[0] if lines else type(error).__name__


@dataclass(frozen=True, slots=True)
class SessionCheck:
    """The versions that `check_session` found."""

    version: str
    worker_python: str


def check_session(master: str | None = None) -> SessionCheck:
    """Check that Spark and its Python workers run: send rows through them and count the result."""
    with open_session(master) as spark:
        frame = spark.range(_CHECKED_ROWS, numPartitions=2).mapInArrow(_name_python, "python string")
        rows = frame.groupBy("python").count().collect()
        if sum(row["count"] for row in rows) != _CHECKED_ROWS:
            raise EngineError("Spark lost rows of a small job", code="spark_failed")
        return SessionCheck(spark.version, rows[0]["python"])


def _name_python(batches: Iterator[Any]) -> Iterator[Any]:
    import sys

    import pyarrow as pa

    name = f"{sys.version_info.major}.{sys.version_info.minor}"
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([name] * batch.num_rows, pa.string())], names=["python"])


def run_table_diff(job: TableDiffJob, write: Write) -> Stats:
    """Diff on Spark; the JVM starts before Polars, Arrow and pyspark are imported."""
    begin_session(job.master)
    from driftline.spark._table_diff import run as run_on_spark

    return run_on_spark(job, write)


# Settings: what driftline's jobs need, the defaults, and what the user sets (configuration).


def checked_settings(given: Mapping[str, str | float]) -> dict[str, str]:
    """The user's settings; those that driftline must set itself are refused."""
    for name in given:
        if name in _OURS:
            remedy = "use --master" if name in ("spark.master", "spark.remote") else "leave it out"
            raise OptionError(f"{name} is set by driftline: {remedy}", code="invalid_spark_setting", setting=name)
    return {name: setting_text(value) for name, value in given.items()}


def needs_home(master: str) -> bool:
    """Whether the JVM needs SPARK_HOME: for clusters, a Python without pyspark, or settings there."""
    own_python = os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    return not (masters.is_local(master) and own_python) or (spark_home() / "conf").exists()


def is_plain(master: str, given: Mapping[str, str]) -> bool:
    """Whether the session is local and without settings of the user: then a part of the jars is enough."""
    said = [os.environ.get(name) for name in (*HADOOP_VARIABLES, "SPARK_CONF_DIR")]
    return not (needs_home(master) or given or any(said))


def session_settings(master: str, given: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """All settings of a classic session; the user's override the defaults."""
    usual = {
        **SETTINGS["usual"],
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if masters.is_local(master) or masters.is_loopback(master):
        usual |= SETTINGS["near"]
    if masters.is_local(master):
        usual |= SETTINGS["local"]
    settings = {**usual, **given, **SETTINGS["fixed"]}
    if not masters.is_local(master):  # executors of a cluster; the user's Java options come last and win
        settings |= {f"spark.executorEnv.{name}": value for name, value in SETTINGS["tasks"].items()}
        settings[_EXECUTOR_OPTIONS] = f"{_QUICK_JIT} {given.get(_EXECUTOR_OPTIONS, '')}".strip()
    return settings


# Shipping driftline to the workers of a cluster, as a zip.
# The packages that it needs (polars, pyarrow, …) contain native code and are not shipped this way: the workers' Python
# has them, or gets them as an archived environment (`spark.archives`).


def ship_to_tasks(session: SparkSession) -> None:
    """Ship driftline to the caller's own session, once; on this machine its interpreter must have it."""
    if session in _shipped:
        return
    if not is_connect_session(session) and masters.is_local(session.conf.get("spark.master") or ""):
        _check_interpreter(internals.worker_python(session))
    else:
        with tempfile.TemporaryDirectory(prefix="driftline-ship-") as folder:
            ship_driftline(session, Path(folder))
    _shipped.add(session)


def _check_interpreter(executable: str) -> None:
    """Refuse an interpreter of local workers without driftline: Spark takes python3 of the PATH, unless it is set."""
    if shutil.which(executable) == sys.executable:
        return
    try:
        subprocess.run([executable, "-c", "import driftline"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise EngineError(
            f"Spark's workers run {executable}, which has no driftline: set PYSPARK_PYTHON={sys.executable} before the "
            "session starts",
            code="worker_without_driftline",
        ) from error


def ship_driftline(session: SparkSession, folder: Path) -> None:
    """Make this driftline importable in the session's tasks."""
    session.addArtifacts(str(package_zip(folder)), pyfile=True)


def package_zip(folder: Path) -> Path:
    """The package as a zip whose name contains its hash, so that two versions never share a name."""
    root = Path(driftline.__file__).parent
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.suffix not in _LEFT_OUT)
    content = sha256_hex(b"".join(path.read_bytes() for path in files))[:12]
    target = folder / f"driftline-{content}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for path in files:
            name = path.relative_to(root.parent).as_posix()
            out.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return target

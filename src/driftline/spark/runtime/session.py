"""One function that gives a Spark session: local, on a cluster, or through Spark Connect.

    with open_session() as spark:
        spark.range(3).count()

A session that is already active in this process (a notebook, a test, an outer `open_session`) is used as it is and
left running.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import driftline
from driftline.errors import Cancelled, EngineError
from driftline.spark.runtime.jvm import Jvm, begin_jvm, end_running_jvm, running_jvm
from driftline.spark.runtime.masters import (
    check_master,
    chosen_master,
    giving_up_on_silence,
    is_connect,
    is_local,
    is_loopback,
    unreachable,
)
from driftline.spark.runtime.shipping import ship_driftline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BASE_CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Order comes from explicit range ids: partitions must stay as they were planned.
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.catalogImplementation": "in-memory",
}
# driftline's tasks exchange few rows with large blobs, in partitions that mean something.
_SQL_CONFIG = {
    "spark.sql.adaptive.enabled": "false",
    # Compiling code for a few rows takes longer than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_NEAR_CONFIG = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_LOCAL_CONFIG = {"spark.shuffle.compress": "false"}  # blobs are compact already, and no network is spared
_MEMORY = "1g"
_QUICK_JIT = "-XX:TieredStopAtLevel=1"  # executors only move blobs too
_TASK_ENVIRONMENT = {
    # One task, one thread: Spark already runs a task per core.
    "POLARS_MAX_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_DEFAULT_THREADS": "1",
    "PYTHONWARNINGS": "ignore::FutureWarning",
    # Tasks hash nothing by object identity; a fixed seed keeps any set order the same in every worker.
    "PYTHONHASHSEED": "0",
}


@contextmanager
def open_session(
    master: str | None = None,
    *,
    app_name: str = "driftline",
    memory: str = _MEMORY,
    config: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A Spark session for `master` (see `chosen_master`); `memory` is the heap of a local or driver JVM."""
    existing = active_session()
    if existing is not None:
        yield existing
        return
    target = chosen_master(master)
    check_master(target)
    settings = dict(config or {})
    session = (
        _connect(target, app_name, settings) if is_connect(target) else _classic(target, app_name, memory, settings)
    )
    global _opened
    _opened = session
    try:
        yield session
    except (KeyboardInterrupt, Cancelled, SystemExit):
        # Whoever cancels wants out now: the running tasks die with the JVM.
        if not is_connect(target):
            _quieten_accumulators(session)
            end_running_jvm(keep_class_list=False)
        raise
    finally:
        _opened = None
        _stop(session, target)


# The session that an outer `open_session` gave: Spark's own notion of an active session is that of one thread.
_opened: SparkSession | None = None


def active_session() -> SparkSession | None:
    """The session that is already active in this process, if any."""
    if _opened is not None:
        return _opened
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _connect(target: str, app_name: str, settings: dict[str, str]) -> SparkSession:
    _silence_pandas_warnings()
    from pyspark.sql import SparkSession

    try:
        session: SparkSession = SparkSession.builder.remote(target).appName(app_name).create()
        for key, value in {**_SQL_CONFIG, **settings}.items():
            session.conf.set(key, value)
        session.range(1).count()
        with tempfile.TemporaryDirectory(prefix="driftline-ship-") as folder:
            ship_driftline(session, Path(folder))
    except Exception as error:
        raise unreachable(target, _first_line(error)) from error
    return session


def begin_session(master: str | None = None, memory: str = _MEMORY) -> None:
    """Let the JVM of a classic session start while this process imports and plans; `open_session` finds it then."""
    target = chosen_master(master)
    if active_session() is None and not is_connect(target):
        check_master(target)
        begin_jvm(memory=memory, environment=_jvm_environment(target))


def _jvm_environment(target: str) -> dict[str, str]:
    if is_local(target) or is_loopback(target):
        return {**_TASK_ENVIRONMENT, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": _python_path_with_driftline()}
    return dict(_TASK_ENVIRONMENT)


def _classic(target: str, app_name: str, memory: str, settings: dict[str, str]) -> SparkSession:
    begin_jvm(memory=memory, environment=_jvm_environment(target))
    _silence_pandas_warnings()
    _silence_py4j()
    from pyspark.sql import SparkSession  # while the JVM starts

    jvm = running_jvm(memory=memory, environment=_jvm_environment(target))

    builder: SparkSession.Builder = SparkSession.builder
    near = _NEAR_CONFIG if is_local(target) or is_loopback(target) else {}
    if is_local(target):
        near = near | _LOCAL_CONFIG
    far = {} if is_local(target) else _executor_config(settings)
    for key, value in {**_BASE_CONFIG, **_SQL_CONFIG, **near, **settings, **far}.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.local.dir", str(jvm.scratch)).config(
        "spark.sql.warehouse.dir", str(jvm.scratch / "warehouse")
    )
    with _gateway_variables(jvm), _own_interrupt_handler():
        try:
            with giving_up_on_silence(target, jvm):
                session: SparkSession = builder.master(target).appName(app_name).getOrCreate()
        except Exception as error:
            reason = _first_line(error)  # a Java error is asked for its words while Java is there to answer
            end_running_jvm(keep_class_list=False)
            _forget_gateway()
            if isinstance(error, EngineError):
                raise
            raise EngineError(f"Spark did not start on {target}: {reason}", code="spark_failed") from error
    if not is_local(target):
        ship_driftline(session, jvm.scratch)
    return session


def _executor_config(settings: Mapping[str, str]) -> dict[str, str]:
    """What the executors of a cluster get; the user's own Java options come last and win."""
    options = "spark.executor.extraJavaOptions"
    environment = {f"spark.executorEnv.{name}": value for name, value in _TASK_ENVIRONMENT.items()}
    return {**environment, options: f"{_QUICK_JIT} {settings.get(options, '')}".strip()}


@contextmanager
def _gateway_variables(jvm: Jvm) -> Iterator[None]:
    """pyspark finds a running JVM, and the Python for its workers, through these variables."""
    wanted = {
        "PYSPARK_GATEWAY_PORT": str(jvm.port),
        "PYSPARK_GATEWAY_SECRET": jvm.secret,
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "SPARK_REMOTE": None,
    }
    saved = {name: os.environ.get(name) for name in wanted}
    _set_variables(wanted)
    try:
        yield
    finally:
        _set_variables(saved)


@contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    """Keep Ctrl-C as it was: pyspark's handler would talk to the JVM in the middle of another call."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _set_variables(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _stop(session: SparkSession, target: str) -> None:
    from driftline.spark.runtime import jvm

    if is_local(target):
        # Nobody else knows of a local session, and a graceful stop takes a second.
        _quieten_accumulators(session)
        end_running_jvm()
    if not is_connect(target) and jvm._running is None:
        _forget_gateway()
        return
    session.stop()


def _quieten_accumulators(session: SparkSession) -> None:
    """pyspark's server for accumulators would print a stack trace when the JVM is gone."""
    server: Any = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _forget_gateway() -> None:
    """After the JVM was killed: let pyspark start anew instead of talking to the dead."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _python_path_with_driftline() -> str:
    """Local workers see the driftline that runs here, also when it is used from a source tree."""
    source_root = str(Path(driftline.__file__).parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return f"{source_root}{os.pathsep}{inherited}" if inherited else source_root


def _silence_pandas_warnings() -> None:
    # pyspark warns about pandas 3, which driftline does not use.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\..*")


def _silence_py4j() -> None:
    # py4j logs a stack trace, on its own loggers and on the root one, when a call is interrupted or the JVM is gone.
    own = logging.getLogger("py4j")
    own.addHandler(logging.NullHandler())
    own.propagate = False
    root = logging.getLogger()
    if _is_not_from_py4j not in root.filters:
        root.addFilter(_is_not_from_py4j)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

"""One function that gives a Spark session: local, on a cluster, or through Spark Connect.

    with open_session() as spark:
        spark.range(3).count()

A session that is already active in this process (a notebook, a test, an outer `open_session`) is used as it is and
left running.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import driftline
from driftline.core._engines import spark_settings
from driftline.errors import Cancelled, EngineError, OptionError
from driftline.spark.runtime.jvm import Jvm, begin_jvm, end_running_jvm, spark_home
from driftline.spark.runtime.masters import (
    check_master,
    chosen_master,
    giving_up_on_silence,
    is_connect,
    is_local,
    is_loopback,
    tell_of_missing_workers,
    unreachable,
)
from driftline.spark.runtime.pyspark_internals import (
    forget_gateway,
    gateway_variables,
    own_interrupt_handler,
    quieten_accumulators,
    silence_pandas_warnings,
    silence_py4j,
    spare_pandas,
)
from driftline.spark.runtime.settings import (
    SQL_SETTINGS,
    TASK_ENVIRONMENT,
    checked_settings,
    is_plain,
    needs_home,
    session_settings,
)
from driftline.spark.runtime.shipping import ship_driftline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def open_session(
    master: str | None = None,
    *,
    app_name: str = "driftline",
    config: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A Spark session for `master` (see `chosen_master`), with the user's settings and over them those in `config`."""
    existing = active_session()
    if existing is not None:
        yield existing
        return
    target = chosen_master(master)
    check_master(target)
    given = checked_settings({**spark_settings(), **(config or {})})
    session = _connect(target, app_name, given) if is_connect(target) else _classic(target, app_name, given)
    global _opened
    _opened = session
    try:
        yield session
    except (KeyboardInterrupt, Cancelled, SystemExit):
        # Whoever cancels wants out now: the running tasks die with the JVM.
        if not is_connect(target):
            quieten_accumulators(session)
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


def _connect(target: str, app_name: str, given: dict[str, str]) -> SparkSession:
    silence_pandas_warnings()
    from pyspark.sql import SparkSession

    try:
        session: SparkSession = SparkSession.builder.remote(target).appName(app_name).create()
        for key, value in {**SQL_SETTINGS, **given}.items():
            if not session.conf.isModifiable(key):
                raise OptionError(f"{key} is a setting of the server at {target}: set it there", code="server_setting")
            session.conf.set(key, value)
        session.range(1).count()
        with tempfile.TemporaryDirectory(prefix="driftline-ship-") as folder:
            ship_driftline(session, Path(folder))
    except OptionError:
        raise
    except Exception as error:
        raise unreachable(target, _first_line(error)) from error
    return session


def begin_session(master: str | None = None) -> None:
    """Let the JVM of a classic session start while this process imports and plans; `open_session` finds it then."""
    target = chosen_master(master)
    if active_session() is None and not is_connect(target):
        check_master(target)
        _begin_jvm(target, checked_settings(spark_settings()))


def _begin_jvm(target: str, given: dict[str, str]) -> Jvm:
    return begin_jvm(given, _jvm_environment(target), lean=is_plain(target, given))


def _jvm_environment(target: str) -> dict[str, str]:
    environment = dict(TASK_ENVIRONMENT)
    if is_local(target) or is_loopback(target):
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": _python_path_with_driftline()}
    if needs_home(target):
        environment["SPARK_HOME"] = str(spark_home())
    return environment


def _classic(target: str, app_name: str, given: dict[str, str]) -> SparkSession:
    jvm = _begin_jvm(target, given)
    silence_pandas_warnings()
    silence_py4j()
    from pyspark import SparkConf, SparkContext  # while the JVM starts
    from pyspark.sql import SparkSession

    from driftline.spark.runtime.workers import start_workers

    spare_pandas()
    jvm.await_gateway()
    settings = SparkConf().setMaster(target).setAppName(app_name)
    settings.setAll(list(session_settings(target, given, jvm.scratch).items()))
    with gateway_variables(jvm), own_interrupt_handler():
        try:
            with giving_up_on_silence(target, jvm):
                context = SparkContext.getOrCreate(settings)
                if is_local(target):
                    start_workers(context)
                session: SparkSession = SparkSession.builder.config(conf=settings).getOrCreate()
        except Exception as error:
            reason = _first_line(error)  # a Java error is asked for its words while Java is there to answer
            end_running_jvm(keep_class_list=False)
            forget_gateway()
            if isinstance(error, EngineError):
                raise
            raise EngineError(f"Spark did not start on {target}: {reason}", code="spark_failed") from error
    if not is_local(target):
        tell_of_missing_workers(target, jvm)
        ship_driftline(session, jvm.scratch)
    return session


def _stop(session: SparkSession, target: str) -> None:
    from driftline.spark.runtime import jvm

    if is_local(target):
        # Nobody else knows of a local session, and a graceful stop takes a second.
        quieten_accumulators(session)
        end_running_jvm()
    if not is_connect(target) and jvm._running is None:
        forget_gateway()
        return
    session.stop()


def _python_path_with_driftline() -> str:
    """Local workers see the driftline that runs here, also when it is used from a source tree."""
    source_root = str(Path(driftline.__file__).parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return f"{source_root}{os.pathsep}{inherited}" if inherited else source_root


def _first_line(error: BaseException) -> str:
    """What is wrong, in the words of Java where it was Java: py4j puts a line without news before them."""
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return lines[1].rpartition("Exception: ")[2]
    return lines[0] if lines else type(error).__name__

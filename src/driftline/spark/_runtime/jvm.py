"""The JVM behind a classic Spark session, started directly and ended with this process.

Starting `java` directly skips the launcher script and the launcher JVM, and works with Java runtimes that lack the
incubator modules which the launcher requires.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from driftline.core import process_runs
from driftline.errors import EngineError
from driftline.spark._runtime.java import ClassArchive, Java, archive_for, find_java

_SCRATCH_PREFIX = "driftline-spark-"
_START_TIMEOUT_SECONDS = 120
_STOP_TIMEOUT_SECONDS = 5
_OPENED_PACKAGES = (
    "java.io",
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
# The JVM moves blobs, which quickly compiled code does as well: the full compiler only takes the tasks' cores.
_JIT_OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
# What Spark's launcher would take from the settings, because it must be known before the JVM runs.
_DRIVER_MEMORY, _USUAL_MEMORY = "spark.driver.memory", "1g"
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_DRIVER_CLASS_PATH = "spark.driver.extraClassPath"
HADOOP_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
# Jars for catalogs, clusters and machine learning. Java and its logging look into every jar on the path as they start,
# and MLlib registers functions with each session, which takes a third of the time in which a session opens.
_LEFT_OUT = (
    *("spark-mllib", "spark-graphx", "spark-connect", "connect-repl", "spark-repl", "spark-pipelines", "spark-hive"),
    *("spark-kubernetes", "spark-yarn", "kubernetes-", "volcano-", "vertx-", "zjsonpatch", "hive-", "datanucleus-"),
    *("derby", "breeze", "spire", "cats-kernel", "algebra", "arpack", "lapack", "blas", "JTransforms", "JLargeArrays"),
    *("scala-compiler", "jline", "jersey-", "hk2-", "jaxb-", "HikariCP", "libthrift", "libfb303", "rocksdbjni"),
)
_QUIET_LOG = """\
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
logger.client.name = org.apache.spark.deploy.client.StandaloneAppClient$ClientEndpoint
logger.client.level = info
logger.standalone.name = org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend
logger.standalone.level = info
logger.scheduler.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.scheduler.level = warn
"""


class Jvm:
    """A gateway JVM with its temporary directory, from the start of its process."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        scratch: Path,
        java: Java,
        archive: ClassArchive | None,
        jars: str,
        connection: Path,
    ) -> None:
        self.process = process
        self.scratch = scratch
        self.java = java
        self._archive = archive
        self._jars = jars
        self._connection = connection
        self.port, self.secret = 0, ""

    def await_gateway(self) -> None:
        """Wait until the JVM has written where it listens."""
        if self.port:
            return
        try:
            self.port, self.secret = _await_connection(self.process, self._connection, self.scratch)
        except BaseException:
            self.end(keep_class_list=False)
            raise

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def log_text(self) -> str:
        """What Spark has written into its log so far."""
        try:
            return (self.scratch / "spark.log").read_text(errors="replace")
        except OSError:
            return ""

    def end(self, *, keep_class_list: bool) -> None:
        """End the JVM at once, with its Python workers, and remove the scratch directory."""
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP_TIMEOUT_SECONDS)
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        if keep_class_list and self._archive is not None:
            with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to fail
                self._archive.build_in_background(self.java, self._jars, self.scratch)
        shutil.rmtree(self.scratch, ignore_errors=True)


def launch_jvm(settings: Mapping[str, str], environment: Mapping[str, str], *, lean: bool) -> Jvm:
    """Start a JVM for a PySpark driver, without waiting for it."""
    remove_abandoned_scratch()
    java = find_java()
    jars = class_path(lean=lean)
    archive = archive_for(java, jars)
    scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH_PREFIX}{os.getpid()}-"))
    connection = scratch / f"connection-{secrets.token_hex(4)}"
    # The log file also takes what the JVM and the Python workers write to stderr.
    with open(scratch / "spark.log", "ab") as log:
        process = subprocess.Popen(
            _command(java, settings, jars, archive, scratch),
            stdin=subprocess.PIPE,  # the JVM ends when this pipe closes, however this process dies
            stdout=log,
            stderr=log,
            env=_gateway_environment(environment, connection),
            start_new_session=True,  # Ctrl-C on the terminal is ours to handle
        )
    return Jvm(process, scratch, java, archive, jars, connection)


def spark_home() -> Path:
    """The folder of the pip-installed pyspark, with its jars and scripts."""
    import pyspark

    return Path(pyspark.__file__).parent


def class_path(*, lean: bool = False) -> str:
    """The jars of the pip-installed pyspark, in a fixed order (a class archive depends on it).

    All of them, or only those that driftline's own jobs on this machine can need.
    """
    jars = sorted(str(jar) for jar in (spark_home() / "jars").glob("*.jar"))
    return os.pathsep.join(jar for jar in jars if not (lean and os.path.basename(jar).startswith(_LEFT_OUT)))


def _listed(paths: str | None) -> list[str]:
    return paths.split(os.pathsep) if paths else []


def _hadoop_folders() -> list[str]:
    return [os.environ[name] for name in HADOOP_VARIABLES if os.environ.get(name)]


def remove_abandoned_scratch() -> None:
    """Remove scratch directories whose owners were killed."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_SCRATCH_PREFIX}*-*"):
        owner = directory.name.removeprefix(_SCRATCH_PREFIX).partition("-")[0]
        if owner.isdigit() and not process_runs(int(owner)):
            shutil.rmtree(directory, ignore_errors=True)


def _command(
    java: Java, settings: Mapping[str, str], jars: str, archive: ClassArchive | None, scratch: Path
) -> list[str]:
    log_config = scratch / "log4j2.properties"
    log_config.write_text(_QUIET_LOG.format(level=_log_level(), path=scratch / "spark.log"))
    return [
        str(java.executable),
        "-cp",
        # Settings of a Hadoop cluster come last: in front of the jars they would invalidate the class archive.
        os.pathsep.join([jars, *_hadoop_folders(), *_listed(settings.get(_DRIVER_CLASS_PATH))]),
        f"-Xmx{settings.get(_DRIVER_MEMORY, _USUAL_MEMORY)}",
        f"-Dlog4j2.configurationFile=file:{log_config}",
        f"-Djava.io.tmpdir={scratch}",
        "-Djdk.reflect.useDirectMethodHandle=false",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
        *_JIT_OPTIONS,
        *(archive.options(scratch) if archive else ()),
        *shlex.split(settings.get(_DRIVER_OPTIONS, "")),
        "org.apache.spark.deploy.SparkSubmit",
        # Before `pyspark-shell`: packages and jars are fetched while the command is read, and never later.
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        "pyspark-shell",
    ]


def _log_level() -> str:
    return os.environ.get("DRIFTLINE_SPARK_LOG", "error")


def _gateway_environment(chosen: Mapping[str, str], connection: Path) -> dict[str, str]:
    # With a home of Spark (`session.needs_home`) workers import pyspark from a zip without bytecode (0.7 s each time).
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    own = {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection), "SPARK_CONNECT_MODE": "0"}
    return {**inherited, **chosen, **own}


def _await_connection(process: subprocess.Popen[bytes], connection: Path, scratch: Path) -> tuple[int, str]:
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while True:
        answer = _read_connection(connection)
        if answer is not None:
            return answer
        if process.poll() is not None:
            raise EngineError(f"Java did not start: {_last_words(scratch)}", code="java_failed")
        if time.monotonic() > deadline:
            raise EngineError(f"Java did not answer within {_START_TIMEOUT_SECONDS} s", code="java_failed")
        time.sleep(0.005)


def _read_connection(connection: Path) -> tuple[int, str] | None:
    """Port and secret, once the JVM has written the whole file: two big-endian integers and the secret."""
    try:
        data = connection.read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < 8:
        return None
    port, length = struct.unpack_from("!ii", data)
    secret = data[8 : 8 + length]
    return (port, secret.decode()) if len(secret) == length else None


def _last_words(scratch: Path) -> str:
    lines = (scratch / "spark.log").read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it ended without a word (see {signal.Signals.SIGKILL.name} or memory limits)"


_running: Jvm | None = None


def begin_jvm(settings: Mapping[str, str], environment: Mapping[str, str], *, lean: bool = False) -> Jvm:
    """The one JVM of this process, started at the first use and ended at exit; it may still be starting."""
    global _running
    if _running is None or not _running.alive:
        _running = launch_jvm(settings, environment, lean=lean)
        atexit.register(end_running_jvm)
    return _running


def end_running_jvm(*, keep_class_list: bool = True) -> None:
    """End this process's JVM, if there is one."""
    global _running
    if _running is not None:
        _running.end(keep_class_list=keep_class_list)
        _running = None

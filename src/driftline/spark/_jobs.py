"""Spark actions with progress and cancellation, the ordered parts that their tasks write, and storage that all see.

An action runs in a dedicated thread under a tag, so that it can be interrupted alone; this works on classic sessions
and through Spark Connect.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import xxhash

from driftline import core
from driftline.errors import DriftlineError, EngineError, StorageError
from driftline.spark._runtime.masters import is_local
from driftline.spark._runtime.pyspark_internals import cancel_jobs, tag_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler

Result = TypeVar("Result")
Write = Callable[[bytes | memoryview], object]

_POLL_SECONDS = 0.1
_COPY_BYTES = 4 << 20


def is_connect_session(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def watched(spark: SparkSession, tracker: core.Tracker, name: str, tasks: int, action: Callable[[], Result]) -> Result:
    """The result of `action`, reported as a phase of about so many tasks; `EngineError` where Spark fails."""
    tag = f"driftline-{secrets.token_hex(6)}"
    outcome: Future[Result] = Future()

    def work() -> None:
        try:
            tag_jobs(spark, tag)
            outcome.set_result(action())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            outcome.set_exception(error)

    threading.Thread(target=work, daemon=True, name=tag).start()
    with tracker.phase(name, total=tasks, unit="items"), _task_counter(spark) as count_finished:
        reported = 0
        try:
            while not wait([outcome], _POLL_SECONDS).done:
                finished = max(reported, count_finished())
                tracker.advance(finished - reported)
                reported = finished
        except BaseException:
            with contextlib.suppress(Exception):
                cancel_jobs(spark, tag)
            raise
    error = outcome.exception()
    if error is not None and not isinstance(error, DriftlineError):
        raise explain_spark_error(error) from error
    return outcome.result()


def explain_spark_error(error: BaseException) -> EngineError:
    """The driftline error for an exception of Spark."""
    text = str(error)
    if "No module named 'driftline" in text:
        return EngineError(
            "driftline is not installed for Spark's workers: install the same version there, or ship it as an "
            "archived environment (spark.archives)",
            code="driftline_missing_on_workers",
        )
    return EngineError(f"Spark failed: {_cause_line(text) or type(error).__name__}", code="spark_failed")


def _cause_line(text: str) -> str:
    """The last line of a Python traceback inside the text, else its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    errors = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and ": " in line]
    causes = [line for line in errors if line.startswith("Caused by: ")]
    return (causes[-1:] or errors[:1] or lines)[0]


@contextmanager
def _task_counter(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """A function that counts the tasks which have finished since now."""
    if is_connect_session(spark):
        finished = [0]

        def note(stages: Any, **_: Any) -> None:
            finished[0] = sum(stage.num_completed_tasks for stage in stages or ())

        handler = cast("ProgressHandler", note)
        spark.registerProgressHandler(handler)
        try:
            yield lambda: finished[0]
        finally:
            spark.removeProgressHandler(handler)
    else:
        yield _classic_counter(spark)


def _classic_counter(spark: SparkSession) -> Callable[[], int]:
    tracker = spark.sparkContext.statusTracker()
    stages: dict[int, int] = {}
    others = set(tracker.getActiveStageIds())  # such as the start of workers

    def count() -> int:
        for stage in {*stages, *tracker.getActiveStageIds()} - others:
            info = tracker.getStageInfo(stage)
            if info is not None:
                stages[stage] = info.numCompletedTasks
        return sum(stages.values())

    return count


# Ordered output. A task that Spark runs twice writes two files; only the one whose name reaches the driver counts.


@dataclass(frozen=True, slots=True)
class OrderedPart:
    """A finished part of the output; parts are ordered by (`range`, `start`)."""

    range: int
    path: str
    start: int
    size: int
    checksum: str = ""

    def in_folder(self) -> core.Part:
        """The part as a manifest names it."""
        return core.Part(self.path.rpartition("/")[2], self.size, self.checksum)


def write_part(folder: core.Location, range_number: int, pieces: Iterable[bytes | memoryview]) -> OrderedPart:
    """Write one range of the output into a new file of a folder that the driver sees too."""
    if isinstance(folder, core.ObjectPath):
        part = core.write_part(folder, range_number, pieces)
        return OrderedPart(range_number, f"{folder}/{part.name}", 0, part.size, part.checksum)
    path = folder / f"part-{range_number:06d}-{secrets.token_hex(8)}.jsonl"
    digest, size = xxhash.xxh3_128(), 0
    with core.io_errors(path), open(path, "xb", buffering=0) as out:
        for piece in pieces:
            digest.update(piece)
            size += core.write_all(out, piece)
    return OrderedPart(range_number, str(path), 0, size, f"xxh128:{digest.hexdigest()}")


def in_order(parts: Iterable[OrderedPart]) -> list[OrderedPart]:
    """The parts in the order of the output."""
    return sorted(parts, key=lambda one: (one.range, one.start))


def join_parts(parts: Iterable[OrderedPart], write: Write) -> None:
    """Stream the parts into one output, in order."""
    for part in in_order(parts):
        with core.io_errors(part.path), core.open_to_read(part.path) as stream:
            stream.seek(part.start)
            left = part.size
            while left:
                data = stream.read(min(left, _COPY_BYTES))
                if not data:
                    raise StorageError(f"a part of the output vanished or was cut short: {part.path}", code="part_lost")
                write(data)
                left -= len(data)


def is_in(part: OrderedPart, folder: core.Location) -> bool:
    """Whether a task wrote the part into this folder, and did not send it to the driver."""
    return part.path.rpartition("/")[0] == str(folder) and Path(part.path).name.startswith("part-")


# Storage that the driver and all tasks of a session see (storage §5).


@contextmanager
def scratch_place(spark: SparkSession) -> Iterator[core.Location | None]:
    """A temporary folder of this job: on one machine, on a shared disk, or in a store; None if there is none."""
    given = core.location(core.shared_folder() or "")
    if isinstance(given, core.ObjectPath):
        place = given / f"driftline-{secrets.token_hex(8)}"
        try:
            yield place
        finally:
            core.remove(place)
    elif core.shared_folder() or (not is_connect_session(spark) and is_local(spark.conf.get("spark.master") or "")):
        with core.Workspace(core.shared_folder()) as workspace:
            yield workspace.folder
    else:
        yield None


def shared_folder_needed(reason: str) -> EngineError:
    """The error for a job that needs storage which all machines see."""
    return EngineError(
        f"{reason}: name a folder or an address (s3://…) that this machine and all workers share in "
        f"{core.SHARED_FOLDER_VARIABLE}",
        code="shared_folder_needed",
    )

"""Run a Spark action while somebody watches: progress by finished tasks, and the wish to stop.

The action runs in a thread of its own under a tag, so that it can be interrupted alone; this works on classic
sessions and through Spark Connect.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from driftline.core._progress import Tracker
from driftline.errors import DriftlineError, EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import ProgressHandler

Result = TypeVar("Result")

_LOOK_SECONDS = 0.1


def is_connect_session(spark: SparkSession) -> bool:
    """Whether the session talks to a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def watched(spark: SparkSession, tracker: Tracker, name: str, tasks: int, action: Callable[[], Result]) -> Result:
    """The result of `action`, told as a phase of about so many tasks; raises `EngineError` where Spark fails."""
    tag = f"driftline-{secrets.token_hex(6)}"
    running = _Running(spark, tag, action)
    with tracker.phase(name, total=tasks, unit="items"), _task_counter(spark) as count_finished:
        try:
            _report_until_done(running, tracker, count_finished)
        except BaseException:
            with contextlib.suppress(Exception):
                spark.interruptTag(tag)
            raise
        return running.result()


def _report_until_done(running: _Running[Any], tracker: Tracker, count_finished: Callable[[], int]) -> None:
    told = 0
    while not running.done.wait(_LOOK_SECONDS):
        finished = count_finished()
        tracker.advance(max(0, finished - told))
        told = max(told, finished)


class _Running(Generic[Result]):
    """An action under way in a thread."""

    def __init__(self, spark: SparkSession, tag: str, action: Callable[[], Result]) -> None:
        self.done = threading.Event()
        self._spark, self._tag, self._action = spark, tag, action
        self._results: list[Result] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._work, daemon=True, name=tag).start()

    def _work(self) -> None:
        try:
            self._spark.addTag(self._tag)
            self._results.append(self._action())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._error = error
        finally:
            self.done.set()

    def result(self) -> Result:
        """What the action returned, or its error in driftline's words."""
        if self._error is None:
            return self._results[0]
        if isinstance(self._error, DriftlineError):
            raise self._error
        raise explain_spark_error(self._error) from self._error


def explain_spark_error(error: BaseException) -> EngineError:
    """One clear line for what Spark raised."""
    text = str(error)
    if "No module named 'driftline" in text:
        return EngineError(
            "driftline is not installed for Spark's workers: install the same version there, or ship it as an "
            "archived environment (spark.archives)",
            code="driftline_missing_on_workers",
        )
    return EngineError(f"Spark failed: {_telling_line(text) or type(error).__name__}", code="spark_failed")


def _telling_line(text: str) -> str:
    """The last line of a Python traceback inside the text, else its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    errors = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and ": " in line]
    causes = [line for line in errors if line.startswith("Caused by: ")]
    return (causes[-1:] or errors[:1] or lines)[0]


@contextmanager
def _task_counter(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """A function that says how many tasks have finished since now."""
    if is_connect_session(spark):
        with _connect_counter(spark) as count:
            yield count
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


@contextmanager
def _connect_counter(spark: SparkSession) -> Iterator[Callable[[], int]]:
    finished = [0]

    def count(stages: Any, **_: Any) -> None:
        finished[0] = sum(stage.num_completed_tasks for stage in stages or ())

    note = cast("ProgressHandler", count)

    spark.registerProgressHandler(note)
    try:
        yield lambda: finished[0]
    finally:
        spark.removeProgressHandler(note)

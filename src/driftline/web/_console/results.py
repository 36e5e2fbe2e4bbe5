"""Jobs that pages start, and comparisons: one folder of results each, below the hidden folder."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from driftline.core import Progress, Tracker, WorkerContext, atomic_write, missing_extra, write_atomically
from driftline.errors import DriftlineError, InputError
from driftline.tables import Stats, TableDiffJob, Write, check_options, find_engine
from driftline.web._console.event_file import EventFile, Selection
from driftline.web._console.folder import Folder

# Jobs run in threads, with progress and cancellation.
_MOST_RUNNING = 2
_MOST_KEPT = 200
_MOST_OPEN = 8  # event files whose index is kept in memory
LARGE_BYTES = 16 << 20  # of both sides
_MEMORY = 256 << 20  # of a comparison
_ID = re.compile(r"[0-9a-z]{8,40}")
_RECORD = "meta.json"
_converting = threading.Lock()
Record = TypeVar("Record")
Outcome = TypeVar("Outcome")


@dataclass(eq=False)
class Job:
    """Work under way; when it is done, `address` is the page to look at."""

    id: str
    title: str
    address: str = "/"
    comparison: Comparison | None = None  # what the start page is filled in with after an error
    progress: Progress | None = None
    error: DriftlineError | None = None
    done: bool = False

    def __post_init__(self) -> None:
        self.tracker = Tracker(partial(setattr, self, "progress"))


Work = Callable[[Job], str]  # does it, and says which page shows the outcome


class Jobs:
    """Starts jobs and finds them by id; safe to use from threads."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(_MOST_RUNNING)

    def start(self, title: str, work: Work) -> Job:
        job = Job(f"{int(time.time()):x}{secrets.token_hex(6)}", title)
        with self._lock:
            self._jobs[job.id] = job
            while len(self._jobs) > _MOST_KEPT and next(iter(self._jobs.values())).done:
                self._jobs.popitem(last=False)
        threading.Thread(target=self._run, args=(job, work), daemon=True, name=f"job-{job.id}").start()
        return job

    def get(self, job_id: str) -> Job:
        try:
            return self._jobs[job_id]
        except KeyError:
            raise InputError("there is no such work under way", code="not_found") from None

    def _run(self, job: Job, work: Work) -> None:
        try:
            with self._slot(job):
                job.address = work(job)
        except DriftlineError as error:
            job.error = error
        except Exception as error:  # noqa: BLE001 - the page says it; the server goes on
            missing = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
            job.error = missing or DriftlineError(
                f"{type(error).__name__}: {error} (a fault of driftline)", code="internal"
            )
        finally:
            job.done = True

    @contextmanager
    def _slot(self, job: Job) -> Iterator[None]:
        """Wait for a turn; who waits can be cancelled too."""
        while not self._slots.acquire(timeout=0.1):
            job.tracker.check()
        try:
            job.tracker.check()
            yield
        finally:
            self._slots.release()


# What a finished job leaves behind: a folder named by its id, with a record beside the output.
def keep(folder: Path, record: Any, name: str = _RECORD) -> None:
    data = json.dumps(asdict(record), ensure_ascii=False)
    write_atomically(folder / name, data.encode("utf-8", "surrogatepass"))


def read_record(path: Path, kind: type[Record]) -> Record | None:
    """A record, or None where there is none that can be read."""
    try:
        with _converting:  # msgspec crashes where two threads meet a type for the first time
            return msgspec.convert(json.loads(path.read_bytes()), kind)
    except (OSError, ValueError, RecursionError, msgspec.ValidationError):
        return None


def stored(folder: Path, job_id: str, kind: type[Record]) -> Record | None:
    """The record of the job of that id."""
    return read_record(folder / job_id / _RECORD, kind) if _ID.fullmatch(job_id) else None


def newest(folder: Path, kind: type[Record], most: int = 20) -> list[Record]:
    names = sorted((path.name for path in folder.iterdir()), reverse=True) if folder.is_dir() else []
    found = (stored(folder, name, kind) for name in names)
    return list(islice((record for record in found if record is not None), most))  # others are half made, or not ours


def time_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Comparison:
    """What is compared: names below the folder and the options of the diff."""

    a: str
    b: str
    options: dict[str, Any] = field(default_factory=dict)
    chosen_key: bool = False  # by the console, because the user named none; without a key it found none

    @property
    def title(self) -> str:
        return f"{self.a} → {self.b}"

    @property
    def key(self) -> list[str]:
        return list(self.options.get("key", []))


@dataclass(frozen=True)
class Result:
    """A finished comparison, from its `meta.json`."""

    id: str
    comparison: Comparison
    when: str
    seconds: float
    engine: str
    stats: dict[str, Any]
    profile: dict[str, Any] = field(default_factory=dict)  # the kinds of change
    compared: list[str] | None = None  # columns, by the names of the first table; a result of before lacks them


class Results:
    """Starts comparisons, keeps their results and opens them; safe to use from threads."""

    def __init__(self, folder: Folder, jobs: Jobs) -> None:
        self.folder = folder
        self.stored = folder.hidden / "results"
        self._jobs = jobs
        self._open: OrderedDict[Path, EventFile] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, comparison: Comparison) -> Job:
        for name in (comparison.a, comparison.b):
            self.folder.table_address(name)
        job = self._jobs.start(comparison.title, lambda job: self._compare(job, comparison))
        job.comparison = comparison
        return job

    def _compare(self, job: Job, requested: Comparison) -> str:
        began = time.monotonic()
        sides = [self.folder.table_address(name) for name in (requested.a, requested.b)]
        size = sum(map(self.folder.table_size, (requested.a, requested.b)))
        folder = self.stored / job.id
        folder.mkdir(parents=True)
        events = folder / "events.jsonl"
        try:
            found = run_apart(size, job, _write_diff, sides, requested.options, events)
            keep(folder, Result(job.id, requested, time_now(), round(time.monotonic() - began, 3), "local", *found))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.open(events)  # begins to make the index that filters and pages need
        return f"/results/{job.id}"

    def get(self, result_id: str) -> Result:
        found = stored(self.stored, result_id, Result)
        if found is None:
            raise InputError("there is no such result here", code="not_found")
        return found

    def events(self, result_id: str) -> EventFile:
        self.get(result_id)
        return self.open(self.stored / result_id / "events.jsonl")

    def open(self, path: Path) -> EventFile:
        """An events file with its index; opened anew when the file was replaced."""
        with self._lock:
            known = self._open.pop(path, None)
            if known is None or not known.is_current:
                try:
                    known = EventFile(path)
                except OSError as error:
                    raise InputError(f"{path.name} cannot be read: {error.strerror}", code="not_readable") from error
            self._open[path] = known
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
            return known


def _write_diff(tracker: Tracker, sides: list[str], options: dict[str, Any], events: Path) -> tuple[Any, Any, Any]:
    """Write the events of a diff with their index; the counts, the kinds of change, and the compared columns."""
    with atomic_write(events) as out:
        stats = run_diff(tracker, sides, options, out.write, profile=True)
    EventFile(events).select(Selection())
    assert stats.profile is not None, "it is asked for"
    return stats.to_event(), stats.profile.to_dict(), list(stats.columns)


def run_diff(tracker: Tracker, sides: list[str], options: dict[str, Any], write: Write, *, profile: bool) -> Stats:
    job = TableDiffJob(sides[0], sides[1], check_options(**options), memory=_MEMORY, tracker=tracker, profile=profile)
    return find_engine("local")(job, write)


def run_apart(size: int, job: Job, work: Callable[..., Outcome], *given: Any) -> Outcome:
    """Work on data of that size: if that is large, in a process of its own, whose memory goes with it.

    Its progress is reported here. Cancelling requests the process to stop, which cleans up like a thread.
    """
    if size <= LARGE_BYTES:
        return work(job.tracker, *given)
    context = WorkerContext()
    receiver, sender = context.Pipe(duplex=False)
    worker = context.Process(target=_work, args=(sender, work, *given), daemon=True)
    worker.start()
    sender.close()
    try:
        while not isinstance(message := receiver.recv() if receiver.poll(0.1) else None, tuple):
            job.progress = message or job.progress
            job.tracker.check()
    except EOFError:
        words = "the process that did this work was ended, perhaps because there was too little memory"
        raise DriftlineError(words, code="worker_ended") from None
    finally:
        worker.terminate()
        worker.join()
    outcome, error = message
    if error is not None:
        raise error
    return cast(Outcome, outcome)


def _work(sender: Connection, work: Callable[..., object], *given: object) -> None:
    tracker = Tracker(sender.send)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: tracker.cancel())
    try:
        sender.send((work(tracker, *given), None))
    except Exception as error:  # noqa: BLE001 - raised again where the work was ordered
        sender.send((None, error))

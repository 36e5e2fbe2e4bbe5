"""Work that was started from a page: in a thread, with progress and the wish to stop."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from driftline.core._extras import explain
from driftline.core._progress import Progress, Tracker
from driftline.errors import DriftlineError, InputError

_MOST_RUNNING = 2
_MOST_KEPT = 200


class Job:
    """Work under way; when it is done, `address` is the page to look at."""

    def __init__(self, job_id: str, title: str) -> None:
        self.id = job_id
        self.title = title
        self.address = "/"
        self.progress: Progress | None = None
        self.error: DriftlineError | None = None
        self.done = False
        self.tracker = Tracker(self._note)

    def _note(self, progress: Progress) -> None:
        self.progress = progress


Work = Callable[[Job], str]  # does it, and says which page shows the outcome


class Jobs:
    """Starts work and knows it by id; safe to use from threads."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(_MOST_RUNNING)

    def start(self, title: str, work: Work) -> Job:
        """Begin in a thread of its own."""
        job = Job(f"{int(time.time()):x}{secrets.token_hex(6)}", title)
        with self._lock:
            self._jobs[job.id] = job
            while len(self._jobs) > _MOST_KEPT and next(iter(self._jobs.values())).done:
                self._jobs.popitem(last=False)
        threading.Thread(target=self._run, args=(job, work), daemon=True, name=f"job-{job.id}").start()
        return job

    def get(self, job_id: str) -> Job:
        """The job of that id."""
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
            missing = explain(error) if isinstance(error, ModuleNotFoundError) else None
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

"""Comparisons that were started from the console: one folder each, kept below the hidden folder of the workspace."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import threading
import time
from collections import OrderedDict
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftline.errors import DriftlineError, InputError
from driftline.files import atomic_write
from driftline.progress import Progress, Tracker
from driftline.web.console.event_file import EventFile
from driftline.web.console.workspace import Workspace

_ID = re.compile(r"[0-9a-z]{8,40}")
_MOST_OPEN = 8  # event files whose index is kept in memory
_MOST_RUNNING = 2


@dataclass(frozen=True)
class Comparison:
    """What is compared: names below the folder and the options of the diff."""

    a: str
    b: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> list[str]:
        """The key columns, if any."""
        return list(self.options.get("key", []))


@dataclass(frozen=True)
class Result:
    """A finished comparison, as its `meta.json` tells it."""

    id: str
    comparison: Comparison
    when: str
    seconds: float
    engine: str
    stats: dict[str, Any]


class Job:
    """A comparison under way."""

    def __init__(self, job_id: str, comparison: Comparison) -> None:
        self.id = job_id
        self.comparison = comparison
        self.progress: Progress | None = None
        self.error: DriftlineError | None = None
        self.done = False
        self.started = time.monotonic()
        self.tracker = Tracker(self._note)

    def _note(self, progress: Progress) -> None:
        self.progress = progress


class Results:
    """Starts comparisons, keeps their results and opens them; safe to use from threads."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.folder = workspace.hidden / "results"
        self._jobs: dict[str, Job] = {}
        self._open: OrderedDict[Path, EventFile] = OrderedDict()
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(_MOST_RUNNING)

    # --- running -----------------------------------------------------------------------------------------------------

    def start(self, comparison: Comparison) -> Job:
        """Begin a comparison in a thread; its job."""
        for name in (comparison.a, comparison.b):
            self.workspace.table_address(name)
        job = Job(f"{int(time.time()):x}{secrets.token_hex(6)}", comparison)
        with self._lock:
            self._jobs[job.id] = job
        threading.Thread(target=self._run, args=(job,), daemon=True, name=f"compare-{job.id}").start()
        return job

    def job(self, job_id: str) -> Job:
        """The job of that id."""
        try:
            return self._jobs[job_id]
        except KeyError:
            raise InputError("there is no such comparison under way", code="not_found") from None

    def _run(self, job: Job) -> None:
        with self._slots:
            try:
                self._compare(job)
            except DriftlineError as error:
                job.error = error
            except Exception as error:  # noqa: BLE001 - the page says it; the server goes on
                job.error = DriftlineError(f"{type(error).__name__}: {error} (a fault of driftline)", code="internal")
            finally:
                job.done = True

    def _compare(self, job: Job) -> None:
        from driftline.tables.api import diff

        wanted = job.comparison
        began = time.monotonic()
        sides = [self.workspace.table_address(name) for name in (wanted.a, wanted.b)]
        folder = self.folder / job.id
        folder.mkdir(parents=True)
        try:
            result = diff(sides[0], sides[1], tracker=job.tracker, **wanted.options)
            result.write(folder / "events.jsonl")
            seconds = round(time.monotonic() - began, 3)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            kept = Result(job.id, wanted, now, seconds, "local", dict(result.stats))
            with atomic_write(folder / "meta.json") as out:
                out.write(json.dumps(asdict(kept), ensure_ascii=False).encode())
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    # --- looking -----------------------------------------------------------------------------------------------------

    def recent(self, most: int = 20) -> list[Result]:
        """The newest results, newest first."""
        try:
            names = sorted((path.name for path in self.folder.iterdir()), reverse=True)
        except OSError:
            return []
        found = []
        for name in names:
            try:
                found.append(self.get(name))
            except InputError:
                continue  # half made, or not ours
            if len(found) == most:
                break
        return found

    def get(self, result_id: str) -> Result:
        """A result by its id."""
        missing = InputError("there is no such result here", code="not_found")
        if not _ID.fullmatch(result_id):
            raise missing
        try:
            meta = json.loads((self.folder / result_id / "meta.json").read_bytes())
            return Result(**{**meta, "comparison": Comparison(**meta["comparison"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise missing from error

    def events(self, result_id: str) -> EventFile:
        """The events of a result."""
        self.get(result_id)
        return self.open(self.folder / result_id / "events.jsonl")

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

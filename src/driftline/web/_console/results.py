"""Comparisons that were started from the console: one folder each, kept below the hidden folder of the workspace."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections import OrderedDict
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftline.core._files import atomic_write
from driftline.errors import InputError
from driftline.web.console.event_file import EventFile
from driftline.web.console.jobs import Job, Jobs
from driftline.web.console.workspace import Workspace

ID = re.compile(r"[0-9a-z]{8,40}")
_MOST_OPEN = 8  # event files whose index is kept in memory


@dataclass(frozen=True)
class Comparison:
    """What is compared: names below the folder and the options of the diff."""

    a: str
    b: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What is compared, in words."""
        return f"{self.a} → {self.b}"

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


class Results:
    """Starts comparisons, keeps their results and opens them; safe to use from threads."""

    def __init__(self, workspace: Workspace, jobs: Jobs) -> None:
        self.workspace = workspace
        self.folder = workspace.hidden / "results"
        self._jobs = jobs
        self._open: OrderedDict[Path, EventFile] = OrderedDict()
        self._lock = threading.Lock()

    # --- running -----------------------------------------------------------------------------------------------------

    def start(self, comparison: Comparison) -> Job:
        """Begin a comparison; its job."""
        for name in (comparison.a, comparison.b):
            self.workspace.table_address(name)
        return self._jobs.start(comparison.title, lambda job: self._compare(job, comparison))

    def _compare(self, job: Job, wanted: Comparison) -> str:
        from driftline.tables._api import diff

        began = time.monotonic()
        sides = [self.workspace.table_address(name) for name in (wanted.a, wanted.b)]
        folder = self.folder / job.id
        folder.mkdir(parents=True)
        try:
            with diff(sides[0], sides[1], engine="local", tracker=job.tracker, **wanted.options) as result:
                result.write(folder / "events.jsonl")
            seconds = round(time.monotonic() - began, 3)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            kept = Result(job.id, wanted, now, seconds, "local", dict(result.stats))
            with atomic_write(folder / "meta.json") as out:
                out.write(json.dumps(asdict(kept), ensure_ascii=False).encode())
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.open(folder / "events.jsonl")  # begins to make the index that filters and pages need
        return f"/results/{job.id}"

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
        if not ID.fullmatch(result_id):
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

"""One diff as a job that can be sent somewhere, and many repositories at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from driftline.codeindex.artifacts import CHUNK_META, read_pieces, stored_bytes
from driftline.codeindex.diffing import DiffRequest, prepare
from driftline.codeindex.keeping import Keeping, KeptDiff, compute
from driftline.codeindex.options import DiffOptions, kind_of, whole_number
from driftline.codeindex.resolve import IndexDir
from driftline.codeindex.storage import CacheRoot
from driftline.core import _engines as engines
from driftline.core._json import JsonObject
from driftline.core._progress import Tracker, silent
from driftline.core._workers import WorkerContext
from driftline.errors import DriftlineError


@dataclass(frozen=True, slots=True)
class DiffJob:
    """Everything needed to compute one diff, as plain data."""

    from_ref: str
    to_ref: str
    cache_root: str | None
    options: DiffOptions
    keeping: Keeping
    allow_mismatch: bool = False
    repository: str = "."
    repo: str | None = None

    @classmethod
    def of(
        cls,
        from_ref: str,
        to_ref: str,
        cache_root: str | None,
        *,
        modes: Sequence[str] | str = (),
        persist: bool = True,
        persist_unsafe: bool = False,
        allow_mismatch: bool = False,
        wait_ms: object = 0,
        repo: str | None = None,
        kind: str | None = None,
        **limits: Any,
    ) -> DiffJob:
        """A job from what a user gave."""
        options = DiffOptions.of(modes or ("code",), kind=kind_of(kind, (from_ref, to_ref)), **limits)
        keeping = Keeping(persist, persist_unsafe, whole_number(wait_ms, "wait-ms", minimum=0))
        return cls(from_ref, to_ref, cache_root, options, keeping, allow_mismatch, repo=repo)

    def prepare(self, tracker: Tracker | None = None) -> tuple[DiffRequest, CacheRoot | None]:
        """Find what the references mean; git revisions that have no build yet get one."""
        request = prepare(
            self.from_ref,
            self.to_ref,
            self.cache_root,
            self.options,
            repo=self.repo,
            allow_mismatch=self.allow_mismatch,
            tracker=tracker,
        )
        return request, request.cache

    def run(self) -> KeptDiff:
        """Resolve, compute on this machine and keep."""
        request, cache = self.prepare()
        return compute(request, cache, self.keeping)


def name_repositories(jobs: Sequence[DiffJob]) -> list[DiffJob]:
    """Jobs with names for their repositories: as much of the end of the path as tells them apart, and no more."""
    roots = [Path(os.path.abspath(job.cache_root)).parts[1:] if job.cache_root else (".",) for job in jobs]
    return [replace(job, repository=_shortest_name(parts, roots)) for job, parts in zip(jobs, roots, strict=True)]


def _shortest_name(parts: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> str:
    for length in range(1, len(parts) + 1):
        if all(other == parts or other[-length:] != parts[-length:] for other in others):
            return "/".join(parts[-length:])
    return "/".join(parts) or "."


def choose_engine(request: DiffRequest, engine: str, master: str | None) -> engines.EngineChoice:
    """The engine for a request and the reason for it."""
    return engines.choose_engine("index", engine, size=lambda: chunk_bytes(request), master=master)


def chunk_bytes(request: DiffRequest) -> int:
    """Bytes of chunk rows on both sides, as stored; 0 for what is not there, which the diff itself will say."""
    indexes = [index for side in (request.before, request.after) for index in side.indexes.values()]
    return sum(map(_chunk_bytes_of, indexes))


def _chunk_bytes_of(index: IndexDir) -> int:
    try:
        return stored_bytes(index, CHUNK_META, read_pieces(index))
    except DriftlineError:
        return 0


def run_many(jobs: Sequence[DiffJob], tracker: Tracker | None = None, *, with_events: bool = False) -> list[JsonObject]:
    """Compute many repositories in processes of this machine; an outcome each, in the order given."""
    workers = min(len(jobs), os.cpu_count() or 1)
    run = partial(run_job, with_events=with_events)
    if workers < 2:
        return list(map(run, jobs))
    watch = tracker or silent()
    outcomes = []
    with (
        watch.phase("repositories", total=len(jobs), unit="items"),
        ProcessPoolExecutor(workers, mp_context=WorkerContext()) as pool,
    ):
        for outcome in pool.map(run, jobs):
            outcomes.append(outcome)
            watch.advance()
    return outcomes


def run_job(job: DiffJob, *, with_events: bool = False) -> JsonObject:
    """The outcome of one job as plain data; an error is an outcome too."""
    try:
        kept = job.run()
        events = {"inputs": kept.result.inputs, "events": list(kept.result.events)} if with_events else {}
    except DriftlineError as error:
        return {"ok": False, "repository": job.repository, "code": error.code, "message": error.message}
    except OSError as error:
        # Its own message names an absolute path.
        reason = error.strerror or type(error).__name__
        return {"ok": False, "repository": job.repository, "code": "INVALID_REQUEST", "message": reason}
    return {
        "ok": True,
        "repository": job.repository,
        "diffId": kept.result.diff_id,
        "changed": kept.result.has_changes,
        "persisted": kept.persisted,
        "reused": kept.reused,
        "summary": kept.result.summary,
        **events,
    }

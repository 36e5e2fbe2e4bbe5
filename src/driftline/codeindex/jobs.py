"""One diff as a job that can be sent somewhere, and many repositories at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from driftline import engine_choice
from driftline.codeindex.artifacts import CHUNK_META, find_artifact, read_pieces
from driftline.codeindex.cache_root import CacheRoot
from driftline.codeindex.diffing import DiffRequest, prepare
from driftline.codeindex.keeping import Keeping, KeptDiff, compute
from driftline.codeindex.options import DiffOptions, whole_number
from driftline.codeindex.resolve import IndexDir
from driftline.errors import DriftlineError
from driftline.progress import Tracker, silent

# Above this many bytes of chunk rows `--engine auto` chooses Spark.
LOCAL_LIMIT_BYTES = 32 << 30


@dataclass(frozen=True, slots=True)
class DiffJob:
    """Everything needed to compute one diff, as plain data."""

    from_ref: str
    to_ref: str
    cache_root: str | None
    options: DiffOptions
    keeping: Keeping
    allow_mismatch: bool = False

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
        wait_ms: Any = 0,
        **limits: Any,
    ) -> DiffJob:
        """A job from what a user gave."""
        options = DiffOptions.of(modes or ("code",), **limits)
        keeping = Keeping(persist, persist_unsafe, whole_number(wait_ms, "wait-ms", minimum=0))
        return cls(from_ref, to_ref, cache_root, options, keeping, allow_mismatch)

    @property
    def repository(self) -> str:
        """A name for the repository that tells nothing about this machine."""
        return Path(os.path.abspath(self.cache_root)).name if self.cache_root else "."

    def prepare(self) -> tuple[DiffRequest, CacheRoot | None]:
        """Find what the references mean."""
        cache = CacheRoot(self.cache_root) if self.cache_root else None
        return prepare(self.from_ref, self.to_ref, cache, self.options, allow_mismatch=self.allow_mismatch), cache

    def run(self) -> KeptDiff:
        """Resolve, compute on this machine and keep."""
        request, cache = self.prepare()
        return compute(request, cache, self.keeping)


def choose_engine(request: DiffRequest, engine: str, master: str | None) -> tuple[str, str]:
    """The engine for a request and the reason for it."""
    return engine_choice.choose_engine(
        engine, size=lambda: chunk_bytes(request), limit=LOCAL_LIMIT_BYTES, master=master
    )


def chunk_bytes(request: DiffRequest) -> int:
    """Bytes of chunk rows on both sides, as stored; 0 for what is not there, which the diff itself will say."""
    indexes = [index for side in (request.before, request.after) for index in side.indexes.values()]
    return sum(map(_chunk_bytes_of, indexes))


def _chunk_bytes_of(index: IndexDir) -> int:
    try:
        artifact = find_artifact(index, CHUNK_META, read_pieces(index))
    except DriftlineError:
        return 0
    return artifact.size if artifact is not None else 0


def run_many(jobs: Sequence[DiffJob], tracker: Tracker | None = None) -> list[dict[str, Any]]:
    """Compute many repositories in processes of this machine; an outcome each, in the order given."""
    workers = min(len(jobs), os.cpu_count() or 1)
    if workers < 2:
        return [run_job(job) for job in jobs]
    watch = tracker or silent()
    outcomes = []
    with (
        watch.phase("repositories", total=len(jobs), unit="items"),
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
    ):
        for outcome in pool.map(run_job, jobs):
            outcomes.append(outcome)
            watch.advance()
    return outcomes


def run_job(job: DiffJob) -> dict[str, Any]:
    """The outcome of one job as plain data; an error is an outcome too."""
    try:
        kept = job.run()
    except DriftlineError as error:
        return {"ok": False, "repository": job.repository, "code": error.code, "message": error.message}
    return {
        "ok": True,
        "repository": job.repository,
        "diffId": kept.result.diff_id,
        "changed": kept.result.has_changes,
        "persisted": kept.persisted,
        "reused": kept.reused,
        "summary": kept.result.summary,
    }

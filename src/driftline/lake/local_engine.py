"""The local scheduler: the fold kernels on threads of this machine, deltas beyond the memory limit on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from driftline.core._progress import Tracker, silent
from driftline.core._workspace import SpillStore, TableCodec, Workspace
from driftline.lake.kernels import RangeJob, Result, load_range, split_work
from driftline.lake.planning import FoldPlan, bounded_rows, delta_work
from driftline.lake.ranges import KeyRange, lower_bounds

ROWS_PER_TASK = 250_000
_MEMORY_BYTES = 1 << 30

_Store = SpillStore[int, pa.Table]  # deltas by range


def run_locally(
    plan: FoldPlan, job: RangeJob, tracker: Tracker | None = None, *, memory_bytes: int = _MEMORY_BYTES
) -> Iterator[Result]:
    """Run a job over every range of a plan; its results in the order of the ranges."""
    tracker = tracker or silent()
    threads = max(1, min(os.cpu_count() or 1, 8))
    with Workspace() as workspace, ThreadPoolExecutor(threads) as pool:
        store = _Store(workspace, memory_bytes, TableCodec())
        _read(plan, job, store, pool, tracker)
        wanted = [each for each in plan.ranges if each.index in store or each.is_piece or job.every_range]
        with tracker.phase("fold", total=len(wanted), unit="items"):
            # As many ranges at a time as there are threads, so that memory stays bounded.
            for start in range(0, len(wanted), threads):
                some = wanted[start : start + threads]
                for results in pool.map(lambda each: _run_range(plan, job, store, each), some):
                    tracker.advance()
                    yield from results


def _read(plan: FoldPlan, job: RangeJob, store: _Store, pool: ThreadPoolExecutor, tracker: Tracker) -> None:
    bounds = lower_bounds(plan.ranges)
    work = delta_work(plan, bounded_rows(ROWS_PER_TASK, plan.deltas))

    with tracker.phase("read deltas", total=plan.delta_count, unit="rows"):
        for start in range(0, len(work), 4):
            some = work[start : start + 4]
            for one, pieces in zip(some, pool.map(lambda one: split_work(plan, [one], job, bounds), some), strict=True):
                for index, piece in pieces:
                    store.add(index, piece)
                tracker.advance(one.rows)


def _run_range(plan: FoldPlan, job: RangeJob, store: _Store, key_range: KeyRange) -> list[Result]:
    pieces = store.take(key_range.index)
    return job(plan, load_range(plan, key_range, pieces, job.needs_originals))

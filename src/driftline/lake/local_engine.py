"""The local scheduler: the fold kernels on threads of this machine, deltas beyond the memory limit on disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from driftline.lake.kernels import RangeJob, Result, load_range, split_work
from driftline.lake.planning import FoldPlan, bounded_rows, delta_work
from driftline.lake.ranges import KeyRange, lower_bounds
from driftline.progress import Tracker, silent

ROWS_PER_TASK = 250_000
_MEMORY_BYTES = 1 << 30


def run_locally(
    plan: FoldPlan, job: RangeJob, tracker: Tracker | None = None, *, memory_bytes: int = _MEMORY_BYTES
) -> Iterator[Result]:
    """Run a job over every range of a plan; its results in the order of the ranges."""
    tracker = tracker or silent()
    threads = max(1, min(os.cpu_count() or 1, 8))
    with tempfile.TemporaryDirectory(prefix="driftline-fold-") as folder, ThreadPoolExecutor(threads) as pool:
        spool = _Spool(Path(folder), memory_bytes)
        _read(plan, job, spool, pool, tracker)
        wanted = [each for each in plan.ranges if spool.has(each.index) or each.is_piece or job.every_range]
        with tracker.phase("fold", total=len(wanted), unit="items"):
            # As many ranges at a time as there are threads, so that memory stays bounded.
            for start in range(0, len(wanted), threads):
                some = wanted[start : start + threads]
                for results in pool.map(lambda each: _run_range(plan, job, spool, each), some):
                    tracker.advance()
                    yield from results


def _read(plan: FoldPlan, job: RangeJob, spool: _Spool, pool: ThreadPoolExecutor, tracker: Tracker) -> None:
    bounds = lower_bounds(plan.ranges)
    work = delta_work(plan, bounded_rows(ROWS_PER_TASK, plan.deltas))

    with tracker.phase("read deltas", total=plan.delta_count, unit="rows"):
        for start in range(0, len(work), 4):
            some = work[start : start + 4]
            for one, pieces in zip(some, pool.map(lambda one: split_work(plan, [one], job, bounds), some), strict=True):
                for index, piece in pieces:
                    spool.add(index, piece)
                tracker.advance(one.rows)


def _run_range(plan: FoldPlan, job: RangeJob, spool: _Spool, key_range: KeyRange) -> list[Result]:
    pieces = spool.take(key_range.index)
    return job(plan, load_range(plan, key_range, pieces, job.needs_originals))


class _Spool:
    """Pieces of deltas by range: in memory up to a limit, beyond it in files."""

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        self._folder = folder
        self._limit = memory_bytes
        self._held = 0
        self._pieces: dict[int, list[Any]] = {}
        self._files: dict[int, list[Path]] = {}
        self._written = 0

    def add(self, index: int, piece: Any) -> None:
        """Keep a piece."""
        # A slice counts by its share: the buffers below it are the whole batch's.
        self._pieces.setdefault(index, []).append(piece)
        self._held += piece.get_total_buffer_size() // 8 if piece.num_rows < 1000 else piece.nbytes
        if self._held > self._limit:
            self._spill()

    def has(self, index: int) -> bool:
        """Whether a range has any deltas."""
        return index in self._pieces or index in self._files

    def take(self, index: int) -> list[Any]:
        """The pieces of a range; they are let go."""
        pieces = self._pieces.pop(index, [])
        for path in self._files.pop(index, []):
            with pa.memory_map(str(path)) as source:
                pieces.append(pa.ipc.open_stream(source).read_all())
        return pieces

    def _spill(self) -> None:
        for index, pieces in self._pieces.items():
            path = self._folder / f"{index}-{self._written}.arrow"
            whole = pa.concat_tables(pieces).unify_dictionaries().combine_chunks()
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, whole.schema) as writer:
                writer.write_table(whole)
            self._files.setdefault(index, []).append(path)
            self._written += 1
        self._pieces.clear()
        self._held = 0

"""The local scheduler: the steps of a diff on the cores of this machine, within a memory limit."""

from __future__ import annotations

import gc
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from driftline.core._workspace import Workspace
from driftline.errors import OptionError, TableError
from driftline.sources._open import check_two_sides, open_source
from driftline.sources._source import Source
from driftline.tables.columns import HashedText, Sides, hashed_text, settle_columns
from driftline.tables.engines import DiffJob, Write
from driftline.tables.events import changes_by_column, column_stats_event, event_line, schema_event, stats_line
from driftline.tables.memory import default_limit
from driftline.tables.options import DiffOptions
from driftline.tables.reference import diff_tables
from driftline.tables.stats import Stats

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from driftline.sources._source import SplitSide
    from driftline.tables.local_run import LocalRun

    Layouts = tuple[SplitSide, SplitSide]

Item = TypeVar("Item")
Result = TypeVar("Result")

SMALL_BYTES = 512 << 10  # both files together; plain Python is done before Polars is imported
_EARLY_BYTES = 64 << 20  # of the files' bytes: about what is parsed while Polars is imported
_RANGE_BYTES = 12 << 20  # rows of one range of the output; encoding them takes about ten times as much
_HASH_BYTES = 192 << 20  # held as many small arrays; beyond it appending to files is faster and takes half the memory
_BASE_BYTES = 200 << 20  # what Python, Arrow and Polars take for themselves


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """Sizes of the work's pieces; every choice gives the same bytes."""

    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    split_bytes: int = 8 << 20
    early_bytes: int = _EARLY_BYTES
    bucket_rows: int = 130_000
    range_bytes: int = _RANGE_BYTES
    hash_bytes: int = _HASH_BYTES
    chunk_bytes: int = 1 << 30

    @classmethod
    def within(cls, memory: int) -> LocalPlan:
        """Pieces that together stay within a memory limit."""
        threads = os.cpu_count() or 1
        free = max(memory - _BASE_BYTES, 64 << 20)
        piece = min(8 << 20, free // (threads * 24))
        return cls(
            threads=threads,
            split_bytes=piece,
            early_bytes=min(_EARLY_BYTES, free // 6),
            bucket_rows=max(10_000, piece // 64),
            range_bytes=min(_RANGE_BYTES, piece),
            hash_bytes=min(_HASH_BYTES, free // 4),
            chunk_bytes=free // 8,
        )


def run(job: DiffJob, write: Write) -> Stats:
    """Diff on this machine: small CSV files in plain Python, everything else vectorized."""
    with Workspace() as workspace:
        a, b = open_sides(job, workspace)
        if a.size + b.size <= SMALL_BYTES and not a.typed and not b.typed:
            return _run_plainly(a, b, job, write)
        return _run_kernels(a, b, job, write, workspace, None)


def run_vectorized(job: DiffJob, write: Write, plan: LocalPlan | None = None) -> Stats:
    """Diff on this machine vectorized, whatever the size."""
    with Workspace() as workspace:
        return _run_kernels(*open_sides(job, workspace), job, write, workspace, plan)


def open_sides(job: DiffJob, workspace: Workspace) -> tuple[Source, Source]:
    """The files of both sides."""
    check_two_sides(job.a, job.b)
    a = open_source(job.a, workspace, job.options.reading("A"))
    b = open_source(job.b, workspace, job.options.reading("B"))
    for side, source in (("A", a), ("B", b)):
        if job.options.has_row_numbers and not source.ordered:
            raise TableError(f"{side} has no row order: name a key, or ignore row order", code="needs_key", side=side)
    return a, b


def _run_plainly(a: Source, b: Source, job: DiffJob, write: Write) -> Stats:
    table_a, table_b = a.text_table("A"), b.text_table("B")
    assert table_a is not None, "text has a reader"
    assert table_b is not None, "text has a reader"
    events, stats = diff_tables(table_a, table_b, job.options)
    for event in events:
        write(event_line(event))
    return stats


def _run_kernels(
    a: Source, b: Source, job: DiffJob, write: Write, workspace: Workspace, plan: LocalPlan | None
) -> Stats:
    from concurrent.futures import ThreadPoolExecutor

    sizes = plan or LocalPlan.within(job.memory or default_limit())
    with ThreadPoolExecutor(sizes.threads) as pool:
        try:
            with _without_collection():
                sides = _begin_reading(a, b, job.options, sizes, workspace, pool)
                running = _import_run()(job, sizes, workspace, pool)
            matched = running.match(a, b, sides)
            compared, changes = matched.plan.compared, Counter[str]()
            write(event_line(schema_event(compared)))
            stats = matched.stats
            for encoded in running.encode(matched):
                write(encoded.lines)
                stats = stats.with_equal(encoded.equal)
                changes.update(dict(zip((column.a for column in compared.columns), encoded.changes, strict=True)))
            if job.options.column_stats:
                write(event_line(column_stats_event(compared, stats, changes)))
            write(stats_line(stats))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return replace(stats, columns=changes_by_column(compared, changes))


def _begin_reading(
    a: Source, b: Source, options: DiffOptions, sizes: LocalPlan, workspace: Workspace, pool: ThreadPoolExecutor
) -> Layouts | None:
    """Lay out both sides and have their first splits parsed; None where only the exact way may decide."""
    side_a = a.lay_out("A", sizes.split_bytes, workspace, pool)
    side_b = b.lay_out("B", sizes.split_bytes, workspace, pool)
    if side_a is None or side_b is None:
        return None
    if side_a.schema is not None and side_b.schema is not None:
        return side_a, side_b  # they are compared by value, and reading ahead would make text of them
    text = _hashed_text(side_a, side_b, options)
    ahead_a, left = side_a.read_ahead(pool, sizes.early_bytes, text and text.a)
    ahead_b, _ = side_b.read_ahead(pool, left, text and text.b)
    return ahead_a, ahead_b


def _hashed_text(a: SplitSide, b: SplitSide, options: DiffOptions) -> HashedText | None:
    """What is going to be read of the rows; None also where columns do not meet, which is said when its turn comes."""
    try:
        return hashed_text(settle_columns(a.header, b.header, options, Sides(a.typed, b.typed)), a, b, options)
    except (TableError, OptionError):
        return None


@contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage collection while modules are imported: they make many objects, and all of them stay."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _import_run() -> type[LocalRun]:
    """Import Polars while other threads parse; it takes as long as parsing 100 MB."""
    from driftline.tables.local_run import LocalRun

    return LocalRun


def ordered_map(
    pool: ThreadPoolExecutor, function: Callable[..., Result], items: Iterable[Sequence[Any]], ahead: int
) -> Iterator[Result]:
    """Results of `function(*item)` in the order of the items, with at most `ahead` of them under way."""
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(function, *item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()

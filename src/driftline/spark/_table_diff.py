"""Table diffs on Spark: the kernels of `driftline.tables` in `mapInArrow`, with shuffles between them.

One Spark job does the complete diff. The driver gets a few facts for each split, bucket and range. The events are in
part files that the driver streams into the output; where driver and workers share no storage, they arrive as a stream
of blocks and are buffered on disk.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import polars as pl
import pyarrow as pa

from driftline.core import Location, ObjectPath, PartWriter, Workspace, io_errors, location, output_place, shared_folder
from driftline.errors import DriftlineError, OptionError, TableError
from driftline.sinks import known_version, write_table
from driftline.sources import Counted, Source, SplitSide, is_of_catalog, known_size, stored_copy
from driftline.spark import _jobs as jobs, _table_tasks as table_tasks
from driftline.spark._catalog import CatalogSource
from driftline.spark._runtime.pyspark_internals import to_partitions
from driftline.spark._runtime.session import open_session
from driftline.spark._tasks import BLOCK_SCHEMA, TaskPool, frame_schema
from driftline.tables import Profile, Stats, TableDiffJob, diff_to_table, event_line, kernels

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Layouts = tuple[SplitSide, SplitSide]

_SAMPLED = 24  # splits of a side
_TYPED_SAMPLED = 3  # these are read completely


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """Sizes of splits, tasks and ranges; every choice gives the same bytes."""

    split_bytes: int = 8 << 20
    task_bytes: int = 64 << 20  # a task reads several splits
    bucket_rows: int = 500_000
    range_bytes: int = 256 << 20
    plan_on_spark_bytes: int = 16 << 30  # below this the driver counts quotes itself, at about 1 GB/s
    stream_lines: bool | None = None  # None: only where driver and workers share no storage

    def ranges(self, size: int) -> int:
        """The number of output ranges for so many bytes of input."""
        return max(1, -(-size // self.range_bytes))

    def buckets(self, rows: int) -> int:
        """The number of buckets for so many rows."""
        return max(1, min(4096, -(-rows // self.bucket_rows)))


def run(job: TableDiffJob, write: jobs.Write, sizes: SparkPlan | None = None) -> Stats:
    """Diff on Spark."""
    sizes = sizes or SparkPlan()
    shared = location(shared_folder() or "")
    with Workspace(None if isinstance(shared, ObjectPath) else shared_folder()) as workspace, ExitStack() as stack:
        if any(is_of_catalog(side) for side in (job.a, job.b)):
            stack.enter_context(open_session(job.master))
        job, *sides = kernels.open_sides(job, workspace)
        a, b = (source.with_absolute_paths() for source in sides)
        with (
            _early_layouts(a, b, sizes, workspace) as layouts,
            open_session(job.master) as spark,
            jobs.scratch_place(spark) as scratch,
        ):
            running = SparkRun(job, spark, workspace, sizes, scratch)
            done = running.diff(a, b, layouts)
            compared = done.plan.compared
            write(event_line(kernels.schema_event(compared)))
            parts = done.findings.parts
            if job.parts is not None and all(jobs.is_in(part, job.parts.folder) for part in parts):
                job.parts.adopt(part.in_folder() for part in jobs.in_order(parts))
            else:

                def deliver(data: bytes | memoryview) -> None:
                    write(data)
                    job.tracker.advance(len(data))

                with job.tracker.phase("write", total=sum(part.size for part in parts)):
                    jobs.join_parts(parts, deliver)
            changes = done.findings.column_changes(compared)
            if job.options.column_stats:
                write(event_line(kernels.column_stats_event(compared, done.stats, changes)))
            write(kernels.event_line(done.stats.to_event()))
    profile = kernels.joined_profile(done.findings.profiles(), compared, done.stats)
    columns = kernels.changes_by_column(compared, changes)
    return replace(done.stats, columns=columns, profile=profile, options=job.options)


@contextmanager
def _early_layouts(
    a: Source, b: Source, sizes: SparkPlan, workspace: Workspace
) -> Iterator[Future[Layouts | None] | None]:
    """The splits of both sides, planned while Spark starts."""
    if known_size(a, b) > sizes.plan_on_spark_bytes or not (a.seekable and b.seekable):
        yield None
        return
    with ThreadPoolExecutor(1) as beside, ThreadPoolExecutor() as pool:
        layouts = beside.submit(_lay_out, a, b, sizes, workspace, pool)
        yield layouts


def _lay_out(a: Source, b: Source, sizes: SparkPlan, workspace: Workspace, pool: Executor) -> Layouts | None:
    """The splits of both sides, or None if a header must be read by the strict parser."""
    side_a = a.lay_out("A", sizes.split_bytes, workspace, pool)
    side_b = b.lay_out("B", sizes.split_bytes, workspace, pool)
    return None if side_a is None or side_b is None else (side_a, side_b)


@dataclass(frozen=True)
class Done:
    """A diff without errors, whose events are ready to be joined."""

    plan: kernels.DiffPlan
    findings: Findings
    stats: Stats


@dataclass(frozen=True, eq=False)
class SparkRun:
    """One run: the job, the session, a workspace, sizes, and temporary storage."""

    job: TableDiffJob
    spark: SparkSession
    workspace: Workspace
    sizes: SparkPlan
    scratch: Location | None

    def diff(self, a: Source, b: Source, early: Future[Layouts | None] | None) -> Done:
        """Find the events, or raise the first error in the specified order."""
        layouts = early.result() if early is not None else self._lay_out(a, b)
        while True:
            done = None if layouts is None else self._diff_layouts(*layouts)
            if done is not None:
                return done
            # Only the strict parser may decide about some file; A's errors come before B's.
            make_sound = partial(_make_side_sound, place=self.scratch)
            a, b = self._pool("read exactly").map(make_sound, (a, b), ("A", "B"))
            layouts = self._lay_out(a, b)
            assert layouts is not None, "a rewritten file has a plain header"

    def _lay_out(self, a: Source, b: Source) -> Layouts | None:
        if not (a.seekable and b.seekable):
            return self._lay_out_copies(a, b)
        if known_size(a, b) > self.sizes.plan_on_spark_bytes:
            return _lay_out(a, b, self.sizes, self.workspace, cast(Executor, self._pool("plan")))
        with ThreadPoolExecutor() as pool:
            return _lay_out(a, b, self.sizes, self.workspace, pool)

    def _lay_out_copies(self, a: Source, b: Source) -> Layouts:
        """Copy tables of catalogs by Spark, and sources that can only be read from the start in one task a side."""
        a, b = (side.in_files(self.scratch) if isinstance(side, CatalogSource) else side for side in (a, b))
        if a.seekable and b.seekable:
            return cast(Layouts, self._lay_out(a, b))
        if self.scratch is None:
            raise jobs.shared_folder_needed(
                "JSON Lines, workbooks and tables of SQLite and DuckDB files are copied into batches"
            )
        copy = partial(_lay_out_in_task, split_bytes=self.sizes.split_bytes, place=self.scratch)
        side_a, side_b = self._pool("copy").map(copy, (a, b), ("A", "B"))
        return side_a, side_b

    def _diff_layouts(self, a: SplitSide, b: SplitSide) -> Done | None:
        """The events, or None if some split needs the strict parser."""
        buckets = self.sizes.buckets(max(a.expected_rows, b.expected_rows))
        try:
            compared = kernels.resolve_columns(a.header, b.header, self.job.options, kernels.sides_of(a, b))
        except (TableError, OptionError):
            # Errors inside the files come first: the strict parser looks for them, then this error is raised again.
            if all(self._pool("check").map(lambda split: split.read().sound, [*a.splits, *b.splits])):
                raise
            return None
        plan = kernels.DiffPlan(self.job.options, compared, kernels.new_seeds(), buckets, profile=self.job.profile)
        if plan.options.has_row_numbers:
            return self._conclude(self._plan_positions(plan, a, b), a, b)
        bounds = sampled_bounds(a, b, plan, self.sizes.ranges(a.size + b.size))
        return self._conclude(self._task_plan(plan, _sided(a, b), bounds), a, b)

    def _plan_positions(self, plan: kernels.DiffPlan, a: SplitSide, b: SplitSide) -> table_tasks.TaskPlan:
        """Rows are matched by their numbers, so the rows of all splits are counted first."""
        splits = _sided(a, b)
        counts = list(self._pool("count").map(_count_rows, splits))
        at_b = len(a.splits)
        splits = (*_numbered(splits[:at_b], counts[:at_b], a), *_numbered(splits[at_b:], counts[at_b:], b))
        longest = max(sum(one.rows for one in counts[:at_b]), sum(one.rows for one in counts[at_b:]))
        blocks = longest // self.sizes.bucket_rows + 1
        bounds = row_bounds(longest, self.sizes.ranges(a.size + b.size))
        return self._task_plan(replace(plan, buckets=blocks), splits, bounds)

    def _task_plan(
        self, plan: kernels.DiffPlan, splits: tuple[table_tasks.SidedSplit, ...], bounds: pl.Series
    ) -> table_tasks.TaskPlan:
        parts = self._parts_place()
        folder = str(self.scratch) if isinstance(self.scratch, Path) and parts is not None else None
        return table_tasks.TaskPlan(plan, splits, bounds, self.sizes.bucket_rows, folder, parts, self.sizes.task_bytes)

    def _conclude(self, tasks: table_tasks.TaskPlan, a: SplitSide, b: SplitSide) -> Done | None:
        findings = self._run_tasks(tasks)
        findings.raise_error()
        side_a, side_b = findings.side("A", a), findings.side("B", b)
        if not (side_a.sound and side_b.sound):
            return None
        if any(bucket.collided for bucket in findings.buckets):  # two different keys had the same hash
            return self._conclude(replace(tasks, table=replace(tasks.table, seeds=kernels.new_seeds())), a, b)
        duplicates_a = side_a.duplicates([bucket.duplicate_a for bucket in findings.buckets], tasks.table)
        duplicates_b = side_b.duplicates([bucket.duplicate_b for bucket in findings.buckets], tasks.table)
        kernels.raise_first_error([*side_a.problems, *side_b.problems, *duplicates_a, *duplicates_b])
        kernels.check_unchanged([*a.splits, *b.splits])
        stats = kernels.total_stats((bucket.stats for bucket in findings.buckets), tasks.table, side_a, side_b)
        return Done(tasks.table, findings, stats)

    def _run_tasks(self, tasks: table_tasks.TaskPlan) -> Findings:
        frame, count = _task_graph(self.spark, tasks)
        spool = self.workspace.new_file("events")

        def work() -> Findings:
            is_stream = tasks.parts is None
            return gather(frame.toLocalIterator(prefetchPartitions=True) if is_stream else frame.collect(), spool)

        return jobs.watched(self.spark, self.job.tracker, "diff", count, work)

    def _parts_place(self) -> Location | None:
        """Where tasks write event lines: the output itself where they see it, else the temporary storage."""
        if self.sizes.stream_lines:
            return None
        output = self.job.parts.folder if self.job.parts is not None else None
        sees_output = isinstance(output, ObjectPath) or isinstance(self.scratch, Path)
        return output if output is not None and sees_output else self.scratch

    def _pool(self, phase: str) -> TaskPool:
        return TaskPool(self.spark, self.job.tracker, phase)


def _task_graph(spark: SparkSession, tasks: table_tasks.TaskPlan) -> tuple[DataFrame, int]:
    """The complete diff as one DataFrame, and its number of tasks."""
    groups, buckets, ranges = max(1, len(tasks.groups)), tasks.table.buckets, len(tasks.bounds) + 1
    schema = frame_schema(BLOCK_SCHEMA)
    frame = (
        spark.range(0, len(tasks.groups), 1, groups)
        .mapInArrow(partial(table_tasks.hash_task, tasks), schema)
        .transform(to_partitions, buckets, "target")
        .mapInArrow(partial(table_tasks.match_task, tasks), schema)
        .transform(to_partitions, groups, "target")
        .mapInArrow(partial(table_tasks.pick_task, tasks), schema)
        .transform(to_partitions, ranges, "target")
        .mapInArrow(partial(table_tasks.encode_task, tasks), schema)
    )
    return frame, 2 * groups + buckets + ranges


def _sided(a: SplitSide, b: SplitSide) -> tuple[table_tasks.SidedSplit, ...]:
    sides: tuple[tuple[kernels.Side, SplitSide], ...] = (("A", a), ("B", b))
    return tuple(
        table_tasks.SidedSplit(name, number, split) for name, side in sides for number, split in enumerate(side.splits)
    )


def _numbered(
    splits: Sequence[table_tasks.SidedSplit], counts: Sequence[Counted], side: SplitSide
) -> Iterator[table_tasks.SidedSplit]:
    """The splits of a side with the numbers of their first records and of the rows before them."""
    records = accumulate((one.records for one in counts), initial=side.first_record)
    rows = accumulate((one.rows for one in counts), initial=0)
    for split, first_record, before in zip(splits, records, rows, strict=False):
        yield split._replace(first_record=first_record, rows_before=before)


def _count_rows(one: table_tasks.SidedSplit) -> Counted:
    table_tasks.check_visible(one.split.files)
    return one.split.count()


def _make_side_sound(source: Source, side: kernels.Side, place: Location | None) -> Source:
    """In a task: rewrite what only the strict parser reads; copies are removed with the run's temporary storage."""
    if isinstance(place, Path):
        return source.normalized(side, Workspace(str(place)))
    with Workspace() as workspace:
        sound = source.normalized(side, workspace)
        if sound == source:
            return sound
        if place is None:
            raise jobs.shared_folder_needed(
                f"{side} has quotes inside unquoted fields and is rewritten for parallel reading"
            )
        return cast(Source, stored_copy(sound, source, place))


def _lay_out_in_task(source: Source, side: kernels.Side, split_bytes: int, place: Location) -> SplitSide:
    table_tasks.check_visible(source.files)
    with Workspace() if isinstance(place, ObjectPath) else nullcontext(Workspace(str(place))) as workspace:
        laid_out = source.lay_out(side, split_bytes, workspace)
        assert laid_out is not None, "typed sources have a plain header"
        if isinstance(place, ObjectPath):
            copies: list[Any] = list(laid_out.splits)
            splits = [one.stored_in(place) if hasattr(one, "stored_in") else one for one in copies]
            return replace(laid_out, splits=splits)
    return laid_out


def diff_to_table_on_spark(run: kernels.Engine, job: TableDiffJob, output: str, format_name: str) -> Stats:
    """Diff and write the events as the local engine's table, in tasks; by the driver where they share no storage."""
    target = output_place(output)
    with open_session(job.master) as spark, jobs.scratch_place(spark) as scratch:
        if scratch is None or (isinstance(scratch, ObjectPath) and isinstance(target, Path)):
            return diff_to_table(run, job, output, format_name)
        known = known_version(target, format_name)
        if isinstance(target, Path):
            target = target.absolute()
            target.mkdir(parents=True, exist_ok=True)
        lines = PartWriter(scratch / "lines")
        stats = run(replace(job, parts=lines), lines.write)
        lines.commit()
        write_table([lines.folder], target, format_name, known, TaskPool(spark, job.tracker, "table").map)
    return stats


# Bounds of the output's ranges, from a sample of both sides.
# They decide only how evenly the work is spread: a range that turns out long is encoded in several steps.


def row_bounds(rows: int, ranges: int) -> pl.Series:
    """Bounds for a positional diff: ordinals of rows at equal distances.

    >>> row_bounds(10, 2).to_list()
    [5]
    """
    cuts = sorted({rows * number // ranges for number in range(1, ranges)} - {0})
    return pl.Series(cuts, dtype=pl.UInt64)


def sampled_bounds(a: SplitSide, b: SplitSide, plan: kernels.DiffPlan, ranges: int) -> pl.Series:
    """Bounds for rows that are ordered by their cells."""
    samples = [
        kernels.order_values(kernels.as_frame(table), plan.compared, name)
        for name, side in (("A", a), ("B", b))
        for table in _samples(side)
    ]
    if ranges == 1 or not samples:
        return pl.Series([], dtype=pl.String)
    return kernels.choose_bounds(pl.concat(samples), ranges)


def _samples(side: SplitSide) -> list[pa.Table]:
    count = _TYPED_SAMPLED if side.typed else _SAMPLED
    step = max(1, len(side.splits) // count)
    tables = [split.head() for split in side.splits[::step][:count]]
    return [table for table in tables if table is not None and table.num_rows]


# What the tasks report to the driver: facts, and where the events are.


@dataclass
class Findings:
    """Facts by split and bucket, and the parts of the output."""

    hashed: dict[tuple[str, int], kernels.HashedSplit] = field(default_factory=dict)
    buckets: list[table_tasks.BucketFact] = field(default_factory=list)
    changes: list[tuple[int, ...]] = field(default_factory=list)
    kinds: dict[int, list[Profile]] = field(default_factory=dict)  # by range of the output
    errors: list[tuple[str, int, DriftlineError]] = field(default_factory=list)
    parts: list[jobs.OrderedPart] = field(default_factory=list)

    def column_changes(self, compared: kernels.Comparison) -> dict[str, int]:
        """How often each compared column changed."""
        totals = [sum(counts) for counts in zip(*self.changes, strict=True)] if self.changes else []
        return dict(zip((column.a for column in compared.columns), totals, strict=False))

    def profiles(self) -> Iterator[Profile]:
        """The kinds of change, range after range."""
        for number in sorted(self.kinds):
            yield from self.kinds[number]

    def raise_error(self) -> None:
        """Raise the first error of a task, by side and split."""
        for _, _, error in sorted(self.errors, key=lambda one: one[:2]):
            raise error

    def side(self, side: kernels.Side, layout: SplitSide) -> kernels.HashedSide:
        """The facts of one side, split after split."""
        found = kernels.HashedSide(side, layout)
        for number in range(len(layout.splits)):
            found.note(self.hashed[side, number])
        return found

    def note(self, fact: Any, side: str, number: int) -> None:
        """Add a fact."""
        if isinstance(fact, DriftlineError):
            self.errors.append((side, number, fact))
        elif isinstance(fact, kernels.HashedSplit):
            self.hashed[side, number] = fact
        elif isinstance(fact, table_tasks.ChangesFact):
            self.changes += fact.counts
            self.kinds[number] = fact.profiles
        else:
            self.buckets.append(fact)


def gather(rows: Iterable[Any], spool: Path) -> Findings:
    """Collect what the last tasks send; event lines, if any, are appended to the file `spool`."""
    findings = Findings()
    with ExitStack() as stack:
        stream: BinaryIO | None = None
        for row in rows:
            if row["kind"] == table_tasks.FACT:
                findings.note(pickle.loads(row["blob"]), row["side"], row["number"])  # noqa: S301 - made by our own tasks
            elif row["kind"] == table_tasks.PART:
                findings.parts.append(pickle.loads(row["blob"]))  # noqa: S301
            else:
                with io_errors(spool):
                    stream = stream or stack.enter_context(open(spool, "wb"))
                    findings.parts.append(jobs.OrderedPart(row["target"], str(spool), stream.tell(), len(row["blob"])))
                    stream.write(row["blob"])
    return findings

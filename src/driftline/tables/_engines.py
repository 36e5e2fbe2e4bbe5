"""The engines of a table diff, sizes of the local one within a memory limit, and events as a folder or a table."""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from driftline import core
from driftline.core import EngineChoice, PartWriter, StrPath, Tracker, Workspace, no_progress, without_collection
from driftline.errors import OptionError, TableError
from driftline.sources import CsvSource, Source, check_inputs, input_size, is_of_catalog, known_size, open_source
from driftline.tables import _events
from driftline.tables._columns import Sides, hashed_text, named_options, resolve_columns
from driftline.tables._events import Stats, event_line
from driftline.tables._options import TableOptions
from driftline.tables._reference import diff_tables

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from driftline.sources import SplitSide
    from driftline.tables._frames import KeptRows

    Layouts = tuple[SplitSide, SplitSide]

Write = Callable[[bytes | memoryview], object]
TableInput = StrPath | Any  # an address, or a table in memory
Result = TypeVar("Result")

# By name; the engine of the package above this one is named as text too, and every one is imported when it is used.
ENGINES: dict[str, str] = {
    "local": "driftline.tables._engines:run",
    "vectorized": "driftline.tables._engines:run_vectorized",  # local without the shortcut for small files
    "spark": "driftline.spark:run_table_diff",
}
SMALL_BYTES = 512 << 10  # both files together; plain Python is faster than the import of Polars
SMALLEST_LIMIT = 64 << 20
_EARLY_BYTES = 64 << 20  # of the files' bytes: about what is parsed while Polars is imported
_SPLIT_BYTES = 4 << 20  # what is made of it fits the cache and is reused by the next split
_RANGE_BYTES = 12 << 20  # rows of one range of the output; encoding them takes about ten times as much
_HASH_BYTES = 192 << 20  # as many small arrays; beyond it appending to files is faster and takes half the memory
_BASE_BYTES = 200 << 20  # memory of Python, Arrow and Polars
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?\Z", re.IGNORECASE)


@dataclass(frozen=True)
class TableDiffJob:
    """One diff to run: both inputs, checked options, limits, and a tracker."""

    a: TableInput
    b: TableInput
    options: TableOptions
    memory: int | None = None
    master: str | None = None
    tracker: Tracker = field(default_factory=no_progress)
    parts: PartWriter | None = None  # the output, if it is a folder: tasks may write into it directly
    kept: list[KeptRows] | None = None  # takes the rows of typed inputs as they are stored, for tables of the result
    profile: bool = False  # whether the stats get the kinds of change


# Writes the complete JSONL stream, schema first and stats last, and returns the counts. Nothing is written before all
# errors of the inputs are excluded.
Engine = Callable[[TableDiffJob, Write], Stats]


def find_engine(name: str) -> Engine:
    """The engine of that name."""
    if name not in ENGINES:
        core.check_engine(name, None)
    engine: Engine = core.load_function(ENGINES[name])
    return engine


def choose_engine(requested: str, job: TableDiffJob) -> EngineChoice:
    """The engine to use and the reason as text."""
    if requested == "vectorized":  # for tests
        return EngineChoice(requested, "as asked")
    if requested == "auto" and any(map(is_of_catalog, (job.a, job.b))):
        return EngineChoice("spark", "Spark reads tables of its catalogs")
    return core.choose_engine("tables", requested, sizes=lambda: map(input_size, (job.a, job.b)), master=job.master)


# The local engine.


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """Sizes of splits, buckets and ranges; every choice gives the same bytes."""

    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    split_bytes: int = _SPLIT_BYTES
    early_bytes: int = _EARLY_BYTES
    bucket_rows: int = 130_000
    range_bytes: int = _RANGE_BYTES
    hash_bytes: int = _HASH_BYTES
    chunk_bytes: int = 1 << 30

    @classmethod
    def within(cls, memory: int) -> LocalPlan:
        """Sizes that together stay within a memory limit."""
        threads = os.cpu_count() or 1
        free = max(memory - _BASE_BYTES, 64 << 20)
        piece = min(_SPLIT_BYTES, free // (threads * 24))
        return cls(
            threads=threads,
            split_bytes=piece,
            early_bytes=min(_EARLY_BYTES, free // 6),
            bucket_rows=max(10_000, piece // 64),
            range_bytes=min(_RANGE_BYTES, piece * 2),
            hash_bytes=min(_HASH_BYTES, free // 4),
            chunk_bytes=free // 8,
        )


def run(job: TableDiffJob, write: Write) -> Stats:
    """Diff on this machine: small CSV files in plain Python, everything else vectorized."""
    with Workspace() as workspace:
        job, a, b = open_sides(job, workspace)
        if known_size(a, b) > SMALL_BYTES or a.typed or b.typed:
            return _run_kernels(job, a, b, write, workspace, None)
        table_a, table_b = a.text_table("A"), b.text_table("B")
    assert table_a is not None and table_b is not None, "text has a reader"  # noqa: PT018
    events, stats = diff_tables(table_a, table_b, job.options, profiled=job.profile)
    for event in events:
        write(event_line(event))
    return replace(stats, options=job.options)


def run_vectorized(job: TableDiffJob, write: Write, plan: LocalPlan | None = None) -> Stats:
    """Diff on this machine vectorized, whatever the size."""
    with Workspace() as workspace:
        return _run_kernels(*open_sides(job, workspace), write, workspace, plan)


def open_sides(job: TableDiffJob, workspace: Workspace) -> tuple[TableDiffJob, Source, Source]:
    """The sources of both sides, and the job with the names of columns that its options leave to the headers."""
    check_inputs(job.a, job.b)
    a, b = named_sides(job.a, job.b, job.options, workspace)
    for side, source in (("A", a), ("B", b)):
        if job.options.has_row_numbers and not source.ordered:
            raise TableError(f"{side} has no row order: name a key, or ignore row order", code="needs_key", side=side)
    if job.options.key_numbers or job.options.ignore_column_case:
        job = replace(job, options=named_options(job.options, a.header("A"), b.header("B")))
    return job, a, b


def named_sides(a: TableInput, b: TableInput, options: TableOptions, workspace: Workspace) -> tuple[Source, Source]:
    """Both sources; a file without a header has the names of the other side, where that has one."""
    sides = [open_source(one, workspace, options.reading(side)) for side, one in zip("AB", (a, b), strict=True)]
    for at, side, other in ((0, "A", "B"), (1, "B", "A")):
        bare = sides[at]
        if options.no_header[at] and not options.no_header[1 - at] and isinstance(bare, CsvSource):
            header, width = sides[1 - at].header(other), len(bare.first_record(side))
            if width != len(header):
                words = f"{side} has no header and {width} columns, the header of {other} has {len(header)}"
                raise TableError(f"Header mismatch: {words}", code="header_mismatch")
            sides[at] = replace(bare, reading=replace(bare.reading, header=tuple(header)))
    return sides[0], sides[1]


def _run_kernels(
    job: TableDiffJob, a: Source, b: Source, write: Write, workspace: Workspace, plan: LocalPlan | None
) -> Stats:
    from concurrent.futures import ThreadPoolExecutor

    sizes = plan or LocalPlan.within(job.memory or default_limit())
    with ThreadPoolExecutor(sizes.threads) as pool:
        try:
            with without_collection():  # of what is imported all stays
                sides = _begin_reading(a, b, job.options, sizes, workspace, pool)
                from driftline.tables._vectorized import LocalRun  # brings Polars, while other threads parse

                running = LocalRun(job, sizes, workspace, pool)
            matched = running.match(a, b, sides)
            compared, changes = matched.plan.compared, Counter[str]()
            profiles = []
            write(event_line(_events.schema_event(compared)))
            stats = matched.stats
            for encoded in running.encode(matched):
                write(encoded.lines)
                profiles.append(encoded.profile)
                stats = stats.with_equal(encoded.equal)
                changes.update(dict(zip((column.a for column in compared.columns), encoded.changes, strict=True)))
            if job.options.column_stats:
                write(event_line(_events.column_stats_event(compared, stats, changes)))
            write(event_line(stats.to_event()))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    profile = _events.joined_profile(profiles, compared, stats)
    columns, notes = _events.changes_by_column(compared, changes), compared.notes
    return replace(stats, columns=columns, profile=profile, notes=notes, options=job.options)


def _begin_reading(
    a: Source, b: Source, options: TableOptions, sizes: LocalPlan, workspace: Workspace, pool: ThreadPoolExecutor
) -> Layouts | None:
    """Cut both sides into splits and start to parse the first ones; None where only the strict parser may decide."""
    sides = layouts(a, b, sizes, workspace, pool)
    if sides is None or all(side.schema is not None for side in sides):
        return sides  # typed sides are compared by value, and reading ahead would convert them to text
    side_a, side_b = sides
    try:
        compared = resolve_columns(side_a.header, side_b.header, options, Sides(side_a.typed, side_b.typed))
        text = hashed_text(compared, side_a, side_b, options)
    except (TableError, OptionError):
        text = None  # columns that do not match are reported later
    ahead_a, left = side_a.read_ahead(pool, sizes.early_bytes, text and text[0])
    ahead_b, _ = side_b.read_ahead(pool, left, text and text[1])
    return ahead_a, ahead_b


def layouts(a: Source, b: Source, sizes: LocalPlan, workspace: Workspace, pool: ThreadPoolExecutor) -> Layouts | None:
    """Both sides cut into splits; None where only the strict parser may decide."""
    side_a = a.lay_out("A", sizes.split_bytes, workspace, pool)
    side_b = b.lay_out("B", sizes.split_bytes, workspace, pool)
    return None if side_a is None or side_b is None else (side_a, side_b)


def ordered_map(
    pool: ThreadPoolExecutor, function: Callable[..., Result], items: Iterable[Sequence[Any]], ahead: int
) -> Iterator[Result]:
    """Results of `function(*item)` in the order of the items, with at most `ahead` of them pending."""
    pending: deque[Future[Result]] = deque()
    for item in items:
        pending.append(pool.submit(function, *item))
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


# Memory limits.


def parse_size(text: str) -> int:
    """The bytes of a size as text.

    >>> parse_size("500MB"), parse_size("2GiB"), parse_size("1.5g")
    (500000000, 2147483648, 1500000000)
    """
    match = _SIZE.match(text.strip())
    if match is None:
        raise OptionError(f'"{text}" is not a size: write it like 500MB or 2GB', code="invalid_size")
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary and unit else 1000) ** " kmgt".index(unit.lower() or " "))


def memory_limit(text: str | None) -> int | None:
    """The limit of the user, or None for the default."""
    size = None if text is None else parse_size(text)
    if size is not None and size < SMALLEST_LIMIT:
        raise OptionError(f"--memory {text} is too little: {SMALLEST_LIMIT >> 20}MiB is the least", code="invalid_size")
    return size


def default_limit() -> int:
    """Half of the memory that is free now."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        import psutil  # takes 10 ms

        free = int(psutil.virtual_memory().available)
    return max(free // 2, SMALLEST_LIMIT)


# Events as a folder of ordered parts, or as a table (storage §4, §6).


def check_folder(output: str, format_name: str, limit: int | None) -> None:
    """Raise for options that a folder or a table does not allow."""
    if format_name not in ("jsonl", "parquet", "delta"):
        words = f"a folder of parts holds jsonl or parquet, not {format_name}: name a file, without / at the end"
        raise OptionError(words, code="invalid_option_combination")
    if limit is not None:
        words = "--limit makes a list for people: write it to a file or a pipe"
        raise OptionError(words, code="invalid_option_combination")
    core.output_place(output)


def diff_to_folder(run: Engine, job: TableDiffJob, output: str) -> Stats:
    """Write the events as parts, which become the folder's content at the end, and are removed after an error."""
    parts = PartWriter(core.output_place(output))
    try:
        stats = run(replace(job, parts=parts), parts.write)
        parts.commit()
    except BaseException:
        parts.discard()
        raise
    return stats


def diff_to_table(run: Engine, job: TableDiffJob, output: str, format_name: str) -> Stats:
    """Write the events as a table: a folder of Parquet parts, or a Delta table."""
    import tempfile
    from pathlib import Path

    from driftline.sinks import known_version, write_table

    target = core.output_place(output)
    known = known_version(target, format_name)
    if isinstance(target, Path):
        target.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(prefix="driftline-events-", suffix=".jsonl") as spool:
        stats = run(job, spool.write)
        spool.flush()
        write_table([spool.name], target, format_name, known)
    return stats

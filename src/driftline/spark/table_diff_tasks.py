"""The tasks of a table diff: the kernels of `driftline.tables`, fed with parcels and sending parcels.

The way of the data: `print_task` → bucket → `match_task` → split → `pick_task` → range → `encode_task` → driver.
Facts (row counts, problems, statistics) are small and travel along to the driver. Whatever goes wrong with the
input is a fact too, because a failed task would only be tried again and end in a stack trace.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from driftline.errors import DriftlineError, InputError
from driftline.sources.input_file import InputFile
from driftline.sources.port import Split
from driftline.sources.workspace import Workspace
from driftline.spark.ordered_files import write_part
from driftline.spark.parcels import PARCEL_BYTES, Parcel, pack, unpack
from driftline.tables.chunk_ranges import cut_chunks, encode_cut, range_bounds
from driftline.tables.matching import WANTED, Duplicate, HashCollision, Wanted
from driftline.tables.ordering import RowChunk, cut_points
from driftline.tables.printed_sides import row_blocks
from driftline.tables.prints import PRINT, Prints, split_of
from driftline.tables.problems import Side
from driftline.tables.spill import ChunkStore
from driftline.tables.stages import PrintedSplit, TablePlan, match_bucket, pick_rows, print_split
from driftline.tables.stats import Stats

FACT, PART, LINES = "fact", "part", "lines"
_PRINTS, _WANTED, _ROWS = "prints", "wanted", "rows"
_HELD_CHUNK_BYTES = 128 << 20  # beyond this a range waits on the task's disk
_ENCODE_BYTES = 12 << 20  # rows that become event lines at once

Batches = Iterator[pa.RecordBatch]
Task = Callable[[Batches], Batches]


class SidedSplit(NamedTuple):
    """A split, its side and number, and the number of data rows before it (known in positional diffs only)."""

    side: Side
    number: int
    split: Split
    rows_before: int = 0


@dataclass(frozen=True)
class TaskPlan:
    """What the tasks of one diff share; `folder` is where parts go, or None to send the lines themselves."""

    table: TablePlan
    splits: tuple[SidedSplit, ...]
    bounds: pl.Series
    block_rows: int
    folder: str | None

    @property
    def splits_of_a(self) -> int:
        """How many splits side A has; those of B follow."""
        return sum(one.side == "A" for one in self.splits)


@dataclass(frozen=True, slots=True)
class BucketFact:
    """What a bucket tells the driver; `collided` asks for other hash seeds."""

    stats: Stats = field(default_factory=Stats)
    duplicate_a: Duplicate | None = None
    duplicate_b: Duplicate | None = None
    collided: bool = False


Fact = PrintedSplit | BucketFact | DriftlineError


def print_task(plan: TaskPlan) -> Task:
    """Numbers of splits in, prints by bucket out."""

    def run(batches: Batches) -> Batches:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        return pack(parcel for number in numbers for parcel in _print(plan.splits[number], plan))

    return run


def match_task(plan: TaskPlan) -> Task:
    """Prints of buckets in, wanted rows by split out."""

    def run(batches: Batches) -> Batches:
        return pack(_match(unpack(batches), plan))

    return run


def pick_task(plan: TaskPlan) -> Task:
    """Wanted rows of splits in, rows by range of the output out."""

    def run(batches: Batches) -> Batches:
        return pack(_pick(unpack(batches), plan))

    return run


def encode_task(plan: TaskPlan) -> Task:
    """Rows of ranges in, finished parts or event lines out."""

    def run(batches: Batches) -> Batches:
        with Workspace() as workspace:
            yield from pack(_encode(unpack(batches), plan, workspace))

    return run


def _print(one: SidedSplit, plan: TaskPlan) -> Iterator[Parcel]:
    try:
        check_visible(one.split.files)
        printed = print_split(one.split, one.number, plan.table)
    except DriftlineError as error:
        yield _fact(error, one.side, one.number)
        return
    yield _fact(replace(printed, parts=()), one.side, one.number)
    for bucket, prints in _by_bucket(printed, one, plan):
        step = PARCEL_BYTES // PRINT.itemsize
        for start in range(0, len(prints), step):
            yield Parcel(bucket, _PRINTS, one.side, one.number, prints[start : start + step].tobytes())


def check_visible(files: Sequence[InputFile]) -> None:
    """Raise if this machine does not see the very files that the driver saw."""
    try:
        for file in files:
            file.check_unchanged()
    except InputError as error:
        if error.code != "not_found":
            raise
        raise InputError(
            f"{error.path} is not visible to Spark's workers: put it on storage that this machine and all workers "
            "see under the same path, or use --engine local",
            code="not_visible_to_workers",
            path=error.path,
        ) from error


def _by_bucket(printed: PrintedSplit, one: SidedSplit, plan: TaskPlan) -> Iterable[tuple[int, Prints]]:
    if plan.table.options.mode == "positional" and not plan.table.options.ignore_row_order and printed.parts:
        return row_blocks(printed.parts[0], one.rows_before, plan.block_rows)
    return enumerate(printed.parts)


def _match(parcels: Iterable[Parcel], plan: TaskPlan) -> Iterator[Parcel]:
    parts: defaultdict[int, dict[str, list[Prints]]] = defaultdict(lambda: {"A": [], "B": []})
    for parcel in parcels:
        if parcel.kind == FACT:
            yield parcel
        else:
            parts[parcel.target][parcel.side].append(np.frombuffer(parcel.blob, PRINT))
    for bucket in sorted(parts):
        sides = parts.pop(bucket)
        try:
            found = match_bucket(_in_file_order(sides["A"]), _in_file_order(sides["B"]), plan.table)
        except HashCollision:
            yield _fact(BucketFact(collided=True), "", bucket)
            continue
        yield _fact(BucketFact(found.stats, found.duplicate_a, found.duplicate_b), "", bucket)
        yield from _wanted_by_split(found.wanted_a, "A", 0)
        yield from _wanted_by_split(found.wanted_b, "B", plan.splits_of_a)


def _in_file_order(parts: list[Prints]) -> list[Prints]:
    # A shuffle promises no order.
    return sorted((part for part in parts if len(part)), key=lambda part: int(part["place"][0]))


def _wanted_by_split(wanted: Wanted, side: Side, first_target: int) -> Iterator[Parcel]:
    wanted = wanted[np.argsort(wanted["place"])]
    numbers = split_of(wanted["place"])
    borders = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(wanted)]
    for start, end in pairwise(borders):
        if start < end:
            number = int(numbers[start])
            yield Parcel(first_target + number, _WANTED, side, number, wanted[start:end].tobytes())


def _pick(parcels: Iterable[Parcel], plan: TaskPlan) -> Iterator[Parcel]:
    wanted: defaultdict[int, list[Wanted]] = defaultdict(list)
    for parcel in parcels:
        if parcel.kind == FACT:
            yield parcel
        else:
            wanted[parcel.target].append(np.frombuffer(parcel.blob, WANTED))
    for target in sorted(wanted):
        one = plan.splits[target]
        try:
            check_visible(one.split.files)
            chunk = pick_rows(one.split, np.concatenate(wanted.pop(target)), one.rows_before, plan.table)
        except DriftlineError as error:
            yield _fact(error, one.side, one.number)
            continue
        for number, (start, end) in enumerate(pairwise(cut_points(chunk.order, plan.bounds))):
            for piece in _chunk_pieces(chunk.slice(start, end)):
                yield Parcel(number, _ROWS, one.side, one.number, _chunk_bytes(piece))


def _chunk_pieces(chunk: RowChunk) -> Iterator[RowChunk]:
    size = max(1, int(chunk.rows.estimated_size()))
    step = max(1, chunk.height * PARCEL_BYTES // size)
    for start in range(0, chunk.height, step):
        yield chunk.slice(start, min(start + step, chunk.height))


def _chunk_bytes(chunk: RowChunk) -> Any:
    frame = pl.DataFrame([chunk.kinds.alias("kinds"), chunk.order.alias("order"), *chunk.rows.get_columns()])
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    return memoryview(sink.getvalue())


def _chunk_of(blob: Any) -> RowChunk:
    frame = pl.DataFrame(pl.from_arrow(pa.ipc.open_stream(blob).read_all()))
    return RowChunk(frame.drop("kinds", "order"), frame["kinds"], frame["order"])


def _encode(parcels: Iterable[Parcel], plan: TaskPlan, workspace: Workspace) -> Iterator[Parcel]:
    stores: defaultdict[int, dict[str, ChunkStore]] = defaultdict(
        lambda: {side: ChunkStore(workspace, _HELD_CHUNK_BYTES // 2) for side in "AB"}
    )
    try:
        for parcel in parcels:
            if parcel.kind == FACT:
                yield parcel
            else:
                stores[parcel.target][parcel.side].add(_chunk_of(parcel.blob))
        for number in sorted(stores):
            yield from _deliver(number, _lines(stores.pop(number), plan.table), plan.folder)
    except DriftlineError as error:
        yield _fact(error, "", 0)


def _lines(stores: dict[str, ChunkStore], plan: TablePlan) -> Iterator[memoryview]:
    """The event lines of one range, encoded in steps that fit the memory of a task."""
    a, b = stores["A"], stores["B"]
    bounds = range_bounds([*a.chunks, *b.chunks], max(1, -(-(a.bytes + b.bytes) // _ENCODE_BYTES)))
    cuts_a, cuts_b = cut_chunks(a.chunks, bounds), cut_chunks(b.chunks, bounds)
    for number in range(len(bounds) + 1):
        yield encode_cut(cuts_a, cuts_b, number, plan)


def _deliver(number: int, lines: Iterator[memoryview], folder: str | None) -> Iterator[Parcel]:
    if folder is not None:
        yield Parcel(number, PART, "", 0, pickle.dumps(write_part(folder, number, lines)))
        return
    sent = 0
    for block in lines:
        for start in range(0, len(block), PARCEL_BYTES):
            yield Parcel(number, LINES, "", sent, block[start : start + PARCEL_BYTES])
            sent += 1


def _fact(fact: Fact, side: str, number: int) -> Parcel:
    return Parcel(0, FACT, side, number, pickle.dumps(fact))

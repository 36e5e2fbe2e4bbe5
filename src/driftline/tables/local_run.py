"""One local run, step by step: settle the splits, print, match, pick, encode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import polars as pl

from driftline.errors import TableError
from driftline.sources.csv_layout import lay_out, make_sound
from driftline.sources.inputs import Input
from driftline.sources.splits import Split, SplitSide
from driftline.sources.workspace import Workspace
from driftline.tables.engines import DiffJob
from driftline.tables.local import LocalPlan, ordered_map
from driftline.tables.matching import Duplicate, HashCollision, Matches, Wanted
from driftline.tables.ordering import choose_bounds, cut_points
from driftline.tables.prints import Prints, new_seeds, row_in_split, split_of
from driftline.tables.problems import Problem, Side, duplicate_key_problem, raise_first
from driftline.tables.rules import key_parts
from driftline.tables.spill import ChunkStore, PrintStore, StoredChunk
from driftline.tables.stages import (
    FIRST_DATA_ROW,
    PrintedSplit,
    TablePlan,
    encode_range,
    match_bucket,
    pick_rows,
    print_split,
)
from driftline.tables.stats import Stats

_SAMPLES_PER_CHUNK = 256
_Cut = tuple[StoredChunk, list[int]]


@dataclass
class _PrintedSide:
    """The prints of one side are in the store; here is what else is known of its splits."""

    side: Side
    layout: SplitSide
    rows: list[int] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    sound: bool = True

    @property
    def rows_before(self) -> list[int]:
        """For each split the number of data rows in earlier splits."""
        return [0, *accumulate(self.rows)]

    def note(self, printed: PrintedSplit) -> None:
        """Take the facts of the next split into account."""
        self.sound = self.sound and printed.sound
        self.problems += printed.problems(self.side, sum(self.rows), len(self.layout.header))
        self.rows.append(printed.rows)


@dataclass(frozen=True)
class Matched:
    """Everything is known but the text of the events."""

    plan: TablePlan
    a: _PrintedSide
    b: _PrintedSide
    stats: Stats
    wanted_a: Wanted
    wanted_b: Wanted


class LocalRun:
    """The means of one run: sizes, workspace, threads, and whom to tell about progress."""

    def __init__(self, job: DiffJob, sizes: LocalPlan, workspace: Workspace, pool: ThreadPoolExecutor) -> None:
        self.job = job
        self.sizes = sizes
        self.workspace = workspace
        self.pool = pool

    def match(self, a: Input, b: Input) -> Matched:
        """Find out which rows differ, or raise the first error in the ruled order."""
        sides = self._lay_out(a, b)
        while True:
            try:
                matched = None if sides is None else self._match_layouts(*sides)
            except HashCollision:
                continue  # other seeds
            if matched is not None:
                return matched
            # Only the exact way may decide about some file; A's errors come before B's.
            a = make_sound(a, "A", self.workspace, self.pool)
            b = make_sound(b, "B", self.workspace, self.pool)
            sides = self._lay_out(a, b)
            assert sides is not None, "a rewritten file has a plain header"

    def _lay_out(self, a: Input, b: Input) -> tuple[SplitSide, SplitSide] | None:
        side_a = lay_out(a, "A", self.sizes.split_bytes, self.pool)
        side_b = lay_out(b, "B", self.sizes.split_bytes, self.pool)
        return None if side_a is None or side_b is None else (side_a, side_b)

    def _match_layouts(self, a: SplitSide, b: SplitSide) -> Matched | None:
        """The matches, or None if some split is not provably right."""
        rows = max(a.expected_rows, b.expected_rows)
        buckets = max(1, -(-rows // self.sizes.bucket_rows))
        plan = TablePlan(self.job.options, a.header, b.header, new_seeds(), min(buckets, 4096))
        try:
            plan.check()
        except TableError:
            # Errors inside the files come first: the exact way looks for them, then this error comes again.
            if self._all_sound(a) and self._all_sound(b):
                raise
            return None
        store = PrintStore(self.workspace, self.sizes.print_bytes)
        with self.job.tracker.phase("read", total=a.size + b.size, unit="bytes"):
            printed_a = self._print_side("A", a, plan, store)
            printed_b = self._print_side("B", b, plan, store)
        if not (printed_a.sound and printed_b.sound):
            return None
        return self._match_prints(plan, printed_a, printed_b, store)

    def _all_sound(self, side: SplitSide) -> bool:
        results = ordered_map(self.pool, _is_sound, ((split,) for split in side.splits), self.sizes.threads * 2)
        return all(results)

    def _print_side(self, side: Side, layout: SplitSide, plan: TablePlan, store: PrintStore) -> _PrintedSide:
        found = _PrintedSide(side, layout)
        work = ((split, number, plan) for number, split in enumerate(layout.splits))
        for printed in ordered_map(self.pool, print_split, work, self.sizes.threads * 2):
            first_row = sum(found.rows)
            found.note(printed)
            self._store(printed, side, first_row, plan, store)
            self.job.tracker.advance(layout.splits[printed.number].size)
        return found

    def _store(self, printed: PrintedSplit, side: Side, first_row: int, plan: TablePlan, store: PrintStore) -> None:
        parts: Sequence[tuple[int, Prints]] = list(enumerate(printed.parts))
        if _is_positional(plan) and printed.parts:
            parts = list(_row_blocks(printed.parts[0], first_row, self.sizes.bucket_rows))
        for bucket, prints in parts:
            store.add(side, bucket, prints)

    def _match_prints(self, plan: TablePlan, a: _PrintedSide, b: _PrintedSide, store: PrintStore) -> Matched:
        problems = [*a.problems, *b.problems]
        raise_first(problem for problem in problems if problem.side == "A" and problem.kind != "duplicate_key")
        buckets = plan.buckets
        if _is_positional(plan):
            buckets = max(sum(a.rows), sum(b.rows)) // self.sizes.bucket_rows + 1
        matches: list[Matches] = []
        with self.job.tracker.phase("match", total=buckets, unit="items"):
            work = ((store.take("A", bucket), store.take("B", bucket), plan) for bucket in range(buckets))
            for found in ordered_map(self.pool, match_bucket, work, self.sizes.threads):
                matches.append(found)
                self.job.tracker.advance()
        problems += self._duplicates(a, [found.duplicate_a for found in matches], plan)
        problems += self._duplicates(b, [found.duplicate_b for found in matches], plan)
        raise_first(problems)
        return Matched(
            plan,
            a,
            b,
            sum((found.stats for found in matches), Stats()),
            np.concatenate([found.wanted_a for found in matches]),
            np.concatenate([found.wanted_b for found in matches]),
        )

    def _duplicates(self, side: _PrintedSide, found: Sequence[Duplicate | None], plan: TablePlan) -> list[Problem]:
        first = min((one for one in found if one is not None), key=lambda one: one.repeated, default=None)
        if first is None:
            return []
        split = int(split_of(np.uint64(first.repeated)))
        record = row_in_split(np.array([first.repeated], np.uint64)).astype(np.int64)
        row = side.layout.splits[split].pick(record).to_pylist()[0]
        key = dict(zip(plan.options.key_columns, key_parts(row, plan.options), strict=True))
        return [duplicate_key_problem(side.side, side_row(side, first.repeated), side_row(side, first.first), key)]

    def encode(self, matched: Matched) -> Iterator[memoryview]:
        """The event lines, range after range."""
        a = self._pick_side(matched.a, matched.wanted_a, matched.plan)
        b = self._pick_side(matched.b, matched.wanted_b, matched.plan)
        _check_unchanged(matched.a.layout.splits)
        _check_unchanged(matched.b.layout.splits)
        ranges = max(1, -(-(a.bytes + b.bytes) // self.sizes.range_bytes))
        bounds = _bounds([*a.chunks, *b.chunks], ranges)
        cuts_a, cuts_b = _cuts(a.chunks, bounds), _cuts(b.chunks, bounds)
        work = ((cuts_a, cuts_b, number, matched.plan) for number in range(len(bounds) + 1))
        with self.job.tracker.phase("write", total=len(bounds) + 1, unit="items"):
            for lines in ordered_map(self.pool, _encode_cut, work, self.sizes.threads - 1):
                yield lines
                self.job.tracker.advance()

    def _pick_side(self, side: _PrintedSide, wanted: Wanted, plan: TablePlan) -> ChunkStore:
        store = ChunkStore(self.workspace, self.sizes.chunk_bytes)
        wanted = wanted[np.argsort(wanted["place"])]
        numbers = split_of(wanted["place"])
        borders = np.searchsorted(numbers, np.arange(len(side.layout.splits) + 1, dtype=np.uint64))
        before = side.rows_before
        work = (
            (split, wanted[borders[number] : borders[number + 1]], before[number], plan)
            for number, split in enumerate(side.layout.splits)
            if borders[number] < borders[number + 1]
        )
        with self.job.tracker.phase(f"fetch {side.side}", total=len(wanted), unit="rows"):
            for chunk in ordered_map(self.pool, pick_rows, work, self.sizes.threads):
                store.add(chunk)
                self.job.tracker.advance(chunk.height)
        return store


def side_row(side: _PrintedSide, place: int) -> int:
    """The record number in the file of a row's place."""
    number = np.uint64(place)
    return side.rows_before[int(split_of(number))] + int(row_in_split(number)) + FIRST_DATA_ROW


def _is_positional(plan: TablePlan) -> bool:
    return plan.options.mode == "positional" and not plan.options.ignore_row_order


def _row_blocks(prints: Prints, first_row: int, block_rows: int) -> Iterator[tuple[int, Prints]]:
    """Cut a split's prints at multiples of `block_rows`, so that both files are cut at the same rows."""
    start = 0
    while start < len(prints):
        block = (first_row + start) // block_rows
        end = min(len(prints), (block + 1) * block_rows - first_row)
        yield block, prints[start:end]
        start = end


def _bounds(chunks: Sequence[StoredChunk], ranges: int) -> pl.Series:
    filled = [chunk for chunk in chunks if chunk.height]
    if ranges == 1 or not filled:
        return pl.Series([], dtype=pl.String)
    return choose_bounds(pl.concat([_sample(chunk) for chunk in filled]), ranges)


def _sample(chunk: StoredChunk) -> pl.Series:
    return chunk.order().gather_every(max(1, chunk.height // _SAMPLES_PER_CHUNK))


def _cuts(chunks: Sequence[StoredChunk], bounds: pl.Series) -> list[_Cut]:
    return [(chunk, cut_points(chunk.order(), bounds)) for chunk in chunks]


def _encode_cut(a: list[_Cut], b: list[_Cut], number: int, plan: TablePlan) -> memoryview:
    """Encode one range: the rows between two neighbouring cut points of every chunk."""
    rows_a = (chunk.rows(points[number], points[number + 1]) for chunk, points in a)
    rows_b = (chunk.rows(points[number], points[number + 1]) for chunk, points in b)
    return encode_range(rows_a, rows_b, plan)


def _is_sound(split: Split) -> bool:
    return split.read().sound


def _check_unchanged(splits: Sequence[Split]) -> None:
    files = {split.range.file for split in splits if hasattr(split, "range")}
    for file in files:
        file.check_unchanged()

"""The tasks of a table diff: the kernels of `driftline.tables`, fed with blocks and sending blocks.

The flow of the data: `hash_task` → bucket → `match_task` → split → `pick_task` → range → `encode_task` → driver.
Facts (row counts, problems, statistics) are small and are sent along to the driver. An error in the input is a fact
too, because a failed task would only be retried and end in a stack trace.
"""

from __future__ import annotations

import os
import pickle
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from driftline.core import Location, Workspace, io_errors, write_all
from driftline.errors import DriftlineError, InputError, StorageError
from driftline.sources import InputFile, Split
from driftline.spark._jobs import write_part
from driftline.spark._tasks import BLOCK_BYTES, ShuffleBlock, pack, table_blob, unpack
from driftline.tables import Profile, Stats, kernels

FACT, PART, LINES = "fact", "part", "lines"
_HASHES, _HASHES_IN_FILE, _NEEDED, _ROWS = "hashes", "hashes in a file", "wanted", "rows"
_HELD_CHUNK_BYTES = 128 << 20  # beyond this a range is spilled to the task's disk
_ENCODE_BYTES = 12 << 20  # rows that become event lines at once

Batches = Iterator[pa.RecordBatch]


class SidedSplit(NamedTuple):
    """A split, its side and number, and, known in positional diffs only, its first record and the rows before it."""

    side: kernels.Side
    number: int
    split: Split
    first_record: int = 0
    rows_before: int = 0


@dataclass(frozen=True)
class TaskPlan:
    """What the tasks of one diff share.

    `folder` is a disk that all of them see, for row hashes; `parts` is where event lines are written, a disk or a
    store. None: there is none, and they are sent as blocks.
    """

    table: kernels.DiffPlan
    splits: tuple[SidedSplit, ...]
    bounds: pl.Series
    block_rows: int
    folder: str | None
    parts: Location | None = None
    task_bytes: int = 64 << 20

    @cached_property
    def groups(self) -> list[range]:
        """Consecutive splits of one side that one task reads, together about `task_bytes` long.

        Splits are small, because a parser is fastest on what fits the cache; tasks are large, because each has a cost.
        """
        found: list[range] = []
        held = 0
        for number, one in enumerate(self.splits):
            begins = not found or one.side != self.splits[number - 1].side or held + one.split.size > self.task_bytes
            if begins:
                found.append(range(number, number))
                held = 0
            found[-1] = range(found[-1].start, number + 1)
            held += one.split.size
        return found

    @cached_property
    def group_of(self) -> Any:
        """For each split the number of its group, as an array."""
        return np.repeat(np.arange(len(self.groups)), [len(group) for group in self.groups])


@dataclass(frozen=True, slots=True)
class BucketFact:
    """The result of a bucket; after `collided` the diff is run again with other hash seeds."""

    stats: Stats = field(default_factory=Stats)
    duplicate_a: kernels.Duplicate | None = None
    duplicate_b: kernels.Duplicate | None = None
    collided: bool = False


@dataclass(frozen=True, slots=True)
class ChangesFact:
    """How often each compared column changed in the steps of a range, and the kinds of change."""

    counts: list[tuple[int, ...]]
    profiles: list[Profile]


Fact: TypeAlias = kernels.HashedSplit | BucketFact | ChangesFact | DriftlineError


def hash_task(plan: TaskPlan, batches: Batches) -> Batches:
    """Numbers of groups of splits in, row hashes by bucket out."""
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    return pack(block for number in numbers for block in _hash_group(number, plan))


def match_task(plan: TaskPlan, batches: Batches) -> Batches:
    """Row hashes of buckets in, selected rows by group of splits out."""
    return pack(_match(unpack(batches), plan))


def pick_task(plan: TaskPlan, batches: Batches) -> Batches:
    """Selected rows of groups in, rows by range of the output out."""
    return pack(_pick(unpack(batches), plan))


def encode_task(plan: TaskPlan, batches: Batches) -> Batches:
    """Rows of ranges in, finished parts or event lines out."""
    with Workspace() as workspace:
        yield from pack(_encode(unpack(batches), plan, workspace))


def _hash_group(number: int, plan: TaskPlan) -> Iterator[ShuffleBlock]:
    group = plan.groups[number]
    by_bucket: defaultdict[int, list[kernels.RowHashes]] = defaultdict(list)
    for one in plan.splits[group.start : group.stop]:
        try:
            check_visible(one.split.files)
            hashed = kernels.hash_split(one.split, one.side, one.number, plan.table)
        except DriftlineError as error:
            yield _fact(error, one.side, one.number)
            return
        yield _fact(replace(hashed, parts=()), one.side, one.number)
        buckets: Iterable[tuple[int, kernels.RowHashes]] = enumerate(hashed.parts)
        if plan.table.options.has_row_numbers and hashed.parts:
            buckets = kernels.row_blocks(hashed.parts[0], one.rows_before, plan.block_rows)
        for bucket, hashes in buckets:
            if len(hashes):
                by_bucket[bucket].append(hashes)
    send = _hashes_inline if plan.folder is None else partial(_hashes_in_file, folder=plan.folder)
    yield from send(by_bucket, plan.splits[group.start].side, number)


def _hashes_inline(
    by_bucket: dict[int, list[kernels.RowHashes]], side: kernels.Side, group: int
) -> Iterator[ShuffleBlock]:
    for bucket in sorted(by_bucket):
        hashes = kernels.join_hashes(by_bucket.pop(bucket))
        step = BLOCK_BYTES // hashes.itemsize
        for start in range(0, len(hashes), step):
            yield ShuffleBlock(bucket, _HASHES, side, group, hashes[start : start + step].tobytes())


def _hashes_in_file(
    by_bucket: dict[int, list[kernels.RowHashes]], side: kernels.Side, group: int, folder: str
) -> Iterator[ShuffleBlock]:
    """Where tasks share storage, the shuffle carries references to hashes: one file for each attempt at a group."""
    path = os.path.join(folder, f"hashes-{group:06d}-{secrets.token_hex(8)}")
    start = 0
    with io_errors(path), open(path, "xb", buffering=0) as out:
        for bucket in sorted(by_bucket):
            parts = by_bucket.pop(bucket)
            size = sum([write_all(out, part.data) for part in parts])
            yield ShuffleBlock(bucket, _HASHES_IN_FILE, side, group, pickle.dumps((path, start, size)))
            start += size


def hashes_of(block: ShuffleBlock, kind: np.dtype[Any] = kernels.ROW_HASH) -> kernels.RowHashes:
    """The row hashes that a block contains, or refers to."""
    if block.kind == _HASHES:
        return np.frombuffer(block.blob, kind)
    path, start, size = pickle.loads(block.blob)  # noqa: S301 - made by our own task
    with io_errors(path):
        found = np.fromfile(path, kind, size // kind.itemsize, offset=start)
    if found.nbytes != size:
        raise StorageError(f"row hashes vanished or were cut short: {path}", code="part_lost")
    return found


def check_visible(files: Sequence[InputFile]) -> None:
    """Raise if this machine does not see the same files as the driver."""
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


def _match(blocks: Iterable[ShuffleBlock], plan: TaskPlan) -> Iterator[ShuffleBlock]:
    pending: defaultdict[int, dict[str, list[ShuffleBlock]]] = defaultdict(lambda: {"A": [], "B": []})
    for block in blocks:
        if block.kind == FACT:
            yield block
        else:
            pending[block.target][block.side].append(block)
    splits_of_a = sum(one.side == "A" for one in plan.splits)  # those of B follow
    for bucket in sorted(pending):
        sides = pending.pop(bucket)
        try:
            found = kernels.match_bucket(_in_file_order(sides["A"], plan), _in_file_order(sides["B"], plan), plan.table)
        except kernels.HashCollision:
            yield _fact(BucketFact(collided=True), "", bucket)
            continue
        except DriftlineError as error:
            yield _fact(error, "", bucket)
            continue
        yield _fact(BucketFact(found.stats, found.duplicate_a, found.duplicate_b), "", bucket)
        yield from _needed_by_group(found.needed_a, "A", 0, plan)
        yield from _needed_by_group(found.needed_b, "B", splits_of_a, plan)


def _in_file_order(blocks: list[ShuffleBlock], plan: TaskPlan) -> list[kernels.RowHashes]:
    # A shuffle promises no order.
    parts = [hashes_of(block, plan.table.row_hash_type) for block in blocks]
    return sorted((part for part in parts if len(part)), key=lambda part: int(part["place"][0]))


def _needed_by_group(
    needed: kernels.SelectedRows, side: kernels.Side, first_split: int, plan: TaskPlan
) -> Iterator[ShuffleBlock]:
    needed = needed[np.argsort(needed["place"])]
    groups = plan.group_of[kernels.split_of(needed["place"]).astype(np.int64) + first_split]
    borders = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(needed)]
    for start, end in pairwise(borders):
        if start < end:
            yield ShuffleBlock(int(groups[start]), _NEEDED, side, first_split, needed[start:end].tobytes())


def _pick(blocks: Iterable[ShuffleBlock], plan: TaskPlan) -> Iterator[ShuffleBlock]:
    needed: defaultdict[int, list[kernels.SelectedRows]] = defaultdict(list)
    for block in blocks:
        if block.kind == FACT:
            yield block
        else:
            needed[block.target].append(np.frombuffer(block.blob, kernels.SELECTED_ROW))
    for number in sorted(needed):
        yield from _pick_group(number, np.concatenate(needed.pop(number)), plan)


def _pick_group(number: int, needed: kernels.SelectedRows, plan: TaskPlan) -> Iterator[ShuffleBlock]:
    group = plan.groups[number]
    splits = plan.splits[group.start : group.stop]
    needed = needed[np.argsort(needed["place"])]
    behind = np.array([one.number for one in splits], np.uint64) + np.uint64(1)
    chunks: list[kernels.RowChunk] = []
    start = 0
    for one, end in zip(splits, np.searchsorted(kernels.split_of(needed["place"]), behind).tolist(), strict=True):
        if start == end:
            continue
        try:
            check_visible(one.split.files)
            chunks.append(kernels.fetch_rows(one.split, one.side, needed[start:end], one.first_record, plan.table))
        except DriftlineError as error:
            yield _fact(error, one.side, one.number)
            return
        start = end
    chunk = chunks[0] if len(chunks) == 1 else kernels.join_chunks(chunks).sorted()
    for target, (first, last) in enumerate(pairwise(kernels.cut_points(chunk.order, plan.bounds))):
        for piece in _chunk_pieces(chunk.slice(first, last)):
            yield ShuffleBlock(target, _ROWS, splits[0].side, number, _chunk_bytes(piece))


def _chunk_pieces(chunk: kernels.RowChunk) -> Iterator[kernels.RowChunk]:
    size = max(1, int(chunk.rows.estimated_size()))
    step = max(1, chunk.height * BLOCK_BYTES // size)
    for start in range(0, chunk.height, step):
        yield chunk.slice(start, min(start + step, chunk.height))


def _chunk_bytes(chunk: kernels.RowChunk) -> memoryview:
    frame = pl.DataFrame([chunk.kinds.alias("kinds"), chunk.order.alias("order"), *chunk.rows.get_columns()])
    return table_blob(frame.to_arrow(compat_level=pl.CompatLevel.oldest()))


def _encode(blocks: Iterable[ShuffleBlock], plan: TaskPlan, workspace: Workspace) -> Iterator[ShuffleBlock]:
    stores: defaultdict[int, dict[str, kernels.ChunkStore]] = defaultdict(
        lambda: {side: kernels.ChunkStore(workspace, _HELD_CHUNK_BYTES // 2) for side in "AB"}
    )
    try:
        for block in blocks:
            if block.kind == FACT:
                yield block
            else:
                frame = pl.DataFrame(pl.from_arrow(pa.ipc.open_stream(block.blob).read_all()))
                chunk = kernels.RowChunk(frame.drop("kinds", "order"), frame["kinds"], frame["order"])
                stores[block.target][block.side].add(chunk)
        for number in sorted(stores):
            changes = ChangesFact([], [])
            yield from _deliver(number, _lines(stores.pop(number), plan.table, changes), plan.parts)
            yield _fact(changes, "", number)
    except DriftlineError as error:
        yield _fact(error, "", 0)


def _lines(stores: dict[str, kernels.ChunkStore], plan: kernels.DiffPlan, changes: ChangesFact) -> Iterator[memoryview]:
    """The event lines of one range, encoded in steps that fit the memory of a task; changes are counted."""
    a, b = stores["A"], stores["B"]
    bounds = kernels.range_bounds([*a.chunks, *b.chunks], max(1, -(-(a.bytes + b.bytes) // _ENCODE_BYTES)))
    cuts_a, cuts_b = kernels.cut_chunks(a.chunks, bounds), kernels.cut_chunks(b.chunks, bounds)
    for number in range(len(bounds) + 1):
        encoded = kernels.encode_cut(cuts_a, cuts_b, number, plan)
        changes.counts.append(encoded.changes)
        if encoded.profile is not None:
            changes.profiles.append(encoded.profile)
        yield encoded.lines


def _deliver(number: int, lines: Iterator[memoryview], folder: Location | None) -> Iterator[ShuffleBlock]:
    if folder is not None:
        yield ShuffleBlock(number, PART, "", 0, pickle.dumps(write_part(folder, number, lines)))
        return
    sent = 0
    for block in lines:
        for start in range(0, len(block), BLOCK_BYTES):
            yield ShuffleBlock(number, LINES, "", sent, block[start : start + BLOCK_BYTES])
            sent += 1


def _fact(fact: Fact, side: str, number: int) -> ShuffleBlock:
    return ShuffleBlock(0, FACT, side, number, pickle.dumps(fact))

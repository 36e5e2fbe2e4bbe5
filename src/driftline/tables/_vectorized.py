"""The diff of large files on one machine, in vectorized steps: hash the splits, match, fetch rows, encode events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from driftline.core import Workspace
from driftline.errors import OptionError, TableError
from driftline.sources import RecordIndex, Source, Split, SplitSide, polars_column
from driftline.tables._columns import Side, hashed_text, raise_first_error, resolve_columns
from driftline.tables._engines import LocalPlan, TableDiffJob, layouts, ordered_map
from driftline.tables._events import Stats
from driftline.tables._kernels import stages
from driftline.tables._kernels.match import HashCollision, Matches, RowKind, SelectedRows, new_seeds, split_of
from driftline.tables._kernels.output import ChunkStore, Encoded, HashCodec, HashStore
from driftline.tables._kernels.stages import DiffPlan, HashedSide

_MOST_BUCKETS = 4096
_PROBED_PAIRS = 1000
_HELD_BYTES = 80 << 20  # typed rows of a side that are not read a second time


@dataclass(frozen=True)
class Matched:
    """The result of matching: everything but the text of the events."""

    plan: DiffPlan
    a: HashedSide
    b: HashedSide
    stats: Stats
    needed_a: SelectedRows
    needed_b: SelectedRows


@dataclass(frozen=True)
class LocalRun:
    """One run: the job, sizes, a workspace and threads."""

    job: TableDiffJob
    sizes: LocalPlan
    workspace: Workspace
    pool: ThreadPoolExecutor

    def match(self, a: Source, b: Source, sides: tuple[SplitSide, SplitSide] | None) -> Matched:
        """Find the rows that differ, or raise the first error in the specified order.

        `sides` is None where only the strict parser may decide about a header.
        """
        while True:
            try:
                matched = None if sides is None else self._match_layouts(*sides)
            except HashCollision:
                continue  # other seeds
            if matched is not None:
                return matched
            # Only the strict parser may decide about some file; A's errors come before B's.
            a = a.normalized("A", self.workspace, self.pool)
            b = b.normalized("B", self.workspace, self.pool)
            sides = layouts(a, b, self.sizes, self.workspace, self.pool)
            assert sides is not None, "a rewritten file has a plain header"

    def _match_layouts(self, a: SplitSide, b: SplitSide) -> Matched | None:
        """The matches, or None if some split needs the strict parser."""
        a, b = stages.with_columns(a, b)
        rows = max(a.expected_rows, b.expected_rows)
        buckets = self._bucket_count(rows)
        try:
            compared = resolve_columns(a.header, b.header, self.job.options, stages.sides_of(a, b))
        except (TableError, OptionError):
            # Errors inside the files come first: the strict parser looks for them, then this error is raised again.
            if self._all_sound(a) and self._all_sound(b):
                raise
            return None
        by_value, text = stages.columns_by_value(compared, a, b), hashed_text(compared, a, b, self.job.options)
        plan = DiffPlan(self.job.options, compared, new_seeds(), buckets, by_value, text, self.job.profile)
        found = self._match_by(plan, a, b)
        if found == "by cells":
            text = hashed_text(compared, a, b, self.job.options, by_cells=True)
            found = self._match_by(replace(plan, text=text), a, b)
        return found if isinstance(found, Matched) else None

    def _match_by(self, plan: DiffPlan, a: SplitSide, b: SplitSide) -> Matched | Literal["by cells", "exactly"]:
        """The matches, or the other way to find them."""
        hashed_a, hashed_b, store = self._hash_sides(a, b, plan)
        if not (hashed_a.sound and hashed_b.sound):
            return "exactly"
        if not (hashed_a.has_texts and hashed_b.has_texts):
            return "by cells"
        matched = self._match_hashes(plan, hashed_a, hashed_b, store)
        many_differ = matched.stats.changed > matched.stats.unchanged
        return "by cells" if plan.by_record and many_differ and _written_otherwise(matched) else matched

    def _bucket_count(self, rows: int) -> int:
        """Enough buckets of the planned size; more than one are a multiple of the threads, so that none is idle."""
        buckets = -(-rows // self.sizes.bucket_rows)
        rounds = -(-buckets // self.sizes.threads)
        return max(1, min(rounds * self.sizes.threads, _MOST_BUCKETS)) if buckets > 1 else 1

    def _all_sound(self, side: SplitSide) -> bool:
        splits = ((split,) for split in side.splits)
        return all(ordered_map(self.pool, lambda split: split.read().sound, splits, self.sizes.threads * 2))

    def _hash_sides(self, a: SplitSide, b: SplitSide, plan: DiffPlan) -> tuple[HashedSide, HashedSide, HashStore]:
        store = HashStore(self.workspace, self.sizes.hash_bytes, HashCodec(plan.row_hash_type))
        space = min(self.sizes.chunk_bytes // 2, _HELD_BYTES)
        found_a, found_b = HashedSide("A", a, space=space), HashedSide("B", b, space=space)
        owners = [found_a] * len(a.splits) + [found_b] * len(b.splits)
        work = (
            (split, side, number, plan)
            for side, layout in (("A", a), ("B", b))
            for number, split in enumerate(layout.splits)
        )
        with self.job.tracker.phase("read", total=a.size + b.size, unit="bytes"):
            results = ordered_map(self.pool, stages.hash_split, work, self.sizes.threads * 2)
            for owner, hashed in zip(owners, results, strict=True):
                buckets: Iterable[tuple[int, Any]] = enumerate(hashed.parts)
                if plan.options.has_row_numbers and hashed.parts:
                    buckets = stages.row_blocks(hashed.parts[0], owner.total_rows, self.sizes.bucket_rows)
                for bucket, hashes in buckets:
                    if hashes.size:
                        store.add((owner.side, bucket), hashes)
                owner.note(hashed)
                if not (owner.sound and owner.has_texts):
                    break  # the other splits cannot change that
                self.job.tracker.advance(owner.layout.splits[hashed.number].size)
        return found_a, found_b, store

    def _match_hashes(self, plan: DiffPlan, a: HashedSide, b: HashedSide, store: HashStore) -> Matched:
        problems = [*a.problems, *b.problems]
        raise_first_error(problem for problem in problems if problem.side == "A" and problem.kind != "duplicate_key")
        buckets = plan.buckets
        if plan.options.has_row_numbers:
            buckets = max(a.total_rows, b.total_rows) // self.sizes.bucket_rows + 1
        matches: list[Matches] = []
        with self.job.tracker.phase("match", total=buckets, unit="items"):
            work = ((store.take(("A", bucket)), store.take(("B", bucket)), plan) for bucket in range(buckets))
            for found in ordered_map(self.pool, stages.match_bucket, work, self.sizes.threads):
                matches.append(found)
                self.job.tracker.advance()
        problems += a.duplicates([found.duplicate_a for found in matches], plan)
        problems += b.duplicates([found.duplicate_b for found in matches], plan)
        raise_first_error(problems)
        needed = [np.concatenate([getattr(found, side) for found in matches]) for side in ("needed_a", "needed_b")]
        return Matched(plan, a, b, stages.total_stats((found.stats for found in matches), plan, a, b), *needed)

    def encode(self, matched: Matched) -> Iterator[Encoded]:
        """The event lines, range after range."""
        a, b = self._pick_sides(matched)
        stages.check_unchanged(matched.a.layout.splits)
        stages.check_unchanged(matched.b.layout.splits)
        ranges = max(1, -(-(a.bytes + b.bytes) // self.sizes.range_bytes))
        bounds = stages.range_bounds([*a.chunks, *b.chunks], ranges)
        cuts_a, cuts_b = stages.cut_chunks(a.chunks, bounds), stages.cut_chunks(b.chunks, bounds)
        work = ((cuts_a, cuts_b, number, matched.plan) for number in range(len(bounds) + 1))
        with self.job.tracker.phase("write", total=len(bounds) + 1, unit="items"):
            for encoded in ordered_map(self.pool, stages.encode_cut, work, self.sizes.threads - 1):
                yield encoded
                self.job.tracker.advance()

    def _pick_sides(self, matched: Matched) -> tuple[ChunkStore, ChunkStore]:
        stores = [ChunkStore(self.workspace, self.sizes.chunk_bytes) for _ in "AB"]
        picks_a = _picks(matched.a, matched.needed_a, matched.plan)
        picks_b = _picks(matched.b, matched.needed_b, matched.plan)
        owners = [stores[0]] * len(picks_a) + [stores[1]] * len(picks_b)
        work = [*picks_a, *picks_b]
        rows = len(matched.needed_a) + len(matched.needed_b)
        kept: Any = None
        if self.job.kept is not None:  # the job needs the rows as they are stored
            from driftline.tables._frames import KeptRows

            kept = KeptRows(matched.a.layout, matched.b.layout, by_record=matched.plan.by_record)
            self.job.kept.append(kept)
        with self.job.tracker.phase("fetch", total=rows, unit="rows"):
            if kept is None:
                chunks = ordered_map(self.pool, stages.fetch_rows, work, self.sizes.threads)
            else:
                fetched = ordered_map(self.pool, stages.fetch_kept, work, self.sizes.threads)
                chunks = (kept.add_from(pick[1], *found) for pick, found in zip(work, fetched, strict=True))
            for store, chunk in zip(owners, chunks, strict=True):
                store.add(chunk)
                self.job.tracker.advance(chunk.height)
        return stores[0], stores[1]


def _written_otherwise(matched: Matched) -> bool:
    """Whether most rows whose texts differ have equal cells, by a sample of pairs of one split of each side."""
    before = matched.needed_a[matched.needed_a["kind"] == RowKind.BEFORE]
    before = before[split_of(before["place"]) == split_of(before["place"][:1])]
    after = matched.needed_b[matched.needed_b["kind"] == RowKind.AFTER]
    after = after[polars_column(after["turn"]).is_in(polars_column(before["turn"]).implode()).to_numpy()]
    splits = split_of(after["place"]).astype(np.int64)
    after = after[splits == np.bincount(splits).argmax()][:_PROBED_PAIRS]
    before = before[polars_column(before["turn"]).is_in(polars_column(after["turn"]).implode()).to_numpy()]
    chunks_a = [stages.fetch_rows(*pick) for pick in _picks(matched.a, before, matched.plan)]
    chunks_b = [stages.fetch_rows(*pick) for pick in _picks(matched.b, after, matched.plan)]
    return stages.encode_range(chunks_a, chunks_b, matched.plan).equal * 2 > len(after)


def _picks(
    side: HashedSide, needed: SelectedRows, plan: DiffPlan
) -> list[tuple[Split, Side, SelectedRows, int, DiffPlan, RecordIndex]]:
    """The arguments of `fetch_rows` for every split with selected rows."""
    needed = needed[np.argsort(needed["place"])]
    numbers = np.arange(len(side.layout.splits) + 1, dtype=np.uint64)
    borders = np.searchsorted(split_of(needed["place"]), numbers)
    found = []
    for number, split in enumerate(side.layout.splits):
        rows = needed[borders[number] : borders[number + 1]]
        if len(rows):
            found.append((split, side.side, rows, side.first_records[number], plan, side.known(number)))
    return found

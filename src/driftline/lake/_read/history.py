"""Verify: prove that base and deletes are what a replay of all folded deltas gives.

Both sides are counted and hashed per range in the tasks; the hash is a sum over rows, so it does not depend on their
order. Rows that differ are listed. The ids of all deltas are recomputed on the way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from driftline.core._progress import Tracker
from driftline.deltas import ColumnSchema
from driftline.errors import LakeError
from driftline.lake.changing import original_deltas
from driftline.lake.columns import ROW_ID, STAMPS, base_file_schema, deletes_file_schema
from driftline.lake.compacting import Engine
from driftline.lake.fold import fold
from driftline.lake.kernels import RangeInput, Result, load_part
from driftline.lake.layout import Lake, Part
from driftline.lake.local_engine import run_locally
from driftline.lake.oracle import replay
from driftline.lake.parquet_files import DataFile
from driftline.lake.planning import FoldPlan, plan_fold
from driftline.lake.ranges import KeyRange, bounds_of
from driftline.lake.registry import required
from driftline.lake.rendering import jsonl_bytes
from driftline.lake.rows import decode_state
from driftline.lake.snapshots import Snapshot, newest_snapshot
from driftline.lake.waiting import count_waiting

_HASH_BYTES = 16
_MODULUS = 1 << (8 * _HASH_BYTES)
_LISTED = 20


@dataclass(frozen=True, slots=True)
class Verification:
    """The proof: counts and hashes of both sides, and the rows that differ (the first ones of each range)."""

    table: str
    rows_in_base: int
    rows_replayed: int
    hash_of_base: str
    hash_of_replay: str
    deltas: int
    differing_rows: tuple[str, ...] = ()
    snapshot: int | None = None
    waiting: int = 0  # deltas in envelopes that no schema takes: no part of the proof

    @property
    def is_proved(self) -> bool:
        """Whether base is the replay of its deltas."""
        same = self.rows_in_base == self.rows_replayed and self.hash_of_base == self.hash_of_replay
        return same and not self.differing_rows


@dataclass(frozen=True)
class CompareWithBase:
    """The job of `verify`: fold a range from the deltas alone and compare it with the committed files."""

    snapshot: Snapshot
    oracle: bool = False  # replay in plain Python instead of the fold kernel
    every_range: bool = True
    checks_ids: bool = True

    @property
    def needs_originals(self) -> bool:
        """The oracle replays deltas as they were written."""
        return self.oracle

    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        """Count, hash and compare one range."""
        inside = replace(given.key_range, is_piece=True)
        base = _load_overlapping(plan, "base", self.snapshot.base, inside, base_file_schema(plan.columns))
        dead = _load_overlapping(plan, "deletes", self.snapshot.deletes, inside, deletes_file_schema())
        folded = fold(plan.columns, given.deltas, given.base, given.deletes)
        expected = _without_deaths(folded.base)
        actual = _without_deaths(base)
        result: Result = {
            "base": base.num_rows,
            "replayed": expected.num_rows,
            "base_hash": _hash(actual, plan.columns),
            "replay_hash": _hash(expected, plan.columns),
            "differing": [],
        }
        if result["base_hash"] != result["replay_hash"] or not actual.equals(expected):
            result["differing"] = _differing(actual, expected)
        result["differing"] += _differing_deaths(plan, dead, folded.deletes)
        if self.oracle:
            result["differing"] += _differing_from_replay(plan, given, base)
        result["differing"] = sorted(set(result["differing"]))[:_LISTED]
        return [result]


def verify(
    lake: Lake,
    table: str,
    *,
    engine: Engine = run_locally,
    tracker: Tracker | None = None,
    oracle: bool = False,
) -> Verification:
    """Replay every folded delta and compare the outcome with the newest snapshot."""
    required(lake, table)
    snapshot = newest_snapshot(lake, table)
    if snapshot is None:
        raise LakeError(f"table {table!r} has no snapshot to verify: compact it first", code="no_snapshot")
    plan = plan_fold(lake, table, full=True, deltas_version=snapshot.deltas_version, envelopes=False)
    results = list(engine(plan, CompareWithBase(snapshot, oracle), tracker))
    hashes = [sum(int(result[name], 16) for result in results) % _MODULUS for name in ("base_hash", "replay_hash")]
    return Verification(
        table,
        sum(result["base"] for result in results),
        sum(result["replayed"] for result in results),
        f"{hashes[0]:032x}",
        f"{hashes[1]:032x}",
        plan.delta_count,
        tuple(row_id for result in results for row_id in result["differing"]),
        snapshot.base_version,
        count_waiting(lake, table),
    )


def _load_overlapping(
    plan: FoldPlan, part: Part, files: Sequence[DataFile], inside: KeyRange, schema: pa.Schema
) -> pa.Table:
    return load_part(plan, part, [file for file in files if _overlaps(file, inside)], inside, schema).sort_by(ROW_ID)


def _overlaps(file: DataFile, inside: KeyRange) -> bool:
    bounds = bounds_of(file)
    if bounds is None:
        return True
    low, high = bounds
    return (inside.low is None or high >= inside.low) and (inside.high is None or low < inside.high)


def _without_deaths(rows: pa.Table) -> pa.Table:
    """Rows as they are proved: the stamp of an old DELETE may have gone with its tombstone."""
    stamps = rows[STAMPS].combine_chunks() if isinstance(rows[STAMPS], pa.ChunkedArray) else rows[STAMPS]
    names = [name for name in (field.name for field in stamps.type) if name != "deleted"]
    kept = pa.StructArray.from_arrays([pc.struct_field(stamps, [name]) for name in names], names=names)
    return rows.set_column(rows.schema.get_field_index(STAMPS), STAMPS, kept).combine_chunks()


def _hash(rows: pa.Table, columns: Sequence[ColumnSchema]) -> str:
    """The sum of the rows' hashes: values and whether they are set; the stamps are compared one by one."""
    total = 0
    for line in jsonl_bytes(rows, columns).splitlines():
        total += int.from_bytes(hashlib.sha256(line).digest()[:_HASH_BYTES], "big")
    return f"{total % _MODULUS:032x}"


def _differing(actual: pa.Table, expected: pa.Table) -> list[str]:
    left = {row[ROW_ID]: row for row in actual.to_pylist()}
    right = {row[ROW_ID]: row for row in expected.to_pylist()}
    found = [row_id for row_id in left.keys() | right.keys() if left.get(row_id) != right.get(row_id)]
    repeated = [] if len(left) == actual.num_rows else [actual[ROW_ID][0].as_py()]
    return sorted(found + repeated)[:_LISTED]


def _differing_deaths(plan: FoldPlan, dead: pa.Table, replayed: pa.Table) -> list[str]:
    if plan.horizon is not None:
        # Tombstones below the horizon may be gone on either side.
        dead, replayed = (
            rows.filter(pc.greater_equal(pc.struct_field(rows["_deleted"], ["hlc"]), plan.horizon))
            for rows in (dead, replayed)
        )
    return [] if dead.equals(replayed) else _differing(dead, replayed)


def _differing_from_replay(plan: FoldPlan, given: RangeInput, base: pa.Table) -> list[str]:
    if given.base.num_rows:
        return []  # replay starts from an archived base: its deltas are gone
    expected = replay(original_deltas(plan, given.deltas))
    actual = dict(decode_state(base, plan.columns))
    return [row_id for row_id in expected.keys() | actual.keys() if expected.get(row_id) != actual.get(row_id)]

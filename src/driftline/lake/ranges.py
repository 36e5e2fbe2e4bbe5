"""Ranges of row ids: which base files, deletes and deltas are folded together.

Base and deletes files of one range lie within its bounds, so ranges never overlap and only the touched ones are
rewritten. A range that would take in too many deltas is cut at sampled row ids; its pieces share the files and are
always folded together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from driftline.lake.parquet_files import DataFile

ROWS_PER_RANGE = 150_000
_STATISTICS_LIMIT = 64  # other tools cut strings here: a longer bound is only a prefix

Bounds = tuple[str, str]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Row ids from `low` (None: from the start) up to but not including `high` (None: to the end)."""

    index: int
    low: str | None
    high: str | None
    base: tuple[DataFile, ...] = ()
    deletes: tuple[DataFile, ...] = ()
    is_piece: bool = False  # of a range that was cut: it is folded even if no delta falls into it
    deltas: int = 0  # about so many fall into it, by the sample

    @property
    def rows(self) -> int:
        """The rows of its files."""
        return sum(file.rows for file in (*self.base, *self.deletes))


def make_ranges(
    base: Iterable[DataFile],
    deletes: Iterable[DataFile],
    sample: Sequence[str],
    delta_count: int,
    exact_bounds: Callable[[DataFile, bool], Bounds],
    rows_per_range: int = ROWS_PER_RANGE,
    small_file_bytes: int = 0,
) -> tuple[KeyRange, ...]:
    """The ranges of a fold; `sample` is sorted and stands for `delta_count` deltas."""
    groups = _group_files(base, deletes, exact_bounds, small_file_bytes)
    weight = delta_count / len(sample) if sample else 0.0
    ranges: list[KeyRange] = []
    for group in groups:
        ranges += _cut(group, sample, weight, rows_per_range)
    return tuple(
        replace(each, index=index, deltas=round(_sampled(each, sample) * weight)) for index, each in enumerate(ranges)
    )


def lower_bounds(ranges: Sequence[KeyRange]) -> list[str]:
    """The row ids at which the second, third, … range begins."""
    return [each.low for each in ranges[1:] if each.low is not None]


def bounds_of(file: DataFile) -> Bounds | None:
    """The first and last row id by the statistics, or None where they may be cut or are not there."""
    low, high = file.min_row_id, file.max_row_id
    if low is None or high is None or max(len(low), len(high)) >= _STATISTICS_LIMIT:
        return None
    return low, high


def _group_files(
    base: Iterable[DataFile],
    deletes: Iterable[DataFile],
    exact_bounds: Callable[[DataFile, bool], Bounds],
    small_file_bytes: int,
) -> list[KeyRange]:
    """Files whose row ids overlap belong together; so do neighbours as long as they are small."""
    entries = [(exact_bounds(file, True), True, file) for file in base if file.rows]
    entries += [(exact_bounds(file, False), False, file) for file in deletes if file.rows]
    entries.sort(key=lambda entry: entry[0])
    groups: list[_Group] = []
    for (low, high), is_base, file in entries:
        if not groups or (low > groups[-1].high and groups[-1].bytes + file.size > small_file_bytes):
            groups.append(_Group(low, high))
        groups[-1].take_in(file, high, is_base)
    if not groups:
        return [KeyRange(0, None, None)]
    lows: list[str | None] = [None, *(group.low for group in groups[1:])]
    highs = [*lows[1:], None]
    return [
        KeyRange(0, low, high, tuple(group.base), tuple(group.deletes))
        for low, high, group in zip(lows, highs, groups, strict=True)
    ]


@dataclass
class _Group:
    low: str
    high: str
    bytes: int = 0
    base: list[DataFile] = field(default_factory=list)
    deletes: list[DataFile] = field(default_factory=list)

    def take_in(self, file: DataFile, high: str, is_base: bool) -> None:
        self.high = max(self.high, high)
        self.bytes += file.size
        (self.base if is_base else self.deletes).append(file)


def _places(group: KeyRange, sample: Sequence[str]) -> tuple[int, int]:
    start = 0 if group.low is None else bisect_left(sample, group.low)
    stop = len(sample) if group.high is None else bisect_left(sample, group.high)
    return start, stop


def _sampled(group: KeyRange, sample: Sequence[str]) -> int:
    start, stop = _places(group, sample)
    return stop - start


def _cut(group: KeyRange, sample: Sequence[str], weight: float, rows_per_range: int) -> list[KeyRange]:
    start, stop = _places(group, sample)
    rows = (stop - start) * weight + group.rows
    pieces = max(1, round(rows / rows_per_range)) if stop > start else 1
    cuts = sorted({sample[start + (stop - start) * piece // pieces] for piece in range(1, pieces)})
    cuts = [cut for cut in cuts if group.low is None or cut > group.low]
    if not cuts:
        return [group]
    lows, highs = [group.low, *cuts], [*cuts, group.high]
    shared = bool(group.base or group.deletes)
    return [replace(group, low=low, high=high, is_piece=shared) for low, high in zip(lows, highs, strict=True)]

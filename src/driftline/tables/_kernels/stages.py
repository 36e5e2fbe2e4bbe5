"""The steps that a scheduler runs on splits and buckets: pure, picklable, the same on every engine.

The flow of the data: `hash_split` for every split of both sides, `match_bucket` for every bucket of hashes,
`fetch_rows` for every split with selected rows, `encode_range` for every range of the output. `range_bounds` and
`cut_chunks` cut the fetched rows into such ranges. `HashedSide` collects what a scheduler needs to know of a side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from driftline import sources
from driftline.core import Json, exact_loads
from driftline.sources import ParsedRange, RecordIndex, RowLengthError, Split, SplitSide, TypedRows, record_texts
from driftline.tables import _columns
from driftline.tables._columns import Column, Comparison, HashedText, Problem, Side, Sides
from driftline.tables._events import Stats, joined_profile
from driftline.tables._kernels import match, output
from driftline.tables._kernels.match import Duplicate, Matches, Numbers, RowHashes, Seeds, SelectedRows, Verdict
from driftline.tables._kernels.output import ROW_NUMBER, Encoded, RowChunk, StoredChunk
from driftline.tables._kernels.profiles import repeats_of
from driftline.tables._options import TableOptions
from driftline.tables._rule_columns import form_column, measure_count, tolerant_column

_SAMPLES_PER_CHUNK = 256
_MOST_ENDS = 4_000_000  # rows of a side whose ends are retained, 4 bytes each

Cut = tuple[StoredChunk, list[int]]


@dataclass(frozen=True)
class DiffPlan:
    """What every step needs: checked options, the compared columns, and the seeds and buckets of this run."""

    options: TableOptions
    compared: Comparison
    seeds: Seeds
    buckets: int = 1
    by_value: frozenset[str] = frozenset()  # columns, by A's names, that are compared without conversion to text
    text: HashedText | None = None  # how rows of text are read to be hashed; None: all their cells
    profile: bool = False  # whether the kinds of change are requested

    @property
    def by_record(self) -> bool:
        """Whether rows are hashed by the text of their records."""
        return self.text is not None and self.text[0].text

    @property
    def hashed(self) -> tuple[Sequence[Column], Sequence[Column]]:
        """The columns of the key and of the rest of a row hash; the key of a multiset is the complete row."""
        if self.options.ignore_row_order:
            return self.compared.columns, ()
        return self.compared.keys, self.compared.others

    @cached_property
    def verdict(self) -> Verdict:
        tolerant = [column.rule for column in self.compared.others if column.rule.tolerance is not None]
        return Verdict(tolerant, self.options.emit_unchanged)

    @cached_property
    def row_hash_type(self) -> np.dtype[np.void]:
        return match.row_hash_type(sum(map(measure_count, self.verdict.tolerant)))


@dataclass(frozen=True, slots=True)
class HashedSplit:
    """The hashes of a split, cut into buckets, or what prevents them."""

    number: int
    records: int
    rows: int = 0  # records that are not left out
    parts: Sequence[RowHashes] = ()
    sound: bool = True
    width_mismatch: RowLengthError | None = None
    missing_key: tuple[int, str] | None = None
    has_texts: bool = True  # False: the texts of records were requested, but rows differ from their records
    ends: npt.NDArray[np.int32] | None = None  # the offset behind each record, where it was found
    frame: pl.DataFrame | None = None  # typed rows

    def problems(self, side: Side, first_record: int, width: int) -> list[Problem]:
        """Its row errors, with the record numbers of the file."""
        found = []
        if self.width_mismatch is not None:
            number = first_record + self.width_mismatch.record
            found.append(_columns.width_problem(side, number, width, self.width_mismatch.got))
        if self.missing_key is not None:
            row, column = self.missing_key
            found.append(_columns.missing_key_problem(side, first_record + row, column))
        return found


def hash_split(split: Split, side: Side, number: int, plan: DiffPlan) -> HashedSplit:
    """Read a split and hash its rows."""
    keys, _ = plan.hashed
    buckets = plan.buckets if keys else 1
    held = cast(TypedRows, split).frame() if plan.by_value else None
    parsed = split.read(plan.text and plan.text["AB".index(side)]) if held is None else ParsedRange(held.height)
    if held is None and parsed.table is None:
        return HashedSplit(number, parsed.records, parsed.records, (), parsed.sound, parsed.width_mismatch)
    frame = match.as_frame(parsed.table if held is None else held)
    records = np.arange(frame.height) if parsed.numbers is None else parsed.numbers
    texts = None
    if not plan.by_record:
        columns = _hashed_columns(frame, side, plan)
    elif parsed.data is not None:
        texts = record_texts(parsed.data, parsed.records)
        columns = _keys_and_texts(frame, texts, side, plan)
    else:
        return HashedSplit(number, parsed.records, frame.height, has_texts=False)
    parts = match.hash_rows(columns, records.astype(np.uint64), split=number, seeds=plan.seeds, buckets=buckets)
    missing = _first_missing_key(columns.keys, records, side, plan)
    ends = None if texts is None else texts.ends
    return HashedSplit(number, parsed.records, frame.height, parts, missing_key=missing, ends=ends, frame=held)


def _keys_and_texts(frame: pl.DataFrame, texts: sources.RecordTexts, side: Side, plan: DiffPlan) -> match.HashedColumns:
    count = max(len(texts.bounds) - 1, 0)
    buffers = [None, pa.py_buffer(texts.bounds), pa.py_buffer(texts.data)]
    # Every second text is between two records.
    spans = sources.polars_column(pa.Array.from_buffers(pa.string(), count, buffers))
    return match.HashedColumns(_forms(frame, plan.compared.keys, side, plan), [spans.gather_every(2)])


def _hashed_columns(frame: pl.DataFrame, side: Side, plan: DiffPlan) -> match.HashedColumns:
    keys, others = plan.hashed
    typed = plan.compared.typed(side)
    hashed: list[pl.Series] = []
    measured: list[Numbers] = []
    for column, cells in zip(others, _cells(frame, others, side, plan), strict=True):
        if column.rule.tolerance is None:
            hashed.append(form_column(cells, column.rule_of(side), typed=typed))
        else:
            left, measures = tolerant_column(cells, column.rule_of(side), typed=typed)
            hashed.append(left)
            measured += measures
    # Only several rows of one key are matched by equality.
    tolerant = [column for column in others if column.rule.tolerance] if plan.options.duplicates == "match" else []
    return match.HashedColumns(_forms(frame, keys, side, plan), hashed, _forms(frame, tolerant, side, plan), measured)


def _cells(frame: pl.DataFrame, columns: Sequence[Column], side: Side, plan: DiffPlan) -> list[pl.Series]:
    names = plan.compared.names(columns, side)
    cells = [frame[match.column_name(name)] for name in names]
    if not plan.by_value:
        return cells
    return [
        sources.plain_values(cell) if column.a in plan.by_value else sources.json_cells(cell, name)
        for cell, column, name in zip(cells, columns, names, strict=True)
    ]


def _forms(frame: pl.DataFrame, columns: Sequence[Column], side: Side, plan: DiffPlan) -> list[pl.Series]:
    typed = plan.compared.typed(side)
    pairs = zip(columns, _cells(frame, columns, side, plan), strict=True)
    return [form_column(cells, column.rule_of(side), typed=typed) for column, cells in pairs]


def _first_missing_key(
    keys: Sequence[pl.Series], records: npt.NDArray[np.int64], side: Side, plan: DiffPlan
) -> tuple[int, str] | None:
    """The record of the first row with a missing key cell, and the first key column without a value."""
    if plan.options.mode != "keyed" or plan.options.empty_key == "allow" or not len(records):
        return None
    names, typed = plan.compared.names(plan.compared.keys, side), plan.compared.typed(side)
    found = []
    for forms, column, name in zip(keys, plan.compared.keys, names, strict=True):
        if column.a in plan.by_value:
            missing = forms.is_null() | (forms == "") if forms.dtype == pl.String else forms.is_null()
        else:
            missing = forms.is_in(list(column.rule.missing_forms(typed=typed)))
        if missing.any():
            found.append((int(missing.arg_max() or 0), name))
    if not found:
        return None
    first = min(row for row, _ in found)
    return int(records[first]), next(name for row, name in found if row == first)


def match_bucket(a: Sequence[RowHashes], b: Sequence[RowHashes], plan: DiffPlan) -> Matches:
    """Match the hashes of one bucket; positional buckets are blocks of rows."""
    hashes_a, hashes_b = match.join_hashes(a, plan.row_hash_type), match.join_hashes(b, plan.row_hash_type)
    found = _matches(hashes_a, hashes_b, plan)
    if not plan.profile or plan.options.duplicates == "error":
        return found
    return replace(found, stats=replace(found.stats, profile=repeats_of(hashes_a, hashes_b)))


def _matches(hashes_a: RowHashes, hashes_b: RowHashes, plan: DiffPlan) -> Matches:
    options = plan.options
    if options.ignore_row_order:
        return match.match_multisets(hashes_a, hashes_b)
    if options.counts_dropped:
        return match.match_kept(hashes_a, hashes_b, plan.verdict, last=options.duplicates == "last")
    keyed = match.match_groups if options.duplicates == "match" else match.match_keyed
    return (match.match_positions if options.mode == "positional" else keyed)(hashes_a, hashes_b, plan.verdict)


def fetch_rows(
    split: Split, side: Side, needed: SelectedRows, first_record: int, plan: DiffPlan, known: RecordIndex | None = None
) -> RowChunk:
    """Fetch the selected rows of one split, in output order; `first_record` is the number of its first record."""
    return fetch_kept(split, side, needed, first_record, plan, known, typed=False)[0]


def fetch_kept(
    split: Split,
    side: Side,
    needed: SelectedRows,
    first_record: int,
    plan: DiffPlan,
    known: RecordIndex | None = None,
    *,
    typed: bool = True,
) -> tuple[RowChunk, RowChunk, pa.Table]:
    """The rows as `fetch_rows` gives them, and in the order of the split with their cells as they are stored."""
    needed = needed[np.argsort(needed["place"])]
    records = match.row_in_split(needed["place"]).astype(np.int64)
    cells = None
    if typed and isinstance(split, TypedRows):
        cells = sources.take_rows(split.typed_rows(), records)
        frame = match.as_frame(sources.json_columns(cells))
    elif known is not None and known.frame is not None:
        frame = sources.json_frame(zip(known.frame.columns, known.frame.get_columns(), strict=True), records)
        frame.columns = list(map(match.column_name, known.frame.columns))
    else:
        cells = split.pick(records, known)
        frame = match.as_frame(cells)
    if plan.options.has_row_numbers:
        order = sources.polars_column(needed["turn"])
        frame = frame.with_columns(sources.polars_column(records + first_record).cast(pl.UInt64).alias(ROW_NUMBER))
    else:
        in_turn = plan.options.duplicates == "match" or plan.options.ignore_row_order  # of rows with one order value
        turns = np.ascontiguousarray(needed["turn"]) if in_turn else None
        order = output.order_values(frame, plan.compared, side, turns)
    chunk = RowChunk(frame, sources.polars_column(needed["kind"]), order)
    return chunk.sorted(), chunk, cells


def encode_range(a: Iterable[RowChunk], b: Iterable[RowChunk], plan: DiffPlan) -> Encoded:
    """The event lines of one range of the output, from the chunks of both sides in it."""
    return output.encode_events(_joined(a, plan.compared.header_a), _joined(b, plan.compared.header_b), plan)


def _joined(chunks: Iterable[RowChunk], header: Sequence[str]) -> RowChunk:
    filled = [chunk for chunk in chunks if chunk.height]
    if filled:
        return output.join_chunks(filled)
    texts = dict.fromkeys(map(match.column_name, header), pl.String)
    columns = pl.Schema({**texts, ROW_NUMBER: pl.UInt64})
    return RowChunk(pl.DataFrame(schema=columns), pl.Series([], dtype=pl.UInt8), pl.Series([], dtype=pl.String))


def range_bounds(chunks: Sequence[StoredChunk], ranges: int) -> pl.Series:
    """Order values that cut the rows of all chunks into about `ranges` equal parts."""
    filled = [chunk for chunk in chunks if chunk.height]
    if ranges == 1 or not filled:
        return pl.Series([], dtype=pl.String)
    samples = (chunk.order.gather_every(max(1, chunk.height // _SAMPLES_PER_CHUNK)) for chunk in filled)
    return output.choose_bounds(pl.concat(samples), ranges)


def cut_chunks(chunks: Sequence[StoredChunk], bounds: pl.Series) -> list[Cut]:
    return [(chunk, output.cut_points(chunk.order, bounds)) for chunk in chunks]


def encode_cut(a: list[Cut], b: list[Cut], number: int, plan: DiffPlan) -> Encoded:
    """Encode one range: the rows between two neighbouring cut points of every chunk."""
    rows_a = (chunk.slice(points[number], points[number + 1]) for chunk, points in a)
    rows_b = (chunk.slice(points[number], points[number + 1]) for chunk, points in b)
    return encode_range(rows_a, rows_b, plan)


@dataclass
class HashedSide:
    """What is known of a side after its splits were hashed, except the hashes: row numbers, problems."""

    side: Side
    layout: SplitSide
    problems: list[Problem] = field(default_factory=list)
    sound: bool = True
    total_rows: int = 0
    first_records: list[int] = field(default_factory=list)  # of each split, and of what would follow the last
    skipped: int = 0
    has_texts: bool = True
    space: int = 0  # bytes of typed rows that stay in memory until they are fetched
    _ends: list[npt.NDArray[np.int32] | None] = field(default_factory=list)  # behind each record, split by split
    _frames: list[pl.DataFrame | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.first_records.append(self.layout.first_record)
        self.skipped = self.layout.skipped

    def note(self, hashed: HashedSplit) -> None:
        """Add the next split."""
        first_record = self.first_records[-1]
        self.sound = self.sound and hashed.sound
        self.has_texts = self.has_texts and hashed.has_texts
        self.problems += hashed.problems(self.side, first_record, len(self.layout.header))
        self.first_records.append(first_record + hashed.records)
        self.total_rows += hashed.rows
        self.skipped += hashed.records - hashed.rows
        self._ends.append(hashed.ends if self.total_rows <= _MOST_ENDS else None)
        self.space -= 0 if hashed.frame is None else int(hashed.frame.estimated_size())
        self._frames.append(hashed.frame if self.space > 0 else None)

    def known(self, split: int) -> RecordIndex:
        frame, self._frames[split] = self._frames[split], None
        return RecordIndex(self.first_records[split + 1] - self.first_records[split], self._ends[split], frame)

    def row_at(self, place: int) -> int:
        """The record number in the file of a row's place."""
        number = np.uint64(place)
        return self.first_records[int(match.split_of(number))] + int(match.row_in_split(number))

    def duplicates(self, found: Sequence[Duplicate | None], plan: DiffPlan) -> list[Problem]:
        """The first duplicate key of all buckets, with the key's cells read again from its split."""
        first = min((one for one in found if one is not None), key=lambda one: one.repeated, default=None)
        if first is None:
            return []
        key = self.key_at(first.repeated, plan)
        return [_columns.duplicate_key_problem(self.side, self.row_at(first.repeated), self.row_at(first.first), key)]

    def key_at(self, place: int, plan: DiffPlan) -> dict[str, Json]:
        """The cells of the key of a row, read again from its split, by A's names."""
        split = int(match.split_of(np.uint64(place)))
        record = match.row_in_split(np.array([place], np.uint64)).astype(np.int64)
        row = self.layout.splits[split].pick(record, self.known(split)).to_pylist()[0]
        cells = {name: exact_loads(cell) if self.layout.typed else cell for name, cell in row.items()}
        compared = plan.compared
        own = compared.names(compared.keys, self.side)
        return {column.a: cells[name] for column, name in zip(compared.keys, own, strict=True)}


def row_blocks(hashes: RowHashes, first_row: int, block_rows: int) -> Iterator[tuple[int, RowHashes]]:
    """Cut a split's hashes at multiples of `block_rows`, so that both files are cut at the same rows.

    The key of such a row hash is its row's ordinal, by which rows are matched.
    """
    hashes = hashes.copy()
    hashes["key"] = np.arange(first_row, first_row + len(hashes), dtype=np.uint64)
    start = 0
    while start < len(hashes):
        block = (first_row + start) // block_rows
        end = min(len(hashes), (block + 1) * block_rows - first_row)
        yield block, hashes[start:end]
        start = end


def check_unchanged(splits: Sequence[Split]) -> None:
    for file in {file for split in splits for file in split.files}:
        file.check_unchanged()


def with_columns(a: SplitSide, b: SplitSide) -> tuple[SplitSide, SplitSide]:
    """Both sides; one without rows that declares no columns, as an empty array, has those of the other."""
    if not a.header and not a.splits:
        return replace(a, header=b.header, kinds=b.kinds), b
    return a, (replace(b, header=a.header, kinds=a.kinds) if not b.header and not b.splits else b)


def sides_of(a: SplitSide, b: SplitSide) -> Sides:
    return Sides(a.typed, b.typed, a.kinds, b.kinds, declared=a.schema is not None and b.schema is not None)


def columns_by_value(compared: Comparison, a: SplitSide, b: SplitSide) -> frozenset[str]:
    """The columns, by A's names, whose values can be compared instead of their JSON texts."""
    if a.schema is None or b.schema is None:
        return frozenset()
    if not all(map(sources.is_of_polars, (*a.schema.types, *b.schema.types))):
        return frozenset()
    kinds_a = {field.name: sources.value_kind(field.type) for field in a.schema}
    kinds_b = {field.name: sources.value_kind(field.type) for field in b.schema}
    return frozenset(
        column.a
        for column in compared.columns
        if column.rule.is_exact and kinds_a[column.a] is not None and kinds_a[column.a] == kinds_b[column.b]
    )


def total_stats(parts: Iterable[Stats], plan: DiffPlan, a: HashedSide, b: HashedSide) -> Stats:
    """The counts of all buckets and of the diff, and the duplicates of all buckets with the cells of their keys."""
    parts = list(parts)
    total = sum(parts, Stats.of_diff(plan.compared, plan.options, a.skipped, b.skipped))
    profile = joined_profile((part.profile for part in parts), plan.compared, total)
    for side, repeats in zip((b, a), profile.repeats.values() if profile else (), strict=False):
        repeats.most = [one._replace(cells=side.key_at(one.place, plan)) for one in repeats.most]
    return replace(total, profile=profile)

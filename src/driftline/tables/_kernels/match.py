"""Row hashes, and matching those of one bucket: counts, selected rows and duplicate keys.

A row hash is five 64-bit numbers: two hashes of the key, two hashes of the cells outside the key, and the row's
position (split number and row number within the split). They are small records of a fixed size, which are cheap to
move, cut and match. The hashes are seeded at random for each run, so no data can be prepared whose hashes collide; with
128 bits an accidental collision of unequal rows does not happen (decision 20).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from driftline.tables._events import Stats
from driftline.tables._reference import match_similar
from driftline.tables._rule_columns import measure_count, within
from driftline.tables._rules import CellRule

_FIELDS = ("key", "key_2", "row", "row_2", "place")
ROW_HASH: np.dtype[np.void] = np.dtype([(name, "<u8") for name in _FIELDS])
KEY, KEY_2, ROW, ROW_2, PLACE, EXACT, MEASURES = range(7)

RowHashes = npt.NDArray[np.void]
Numbers = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Place = TypeVar("Place", np.uint64, npt.NDArray[np.uint64])

_ROW_BITS = 32
_NUMBER_BYTES = 8


class Seeds(NamedTuple):
    """Two seeds, one for each half of the hashes; all workers of a run share them."""

    first: int
    second: int


def new_seeds() -> Seeds:
    return Seeds(*(int.from_bytes(os.urandom(8)) >> 1 for _ in range(2)))


def row_hash_type(measures: int) -> np.dtype[np.void]:
    """The type of hashes with so many measures of tolerant columns, and a hash of their exact values."""
    names = ["exact", *(f"measure_{number}" for number in range(measures))] if measures else []
    return np.dtype([(name, "<u8") for name in (*_FIELDS, *names)])


@dataclass(frozen=True)
class HashedColumns:
    """The input of hashes, in an order that A and B share: normalized values of the key and the rest, and measures."""

    keys: Sequence[pl.Series]
    others: Sequence[pl.Series]
    tolerant: Sequence[pl.Series] = ()  # exact values of columns with a tolerance
    measures: Sequence[Numbers] = ()


def hash_rows(
    columns: HashedColumns, records: Numbers, *, split: int, seeds: Seeds, buckets: int = 1
) -> list[RowHashes]:
    """One row hash for each row of a split, cut by key hash into `buckets` parts, so that equal keys are in one part.

    `records` are the rows' numbers in the split; within a part the rows keep their order.
    """
    height = len(records)
    parts = [
        *_hashes(columns.keys, height, seeds),
        *_hashes(columns.others, height, seeds),
        records | np.uint64(split << _ROW_BITS),
    ]
    if columns.measures:
        parts += [_hashes(columns.tolerant, height, seeds)[0], *columns.measures]
    order, borders = _bucket_order(parts[KEY], buckets)
    numbers = np.stack(parts, axis=1)
    return np.split(_as_hashes(numbers if order is None else numbers.take(order, axis=0)), borders)


def join_hashes(parts: Sequence[RowHashes], kind: np.dtype[np.void] = ROW_HASH) -> RowHashes:
    """Several arrays of hashes as one; as plain numbers, because NumPy moves those much faster than records."""
    return _as_hashes(np.concatenate([_as_numbers(part) for part in parts])) if parts else np.empty(0, kind)


def hash_columns(hashes: RowHashes) -> Numbers:
    """The numbers column by column: `hash_columns(hashes)[KEY]` and so on."""
    return _as_numbers(hashes).T


def _as_numbers(hashes: RowHashes) -> Numbers:
    return hashes.view(np.uint64).reshape(-1, hashes.dtype.itemsize // _NUMBER_BYTES)


def _as_hashes(numbers: Numbers) -> RowHashes:
    width = numbers.shape[1]
    return numbers.view(row_hash_type(width - MEASURES if width > MEASURES else 0)).reshape(-1)


def _bucket_order(key: Numbers, buckets: int) -> tuple[npt.NDArray[np.intp] | None, list[int]]:
    """The rows bucket by bucket, None where they need no new order, and the starts of buckets."""
    if buckets == 1:
        return None, []
    small = np.uint8 if buckets <= 256 else np.uint16  # NumPy sorts small numbers by radix
    numbers = ((key >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(small)
    order = np.argsort(numbers, kind="stable")
    return order, np.searchsorted(numbers[order], np.arange(1, buckets)).tolist()


def as_frame(table: pa.Table | pl.DataFrame) -> pl.DataFrame:
    """The same columns in another frame, without copying the text; see `column_name` for their names."""
    if isinstance(table, pl.DataFrame):
        return table.rename(column_name)
    renamed = table.rename_columns(list(map(column_name, table.column_names)))  # Polars gives a nameless column a name
    return pl.DataFrame(pl.from_arrow(renamed, rechunk=False))


def column_name(name: str) -> str:
    """The name of a user's column inside frames: Polars interprets names such as `*`, `^a$` and ``."""
    return "=" + name


def _hashes(columns: Sequence[pl.Series], height: int, seeds: Seeds) -> tuple[Numbers, Numbers]:
    if not columns:
        return np.zeros(height, np.uint64), np.zeros(height, np.uint64)
    chosen = pl.DataFrame([column.alias(str(number)) for number, column in enumerate(columns)])
    return chosen.hash_rows(seeds.first).to_numpy(), chosen.hash_rows(seeds.second).to_numpy()


def split_of(place: Place) -> Place:
    return place >> np.uint64(_ROW_BITS)


def row_in_split(place: Place) -> Place:
    """The row number, counted from 0 within the split, of a position."""
    return place & np.uint64((1 << _ROW_BITS) - 1)


# Matching.

_SLOTS_PER_ROW = 4
_MOST_SLOT_BITS = 30
_BITS_PER_ROUND = 5  # shift of the next round's bits; all 64 have been used after the last
_KEY_BITS = 64


class RowKind(IntEnum):
    """What a selected row is needed for."""

    REMOVED = 0
    ADDED = 1
    BEFORE = 2
    AFTER = 3
    UNCHANGED = 4


# `turn` orders rows that share an order value: pairs and removed rows by A's place, then added rows by B's.
SELECTED_ROW = np.dtype([("place", "<u8"), ("turn", "<u8"), ("kind", "u1")])
SelectedRows = npt.NDArray[np.void]
_Mask = npt.NDArray[np.bool_]
_Chosen = Positions | slice | list[int]
_ADDED_TURN = np.uint64(1 << 63)


class HashCollision(Exception):  # noqa: N818 - not an error: the run is repeated with other seeds
    """Two different keys share the first half of their hash."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The positions of a row that repeats a key and of the key's first row."""

    repeated: int
    first: int


@dataclass(frozen=True, slots=True)
class Matches:
    """The result of one bucket; the rows `needed_a` and `needed_b` are fetched later."""

    stats: Stats = field(default_factory=Stats)
    needed_a: SelectedRows = field(default_factory=lambda: np.empty(0, SELECTED_ROW))
    needed_b: SelectedRows = field(default_factory=lambda: np.empty(0, SELECTED_ROW))
    duplicate_a: Duplicate | None = None
    duplicate_b: Duplicate | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How matched hashes are compared: equal hashes, and measures within the tolerance."""

    tolerant: Sequence[CellRule] = ()
    emit_unchanged: bool = False  # whether rows without a change are selected too

    def differing(self, a: Numbers, b: Numbers, in_a: _Chosen, in_b: _Chosen) -> _Mask:
        """Which of the matched rows differ; hashes column by column, and the positions of the rows in them."""
        differs: _Mask = (a[ROW][in_a] != b[ROW][in_b]) | (a[ROW_2][in_a] != b[ROW_2][in_b])
        at = MEASURES
        for rule in self.tolerant:
            assert rule.tolerance is not None, "only tolerant columns are measured"
            end = at + measure_count(rule)
            measures_a, measures_b = [part[in_a] for part in a[at:end]], [part[in_b] for part in b[at:end]]
            # Equal measures are within every tolerance; most are equal.
            other = np.flatnonzero(np.any([x != y for x, y in zip(measures_a, measures_b, strict=True)], axis=0))
            near = within([part[other] for part in measures_a], [part[other] for part in measures_b], rule.tolerance)
            differs[other] |= ~near
            at = end
        return differs


EXACTLY = Verdict()


def match_keyed(hashes_a: RowHashes, hashes_b: RowHashes, verdict: Verdict = EXACTLY) -> Matches:
    """Match rows by key; after a duplicate key nothing is matched, because it is an error."""
    a, b = hash_columns(hashes_a), hash_columns(hashes_b)
    # Only of the keys all are read; of the other numbers single ones are fetched.
    pairs = key_pairs(np.ascontiguousarray(a[KEY]), np.ascontiguousarray(b[KEY]))
    if pairs is None:
        return Matches(duplicate_a=first_duplicate(a), duplicate_b=first_duplicate(b))
    in_a, in_b = pairs
    only_a, only_b = _others(in_a, a.shape[1]), _others(in_b, b.shape[1])
    # A key that repeats in A either shares its match in B or has none. Not `np.unique`, which imports masked arrays.
    alone = np.sort(a[KEY][only_a])
    if b.shape[1] - np.count_nonzero(only_b) != len(in_b) or (alone[1:] == alone[:-1]).any():
        return Matches(duplicate_a=first_duplicate(a), duplicate_b=first_duplicate(b))
    if (a[KEY_2][in_a] != b[KEY_2][in_b]).any():
        raise HashCollision
    return _judged(a, b, _Met(in_a, in_b, np.flatnonzero(only_a), np.flatnonzero(only_b)), verdict)


def match_kept(hashes_a: RowHashes, hashes_b: RowHashes, verdict: Verdict, *, last: bool) -> Matches:
    """Match the first or last row of every key; the others are counted."""
    kept_a, kept_b = _one_of_each(hashes_a, last), _one_of_each(hashes_b, last)
    found = match_keyed(kept_a, kept_b, verdict)
    dropped_a, dropped_b = len(hashes_a) - len(kept_a), len(hashes_b) - len(kept_b)
    return replace(found, stats=replace(found.stats, dropped_a=dropped_a, dropped_b=dropped_b))


def _one_of_each(hashes: RowHashes, last: bool) -> RowHashes:
    frame = pl.DataFrame({name: np.ascontiguousarray(hashes[name]) for name in ("key", "key_2", "place")})
    chosen = frame.with_row_index("at").sort("place").unique(["key", "key_2"], keep="last" if last else "first")
    kept: RowHashes = hashes[np.sort(chosen["at"].to_numpy())]
    return kept


def match_groups(hashes_a: RowHashes, hashes_b: RowHashes, verdict: Verdict) -> Matches:
    """Match the rows of each key, of which there may be several, with the most similar ones."""
    a, b = hash_columns(hashes_a), hash_columns(hashes_b)
    repeated = _repeated_keys(a, b)
    single_a, single_b = _is_single(a, repeated), _is_single(b, repeated)
    at_a, at_b = np.flatnonzero(single_a), np.flatnonzero(single_b)
    pairs = key_pairs(a[KEY][at_a], b[KEY][at_b])
    assert pairs is not None, "every key is there once"
    in_a, in_b = pairs
    if (a[KEY_2][at_a[in_a]] != b[KEY_2][at_b[in_b]]).any():
        raise HashCollision
    met = [_Met(at_a[in_a], at_b[in_b], at_a[_others(in_a, len(at_a))], at_b[_others(in_b, len(at_b))])]
    met += _met_in_groups(a, b, np.flatnonzero(~single_a), np.flatnonzero(~single_b), verdict)
    whole = _Met(*(np.concatenate([getattr(one, name) for one in met]) for name in _Met._fields))
    return _judged(a, b, whole, verdict)


class _Met(NamedTuple):
    """Positions in the hashes: of matched rows, and of rows without a match."""

    in_a: Positions
    in_b: Positions
    only_a: Positions
    only_b: Positions


class _HashedRow(NamedTuple):
    """A row of a key that repeats."""

    number: int
    forms: tuple[int, ...]


def _repeated_keys(a: Numbers, b: Numbers) -> pl.Series:
    """The first halves of keys that more than one row of a side has."""
    counted = [pl.Series(side[KEY]).value_counts(name="rows") for side in (a, b)]
    return pl.concat([one.filter(pl.col("rows") > 1).to_series(0) for one in counted]).unique()


def _is_single(hashes: Numbers, repeated: pl.Series) -> _Mask:
    return ~pl.Series(hashes[KEY]).is_in(repeated.to_list()).to_numpy()


def _met_in_groups(a: Numbers, b: Numbers, at_a: Positions, at_b: Positions, verdict: Verdict) -> list[_Met]:
    groups: defaultdict[tuple[int, int], tuple[list[_HashedRow], list[_HashedRow]]] = defaultdict(lambda: ([], []))
    forms = [ROW, ROW_2, *([EXACT] if len(a) > EXACT else [])]
    for side, (hashes, positions) in enumerate(((a, at_a), (b, at_b))):
        for at in positions[np.argsort(hashes[PLACE][positions])]:
            row = _HashedRow(int(at), tuple(int(hashes[name, at]) for name in forms))
            groups[int(hashes[KEY, at]), int(hashes[KEY_2, at])][side].append(row)

    def near(one: _HashedRow, other: _HashedRow) -> bool:
        return one.forms[:2] == other.forms[:2] and not verdict.differing(a, b, [one.number], [other.number])[0]

    equal = near if verdict.tolerant else None  # else equal rows have equal hashes
    pairs = [pair for rows in groups.values() for pair in match_similar(*rows, equal)]
    both = [(one.number, other.number) for one, other in pairs if one is not None and other is not None]
    only_a = [one.number for one, other in pairs if one is not None and other is None]
    only_b = [other.number for one, other in pairs if one is None and other is not None]
    in_a, in_b = [one for one, _ in both], [other for _, other in both]
    return [_Met(*(np.array(part, np.int64) for part in (in_a, in_b, only_a, only_b)))]


def _judged(a: Numbers, b: Numbers, met: _Met, verdict: Verdict, *, by_key: bool = False) -> Matches:
    """The counts and the selected rows; turns are places, or keys, which then are numbers of rows."""
    differs = verdict.differing(a, b, met.in_a, met.in_b)
    before, after = met.in_a[differs], met.in_b[differs]
    kept = met.in_a[~differs] if verdict.emit_unchanged else met.in_a[:0]
    places_a, places_b = a[PLACE], b[PLACE]
    turns_a, turns_b = (a[KEY], b[KEY]) if by_key else (places_a, places_b | _ADDED_TURN)
    return Matches(
        Stats(len(met.only_b), len(met.only_a), len(before), len(met.in_a) - len(before)),
        _needed(
            (places_a[met.only_a], turns_a[met.only_a], RowKind.REMOVED),
            (places_a[before], turns_a[before], RowKind.BEFORE),
            (places_a[kept], turns_a[kept], RowKind.UNCHANGED),
        ),
        _needed(
            (places_b[met.only_b], turns_b[met.only_b], RowKind.ADDED),
            (places_b[after], turns_a[before], RowKind.AFTER),
        ),
    )


def _others(positions: Positions, length: int) -> _Mask:
    mask = np.ones(length, dtype=np.bool_)
    mask[positions] = False
    return mask


def match_positions(hashes_a: RowHashes, hashes_b: RowHashes, verdict: Verdict) -> Matches:
    """Match rows by position: the hashes of the same block of rows of both files; their key is the row's ordinal."""
    a, b = hash_columns(hashes_a), hash_columns(hashes_b)
    shared = min(a.shape[1], b.shape[1])
    both = np.arange(shared)
    met = _Met(both, both, np.arange(shared, a.shape[1]), np.arange(shared, b.shape[1]))
    return _judged(a, b, met, verdict, by_key=True)


def match_multisets(hashes_a: RowHashes, hashes_b: RowHashes) -> Matches:
    """Match equal rows one to one; the key of such hashes is the complete row."""
    a, b = hash_columns(hashes_a), hash_columns(hashes_b)
    twin = ["key", "key_2", "nth"]
    numbered_a, numbered_b = _numbered(a), _numbered(b)
    removed = numbered_a.join(numbered_b, on=twin, how="anti")["place"].to_numpy()
    added = numbered_b.join(numbered_a, on=twin, how="anti")["place"].to_numpy()
    return Matches(
        Stats(added=len(added), removed=len(removed), unchanged=a.shape[1] - len(removed)),
        _needed((removed, removed, RowKind.REMOVED)),
        _needed((added, added | _ADDED_TURN, RowKind.ADDED)),
    )


def first_duplicate(hashes: Numbers) -> Duplicate | None:
    """The first row in file order that repeats a key, if there is one; hashes column by column."""
    ordered = hashes[:, np.lexsort((hashes[PLACE], hashes[KEY]))]
    key, key_2, place = ordered[KEY], ordered[KEY_2], ordered[PLACE]
    repeats = key[1:] == key[:-1]
    if (repeats & (key_2[1:] != key_2[:-1])).any():
        raise HashCollision
    if not repeats.any():
        return None
    repeated = place[1:][repeats].min()
    first = place[key == key[place == repeated][0]].min()
    return Duplicate(int(repeated), int(first))


def _numbered(hashes: Numbers) -> pl.DataFrame:
    """RowHashes with the number of equal rows before each."""
    nth = pl.int_range(pl.len()).over("key", "key_2").alias("nth")
    frame = pl.DataFrame({"key": hashes[KEY], "key_2": hashes[KEY_2], "place": hashes[PLACE]})
    return frame.with_columns(nth)


def _needed(*groups: tuple[Numbers, Numbers, RowKind]) -> SelectedRows:
    needed = np.empty(sum(len(places) for places, _, _ in groups), SELECTED_ROW)
    start = 0
    for places, turns, kind in groups:
        end = start + len(places)
        needed["place"][start:end], needed["turn"][start:end], needed["kind"][start:end] = places, turns, kind
        start = end
    return needed


# Keys that both sides have, by a hash table of plain arrays.
# Keys are 64-bit hashes. In each round every row of B that is left writes its position into the slot that some bits of
# its key name, and of several the last one stays; rows of A read their slots. Rows of B that were overwritten, a few in
# a hundred, are tried again with other bits, together with the rows of A without a match. That is a third of the work
# of a general join, which also has to group, to grow and to gather.


def key_pairs(keys_a: Numbers, keys_b: Numbers) -> tuple[Positions, Positions] | None:
    """The positions in A and in B of every key that both have; None where a key repeats in B.

    >>> [part.tolist() for part in key_pairs(np.array([7, 8], np.uint64), np.array([9, 7], np.uint64))]
    [[0], [1]]
    """
    found_a, found_b = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    rows_a, rows_b = np.arange(len(keys_a)), np.arange(len(keys_b))
    for shift in range(0, _KEY_BITS, _BITS_PER_ROUND):
        if not len(keys_b):
            break
        bits = min((_SLOTS_PER_ROW * len(keys_b)).bit_length(), _MOST_SLOT_BITS)
        stored, lost = _store(keys_b, shift, bits)
        if lost is None:
            return None
        partner = stored.take(_slots(keys_a, shift, bits))
        meets = keys_b.take(partner) == keys_a
        met, alone = np.flatnonzero(meets), np.flatnonzero(~meets)
        found_a.append(rows_a.take(met))
        found_b.append(rows_b.take(partner.take(met)))
        rows_a, keys_a = rows_a.take(alone), keys_a.take(alone)
        rows_b, keys_b = rows_b.take(lost), keys_b.take(lost)
    # Equal keys share their slot in every round, so one of them stays in some round and the other one finds it.
    assert not len(keys_b), "different keys differ in some bits"
    return np.concatenate(found_a), np.concatenate(found_b)


def _store(keys: Numbers, shift: int, bits: int) -> tuple[Positions, Positions | None]:
    """A table of positions by slot (0 where it is empty), and the overwritten ones; None where a key repeats."""
    slots, positions = _slots(keys, shift, bits), np.arange(len(keys))
    table = np.zeros(1 << bits, np.int64)
    table[slots] = positions
    stayed = table.take(slots)
    lost = np.flatnonzero(stayed != positions)
    repeats = keys.take(stayed.take(lost)) == keys.take(lost)
    return table, None if repeats.any() else lost


def _slots(keys: Numbers, shift: int, bits: int) -> Positions:
    """Some bits of each key, rotated."""
    turned = (keys >> np.uint64(shift)) | (keys << np.uint64(_KEY_BITS - shift)) if shift else keys
    return (turned & np.uint64((1 << bits) - 1)).view(np.int64)

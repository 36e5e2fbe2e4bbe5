"""Kernel: the prints of A and B of one bucket to counts, wanted rows and duplicate keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from driftline.tables.prints import KEY, KEY_2, PLACE, ROW, ROW_2, Numbers, Prints, print_columns
from driftline.tables.stats import Stats


class RowKind(IntEnum):
    """What a wanted row is needed for."""

    REMOVED = 0
    ADDED = 1
    BEFORE = 2
    AFTER = 3
    UNCHANGED = 4


WANTED = np.dtype([("place", "<u8"), ("kind", "u1")])
Wanted = npt.NDArray[Any]
_Index = npt.NDArray[np.uint32]


class HashCollision(Exception):  # noqa: N818 - not an error: the run is repeated with other seeds
    """Two different keys share the first half of their hash."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The places of a row that repeats a key and of the key's first row."""

    repeated: int
    first: int


@dataclass(frozen=True, slots=True)
class Matches:
    """What one bucket has to say; the row data of `wanted_a` and `wanted_b` is still to be fetched."""

    stats: Stats = field(default_factory=Stats)
    wanted_a: Wanted = field(default_factory=lambda: np.empty(0, WANTED))
    wanted_b: Wanted = field(default_factory=lambda: np.empty(0, WANTED))
    duplicate_a: Duplicate | None = None
    duplicate_b: Duplicate | None = None


def match_keyed(prints_a: Prints, prints_b: Prints, *, emit_unchanged: bool = False) -> Matches:
    """Match rows by key; duplicate keys end the matching, as there will be an error."""
    a, b = print_columns(prints_a), print_columns(prints_b)
    keys_a, keys_b = pl.Series(a[KEY]), pl.Series(b[KEY])
    # Before joining, as a key that repeats on both sides would multiply. Now every row of A has at most one partner.
    if _has_duplicates(keys_b):
        return Matches(duplicate_a=first_duplicate(a), duplicate_b=first_duplicate(b))
    in_a, in_b = _pairs(keys_a, keys_b)
    only_a, only_b = _others(in_a, len(keys_a)), _others(in_b, len(keys_b))
    # A key that repeats in A either shares its partner in B or has none.
    if len(keys_b) - np.count_nonzero(only_b) != len(in_b) or _has_duplicates(keys_a.filter(pl.Series(only_a))):
        return Matches(duplicate_a=first_duplicate(a), duplicate_b=first_duplicate(b))
    if (a[KEY_2][in_a] != b[KEY_2][in_b]).any():
        raise HashCollision
    differs = (a[ROW][in_a] != b[ROW][in_b]) | (a[ROW_2][in_a] != b[ROW_2][in_b])
    before, after = a[PLACE][in_a[differs]], b[PLACE][in_b[differs]]
    kept = a[PLACE][in_a[~differs]] if emit_unchanged else a[PLACE][:0]
    removed, added = a[PLACE][only_a], b[PLACE][only_b]
    return Matches(
        Stats(len(added), len(removed), len(before), len(in_a) - len(before)),
        _wanted((removed, RowKind.REMOVED), (before, RowKind.BEFORE), (kept, RowKind.UNCHANGED)),
        _wanted((added, RowKind.ADDED), (after, RowKind.AFTER)),
    )


def _pairs(keys_a: pl.Series, keys_b: pl.Series) -> tuple[_Index, _Index]:
    """The positions in A and in B of every key that both have; keys are unique on both sides."""
    left = pl.LazyFrame({"key": keys_a}).with_row_index("in_a")
    right = pl.LazyFrame({"key": keys_b}).with_row_index("in_b")
    pairs = left.join(right, on="key", how="inner").select("in_a", "in_b").collect()
    return pairs["in_a"].to_numpy(), pairs["in_b"].to_numpy()


def _others(positions: _Index, length: int) -> npt.NDArray[np.bool_]:
    """A mask of the positions that are not listed."""
    mask = np.ones(length, dtype=np.bool_)
    mask[positions] = False
    return mask


def match_positions(prints_a: Prints, prints_b: Prints, *, emit_unchanged: bool = False) -> Matches:
    """Match rows by position: the prints of the same run of rows of both files, in row order."""
    a, b = print_columns(prints_a), print_columns(prints_b)
    shared = min(a.shape[1], b.shape[1])
    head_a, head_b = a[:, :shared], b[:, :shared]
    differs = (head_a[ROW] != head_b[ROW]) | (head_a[ROW_2] != head_b[ROW_2])
    removed, added = a[PLACE][shared:], b[PLACE][shared:]
    before, after = head_a[PLACE][differs], head_b[PLACE][differs]
    kept = head_a[PLACE][~differs] if emit_unchanged else head_a[PLACE][:0]
    return Matches(
        Stats(len(added), len(removed), len(before), shared - len(before)),
        _wanted((removed, RowKind.REMOVED), (before, RowKind.BEFORE), (kept, RowKind.UNCHANGED)),
        _wanted((added, RowKind.ADDED), (after, RowKind.AFTER)),
    )


def match_multisets(prints_a: Prints, prints_b: Prints) -> Matches:
    """Match equal rows one to one; the key of such prints is the whole row."""
    a, b = print_columns(prints_a), print_columns(prints_b)
    twin = ["key", "key_2", "nth"]
    numbered_a, numbered_b = _numbered(a), _numbered(b)
    removed = numbered_a.join(numbered_b, on=twin, how="anti")["place"]
    added = numbered_b.join(numbered_a, on=twin, how="anti")["place"]
    return Matches(
        Stats(added=len(added), removed=len(removed), unchanged=a.shape[1] - len(removed)),
        _wanted((removed, RowKind.REMOVED)),
        _wanted((added, RowKind.ADDED)),
    )


def first_duplicate(prints: Numbers) -> Duplicate | None:
    """The first row in file order that repeats a key, if there is one; prints column by column."""
    ordered = prints[:, np.lexsort((prints[PLACE], prints[KEY]))]
    key, key_2, place = ordered[KEY], ordered[KEY_2], ordered[PLACE]
    repeats = key[1:] == key[:-1]
    if (repeats & (key_2[1:] != key_2[:-1])).any():
        raise HashCollision
    if not repeats.any():
        return None
    repeated = place[1:][repeats].min()
    first = place[key == key[place == repeated][0]].min()
    return Duplicate(int(repeated), int(first))


def _has_duplicates(keys: pl.Series) -> bool:
    return keys.n_unique() != len(keys)


def _numbered(prints: Numbers) -> pl.DataFrame:
    """Prints with the number of equal rows before each."""
    nth = pl.int_range(pl.len()).over("key", "key_2").alias("nth")
    frame = pl.DataFrame({"key": prints[KEY], "key_2": prints[KEY_2], "place": prints[PLACE]})
    return frame.with_columns(nth)


def _wanted(*groups: tuple[Any, RowKind]) -> Wanted:
    wanted = np.empty(sum(len(places) for places, _ in groups), WANTED)
    start = 0
    for places, kind in groups:
        end = start + len(places)
        wanted["place"][start:end], wanted["kind"][start:end] = places, kind
        start = end
    return wanted

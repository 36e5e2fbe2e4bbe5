"""Kernel: the prints of A and B of one bucket to counts, wanted rows and duplicate keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from driftline.tables.prints import Prints
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


def match_keyed(a: Prints, b: Prints, *, emit_unchanged: bool = False) -> Matches:
    """Match rows by key; duplicate keys end the matching, as there will be an error."""
    frame_a, frame_b = _frame(a), _frame(b)
    # Looked for before joining: a key that repeats on both sides would multiply.
    if _has_duplicates(frame_a) or _has_duplicates(frame_b):
        return Matches(duplicate_a=first_duplicate(a), duplicate_b=first_duplicate(b))
    joined = frame_a.join(frame_b, on="key", how="full", suffix="_b", coalesce=True)
    only_b, only_a = joined["place"].is_null(), joined["place_b"].is_null()
    both = joined.filter(~(only_a | only_b))
    removed, added = joined.filter(only_a), joined.filter(only_b)
    if (both["key_2"] != both["key_2_b"]).any():
        raise HashCollision
    differs = (both["row"] != both["row_b"]) | (both["row_2"] != both["row_2_b"])
    changed = both.filter(differs)
    unchanged = both.height - changed.height
    kept = both.filter(~differs) if emit_unchanged else both.clear()
    return Matches(
        Stats(added.height, removed.height, changed.height, unchanged),
        _wanted(
            (removed["place"], RowKind.REMOVED), (changed["place"], RowKind.BEFORE), (kept["place"], RowKind.UNCHANGED)
        ),
        _wanted((added["place_b"], RowKind.ADDED), (changed["place_b"], RowKind.AFTER)),
    )


def match_positions(a: Prints, b: Prints, *, emit_unchanged: bool = False) -> Matches:
    """Match rows by position: the prints of the same run of rows of both files, in row order."""
    shared = min(len(a), len(b))
    head_a, head_b = a[:shared], b[:shared]
    differs = (head_a["row"] != head_b["row"]) | (head_a["row_2"] != head_b["row_2"])
    removed, added = a["place"][shared:], b["place"][shared:]
    before, after = head_a["place"][differs], head_b["place"][differs]
    kept = head_a["place"][~differs] if emit_unchanged else head_a["place"][:0]
    return Matches(
        Stats(len(added), len(removed), len(before), shared - len(before)),
        _wanted((removed, RowKind.REMOVED), (before, RowKind.BEFORE), (kept, RowKind.UNCHANGED)),
        _wanted((added, RowKind.ADDED), (after, RowKind.AFTER)),
    )


def match_multisets(a: Prints, b: Prints) -> Matches:
    """Match equal rows one to one; the key of such prints is the whole row."""
    twin = ["key", "key_2", "nth"]
    numbered_a, numbered_b = _numbered(a), _numbered(b)
    removed = numbered_a.join(numbered_b, on=twin, how="anti")["place"]
    added = numbered_b.join(numbered_a, on=twin, how="anti")["place"]
    return Matches(
        Stats(added=len(added), removed=len(removed), unchanged=len(a) - len(removed)),
        _wanted((removed, RowKind.REMOVED)),
        _wanted((added, RowKind.ADDED)),
    )


def first_duplicate(prints: Prints) -> Duplicate | None:
    """The first row in file order that repeats a key, if there is one."""
    ordered = prints[np.lexsort((prints["place"], prints["key"]))]
    repeats = ordered["key"][1:] == ordered["key"][:-1]
    if (repeats & (ordered["key_2"][1:] != ordered["key_2"][:-1])).any():
        raise HashCollision
    if not repeats.any():
        return None
    repeated = int(ordered["place"][1:][repeats].min())
    key = ordered["key"][ordered["place"] == repeated][0]
    return Duplicate(repeated, int(ordered["place"][ordered["key"] == key].min()))


def _has_duplicates(frame: pl.DataFrame) -> bool:
    return frame["key"].n_unique() != frame.height


def _frame(prints: Prints) -> pl.DataFrame:
    return pl.DataFrame({name: np.ascontiguousarray(prints[name]) for name in prints.dtype.names or ()})


def _numbered(prints: Prints) -> pl.DataFrame:
    """Prints with the number of equal rows before each."""
    nth = pl.int_range(pl.len()).over("key", "key_2").alias("nth")
    return _frame(prints).select("key", "key_2", "place", nth)


def _wanted(*groups: tuple[Any, RowKind]) -> Wanted:
    wanted = np.empty(sum(len(places) for places, _ in groups), WANTED)
    start = 0
    for places, kind in groups:
        end = start + len(places)
        wanted["place"][start:end], wanted["kind"][start:end] = places, kind
        start = end
    return wanted

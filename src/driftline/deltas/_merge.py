"""Merging of deltas: per column the greatest version stamp wins, unless a greater DELETE covers it.

The merged state stores its stamps, so that merging is commutative, associative and idempotent; users get `RowState`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from driftline.core import JsonObject, utf16_sort_key, utf16_sorted
from driftline.deltas._deltas import RowDelta

RowKey = tuple[str, str]
# hlc, client id in UTF-16 order, delta id, whether it is a DELETE (which comes last): the order of replay
Stamp = tuple[int, bytes, str, bool]

# The first digits of a delta's id tell apart what hlc and client do not; the lake stores no more of it either.
_ID_DIGITS = 16


@dataclass(frozen=True, slots=True)
class RowState:
    """A row after merging: whether it lives, and its columns (none when it does not)."""

    live: bool
    columns: JsonObject


@dataclass(slots=True)
class RowMerge:
    """A row with its stamps, still ready to take older deltas."""

    columns: dict[str, tuple[Stamp, Any]] = field(default_factory=dict)
    written: Stamp | None = None  # greatest INSERT or UPDATE
    deleted: Stamp | None = None  # greatest DELETE, also of a row that lives again

    def add(self, delta: RowDelta) -> None:
        """Take one delta in, in any order, any number of times."""
        stamp = stamp_of(delta)
        if delta.op == "DELETE":
            self.deleted = _later(self.deleted, stamp)
            return
        self.written = _later(self.written, stamp)
        for entry in delta.columns:
            self._offer(entry.column, stamp, entry.value)

    def join(self, other: RowMerge) -> None:
        """Take in everything that another fold of the same row has."""
        self.written = _later(self.written, other.written)
        self.deleted = _later(self.deleted, other.deleted)
        for name, (stamp, value) in other.columns.items():
            self._offer(name, stamp, value)

    def state(self) -> RowState:
        """What is visible: columns with a stamp greater than the greatest DELETE."""
        if self.written is None or (self.deleted is not None and self.written < self.deleted):
            return RowState(False, {})
        floor = self.deleted
        visible = (name for name, (stamp, _) in self.columns.items() if floor is None or stamp > floor)
        return RowState(True, {name: self.columns[name][1] for name in utf16_sorted(visible)})

    def _offer(self, name: str, stamp: Stamp, value: Any) -> None:
        held = self.columns.get(name)
        if held is None or stamp > held[0]:
            self.columns[name] = (stamp, value)


def merge(deltas: Iterable[RowDelta]) -> dict[RowKey, RowState]:
    """The state of every row that the deltas change, in whatever order they come.

    >>> from driftline.deltas import extract
    >>> first = extract(None, {"a": 1, "b": 1}, table="t", row_id="r", client_id="c", hlc=1)
    >>> later = extract({"a": 1, "b": 1}, {"a": 2, "b": 1}, table="t", row_id="r", client_id="d", hlc=2)
    >>> merge([later, first, later])
    {('t', 'r'): RowState(live=True, columns={'a': 2, 'b': 1})}
    """
    return {key: fold.state() for key, fold in fold_rows(deltas).items()}


def fold_rows(deltas: Iterable[RowDelta]) -> dict[RowKey, RowMerge]:
    """The merged rows, with stamps."""
    folds: dict[RowKey, RowMerge] = defaultdict(RowMerge)
    for delta in deltas:
        folds[delta.table, delta.row_id].add(delta)
    return folds


def stamp_of(delta: RowDelta) -> Stamp:
    """The version stamp of a delta: its position in the order of replay."""
    return delta.hlc, _client_order(delta.client_id), delta.delta_id, delta.op == "DELETE"


_client_order = lru_cache(maxsize=4096)(utf16_sort_key)


def _later(one: Stamp | None, other: Stamp | None) -> Stamp | None:
    if one is None or other is None:
        return one or other
    return max(one, other)


def fold_to_plain(fold: RowMerge) -> JsonObject:
    """A row's state as JSON data, as snapshot lines have it (gateway §8): each stamp once, greatest first.

    >>> from driftline.deltas import extract
    >>> fold = RowMerge()
    >>> fold.add(extract(None, {"x": 1}, table="t", row_id="r", client_id="a", hlc=5))
    >>> plain = fold_to_plain(fold)
    >>> plain["columns"], plain["by"], plain["live"], plain["stamps"][0][:2]
    ({'x': 1}, {'x': 0}, 0, ['5', 'a'])
    >>> fold_to_plain(fold_from_plain(plain)) == plain
    True
    """
    state = fold.state()
    by = {name: _short(fold.columns[name][0]) for name in state.columns}
    written = None if fold.written is None or not state.live else _short(fold.written)
    deleted = None if fold.deleted is None else _short(fold.deleted)
    stamps = sorted({stamp for stamp in (*by.values(), written, deleted) if stamp is not None}, reverse=True)
    index = {stamp: number for number, stamp in enumerate(stamps)}
    texts = [[str(hlc), client.decode("utf-16-be", "surrogatepass"), digits] for hlc, client, digits, _ in stamps]
    plain: JsonObject = {"stamps": texts}
    if written is not None:
        used = {name: index[stamp] for name, stamp in by.items()}
        plain = {"columns": state.columns, **plain, "by": used, "live": index[written]}
    return plain if deleted is None else {**plain, "deleted": index[deleted]}


def fold_from_plain(plain: Mapping[str, Any]) -> RowMerge:
    """The fold of a snapshot line, ready to take more deltas, also older ones."""
    stamps = plain["stamps"]
    columns = {
        name: (_stamp(stamps[plain["by"][name]], is_delete=False), value)
        for name, value in plain.get("columns", {}).items()
    }
    live, deleted = plain.get("live"), plain.get("deleted")
    written = None if live is None else _stamp(stamps[live], is_delete=False)
    return RowMerge(columns, written, None if deleted is None else _stamp(stamps[deleted], is_delete=True))


def _short(stamp: Stamp) -> Stamp:
    """A stamp as the lake stores it, so that a delta has one stamp wherever it was read."""
    return stamp[0], stamp[1], stamp[2][:_ID_DIGITS], stamp[3]


def _stamp(plain: list[str], *, is_delete: bool) -> Stamp:
    return int(plain[0]), utf16_sort_key(plain[1]), plain[2], is_delete

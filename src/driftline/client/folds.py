"""A row's fold as JSON data, in the form that snapshot lines have (gateway §8): each stamp once, greatest first.

>>> from driftline.deltas import extract
>>> fold = RowFold()
>>> fold.add(extract(None, {"x": 1}, table="t", row_id="r", client_id="a", hlc=5))
>>> plain = fold_to_plain(fold)
>>> plain["columns"], plain["by"], plain["live"], plain["stamps"][0][:2]
({'x': 1}, {'x': 0}, 0, ['5', 'a'])
>>> fold_to_plain(fold_from_plain(plain)) == plain
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftline.canonical import utf16_sort_key
from driftline.deltas.merging import RowFold, Stamp

# The first digits of a delta's id tell apart what hlc and client do not; the lake keeps no more of it either.
_ID_DIGITS = 16


def fold_to_plain(fold: RowFold) -> dict[str, Any]:
    """The members of a snapshot line that hold a row's state."""
    live = fold.state()
    shown = {name: held for name, held in fold.columns.items() if name in live.columns}
    held = [stamp for stamp, _ in shown.values()]
    every = {stamp for stamp in (*held, fold.written if live.live else None, fold.deleted) if stamp is not None}
    order = sorted(every, reverse=True)
    place = {stamp: number for number, stamp in enumerate(order)}
    plain: dict[str, Any] = {"stamps": [_plain_stamp(stamp) for stamp in order]}
    if live.live and fold.written is not None:
        plain["columns"] = {name: value for name, (_, value) in shown.items()}
        plain["by"] = {name: place[stamp] for name, (stamp, _) in shown.items()}
        plain["live"] = place[fold.written]
    if fold.deleted is not None:
        plain["deleted"] = place[fold.deleted]
    return plain


def fold_from_plain(plain: Mapping[str, Any]) -> RowFold:
    """The fold of a snapshot line, ready to take more deltas, also older ones."""
    stamps = plain["stamps"]
    columns = {
        name: (_stamp(stamps[plain["by"][name]], is_delete=False), value)
        for name, value in plain.get("columns", {}).items()
    }
    live, deleted = plain.get("live"), plain.get("deleted")
    return RowFold(
        columns,
        None if live is None else _stamp(stamps[live], is_delete=False),
        None if deleted is None else _stamp(stamps[deleted], is_delete=True),
    )


def _plain_stamp(stamp: Stamp) -> list[str]:
    return [str(stamp[0]), stamp[1].decode("utf-16-be", "surrogatepass"), stamp[2][:_ID_DIGITS]]


def _stamp(plain: list[str], *, is_delete: bool) -> Stamp:
    return int(plain[0]), utf16_sort_key(plain[1]), plain[2], is_delete

"""The history of a row against its definition: the last writer of a column wins, unless a later DELETE covers it."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from driftline.deltas import RowDelta
from driftline.lake import row_history
from driftline.lake._fold.fold import replay_order
from driftline.lake._read import history
from support.lakes import delta


def made(seed: int) -> list[RowDelta]:
    """Deltas of one row: few timestamps and clients, so that ties are common."""
    draw = random.Random(seed)
    found = []
    for number in range(draw.randrange(8)):
        op = draw.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"])
        names = [] if op == "DELETE" else [name for name in ("title", "done") if draw.random() < 0.6]
        values: dict[str, Any] = {"title": f"t{number}", "done": number % 2 == 0}
        found.append(
            delta(op, "r", draw.randrange(1, 4) << 16, draw.choice("ab"), **{name: values[name] for name in names})
        )
    return sorted({one.delta_id: one for one in found}.values(), key=replay_order)


def reason(one: RowDelta, column: str, later: list[RowDelta]) -> str:
    for other in later:
        if other.op == "DELETE":
            return f"the row was deleted later, by {other.client_id}"
        if any(each.column == column for each in other.columns):
            if other.hlc > one.hlc:
                return f"{other.client_id} set it later"
            if other.client_id != one.client_id:
                return f"same clock, and {other.client_id} comes after {one.client_id}"
            return "same clock and client, and the other delta's id is greater"
    return "the last to set it"


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_the_history_of_a_row_is_its_definition(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lake: Any = SimpleNamespace(table_name=lambda table: table)
    for seed in range(first, first + 100):
        deltas = made(seed)
        monkeypatch.setattr(history, "all_deltas", lambda *given, deltas=deltas: deltas[::-1])
        entries = row_history(lake, "t", "r")
        assert [entry.delta for entry in entries] == deltas
        for place, (entry, one) in enumerate(zip(entries, deltas, strict=True)):
            later = deltas[place + 1 :]
            is_covered = any(other.op == "DELETE" for other in later)
            set_later = {each.column for other in later for each in other.columns}
            won = [each.column for each in one.columns if not is_covered and each.column not in set_later]
            is_newest = all(other.op == "DELETE" for other in later)
            assert list(entry.won) == won
            assert entry.is_visible == (not is_covered and (one.op == "DELETE" or bool(won) or is_newest))
            assert [why for *_, why in entry.values] == [reason(one, each.column, later) for each in one.columns]

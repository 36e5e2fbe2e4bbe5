"""The fold of a lake: the rows of a plain replay, and the same bytes from every engine."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest

from driftline.deltas import ColumnDelta, RowDelta
from driftline.lake import Lake, compact, flush, materialize, register, replay, verify
from driftline.lake._read.state import state_rows
from support.engines import engines_for
from support.lakes import SCHEMA

SAMPLES: dict[str, list[Any]] = {
    "title": ["", "a", "é\n", None],
    "Unit Price": [0, -1.5, 1e300, None],
    "done": [True, False, None],
    "tags (all)": [[], {"b": 1, "a": [None]}, "x", None],
}


def random_delta(dice: random.Random) -> RowDelta:
    op: Any = dice.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"])
    names = [] if op == "DELETE" else dice.sample(list(SAMPLES), dice.randint(1, 4))
    return RowDelta.make(
        op=op,
        table="todos",
        row_id=f"row {dice.randrange(40)}",
        client_id=dice.choice(["a", "\U0001f602", "\ufb33"]),
        columns=[ColumnDelta(name, dice.choice(SAMPLES[name])) for name in names],
        hlc=dice.randrange(1, 300),
    )


def folded(folder: Path, batches: list[list[RowDelta]], **how: Any) -> tuple[Lake, bytes]:
    lake = Lake(str(folder))
    register(lake, SCHEMA)
    for sequence, batch in enumerate(batches, 1):
        flush(lake, "todos", batch, gateway_id="gw", sequence=sequence)
        assert compact(lake, "todos", rows_per_range=15, **how).is_new
    out = io.BytesIO()
    materialize(lake, "todos", out, format="jsonl", as_of=200, **how)
    return lake, out.getvalue()


@pytest.mark.parametrize("engine", engines_for("lake"))
def test_a_fold(engine: str, session: Any, tmp_path: Path) -> None:
    dice = random.Random(7)
    batches = [[random_delta(dice) for _ in range(150)] for _ in range(2)]
    lake, local = folded(tmp_path / "local", batches)
    expected = replay([delta for batch in batches for delta in batch])
    if engine == "spark":
        from driftline.spark._lake import lake_engine

        how = {"engine": lake_engine(session)}
        lake, there = folded(tmp_path / "spark", batches, **how)
        assert there == local
        assert verify(lake, "todos", **how).is_proved
    assert dict(state_rows(lake, "todos")) == expected
    assert len(local.splitlines()) > 10

"""The shared cases about merging, compaction and files, through the lake."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from driftline.deltas import RowDelta, TableSchema
from driftline.lake import Lake, compact, flush, register, replay
from driftline.lake._read.state import all_deltas
from driftline.lake._store.rows import decode_state
from driftline.lake._store.tables import loaded
from support.lakes import delta, snapshot_table

CASES = {case["id"]: case for case in json.loads((Path(__file__).parents[1] / "vectors/delta-cases.json").read_bytes())}


def folded(root: Path, batches: list[list[RowDelta]], types: dict[str, str], *, each: bool) -> dict[str, Any]:
    """The base after flushing the batches one by one; `each` compacts after every flush."""
    lake = Lake(str(root))
    columns = [{"name": name, "type": kind} for name, kind in types.items()]
    register(lake, TableSchema("todos", columns))
    for number, batch in enumerate(batches):
        flush(lake, "todos", batch, gateway_id="gw", sequence=number + 1)
        if each:
            compact(lake, "todos")
    compact(lake, "todos")
    return dict(decode_state(snapshot_table(lake, "todos"), TableSchema("todos", columns).columns))


def with_own_id(wire: dict[str, Any]) -> RowDelta:
    columns = {entry["column"]: entry["value"] for entry in wire["columns"]}
    return delta(wire["op"], wire["rowId"], int(wire["hlc"]), client=wire["clientId"], **columns)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("each", [True, False], ids=["three generations", "one generation"])
def test_every_arrival_order_converges(tmp_path: Path, order: tuple[int, ...], each: bool) -> None:
    case = CASES["M1"]
    deltas = [with_own_id(wire) for wire in case["input"]["deltas"]]
    state = folded(tmp_path, [[deltas[place]] for place in order], {"x": "string", "y": "string"}, each=each)
    assert state == {"row-1": case["expected"]["columns"]}


@pytest.mark.parametrize("swap", [True, False])
@pytest.mark.parametrize("each", [True, False])
def test_equal_clocks_are_won_by_the_higher_client(tmp_path: Path, swap: bool, each: bool) -> None:
    case = CASES["L3"]
    pair = [[with_own_id(case["input"][side])] for side in ("local", "remote")]
    state = folded(tmp_path, pair[::-1] if swap else pair, {"title": "string"}, each=each)
    assert state == {"row-1": case["expected"]["columns"]}


@pytest.mark.parametrize("each", [True, False])
def test_delete_then_insert_again(tmp_path: Path, each: bool) -> None:
    case = CASES["K4"]
    timeline = [
        [delta("INSERT", "r", 10, title="Original", completed=False)],
        [delta("DELETE", "r", 20)],
        [delta("INSERT", "r", 30, title="Reinserted", completed=True)],
    ]
    state = folded(tmp_path, timeline, {"title": "string", "completed": "boolean"}, each=each)
    assert state == {"r": case["expected"]["base"]}
    assert sum(file.rows for file in loaded(Lake(str(tmp_path)), "todos", "deletes").files()) == len(
        case["expected"]["deletes"]
    )


@pytest.mark.parametrize("each", [True, False])
def test_an_explicit_null_survives(tmp_path: Path, each: bool) -> None:
    timeline = [[delta("INSERT", "r", 10, t="A", u="U")], [delta("UPDATE", "r", 20, t=None)]]
    assert folded(tmp_path, timeline, {"t": "string", "u": "string"}, each=each) == {"r": CASES["K7"]["expected"]}


def test_one_delta_of_every_type_round_trips(tmp_path: Path) -> None:
    given = CASES["P1"]["input"]
    made = delta("INSERT", "r", 1, **given["columns"])
    assert folded(tmp_path, [[made]], dict(given["schema"]), each=False) == {"r": given["columns"]}
    assert list(all_deltas(Lake(str(tmp_path)), "todos")) == [made]


@pytest.mark.parametrize("clients", [("\ufb33", "\U0001f602"), ("\U0001f602", "\ufb33")])
def test_clients_order_by_utf16(tmp_path: Path, clients: tuple[str, str]) -> None:
    """Code point order would have the other one win."""
    timeline = [[delta("UPDATE", "r", 7, client=client, t=client)] for client in clients]
    expected = replay([each for batch in timeline for each in batch])
    assert expected == {"r": {"t": "\ufb33"}}
    assert folded(tmp_path, timeline, {"t": "string"}, each=True) == expected

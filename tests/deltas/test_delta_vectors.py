"""The vectors that JavaScript and the specification computed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from driftline.deltas import Clock, RowDelta, delta_id, extract, merge
from driftline.deltas._deltas import split_hlc
from driftline.errors import ClockDriftError

VECTORS = Path(__file__).parent.parent / "vectors"
CASES: dict[str, dict[str, Any]] = {
    case["id"]: case for case in json.loads((VECTORS / "delta-cases.json").read_text("utf-8"))
}
IDS = json.loads((VECTORS / "delta-id.json").read_text("utf-8"))


@pytest.mark.parametrize("case", IDS, ids=lambda case: case["name"])
def test_delta_ids(case: dict[str, Any]) -> None:
    given = case["input"]
    found = delta_id(
        client_id=given["clientId"],
        hlc=int(given["hlc"]),
        table=given["table"],
        row_id=given["rowId"],
        columns=json.loads(given["columns_json"]),
    )
    assert found == case["deltaId"]


def test_now_counts_up_while_the_wall_stands_still() -> None:
    case = CASES["H1"]
    walls = iter(case["input"]["wall"])
    clock = Clock(wall=lambda: next(walls))
    found = [clock.now() for _ in case["input"]["ops"]]
    assert [list(split_hlc(hlc)) for hlc in found] == case["expected"]["wall_counter"]
    assert [str(hlc) for hlc in found] == case["expected"]["encoded"]


@pytest.mark.parametrize("name", ["a", "b"])
def test_drift_boundary(name: str) -> None:
    case = CASES["H6"]
    clock = Clock(wall=lambda: case["input"]["wall_frozen"])
    for operation, expected in zip(case["input"][f"ops_{name}"], case["expected"][name], strict=True):
        if isinstance(expected, dict):
            with pytest.raises(ClockDriftError) as caught:
                clock.recv(int(operation[1]))
            assert (caught.value.code, caught.value.message) == (expected["error"], expected["message"])
        elif operation[0] == "recv":
            assert list(split_hlc(clock.recv(int(operation[1])))) == expected
        else:
            assert list(split_hlc(clock.now())) == expected


@pytest.mark.parametrize("name", ["E1", "E2"])
def test_extraction(name: str) -> None:
    given, expected = CASES[name]["input"], CASES[name]["expected"]
    delta = extract(
        given["before"],
        given["after"],
        table=given["table"],
        row_id=given["rowId"],
        client_id=given["clientId"],
        hlc=int(given["hlc"]),
    )
    assert delta is not None
    assert {name: delta.to_wire()[name] for name in expected} == expected


def test_higher_client_id_wins_equal_timestamps() -> None:
    case = CASES["L3"]
    local, remote = RowDelta.from_wire(case["input"]["local"]), RowDelta.from_wire(case["input"]["remote"])
    for order in ([local, remote], [remote, local]):
        assert merge(order)["todos", "row-1"].columns == case["expected"]["columns"]


def test_every_arrival_order_converges() -> None:
    case = CASES["M1"]
    deltas = [RowDelta.from_wire(delta) for delta in case["input"]["deltas"]]
    for order in itertools.permutations(deltas):
        state = merge(order)["todos", "row-1"]
        assert (state.live, state.columns) == (case["expected"]["live"], case["expected"]["columns"])

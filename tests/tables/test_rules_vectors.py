"""The rules of table diffs on worked cases: the same lines, counts, errors and exit codes on every local way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import driftline as dl
from driftline.errors import DriftlineError
from support.engines import LOCAL_ENGINES

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "table-rules.json").read_text())


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_worked_case(tmp_path: Path, case: dict, engine: str) -> None:
    for side in "ab":
        content = bytes.fromhex(case[f"{side}_hex"]) if f"{side}_hex" in case else case[side].encode()
        (tmp_path / f"{side}.csv").write_bytes(content)
    paths = tmp_path / "a.csv", tmp_path / "b.csv"
    if "error" in case:
        with pytest.raises(DriftlineError) as caught:
            dl.diff(*paths, engine=engine, **case["options"])
        assert (caught.value.code, case["exit"]) == (case["error"], 2)
        return
    result = dl.diff(*paths, engine=engine, **case["options"])
    assert [line.decode().rstrip("\n") for line in result.lines()] == case["lines"]
    assert result.failed == (case["exit"] == 1)

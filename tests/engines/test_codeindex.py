"""A golden case of code indexes: the expected events from every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from driftline import codeindex
from driftline.codeindex._diff.diff import run
from support.engines import engines_for
from support.index_cases import CASES, options_of, write_case

ASKED = ("relations", "rename-pairing")


@pytest.mark.parametrize("engine", engines_for("codeindex"))
@pytest.mark.parametrize("case", [case for case in CASES if case["id"] in ASKED], ids=lambda case: case["id"])
def test_golden_cases(case: dict[str, Any], engine: str, tmp_path: Path) -> None:
    write_case(case, "json", tmp_path)
    places = [f"path:{tmp_path / side}" for side in ("from", "to")]
    request = codeindex.prepare(*places, None, codeindex.DiffOptions.of(**options_of(case)))
    if engine == "spark":
        from driftline.spark._index import index_scheduler

        with index_scheduler() as scheduler:
            result = run(request, scheduler=scheduler)
    else:
        result = run(request)
    expected = case["expected"]
    found = [
        {name: event.get(name, "absent") for name in wanted}
        for event, wanted in zip(result.events, expected["events"], strict=True)
    ]
    assert found == expected["events"]
    assert result.summary["modesSummary"] == expected["modesSummary"]

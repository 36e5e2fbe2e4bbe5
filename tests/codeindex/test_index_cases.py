"""Golden cases: the published vectors and the folders of `tests/conformance/codeindex`, in every storage form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driftline import codeindex
from support.index_cases import CASES, TESTS, options_of, write_case
from support.index_layouts import LAYOUTS


def case_layouts() -> list[Any]:
    return [
        pytest.param(case, layout, id=f"{case['id']}-{layout}")
        for case in CASES
        for layout in (LAYOUTS if case["layouts"] else ["json"])
    ]


def run_case(case: dict[str, Any], layout: str, folder: Path) -> codeindex.IndexDiff:
    write_case(case, layout, folder)
    return codeindex.diff(f"path:{folder / 'from'}", f"path:{folder / 'to'}", **options_of(case))


@pytest.mark.parametrize(("case", "layout"), case_layouts())
def test_case(case: dict[str, Any], layout: str, tmp_path: Path) -> None:
    result = run_case(case, layout, tmp_path)
    expected = case["expected"]
    assert result.summary["modesSummary"] == expected["modesSummary"]
    found = [
        {name: event.get(name, "absent") for name in wanted}
        for event, wanted in zip(result.events, expected["events"], strict=True)
    ]
    assert found == expected["events"]
    assert result.summary["truncated"] == expected["truncated"]
    assert result.summary["totalEvents"] == expected["totalEvents"]


def test_rows_without_a_file_are_counted(tmp_path: Path) -> None:
    case = next(case for case in CASES if case["id"] == "rows-without-file")
    for layout in LAYOUTS:
        result = run_case(case, layout, tmp_path / layout)
        assert result.summary["skippedRows"] == {"from": 2, "to": 0}


@pytest.mark.parametrize("case", json.loads((TESTS / "vectors" / "diff-id.json").read_text()), ids=lambda c: c["name"])
def test_diff_ids_are_those_of_javascript(case: dict[str, Any]) -> None:
    assert codeindex.diff_id(case["inputsCanonical"]) == case["diffId"]

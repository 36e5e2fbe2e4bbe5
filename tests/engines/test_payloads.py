"""A batch of payloads: the reports of a plain loop, and the same files from every engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.payloads import compare
from support.engines import engines_for

SCHEMA = {
    "properties": {
        "n": {"type": "number", "x-migration-precision": 0.5},
        "items": {"type": "array", "items": {"properties": {"x": {"x-migration-strategy": "lenient"}}}},
    }
}
PAIRS = [
    {
        "id": f"k{number:03d}",
        "old": {"n": 1, "items": [{"x": "A"}, {"x": "b"}], "t": number},
        "new": {"n": 1.25 if number % 2 else 2, "items": [{"x": "a "}, {"x": "b" if number % 5 else "c"}], "t": number},
    }
    for number in range(40)
]


def batch(folder: Path, engine: str) -> dict[str, bytes]:
    """Every file that a batch writes, Parquet aside, whose writers differ."""
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    words = ["payloads", "batch", folder / "pairs.jsonl", "--schema", folder / "schema.json", "--engine", engine]
    assert run(driftline, [*map(str, words), "-o", str(folder / engine)]) == 1
    return {file.name: file.read_bytes() for file in (folder / engine).iterdir() if file.suffix != ".parquet"}


def lines_of(outputs: dict[str, bytes]) -> dict[str, Any]:
    rows = map(json.loads, outputs["reports.jsonl"].decode().splitlines())
    return {row["id"]: (row["report"]["summary"], row["report"]["diffs"]) for row in rows}


@pytest.mark.parametrize("engine", engines_for("payloads"))
def test_a_batch(engine: str, tmp_path: Path) -> None:
    local = batch(tmp_path, "local")
    assert {"reports.jsonl", "summary.json", "aggregate.json", "report.html"} <= set(local)
    if engine == "reference":
        reports = {pair["id"]: json.loads(compare(pair["old"], pair["new"], SCHEMA).to_json()) for pair in PAIRS}
        assert lines_of(local) == {name: (report["summary"], report["diffs"]) for name, report in reports.items()}
    else:
        assert batch(tmp_path, engine) == local

"""The stage of a payload set: every pair compared under its rules, a report per pair."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from driftline.errors import InputError, PayloadError
from driftline.files import read_lines
from driftline.payloads import compile as compile_plan
from driftline.payloads.report import encode
from driftline.pipeline.declaration import PayloadFlow, Pipeline
from driftline.pipeline.stages import Outcome, Stage
from driftline.pipeline.workbench import Workbench

Pair = tuple[str, Any, Any]


def payload_stages(pipeline: Pipeline, flow: PayloadFlow) -> list[Stage]:
    """One stage for a set of pairs."""
    given = [flow.pairs] if flow.pairs else [flow.old, flow.new]
    return [
        Stage(
            f"{flow.name}/payloads/compare",
            partial(_compare, flow),
            sources=(pipeline.place(flow.schema), *(pipeline.place(path) for path in given if path)),
            outputs={"report": pipeline.place(flow.report)},
            options={"root": flow.root, "config": dict(flow.config)},
            gate=flow.fail_if,
        )
    ]


def _compare(flow: PayloadFlow, bench: Workbench) -> Outcome:
    plan = compile_plan(bench.pipeline.place(flow.schema), dict(flow.config) or None, flow.root)
    counts: Counter[str] = Counter()
    with open(bench.outputs.path("report"), "wb") as out, bench.tracker.phase("compare", unit="items"):
        for identifier, old, new in _pairs(flow, bench.pipeline):
            line = _report(plan, identifier, old, new)
            counts[line["result"]] += 1
            out.write(encode(line) + b"\n")
            bench.tracker.advance()
    return Outcome(
        {
            "matching": counts["match"],
            "different": counts["mismatch"],
            "errors": counts["error"],
            "total": sum(counts.values()),
        }
    )


def _report(plan: Any, identifier: str, old: Any, new: Any) -> dict[str, Any]:
    """The report of a pair without times; a pair that cannot be compared is an error row and stops nothing."""
    if old is None or new is None:
        side = "old" if old is None else "new"
        return {"id": identifier, "result": "error", "error": {"code": "MISSING_PARTNER", "message": f"no {side} side"}}
    try:
        report = plan.compare(old, new)
    except PayloadError as error:
        return {"id": identifier, "result": "error", "error": {"code": error.code, "message": error.message}}
    result = "match" if report.is_match else "mismatch"
    return {"id": identifier, "result": result, **report.to_dict(execution=False)}


def _pairs(flow: PayloadFlow, pipeline: Pipeline) -> Iterator[Pair]:
    if flow.pairs:
        for number, record in _records(pipeline.place(flow.pairs)):
            yield str(record.get("id", number)), record.get("old"), record.get("new")
        return
    assert flow.old is not None
    assert flow.new is not None
    old, new = (_by_id(pipeline.place(path)) for path in (flow.old, flow.new))
    for identifier in sorted({*old, *new}):
        yield identifier, old.get(identifier), new.get(identifier)


def _by_id(path: Path) -> dict[str, Any]:
    """Payloads by id: `{id, payload}` a line, or one file a payload in a folder (the id is its name)."""
    if path.is_dir():
        return {file.stem: file.read_bytes() for file in sorted(path.glob("*.json"))}
    return {str(record.get("id", number)): record.get("payload") for number, record in _records(path)}


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path.name}: line {number} is not JSON: {error}", code="invalid_json") from error
        if not isinstance(record, dict):
            raise InputError(f"{path.name}: line {number} is not an object", code="invalid_json")
        yield number, record

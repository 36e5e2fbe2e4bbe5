"""The figures of a run as JSON and as a Prometheus text file (for node_exporter's textfile collector)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

from driftline.core._files import explain_io_errors, write_atomically
from driftline.core._json import JsonObject
from driftline.pipeline.declaration import Pipeline
from driftline.pipeline.records import RunRecord

RESULTS = ("done", "exceeded", "failed", "cancelled", "locked")


def write_metrics(pipeline: Pipeline, record: RunRecord) -> None:
    """Write the declared metrics files."""
    for path, data in (
        (pipeline.metrics.json, metrics_json(record)),
        (pipeline.metrics.prometheus, prometheus_text(record)),
    ):
        if path is not None:
            place = pipeline.place(path)
            with explain_io_errors(path):
                place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, data)


def metrics_json(record: RunRecord) -> bytes:
    """The figures as one JSON object."""
    stages = [
        {"stage": run.stage, "result": run.result, "seconds": round(run.seconds, 3), "counts": dict(run.counts or {})}
        for run in record.stages
    ]
    content: JsonObject = {
        "pipeline": record.pipeline,
        "run": record.run_id,
        "startedAt": record.started_at,
        "seconds": record.seconds,
        "engine": record.engine,
        "result": record.result,
        "exceeded": list(record.exceeded),
        "warnings": list(record.warnings),
        "problem": record.problem,
        "stages": stages,
    }
    return json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n"


def prometheus_text(record: RunRecord) -> bytes:
    """The figures in the Prometheus exposition format."""
    return ("\n".join(_lines(record)) + "\n").encode()


def _lines(record: RunRecord) -> Iterator[str]:
    pipeline = {"pipeline": record.pipeline}
    started = datetime.fromisoformat(record.started_at).timestamp()
    yield from _family("driftline_pipeline_started_seconds", "Unix time at which the last run began.")
    yield _sample("driftline_pipeline_started_seconds", pipeline, started)
    yield from _family("driftline_pipeline_duration_seconds", "How long the last run took.")
    yield _sample("driftline_pipeline_duration_seconds", pipeline, record.seconds)
    yield from _family("driftline_pipeline_result", "1 for the result of the last run, 0 for the others.")
    for result in RESULTS:
        yield _sample("driftline_pipeline_result", {**pipeline, "result": result}, int(result == record.result))
    yield from _family("driftline_pipeline_limits_exceeded", "Limits that the last run exceeded.")
    for level, words in (("fail", record.exceeded), ("warn", record.warnings)):
        yield _sample("driftline_pipeline_limits_exceeded", {**pipeline, "level": level}, len(words))
    yield from _family("driftline_stage_duration_seconds", "How long a stage took in the last run.")
    for run in record.stages:
        labels = {**pipeline, "stage": run.stage, "result": run.result}
        yield _sample("driftline_stage_duration_seconds", labels, round(run.seconds, 3))
    yield from _family("driftline_stage_rows", "What a stage counted in the last run.")
    for run in record.stages:
        for name, value in (run.counts or {}).items():
            yield _sample("driftline_stage_rows", {**pipeline, "stage": run.stage, "count": name}, value)


def _family(name: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} gauge"]


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

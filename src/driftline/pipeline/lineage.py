"""OpenLineage: what each stage of a run read and wrote, as events in a file of JSON lines (pipeline §10).

A run event has the shape of the OpenLineage specification 2-0-2: https://openlineage.io/spec/2-0-2/OpenLineage.json.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from driftline.core._files import explain_io_errors
from driftline.core._json import JsonObject
from driftline.pipeline.declaration import Pipeline
from driftline.pipeline.records import RunRecord, StageRun
from driftline.version import __version__

PRODUCER = f"https://pypi.org/project/driftline/{__version__}"
_SPEC = "https://openlineage.io/spec"
_RUN_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PARENT = f"{_SPEC}/facets/1-0-1/ParentRunFacet.json#/$defs/ParentRunFacet"
_ERROR = f"{_SPEC}/facets/1-0-0/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet"
_STATISTICS = f"{_SPEC}/facets/1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet"
_ENDINGS = {"done": "COMPLETE", "exceeded": "COMPLETE", "failed": "FAIL", "locked": "FAIL", "cancelled": "ABORT"}
_IDS = uuid.UUID("5b5e7c9e-7e0b-5a1c-9f43-6d0f5f0e3c11")  # so that ids follow from the names of runs


def append_lineage(pipeline: Pipeline, record: RunRecord) -> None:
    """Add the events of a run to the declared file, all of them in one write.

    A file that would grow beyond its limit is set aside as `FILE.1`, in the place of the one before it.
    """
    if pipeline.lineage.openlineage is None:
        return
    place = pipeline.directory / pipeline.lineage.openlineage
    data = b"".join(
        json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in lineage_events(pipeline, record)
    )
    with explain_io_errors(pipeline.lineage.openlineage):
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and place.stat().st_size + len(data) > pipeline.lineage.max_mb * 1_000_000:
            place.replace(place.with_name(f"{place.name}.1"))
        with open(place, "ab", buffering=0) as out:
            out.write(data)


def lineage_events(pipeline: Pipeline, record: RunRecord) -> Iterator[JsonObject]:
    """The run begins, the stages that ran begin and end, the run ends."""
    name = record.pipeline
    end = _later(record.started_at, record.seconds)
    yield _event(pipeline, "START", record.started_at, _id(record.run_id), name)
    for stage in record.stages:
        if stage.result in ("done", "failed") and stage.started_at is not None:
            yield from _stage_events(pipeline, record, stage)
    facets = _error(record.problem) if record.problem else {}
    yield _event(pipeline, _ENDINGS[record.result], end, _id(record.run_id), name, facets)


def _stage_events(pipeline: Pipeline, record: RunRecord, stage: StageRun) -> Iterator[JsonObject]:
    assert stage.started_at is not None
    name, run = f"{record.pipeline}.{stage.stage}", _id(f"{record.run_id}/{stage.stage}")
    parent = {"parent": _facet(_PARENT, run={"runId": _id(record.run_id)}, job=_job(pipeline, record.pipeline))}
    yield _event(pipeline, "START", stage.started_at, run, name, parent)
    kept = stage.record
    inputs = [dataset(pipeline, entry["path"]) for entry in kept.inputs] if kept else []
    outputs = [
        {
            **dataset(pipeline, output.path),
            "outputFacets": {"outputStatistics": _facet(_STATISTICS, size=output.size)},
        }
        for output in (kept.outputs if kept else ())
    ]
    if kept and stage.counts and "deltas" in stage.counts and pipeline.lake is not None:
        outputs.append(_lake_table(pipeline, stage))
    facets = parent if stage.result == "done" else {**parent, **_error(stage.problem or "no word")}
    ending = "COMPLETE" if stage.result == "done" else "FAIL"
    event = _event(pipeline, ending, _later(stage.started_at, stage.seconds), run, name, facets)
    yield {**event, "inputs": inputs, "outputs": outputs}


def _lake_table(pipeline: Pipeline, stage: StageRun) -> JsonObject:
    assert pipeline.lake is not None
    assert stage.counts is not None
    table = dataset(pipeline, f"{pipeline.lake.path.rstrip('/')}/tables/{stage.stage.partition('/')[0]}")
    rows = _facet(_STATISTICS, rowCount=stage.counts["deltas"])
    return {**table, "outputFacets": {"outputStatistics": rows}}


def dataset(pipeline: Pipeline, path: str) -> JsonObject:
    """A file or an object by OpenLineage's rules of naming: the store is the namespace."""
    scheme, mark, rest = path.partition("://")
    if mark:
        bucket, _, key = rest.partition("/")
        return {"namespace": f"{scheme}://{bucket}", "name": key}
    return {"namespace": "file", "name": Path(os.path.abspath(pipeline.directory / path)).as_posix()}


def _event(
    pipeline: Pipeline, kind: str, when: str, run: str, job: str, facets: JsonObject | None = None
) -> JsonObject:
    return {
        "eventType": kind,
        "eventTime": when,
        "producer": PRODUCER,
        "schemaURL": _RUN_EVENT,
        "run": {"runId": run, "facets": facets or {}},
        "job": _job(pipeline, job),
        "inputs": [],
        "outputs": [],
    }


def _job(pipeline: Pipeline, name: str) -> JsonObject:
    return {"namespace": pipeline.lineage.namespace, "name": name}


def _facet(schema: str, **content: Any) -> JsonObject:
    return {"_producer": PRODUCER, "_schemaURL": schema, **content}


def _error(words: str) -> JsonObject:
    return {"errorMessage": _facet(_ERROR, message=words, programmingLanguage="python")}


def _id(name: str) -> str:
    return str(uuid.uuid5(_IDS, name))


def _later(moment: str, seconds: float) -> str:
    end = datetime.fromisoformat(moment) + timedelta(seconds=seconds)
    return end.isoformat(timespec="milliseconds").replace("+00:00", "Z")

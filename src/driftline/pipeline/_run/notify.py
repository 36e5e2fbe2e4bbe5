"""What happens when a run ends: metrics files, lineage, and hooks, which are commands and webhooks (pipeline §10)."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from driftline.core import JsonObject, io_errors, write_atomically
from driftline.errors import DriftlineError
from driftline.pipeline._declare.declaration import FinishHook, Pipeline
from driftline.pipeline._run.records import RunRecord, StageRun
from driftline.sinks import page_bytes
from driftline.version import __version__

_LONGEST_WAIT = 60.0
RESULTS = ("done", "exceeded", "failed", "cancelled", "locked")
PRODUCER = f"https://pypi.org/project/driftline/{__version__}"
_SPEC = "https://openlineage.io/spec"
_RUN_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PARENT = f"{_SPEC}/facets/1-0-1/ParentRunFacet.json#/$defs/ParentRunFacet"
_ERROR = f"{_SPEC}/facets/1-0-0/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet"
_STATISTICS = f"{_SPEC}/facets/1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet"
_ENDINGS = {"done": "COMPLETE", "exceeded": "COMPLETE", "failed": "FAIL", "locked": "FAIL", "cancelled": "ABORT"}
_IDS = uuid.UUID("5b5e7c9e-7e0b-5a1c-9f43-6d0f5f0e3c11")  # so that ids follow from the names of runs


def notify(pipeline: Pipeline, record: RunRecord) -> list[str]:
    """Write metrics and lineage and call the hooks; their error messages (the result of the run stays as it is)."""
    problems = []
    for output in (write_metrics, append_lineage):
        try:
            output(pipeline, record)
        except DriftlineError as error:
            problems.append(error.message)
    return [*problems, *call_hooks(pipeline, record)]


def call_hooks(pipeline: Pipeline, record: RunRecord) -> list[str]:
    """Call the declared hooks; their error messages."""
    problems = []
    for hook in pipeline.hooks:
        if hook.when == "always" or (hook.when == "success") == (record.result == "done"):
            if hook.command:
                problems += _insistently(hook, partial(_run_command, pipeline, hook, record))
            if hook.webhook:
                problems += _insistently(hook, partial(_post, hook, record))
    return problems


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a hook failed, whether a retry may help, and how long it requested to wait."""

    words: str
    is_final: bool = False
    wait: float = 0.0


def _insistently(hook: FinishHook, call: Callable[[], _Refusal | None]) -> list[str]:
    """Call until it works, waiting twice as long each time; the last error message."""
    refusal = None
    for attempt in range(hook.retries + 1):
        if refusal is not None:
            time.sleep(min(_LONGEST_WAIT, max(refusal.wait, hook.wait * 2 ** (attempt - 1))))
        refusal = call()
        if refusal is None:
            return []
        if refusal.is_final:
            break
    assert refusal is not None
    return [refusal.words + (f" (tried {attempt + 1} times)" if attempt else "")]


def _run_command(pipeline: Pipeline, hook: FinishHook, record: RunRecord) -> _Refusal | None:
    environment = {
        **os.environ,
        "DRIFTLINE_PIPELINE": record.pipeline,
        "DRIFTLINE_RUN": record.run_id,
        "DRIFTLINE_RESULT": record.result,
        "DRIFTLINE_EXIT_CODE": str(record.exit_code),
    }
    try:
        done = subprocess.run(
            hook.command,
            cwd=pipeline.directory,
            env=environment,
            input=metrics_json(record),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=hook.timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _Refusal(f"the finish command did not end within {hook.timeout:g} s")
    except OSError as error:
        return _Refusal(f"the finish command failed: {error}", is_final=True)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return _Refusal(f"the finish command ended with {done.returncode}: {words[-1] if words else 'no word'}")
    return None


def _post(hook: FinishHook, record: RunRecord) -> _Refusal | None:
    assert hook.webhook is not None
    as_json = {"Content-Type": "application/json"}
    # http and https only, checked when the file is read
    request = urllib.request.Request(hook.webhook, metrics_json(record), as_json, method="POST")  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=hook.timeout):  # noqa: S310
            return None
    except urllib.error.HTTPError as error:
        words = f"the webhook did not take the result: {error.code} {error.reason}"
        wait = 0.0
        with contextlib.suppress(ValueError):
            wait = float(error.headers.get("Retry-After") or 0)
        return _Refusal(words, error.code < 500 and error.code not in (408, 429), wait)
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        return _Refusal(f"the webhook did not take the result: {getattr(error, 'reason', error)}")


# Metrics: JSON, and a Prometheus text file for the textfile collector of node_exporter.
def write_metrics(pipeline: Pipeline, record: RunRecord) -> None:
    """Write the declared metrics files."""
    for path, data in (
        (pipeline.metrics.json, metrics_json(record)),
        (pipeline.metrics.prometheus, prometheus_text(record)),
    ):
        if path is not None:
            place = pipeline.place(path)
            with io_errors(path):
                place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, data)


def metrics_json(record: RunRecord) -> bytes:
    """The figures as one JSON object."""
    stages = [
        {"stage": run.stage, "result": run.result, "seconds": round(run.seconds, 3), "counts": dict(run.counts or {})}
        for run in record.stages
    ]
    content = {"pipeline": record.pipeline, "run": record.run_id, "startedAt": record.started_at}
    for name in ("seconds", "engine", "result", "exceeded", "warnings", "problem"):
        content[name] = getattr(record, name)
    return json.dumps({**content, "stages": stages}, ensure_ascii=False, indent=1).encode() + b"\n"


def prometheus_text(record: RunRecord) -> bytes:
    """The figures in the Prometheus exposition format."""
    started = datetime.fromisoformat(record.started_at).timestamp()
    return b"".join(page_bytes("metrics.prom", record=record, started=started, results=RESULTS))


# OpenLineage 2-0-2 (https://openlineage.io/spec/2-0-2/OpenLineage.json): what each stage read and wrote, as JSON lines.
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
    with io_errors(pipeline.lineage.openlineage):
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and place.stat().st_size + len(data) > pipeline.lineage.max_mb * 1_000_000:
            place.replace(place.with_name(f"{place.name}.1"))
        with open(place, "ab", buffering=0) as out:
            out.write(data)


def lineage_events(pipeline: Pipeline, record: RunRecord) -> Iterator[JsonObject]:
    """The run begins, the stages that ran begin and end, the run ends."""
    event = partial(_event, pipeline, record.run_id, record.pipeline)
    yield event("START", record.started_at, {})
    for stage in record.stages:
        if stage.result in ("done", "failed") and stage.started_at is not None:
            yield from _stage_events(pipeline, record, stage, stage.started_at)
    facets = _error(record.problem) if record.problem else {}
    yield event(_ENDINGS[record.result], _later(record.started_at, record.seconds), facets)


def _stage_events(pipeline: Pipeline, record: RunRecord, stage: StageRun, started_at: str) -> Iterator[JsonObject]:
    event = partial(_event, pipeline, f"{record.run_id}/{stage.stage}", f"{record.pipeline}.{stage.stage}")
    job = {"namespace": pipeline.lineage.namespace, "name": record.pipeline}
    parent = {"parent": _facet(_PARENT, run={"runId": _id(record.run_id)}, job=job)}
    yield event("START", started_at, parent)
    kept = stage.record
    outputs = [_output(pipeline, each.path, size=each.size) for each in (kept.outputs if kept else ())]
    if kept and stage.counts and "deltas" in stage.counts and pipeline.lake is not None:
        table = f"{pipeline.lake.path.rstrip('/')}/tables/{stage.stage.partition('/')[0]}"
        outputs.append(_output(pipeline, table, rowCount=stage.counts["deltas"]))
    facets = parent if stage.result == "done" else {**parent, **_error(stage.problem or "no word")}
    inputs = [dataset(pipeline, entry["path"]) for entry in kept.inputs] if kept else []
    yield event(_ENDINGS[stage.result], _later(started_at, stage.seconds), facets, inputs, outputs)


def _output(pipeline: Pipeline, path: str, **statistics: int) -> JsonObject:
    return {**dataset(pipeline, path), "outputFacets": {"outputStatistics": _facet(_STATISTICS, **statistics)}}


def dataset(pipeline: Pipeline, path: str) -> JsonObject:
    """A file or an object by OpenLineage's rules of naming: the store is the namespace."""
    scheme, mark, rest = path.partition("://")
    catalog = re.match(r"(delta|iceberg|spark):(?!//)", path)
    if catalog:
        return {"namespace": catalog[1], "name": path[catalog.end() :]}
    if mark:
        bucket, _, key = rest.partition("/")
        return {"namespace": f"{scheme}://{bucket}", "name": key}
    return {"namespace": "file", "name": Path(os.path.abspath(pipeline.directory / path)).as_posix()}


def _event(
    pipeline: Pipeline,
    run: str,
    job: str,
    kind: str,
    when: str,
    facets: JsonObject,
    inputs: Sequence[JsonObject] = (),
    outputs: Sequence[JsonObject] = (),
) -> JsonObject:
    return {
        "eventType": kind,
        "eventTime": when,
        "producer": PRODUCER,
        "schemaURL": _RUN_EVENT,
        "run": {"runId": _id(run), "facets": facets},
        "job": {"namespace": pipeline.lineage.namespace, "name": job},
        "inputs": inputs,
        "outputs": outputs,
    }


def _facet(schema: str, **content: Any) -> JsonObject:
    return {"_producer": PRODUCER, "_schemaURL": schema, **content}


def _error(words: str) -> JsonObject:
    return {"errorMessage": _facet(_ERROR, message=words, programmingLanguage="python")}


def _id(name: str) -> str:
    return str(uuid.uuid5(_IDS, name))


def _later(start: str, seconds: float) -> str:
    end = datetime.fromisoformat(start) + timedelta(seconds=seconds)
    return end.isoformat(timespec="milliseconds").replace("+00:00", "Z")

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from driftline.core import JsonObject, io_errors, write_atomically
from driftline.errors import DriftlineError
from driftline.pipeline._declare.declaration import FinishHook, Pipeline
from driftline.pipeline._run.records import RunRecord, StageRun
from driftline.version import __version__

_LONGEST_WAIT = 60.0
_LONGEST_TEXT = 1900  # chat tools refuse longer messages
_MOST_LISTED = 8
# What chat tools take; texts in braces are filled in.
FORMATS: JsonObject = {
    "slack": {"text": "{summary}"},
    "discord": {"content": "{summary}"},
    "teams": {
        "type": "message",
        "attachments": [
            {
                "contentType": "application/vnd.microsoft.card.adaptive",
                "content": {
                    "type": "AdaptiveCard",
                    "version": "1.4",
                    "body": [{"type": "TextBlock", "text": "{summary}", "wrap": True}],
                },
            }
        ],
    },
}
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
    for told in (write_metrics, append_lineage):
        try:
            told(pipeline, record)
        except DriftlineError as error:
            problems.append(error.message)
    return [*problems, *call_hooks(pipeline, record)]


def call_hooks(pipeline: Pipeline, record: RunRecord) -> list[str]:
    """Call the declared hooks; their error messages."""
    problems = []
    for hook in pipeline.hooks:
        if _is_wanted(hook, record):
            if hook.command:
                problems += _insistently(hook, lambda hook=hook: _run_command(pipeline, hook, record))  # type: ignore[misc]
            if hook.webhook:
                problems += _insistently(hook, lambda hook=hook: _post(pipeline, hook, record))  # type: ignore[misc]
    return problems


def _is_wanted(hook: FinishHook, record: RunRecord) -> bool:
    return hook.when == "always" or (hook.when == "success") == (record.result == "done")


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a hook failed, whether a retry may help, and how long it asked to wait."""

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
            input=body_of(pipeline, hook, record),
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


def _post(pipeline: Pipeline, hook: FinishHook, record: RunRecord) -> _Refusal | None:
    assert hook.webhook is not None
    request = urllib.request.Request(  # noqa: S310 - http and https only, checked when the file is read
        hook.webhook,
        data=body_of(pipeline, hook, record),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=hook.timeout):  # noqa: S310
            return None
    except urllib.error.HTTPError as error:
        words = f"the webhook did not take the result: {error.code} {error.reason}"
        return _Refusal(words, error.code < 500 and error.code not in (408, 429), _asked_to_wait(error))
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        return _Refusal(f"the webhook did not take the result: {getattr(error, 'reason', error)}")


def _asked_to_wait(error: urllib.error.HTTPError) -> float:
    with contextlib.suppress(ValueError):
        return float(error.headers.get("Retry-After") or 0)
    return 0.0


def body_of(pipeline: Pipeline, hook: FinishHook, record: RunRecord) -> bytes:
    """What a hook is given: the figures, or the JSON of its format or template with the words filled in."""
    if hook.template is not None:
        template = read_template(pipeline, hook.template)
    elif hook.format in FORMATS:
        template = FORMATS[hook.format]
    else:
        return metrics_json(record)
    return json.dumps(_filled(template, _words(record)), ensure_ascii=False).encode()


def read_template(pipeline: Pipeline, path: str) -> Any:
    """The JSON of a template file."""
    with io_errors(path):
        text = pipeline.place(path).read_bytes().decode()
    try:
        return json.loads(text)
    except ValueError as error:
        raise DriftlineError(f"the template {path} is not JSON: {error}", code="invalid_template") from error


def _filled(template: Any, words: dict[str, str]) -> Any:
    """Texts with their braces filled in: in parsed JSON, so that no quote of a message breaks it."""
    if isinstance(template, str):
        return re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]), template)
    if isinstance(template, list):
        return [_filled(item, words) for item in template]
    return {name: _filled(item, words) for name, item in template.items()} if isinstance(template, dict) else template


def _words(record: RunRecord) -> dict[str, str]:
    problems = [f"{stage.stage}: {stage.problem}" for stage in record.stages if stage.result == "failed"]
    listed = [*([record.problem] if record.problem else []), *problems, *record.exceeded]
    told = listed[:_MOST_LISTED] + ([f"and {len(listed) - _MOST_LISTED} more"] if len(listed) > _MOST_LISTED else [])
    done = sum(stage.result == "done" for stage in record.stages)
    head = f"{record.pipeline}: {record.result} in {record.seconds:.1f} s, {done} of {len(record.stages)} stages done"
    return {
        "pipeline": record.pipeline,
        "run": record.run_id,
        "result": record.result,
        "exit_code": str(record.exit_code),
        "seconds": f"{record.seconds:.1f}",
        "started_at": record.started_at,
        "problems": "\n".join(told),
        "warnings": "\n".join(record.warnings[:_MOST_LISTED]),
        "summary": "\n".join([head, *told, *record.warnings[:_MOST_LISTED]])[:_LONGEST_TEXT],
    }


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

"""The stage of a code index: its difference as events, and as an entry in the index's registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from driftline.codeindex import (
    CacheRoot,
    IndexDiffJob,
    ModeScheduler,
    Registry,
    choose_engine,
    compute,
    diff_mode,
    fingerprints,
)
from driftline.core import JsonObject
from driftline.errors import DriftlineError
from driftline.pipeline._declare.declaration import IndexFlow, Pipeline
from driftline.pipeline._stages.stage import Outcome, Stage, StageContext


def index_stages(pipeline: Pipeline, flow: IndexFlow) -> list[Stage]:
    """One stage: computed, written and kept together."""
    return [
        Stage(
            f"{flow.name}/index/diff",
            partial(_diff, flow),
            outputs={"events": pipeline.place(flow.events)} if flow.events else {},
            options={
                "from": flow.before,
                "to": flow.after,
                "modes": list(flow.modes),
                "cache_root": flow.cache_root,
                "registry": flow.registry,
                "allow_mismatch": flow.allow_mismatch,
                **({"repo": flow.repo} if flow.repo else {}),
            },
            gate=flow.fail_if,
            warn=flow.warn_if,
            extra_inputs=partial(_extra_inputs, pipeline, flow),
            is_fresh=partial(_is_kept, pipeline, flow),
        )
    ]


def _job(pipeline: Pipeline, flow: IndexFlow) -> IndexDiffJob:
    return IndexDiffJob.of(
        flow.before,
        flow.after,
        str(pipeline.place(flow.cache_root)),
        modes=flow.modes,
        persist=flow.registry,
        allow_mismatch=flow.allow_mismatch,
        wait_ms=10_000,
        repo=str(pipeline.place(flow.repo)) if flow.repo else None,
    )


def _extra_inputs(pipeline: Pipeline, flow: IndexFlow) -> JsonObject:
    """What both sides hold, by the fingerprints of their artifacts."""
    request, _ = _job(pipeline, flow).prepare()
    return {"from": fingerprints(request.before), "to": fingerprints(request.after)}


def _diff(flow: IndexFlow, context: StageContext) -> Outcome:
    job = _job(context.pipeline, flow)
    request, cache = job.prepare()
    name, _ = choose_engine(request, context.engine.wanted, context.engine.master)
    with _scheduler(context, name) as scheduler:
        kept = compute(request, cache, job.keeping, scheduler=scheduler, tracker=context.tracker)
    if flow.events:
        with context.outputs.writing("events") as out:
            for event in kept.result.events:
                out.write(json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    return Outcome(_counts(kept.result.summary), {"diff_id": kept.result.diff_id})


@contextmanager
def _scheduler(context: StageContext, name: str) -> Iterator[ModeScheduler]:
    if name != "spark":
        yield diff_mode
        return
    from driftline.spark import index_scheduler

    context.engine.session()
    with index_scheduler(context.engine.master) as scheduler:
        yield scheduler


def _counts(summary: Mapping[str, Any]) -> dict[str, int]:
    counts = {"events": summary["totalEvents"], "files": 0, "chunks": 0, "total": 0}
    for mode in summary["modesSummary"].values():
        for part in ("files", "chunks"):
            counts[part] += sum(value for value in mode.get(part, {}).values() if isinstance(value, int))
    return counts


def _is_kept(pipeline: Pipeline, flow: IndexFlow, context: StageContext, facts: Mapping[str, Any]) -> bool:
    if not flow.registry or "path:" in f"{flow.before} {flow.after}":
        return True
    try:
        Registry(CacheRoot(str(pipeline.place(flow.cache_root)))).load(facts["diff_id"])
    except DriftlineError:
        return False
    return True

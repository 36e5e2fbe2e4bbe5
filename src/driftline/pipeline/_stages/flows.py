"""The stages of payload sets and code indexes: one for each, computed, written and kept together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from driftline.core import JsonObject, ObjectPath, choose_engine, io_errors
from driftline.errors import DriftlineError
from driftline.pipeline._declare.declaration import IndexFlow, PayloadFlow, Pipeline
from driftline.pipeline._stages.stage import Outcome, Stage, StageContext

if TYPE_CHECKING:
    from driftline.codeindex import IndexDiffJob, ModeScheduler
    from driftline.payloads import BatchJob, Role, Scheduler


def flow_stages(pipeline: Pipeline) -> Iterator[Stage]:
    """A stage for every payload set and every index."""
    for payloads in pipeline.payloads:
        yield Stage(
            f"{payloads.name}/payloads/compare",
            partial(_compare, payloads),
            sources=(pipeline.place(payloads.schema), *(pipeline.place(path) for path, _ in _given(payloads))),
            outputs={"report": pipeline.place(payloads.report)},
            options={"root": payloads.root, "config": dict(payloads.config), "id": payloads.id_name},
            gate=payloads.fail_if,
            warn=payloads.warn_if,
        )
    for index in pipeline.indexes:
        yield Stage(
            f"{index.name}/index/diff",
            partial(_diff, index),
            outputs={"events": pipeline.place(index.events)} if index.events else {},
            options={
                "from": index.before,
                "to": index.after,
                "modes": list(index.modes),
                "cache_root": index.cache_root,
                "registry": index.registry,
                "allow_mismatch": index.allow_mismatch,
                **({"repo": index.repo} if index.repo else {}),
            },
            gate=index.fail_if,
            warn=index.warn_if,
            extra_inputs=partial(_fingerprints, pipeline, index),
            is_fresh=partial(_is_kept, index),
        )


def _given(flow: PayloadFlow) -> list[tuple[str, Role]]:
    """The inputs of a payload set: pairs, or both sides of them."""
    inputs: list[tuple[str | None, Role]] = [(flow.pairs, "pairs"), (flow.old, "old"), (flow.new, "new")]
    return [(path, role) for path, role in inputs if path is not None and (role == "pairs") == bool(flow.pairs)]


def _compare(flow: PayloadFlow, context: StageContext) -> Outcome:
    """Every pair compared under its rules; reports and totals in a folder."""
    from driftline.payloads import run_batch

    job = _batch(flow, context.pipeline)
    with _batch_scheduler(context, job) as scheduler:
        totals = run_batch(job, context.outputs.path("report"), scheduler, context.tracker)
    counts = totals.counts()
    names = {"matching": "matched", "different": "different", "errors": "failed", "total": "pairs"}
    return Outcome({name: counts[what] for name, what in names.items()})


def _batch(flow: PayloadFlow, pipeline: Pipeline) -> BatchJob:
    from driftline.payloads import BatchJob, open_source

    with io_errors(flow.schema):
        schema = pipeline.place(flow.schema).read_bytes()
    places = [(pipeline.place(path), role) for path, role in _given(flow)]
    # Tasks may run elsewhere: they get absolute paths.
    sources = tuple(open_source(at if isinstance(at, ObjectPath) else at.resolve(), role) for at, role in places)
    return BatchJob(sources, {None: schema}, dict(flow.config), flow.root, flow.id_name)


def _batch_scheduler(context: StageContext, job: BatchJob) -> AbstractContextManager[Scheduler]:
    engine = context.engine
    if choose_engine("payloads", engine.requested, sizes=lambda: [job.size], master=engine.master).name != "spark":
        from driftline.payloads import local_scheduler

        return local_scheduler(job)
    from driftline.spark import payload_scheduler

    engine.session()
    return payload_scheduler(engine.master, context.tracker)


def _index_job(pipeline: Pipeline, flow: IndexFlow) -> IndexDiffJob:
    from driftline.codeindex import IndexDiffJob

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


def _fingerprints(pipeline: Pipeline, flow: IndexFlow) -> JsonObject:
    """What both sides hold, by the fingerprints of their artifacts."""
    from driftline.codeindex import fingerprints

    request, _ = _index_job(pipeline, flow).prepare()
    return {"from": fingerprints(request.before), "to": fingerprints(request.after)}


def _diff(flow: IndexFlow, context: StageContext) -> Outcome:
    """The difference of an index as events, and as an entry in the index's registry."""
    from driftline.codeindex import choose_engine, compute, diff_mode

    job = _index_job(context.pipeline, flow)
    request, cache = job.prepare()
    name, _ = choose_engine(request, context.engine.requested, context.engine.master)
    scheduling: AbstractContextManager[ModeScheduler] = nullcontext(diff_mode)
    if name == "spark":
        from driftline.spark import index_scheduler

        context.engine.session()
        scheduling = index_scheduler(context.engine.master)
    with scheduling as scheduler:
        kept = compute(request, cache, job.keeping, scheduler=scheduler, tracker=context.tracker)
    if flow.events:
        with context.outputs.writing("events") as out:
            for event in kept.result.events:
                out.write(json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
    counts = {"events": kept.result.summary["totalEvents"], "files": 0, "chunks": 0, "total": 0}
    for mode in kept.result.summary["modesSummary"].values():
        for part in ("files", "chunks"):
            counts[part] += sum(value for value in mode.get(part, {}).values() if isinstance(value, int))
    return Outcome(counts, {"diff_id": kept.result.diff_id})


def _is_kept(flow: IndexFlow, context: StageContext, facts: Mapping[str, Any]) -> bool:
    from driftline.codeindex import CacheRoot, Registry

    if not flow.registry or "path:" in f"{flow.before} {flow.after}":
        return True
    try:
        Registry(CacheRoot(str(context.pipeline.place(flow.cache_root)))).load(facts["diff_id"])
    except DriftlineError:
        return False
    return True

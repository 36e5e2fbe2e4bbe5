"""The stage of a payload set: every pair compared under its rules, reports and totals in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from driftline.core import Location, ObjectPath, choose_engine, io_errors
from driftline.pipeline._declare.declaration import PayloadFlow, Pipeline
from driftline.pipeline._stages.stage import Outcome, Stage, StageContext

if TYPE_CHECKING:
    from driftline.payloads import BatchJob, Role, Scheduler


def payload_stages(pipeline: Pipeline, flow: PayloadFlow) -> list[Stage]:
    """One stage for a set of pairs."""
    return [
        Stage(
            f"{flow.name}/payloads/compare",
            partial(_compare, flow),
            sources=(pipeline.place(flow.schema), *(pipeline.place(path) for path, _ in _given(flow))),
            outputs={"report": pipeline.place(flow.report)},
            options={"root": flow.root, "config": dict(flow.config), "id": flow.id_name},
            gate=flow.fail_if,
            warn=flow.warn_if,
        )
    ]


def _given(flow: PayloadFlow) -> list[tuple[str, Role]]:
    if flow.pairs is not None:
        return [(flow.pairs, "pairs")]
    assert flow.old is not None
    assert flow.new is not None
    return [(flow.old, "old"), (flow.new, "new")]


def _compare(flow: PayloadFlow, context: StageContext) -> Outcome:
    from driftline.payloads import run_batch

    job = _job(flow, context.pipeline)
    with _scheduler(context, job) as scheduler:
        totals = run_batch(job, context.outputs.path("report"), scheduler, context.tracker)
    counts = totals.counts()
    names = {"matching": "matched", "different": "different", "errors": "failed", "total": "pairs"}
    return Outcome({name: counts[what] for name, what in names.items()})


def _job(flow: PayloadFlow, pipeline: Pipeline) -> BatchJob:
    from driftline.payloads import BatchJob, open_source

    schema = pipeline.place(flow.schema)
    with io_errors(flow.schema):
        content = schema.read_bytes()
    # Tasks may run elsewhere: they get absolute paths.
    sources = tuple(open_source(_absolute(pipeline.place(path)), role) for path, role in _given(flow))
    return BatchJob(sources, {None: content}, dict(flow.config), flow.root, flow.id_name)


def _absolute(place: Location) -> Location:
    return place if isinstance(place, ObjectPath) else place.resolve()


@contextmanager
def _scheduler(context: StageContext, job: BatchJob) -> Iterator[Scheduler]:
    engine = context.engine
    name, _ = choose_engine("payloads", engine.wanted, sizes=lambda: [job.size], master=engine.master)
    if name != "spark":
        from driftline.payloads import local_scheduler

        with local_scheduler(job) as scheduler:
            yield scheduler
        return
    from driftline.spark import payload_scheduler

    engine.session()
    with payload_scheduler(engine.master, context.tracker) as scheduler:
        yield scheduler

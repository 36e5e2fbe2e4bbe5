"""The stages that compare: events for each pair of snapshots."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from driftline.errors import TableError
from driftline.pipeline.declaration import TableFlow
from driftline.pipeline.shapes import header_of, reshaped, shapes_of
from driftline.pipeline.snapshots import Snapshot, age_of
from driftline.pipeline.stages import Outcome, Stage, StageContext
from driftline.pipeline.table_plan import TablePlan
from driftline.tables.engines import DiffJob, find_engine
from driftline.tables.options import DiffOptions
from driftline.tables.stats import Stats


def diff_stages(plan: TablePlan) -> Iterator[Stage]:
    """Events for each pair of snapshots."""
    flow = plan.flow
    if flow.changes is not None:
        return
    earlier: tuple[str, ...] = ()
    for before, after in plan.pairs():
        outputs = {"events": plan.state / "events" / flow.name / f"{after.label}.jsonl"}
        if flow.events is not None:
            role = "events" if flow.events_format == "jsonl" else "formatted"
            outputs[role] = plan.target(flow.events, before, after)
        yield Stage(
            plan.name(after.label, "diff"),
            partial(_diff, plan, before, after),
            sources=(before.path, after.path),
            outputs=outputs,
            options={
                "rules": flow.rules(),
                "format": flow.events_format,
                "tables": [before.table, after.table],
                "before": before.label,
                **_counted_columns(flow),
            },
            gate=flow.fail_if,
            warn=flow.warn_if,
            extra_inputs=partial(plan.shape_inputs, before, after),
            after=earlier,
            measures=partial(age_of, after) if after is plan.snapshots[-1] else dict,
        )
        earlier = (plan.name(after.label, "diff"),)


def _counted_columns(flow: TableFlow) -> dict[str, list[str]]:
    """The columns whose changes limits ask for."""
    columns = sorted({each.column for each in (*flow.fail_if, *flow.warn_if) if each.column is not None})
    return {"counted columns": columns} if columns else {}


def _diff(plan: TablePlan, before: Snapshot, after: Snapshot, context: StageContext) -> Outcome:
    events = context.outputs.path("events")
    with scratch_folder(context) as folder, _explaining_headers(plan, before, after):
        stats = compare(plan, *_sides(plan, before, after, folder), context, events)
    if "formatted" in context.stage.outputs:
        from driftline.sinks.formats import write_events

        with open(events, "rb") as lines, open(context.outputs.path("formatted"), "wb") as out:
            write_events(lines, out, plan.flow.events_format)
    limits = (*plan.flow.fail_if, *plan.flow.warn_if)
    return Outcome(
        stats.counts_for(limits),
        notes=shape.notes() if (shape := plan.shape(after)) else (),
    )


def _sides(plan: TablePlan, before: Snapshot, after: Snapshot, folder: Path) -> tuple[str, str]:
    """Both snapshots with the columns of the later one."""
    reading = plan.diff_options().reading("B")
    old, new = plan.shape(before), plan.shape(after)
    if old is not None and new is not None:
        return (
            reshaped(before.given, reading, old.widened(new.columns), folder, "before"),
            reshaped(after.given, reading, new, folder, "after"),
        )
    return before.given, after.given


@contextmanager
def _explaining_headers(plan: TablePlan, before: Snapshot, after: Snapshot) -> Iterator[None]:
    """Where columns may not change, the words say which did, and what may be declared."""
    try:
        yield
    except TableError as error:
        if error.code == "header_mismatch":
            headers = [header_of(each.given, plan.diff_options().reading("B")) for each in (before, after)]
            shapes_of([before.label, after.label], headers, plan.flow.schema_policy)
        raise


@contextmanager
def scratch_folder(context: StageContext) -> Iterator[Path]:
    """A folder for what a stage needs only while it runs, where Spark's tasks see it."""
    place = context.state / "work"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


def compare(
    plan: TablePlan, before: str, after: str, context: StageContext, events: Path, options: DiffOptions | None = None
) -> Stats:
    """Write the events of two files with the table's rules."""
    job = DiffJob(
        before,
        after,
        options or plan.diff_options(),
        context.engine.memory,
        context.engine.master,
        context.tracker,
    )
    engine = find_engine(context.engine.choose(job))
    with open(events, "wb", buffering=1 << 20) as out:
        return engine(job, out.write)

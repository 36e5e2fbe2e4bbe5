"""Snapshots beside change events: each is compared once with the state that the events led to (pipeline §8)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from driftline.core._thresholds import parse_threshold
from driftline.lake import materialize
from driftline.pipeline.diff_stages import compare, scratch_folder
from driftline.pipeline.lake_stages import fold_options
from driftline.pipeline.shapes import Shape, header_of, reshaped
from driftline.pipeline.snapshots import Snapshot
from driftline.pipeline.stages import Outcome, Stage, StageContext
from driftline.pipeline.table_plan import TablePlan

_NONE = (parse_threshold("different > 0"),)


def check_stages(plan: TablePlan) -> Iterator[Stage]:
    """A comparison with the lake for every snapshot, after the events that were there when it was first seen."""
    changes = plan.flow.changes
    for snapshot in plan.snapshots if changes else ():
        assert changes is not None
        yield Stage(
            plan.name(snapshot.label, "check"),
            partial(_check, plan, snapshot),
            sources=(snapshot.source,),
            outputs={"events": plan.state / "events" / plan.flow.name / f"check-{snapshot.label}.jsonl"},
            options={"rules": plan.flow.rules(), "table": snapshot.table},
            gate=_NONE if changes.on_difference == "fail" else (),
            warn=_NONE if changes.on_difference == "warn" else (),
            # The events go on after the snapshot: that they do must not make an old check look stale.
            waits_for=(plan.last_load,),
        )


def _check(plan: TablePlan, snapshot: Snapshot, context: StageContext) -> Outcome:
    """The events lead from the snapshot to the lake's state, under the rules of the table."""
    reading = plan.diff_options().reading("B")
    with scratch_folder(context) as scratch:
        state = scratch / "state.parquet"
        options = fold_options(context)
        materialize(plan.lake(), plan.flow.name, state, format="parquet", tracker=context.tracker, **options)
        columns = header_of(snapshot.given, reading)
        state_columns = header_of(str(state), reading)
        shape = Shape(columns, tuple(name for name in columns if name not in state_columns))
        there = reshaped(str(state), reading, shape, scratch, "lake")
        with context.outputs.writing("events") as out:
            stats = compare(plan, snapshot.given, there, context, out.write)
    count = stats.added + stats.removed + stats.changed
    words = f"agrees with the lake, {count:,} differences" if not count else f"and the lake differ in {count:,} rows"
    return Outcome(stats.counts, notes=[f"the snapshot {words}"])

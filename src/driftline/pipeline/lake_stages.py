"""The stages behind the lake: fold what was loaded, and write the table's state at the declared moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from driftline.lake import compact
from driftline.pipeline.declaration import StateTarget
from driftline.pipeline.moments import moment_of
from driftline.pipeline.stages import Outcome, Stage
from driftline.pipeline.table_plan import TablePlan
from driftline.pipeline.workbench import Workbench


def compact_stages(plan: TablePlan) -> Iterator[Stage]:
    """Fold what was loaded."""
    if plan.flow.compact:
        yield Stage(
            plan.name("lake", "compact"),
            partial(_compact, plan),
            needs=(plan.name(plan.snapshots[-1].label, "deltas"),),
            options={"lake": plan.lake_options()},
            still_true=partial(_is_still_compacted, plan),
        )


def state_stages(plan: TablePlan) -> Iterator[Stage]:
    """The state of the table at the declared moments."""
    last = plan.name("lake", "compact") if plan.flow.compact else plan.name(plan.snapshots[-1].label, "deltas")
    for number, target in enumerate(plan.flow.states, start=1):
        yield Stage(
            plan.name("lake", f"state-{number}"),
            partial(_state, plan, target),
            needs=(last,),
            outputs={"state": plan.pipeline.place(target.path.replace("{table}", plan.flow.name))},
            options={"format": target.format, "as_of": target.as_of},
        )


def _compact(plan: TablePlan, bench: Workbench) -> Outcome:
    engine = {"engine": _fold_engine(bench)} if bench.engine.is_spark else {}
    done = compact(plan.lake(), plan.flow.name, tracker=bench.tracker, **engine)
    return Outcome({"deltas": done.deltas_folded, "files": done.files_written}, {"deltas_version": done.deltas_version})


def _is_still_compacted(plan: TablePlan, bench: Workbench, facts: Mapping[str, Any]) -> bool:
    from driftline.lake.snapshots import newest_snapshot

    snapshot = newest_snapshot(plan.lake(), plan.flow.name)
    return snapshot is not None and snapshot.deltas_version >= facts["deltas_version"]


def _state(plan: TablePlan, target: StateTarget, bench: Workbench) -> Outcome:
    from driftline.lake import materialize

    engine = {"engine": _fold_engine(bench)} if bench.engine.is_spark else {}
    rows = materialize(
        plan.lake(),
        plan.flow.name,
        bench.outputs.path("state"),
        format=target.format,
        as_of=moment_of(target.as_of, plan.ledger()),
        tracker=bench.tracker,
        **engine,
    )
    return Outcome({"rows": rows})


def _fold_engine(bench: Workbench) -> Any:
    from driftline.spark.lake_folds import fold_engine

    return fold_engine(bench.engine.session())

"""The stages behind the lake: fold what was loaded, and write the table's state at the declared moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from driftline.lake._store.lake import parse_timestamp
from driftline.lake._store.snapshots import Ledger
from driftline.pipeline.declaration import StateTarget
from driftline.pipeline.snapshots import end_of_day, parse_day
from driftline.pipeline.stages import Outcome, Stage, StageContext
from driftline.pipeline.table_plan import TablePlan


def compact_stages(plan: TablePlan) -> Iterator[Stage]:
    """Fold what was loaded."""
    if plan.flow.compact:
        yield Stage(
            plan.name("lake", "compact"),
            partial(_compact, plan),
            needs=(plan.last_load,),
            options={"lake": plan.lake_options()},
            is_fresh=partial(_is_compacted, plan),
        )


def state_stages(plan: TablePlan) -> Iterator[Stage]:
    """The state of the table at the declared moments."""
    last = plan.name("lake", "compact") if plan.flow.compact else plan.last_load
    for number, target in enumerate(plan.flow.states, start=1):
        yield Stage(
            plan.name("lake", f"state-{number}"),
            partial(_state, plan, target),
            needs=(last,),
            outputs={"state": plan.pipeline.place(target.path.replace("{table}", plan.flow.name))},
            options={"format": target.format, "as_of": target.as_of},
        )


def _compact(plan: TablePlan, context: StageContext) -> Outcome:
    from driftline.lake import compact

    done = compact(plan.lake(), plan.flow.name, tracker=context.tracker, **fold_options(context))
    return Outcome({"deltas": done.deltas_folded, "files": done.files_written}, {"deltas_version": done.deltas_version})


def _is_compacted(plan: TablePlan, context: StageContext, facts: Mapping[str, Any]) -> bool:
    from driftline.lake._store.snapshots import newest_snapshot

    snapshot = newest_snapshot(plan.lake(), plan.flow.name)
    return snapshot is not None and snapshot.deltas_version >= facts["deltas_version"]


def _state(plan: TablePlan, target: StateTarget, context: StageContext) -> Outcome:
    from driftline.lake import materialize

    rows = materialize(
        plan.lake(),
        plan.flow.name,
        context.outputs.path("state"),
        format=target.format,
        as_of=moment_of(target.as_of, plan.ledger()),
        tracker=context.tracker,
        **fold_options(context),
    )
    return Outcome({"rows": rows})


def fold_options(context: StageContext) -> dict[str, Any]:
    """Where folds of this run do their work."""
    if not context.engine.is_spark:
        return {}
    from driftline.spark._lake import fold_engine

    return {"engine": fold_engine(context.engine.session())}


def moment_of(text: str | None, ledger: Ledger) -> int | None:
    """The last timestamp that belongs to the moment; None is now."""
    if text is None:
        return None
    day = parse_day(text)
    if day is not None and not text.isdecimal():
        return end_of_day(day)
    window = ledger.find(text)
    if window is not None:
        return ledger.end_of(window)
    return parse_timestamp(text)

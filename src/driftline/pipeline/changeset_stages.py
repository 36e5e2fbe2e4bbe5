"""The stages that deliver to SQLite: the events of each comparison as a changeset or patchset."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from driftline.pipeline.changeset_files import Kind, write_locally, write_on_spark
from driftline.pipeline.stages import Outcome, Stage
from driftline.pipeline.table_plan import TablePlan
from driftline.pipeline.workbench import Workbench


def changeset_stages(plan: TablePlan) -> Iterator[Stage]:
    """Changesets and patchsets for each pair of snapshots."""
    flow = plan.flow
    targets: tuple[tuple[Kind, str | None], ...] = (("changeset", flow.changeset), ("patchset", flow.patchset))
    for kind, path in targets:
        for before, after in plan.pairs() if path else []:
            assert path is not None
            diff = plan.name(after.label, "diff")
            yield Stage(
                plan.name(after.label, kind),
                partial(_changeset, plan, kind, diff),
                needs=(diff,),
                outputs={kind: plan.target(path, before, after)},
                options={"columns": dict(flow.columns), "key": list(flow.key)},
            )


def _changeset(plan: TablePlan, kind: Kind, diff: str, bench: Workbench) -> Outcome:
    events = bench.made(diff, "events")
    write = write_on_spark if bench.engine.is_spark else write_locally
    with open(bench.outputs.path(kind), "wb") as out:
        return Outcome({"changes": write(out, kind, plan.flow, events, bench)})

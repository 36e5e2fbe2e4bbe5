"""The stages of a table: compare each pair of snapshots, load the lake, compact, write states and changesets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from driftline.core._objects import Place
from driftline.pipeline.changeset_stages import changeset_stages
from driftline.pipeline.declaration import Pipeline, TableFlow
from driftline.pipeline.diff_stages import diff_stages
from driftline.pipeline.lake_stages import compact_stages, state_stages
from driftline.pipeline.load_stages import load_stages
from driftline.pipeline.snapshots import find_snapshots
from driftline.pipeline.stages import Stage
from driftline.pipeline.table_plan import TablePlan


def _of_changes(plan: TablePlan) -> Iterator[Stage]:
    """Imported only for a table that follows change events: what reads them takes long to import."""
    if plan.flow.changes is not None:
        from driftline.pipeline.change_stages import change_stages
        from driftline.pipeline.check_stages import check_stages

        yield from change_stages(plan)
        yield from check_stages(plan)


# The stages of a table, in the order in which the data goes.
STAGES_OF_A_TABLE: tuple[Callable[[TablePlan], Iterator[Stage]], ...] = (
    diff_stages,
    load_stages,
    _of_changes,
    compact_stages,
    state_stages,
    changeset_stages,
)


def table_stages(pipeline: Pipeline, state: Place, flow: TableFlow) -> list[Stage]:
    """Every stage of a table."""
    plan = TablePlan(pipeline, flow, tuple(find_snapshots(pipeline, flow)), state)
    return [stage for make in STAGES_OF_A_TABLE for stage in make(plan)]

"""The stages of a whole pipeline, in an order in which each comes after what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from driftline.core import Location
from driftline.errors import PipelineError
from driftline.pipeline._declare.declaration import Pipeline
from driftline.pipeline._declare.snapshots import find_snapshots
from driftline.pipeline._stages.diffs import changeset_stages, diff_stages
from driftline.pipeline._stages.lake import check_stages, compact_stages, load_stages, state_stages
from driftline.pipeline._stages.stage import Stage
from driftline.pipeline._stages.table import TableStages


# What nothing is declared for is not imported: half of the time of a run that has nothing to do.
def _of_changes(plan: TableStages) -> Iterator[Stage]:
    if plan.flow.changes is not None:
        from driftline.pipeline._stages.changes import change_stages

        yield from change_stages(plan)
        yield from check_stages(plan)


def _of_flows(pipeline: Pipeline) -> Iterator[Stage]:
    if pipeline.payloads or pipeline.indexes:
        from driftline.pipeline._stages.flows import flow_stages

        yield from flow_stages(pipeline)


# The stages of a table in the order of the data: compare snapshots, load the lake, compact, write states, changesets.
STAGES_OF_A_TABLE: tuple[Callable[[TableStages], Iterator[Stage]], ...] = (
    diff_stages,
    load_stages,
    _of_changes,
    compact_stages,
    state_stages,
    changeset_stages,
)


def stage_graph(pipeline: Pipeline) -> list[Stage]:
    """Every stage; two that write the same file are refused."""
    state = state_directory(pipeline)
    tables = [TableStages(pipeline, flow, tuple(find_snapshots(pipeline, flow)), state) for flow in pipeline.tables]
    stages = [stage for table in tables for make in STAGES_OF_A_TABLE for stage in make(table)]
    stages += _of_flows(pipeline)
    owners: dict[Location, str] = {}
    for stage in stages:
        for place in stage.outputs.values():
            if place in owners:
                raise PipelineError(
                    f"{pipeline.file.name}: {owners[place]} and {stage.name} both write {pipeline.shown(place)}"
                )
            owners[place] = stage.name
    return stages


def state_directory(pipeline: Pipeline) -> Location:
    """Where the pipeline remembers what it did."""
    return pipeline.place(pipeline.state)

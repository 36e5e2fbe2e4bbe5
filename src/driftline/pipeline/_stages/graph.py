"""The stages of a whole pipeline, in an order in which each comes after what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from driftline.core import Location
from driftline.errors import PipelineError
from driftline.pipeline._declare.declaration import Pipeline, TableFlow
from driftline.pipeline._declare.snapshots import find_snapshots
from driftline.pipeline._stages.diffs import changeset_stages, diff_stages
from driftline.pipeline._stages.lake import compact_stages, load_stages, state_stages
from driftline.pipeline._stages.stage import Stage
from driftline.pipeline._stages.table import TableStages


def _of_changes(plan: TableStages) -> Iterator[Stage]:
    """Imported only for a table that follows change events: what reads them takes long to import."""
    if plan.flow.changes is not None:
        from driftline.pipeline._stages.changes import change_stages
        from driftline.pipeline._stages.lake import check_stages

        yield from change_stages(plan)
        yield from check_stages(plan)


# The stages of a table in the order of the data: compare snapshots, load the lake, compact, write states, changesets.
STAGES_OF_A_TABLE: tuple[Callable[[TableStages], Iterator[Stage]], ...] = (
    diff_stages,
    load_stages,
    _of_changes,
    compact_stages,
    state_stages,
    changeset_stages,
)


def table_stages(pipeline: Pipeline, state: Location, flow: TableFlow) -> list[Stage]:
    """Every stage of a table."""
    plan = TableStages(pipeline, flow, tuple(find_snapshots(pipeline, flow)), state)
    return [stage for make in STAGES_OF_A_TABLE for stage in make(plan)]


def _tables(pipeline: Pipeline, state: Location) -> Iterator[Stage]:
    for flow in pipeline.tables:
        yield from table_stages(pipeline, state, flow)


# What nothing is declared for is not imported: half of the time of a run that has nothing to do.
def _payloads(pipeline: Pipeline, state: Location) -> Iterator[Stage]:
    for flow in pipeline.payloads:
        from driftline.pipeline._stages.payloads import payload_stages

        yield from payload_stages(pipeline, flow)


def _indexes(pipeline: Pipeline, state: Location) -> Iterator[Stage]:
    for flow in pipeline.indexes:
        from driftline.pipeline._stages.index import index_stages

        yield from index_stages(pipeline, flow)


PARTS: tuple[Callable[[Pipeline, Location], Iterator[Stage]], ...] = (_tables, _payloads, _indexes)


def stage_graph(pipeline: Pipeline) -> list[Stage]:
    """Every stage; two that write the same file are refused."""
    state = state_directory(pipeline)
    stages = [stage for part in PARTS for stage in part(pipeline, state)]
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

"""The stages of a whole pipeline, in an order in which each comes after what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from driftline.core._objects import Place
from driftline.errors import PipelineError
from driftline.pipeline.declaration import Pipeline
from driftline.pipeline.stages import Stage
from driftline.pipeline.table_stages import table_stages


def _tables(pipeline: Pipeline, state: Place) -> Iterator[Stage]:
    for flow in pipeline.tables:
        yield from table_stages(pipeline, state, flow)


# What nothing is declared for is not imported: half of the time of a run that has nothing to do.
def _payloads(pipeline: Pipeline, state: Place) -> Iterator[Stage]:
    for flow in pipeline.payloads:
        from driftline.pipeline.payload_stages import payload_stages

        yield from payload_stages(pipeline, flow)


def _indexes(pipeline: Pipeline, state: Place) -> Iterator[Stage]:
    for flow in pipeline.indexes:
        from driftline.pipeline.index_stages import index_stages

        yield from index_stages(pipeline, flow)


PARTS: tuple[Callable[[Pipeline, Place], Iterator[Stage]], ...] = (_tables, _payloads, _indexes)


def build(pipeline: Pipeline) -> list[Stage]:
    """Every stage; two that write the same file are refused."""
    state = state_directory(pipeline)
    stages = [stage for part in PARTS for stage in part(pipeline, state)]
    owners: dict[Place, str] = {}
    for stage in stages:
        for place in stage.outputs.values():
            if place in owners:
                raise PipelineError(
                    f"{pipeline.file.name}: {owners[place]} and {stage.name} both write {pipeline.shown(place)}"
                )
            owners[place] = stage.name
    return stages


def state_directory(pipeline: Pipeline) -> Place:
    """Where the pipeline remembers what it did."""
    return pipeline.place(pipeline.state)

"""The stages that deliver to SQLite: the events of each comparison as a changeset or patchset.

Here as in all files of stages, what does the work is imported by the work: a run with nothing to do is quick.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import BinaryIO, Literal

from driftline.core._json import JsonObject
from driftline.core._objects import Place
from driftline.core._parts import read_pieces
from driftline.deltas._schema import typed_event, typed_events
from driftline.pipeline.declaration import TableFlow
from driftline.pipeline.diff_stages import scratch_folder
from driftline.pipeline.stages import Outcome, Stage, StageContext
from driftline.pipeline.table_plan import TablePlan

SQL_TYPES = {"string": "TEXT", "number": "REAL", "boolean": "INTEGER", "json": "TEXT"}

Event = JsonObject
Kind = Literal["changeset", "patchset"]


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


def _changeset(plan: TablePlan, kind: Kind, diff: str, context: StageContext) -> Outcome:
    events = context.made(diff, "events")
    write = write_on_spark if context.engine.is_spark else write_locally
    with context.outputs.writing(kind) as out:
        return Outcome({"changes": write(out, kind, plan.flow, events, context)})


def write_locally(out: BinaryIO, kind: Kind, flow: TableFlow, events: Place, context: StageContext) -> int:
    """Write the changes of one pair of snapshots; how many there are."""
    from driftline.changesets import Table, from_events

    lines = read_pieces(events)
    schema = json.loads(next(lines))
    types = sql_types(flow, schema["columns_b"])
    table = Table(flow.name, columns=list(types.items()), primary_key=list(flow.key))
    counted = _Counted(schema, typed_events(map(json.loads, lines), flow.columns))
    from_events(counted, table, format=kind).write_to(out)
    return counted.number


def write_on_spark(out: BinaryIO, kind: Kind, flow: TableFlow, events: Place, context: StageContext) -> int:
    """The same bytes; records are made and put into order in tasks."""
    from driftline.spark._changesets import write_changeset_changesets as write_changeset

    header = json.loads(next(read_pieces(events)))["columns_b"]
    with scratch_folder(context) as folder:
        return write_changeset(
            context.engine.session(),
            events,
            out,
            kind,
            folder=folder,
            table=flow.name,
            types=sql_types(flow, header),
            reading=partial(typed_event, types=dict(flow.columns)) if flow.columns else None,
            tracker=context.tracker,
        )


def sql_types(flow: TableFlow, header: list[str]) -> Mapping[str, str]:
    """The declared type of every column, as SQLite calls it."""
    return {name: SQL_TYPES[flow.columns.get(name, "string")] for name in header}


class _Counted:
    """A schema and the data events behind it on their way; the data events are counted."""

    def __init__(self, schema: Event, events: Iterator[Event]) -> None:
        self._schema = schema
        self._events = events
        self.number = 0

    def __iter__(self) -> Iterator[Event]:
        yield self._schema
        for event in self._events:
            self.number += 1
            yield event

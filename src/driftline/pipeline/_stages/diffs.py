"""The stages that compare: events for each pair of snapshots, and changesets made of them."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO, Literal

from driftline.core import Location, ObjectPath, PartWriter, exact_loads, read_pieces, remove
from driftline.deltas import ColumnSchema, typed_event, typed_events
from driftline.errors import TableError
from driftline.pipeline._declare.declaration import TableFlow
from driftline.pipeline._declare.snapshots import Snapshot, TableStages, age_of, reshaped, shapes_of
from driftline.pipeline._stages.stage import Outcome, Stage, StageContext
from driftline.sources import header_of
from driftline.tables import Stats, TableDiffJob, TableOptions, Write, find_engine

Kind = Literal["changeset", "patchset"]


def diff_stages(plan: TableStages) -> Iterator[Stage]:
    """Events for each pair of snapshots."""
    flow = plan.flow
    if flow.changes is not None:
        return
    earlier: tuple[str, ...] = ()
    columns = sorted({each.column for each in (*flow.fail_if, *flow.warn_if) if each.column is not None})
    for before, after in plan.pairs():
        in_store = isinstance(plan.state, ObjectPath)
        outputs: dict[str, Location] = {
            "events": plan.state / "events" / flow.name / (after.label if in_store else f"{after.label}.jsonl")
        }
        folders = {"events": in_store}
        if flow.events is not None:
            role = "events" if flow.events_format == "jsonl" else "formatted"
            outputs[role] = plan.target(flow.events, before, after)
            folders[role] = role == "events" and flow.events.endswith("/")
        yield Stage(
            plan.name(after.label, "diff"),
            partial(_diff, plan, before, after),
            sources=(before.source, after.source),
            outputs=outputs,
            options={
                "rules": flow.rules(),
                "format": flow.events_format,
                "tables": [before.table, after.table],
                "before": before.label,
                **({"counted columns": columns} if columns else {}),  # whose changes limits count
            },
            gate=flow.fail_if,
            warn=flow.warn_if,
            extra_inputs=partial(plan.shape_inputs, before, after),
            after=earlier,
            measures=partial(age_of, after) if after is plan.snapshots[-1] else dict,
            part_folders=frozenset(role for role, is_folder in folders.items() if is_folder),
        )
        earlier = (plan.name(after.label, "diff"),)


def _diff(plan: TableStages, before: Snapshot, after: Snapshot, context: StageContext) -> Outcome:
    with (
        scratch_folder(context) as folder,
        _explaining_headers(plan, before, after),
        context.outputs.writing("events") as out,
    ):
        sides, old, new = (plan.given(before), plan.given(after)), plan.shape(before), plan.shape(after)
        if old is not None and new is not None:  # both snapshots get the columns of the later one
            reading, shapes = plan.diff_options().reading("B"), (old.widened(new.columns), new)
            sides = (
                reshaped(sides[0], reading, shapes[0], folder, "before"),
                reshaped(sides[1], reading, shapes[1], folder, "after"),
            )
        stats = compare(plan, *sides, context, out.write, context.outputs.parts("events"))
    if "formatted" in context.stage.outputs:  # the events, which are there as lines, in another format
        from driftline.sinks import write_events, write_table

        pieces, format_name = context.outputs.written("events"), plan.flow.events_format
        if format_name == "delta":
            table = context.outputs.path("formatted")
            table.mkdir(parents=True, exist_ok=True)
            write_table(pieces, table, format_name)
        else:
            with context.outputs.writing("formatted") as out:
                write_events((line for piece in pieces for line in read_pieces(piece)), out, format_name)
    shape = plan.shape(after)
    return Outcome(stats.counts_for((*plan.flow.fail_if, *plan.flow.warn_if)), notes=shape.notes() if shape else ())


@contextmanager
def _explaining_headers(plan: TableStages, before: Snapshot, after: Snapshot) -> Iterator[None]:
    """Where columns may not change, the words say which did, and what may be declared."""
    try:
        yield
    except TableError as error:
        if error.code == "header_mismatch":
            reading = plan.diff_options().reading("B")
            headers = [header_of(each.given, reading) for each in (before, after)]
            shapes_of([before.label, after.label], headers, plan.flow.schema_policy)
        raise


@contextmanager
def scratch_folder(context: StageContext, *, on_disk: bool = False) -> Iterator[Any]:
    """A folder for what a stage needs only while it runs: where Spark's tasks see it, or in any case on a disk."""
    place: Any = context.state / "work"
    if isinstance(place, ObjectPath) and not on_disk:
        folder = place / secrets.token_hex(8)
        try:
            yield folder
        finally:
            remove(folder)
        return
    if isinstance(place, Path):
        place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place if isinstance(place, Path) else None) as name:
        yield Path(name)


def compare(
    plan: TableStages,
    before: str,
    after: str,
    context: StageContext,
    write: Write,
    parts: PartWriter | None = None,
    options: TableOptions | None = None,
) -> Stats:
    """Write the events of two files with the table's rules; `parts` is where `write` goes, if that is a folder."""
    engine = context.engine
    rules = options or plan.diff_options()
    job = TableDiffJob(before, after, rules, engine.memory, engine.master, context.tracker, parts)
    return find_engine(engine.choose(job))(job, write)


# Changesets. As in all files of stages, packages are imported where they work: a run with nothing to do is quick.
def changeset_stages(plan: TableStages) -> Iterator[Stage]:
    """Changesets and patchsets for each pair of snapshots."""
    kinds: tuple[Kind, ...] = ("changeset", "patchset")
    for kind in kinds:
        for before, after in plan.pairs() if kind in plan.flow.files else []:
            diff = plan.name(after.label, "diff")
            yield Stage(
                plan.name(after.label, kind),
                partial(_changeset, plan, kind, diff),
                needs=(diff,),
                outputs={kind: plan.target(plan.flow.files[kind], before, after)},
                options={"columns": dict(plan.flow.columns), "key": list(plan.flow.key)},
            )


def _changeset(plan: TableStages, kind: Kind, diff: str, context: StageContext) -> Outcome:
    events = context.made(diff, "events")
    write = write_on_spark if context.engine.is_spark else write_locally
    with context.outputs.writing(kind) as out:
        return Outcome({"changes": write(out, kind, plan.flow, events, context)})


def write_locally(out: BinaryIO, kind: Kind, flow: TableFlow, events: Location, context: StageContext) -> int:
    """Write the changes of one pair of snapshots; how many there are."""
    from driftline.changesets import Table, from_events

    lines = read_pieces(events)
    schema = json.loads(next(lines))
    types = sql_types(flow, schema["columns_b"])
    table = Table(flow.name, columns=list(types.items()), primary_key=list(flow.key))
    numbers = count()
    changes = zip(typed_events(map(exact_loads, lines), flow.columns, for_sqlite=True), numbers, strict=False)
    from_events(chain([schema], (event for event, _ in changes)), table, format=kind).write_to(out)
    return next(numbers)


def write_on_spark(out: BinaryIO, kind: Kind, flow: TableFlow, events: Location, context: StageContext) -> int:
    """The same bytes; records are made and put into order in tasks."""
    from driftline.spark import events_to_changeset

    header = json.loads(next(read_pieces(events)))["columns_b"]
    with scratch_folder(context) as folder:
        return events_to_changeset(
            context.engine.session(),
            events,
            out,
            kind,
            folder=folder,
            table=flow.name,
            types=sql_types(flow, header),
            reading=partial(typed_event, types=dict(flow.columns), for_sqlite=True),
            tracker=context.tracker,
        )


def sql_types(flow: TableFlow, header: list[str]) -> Mapping[str, str]:
    """The declared type of every column, as SQLite calls it."""
    return {name: ColumnSchema(name, flow.columns.get(name, "string")).sqlite_type for name in header}

"""Deltas into the lake, so that its state as of each snapshot is that snapshot; exactly once, and mended on change.

The first snapshot goes in whole, every later one as its difference from the one before. A snapshot that changed
after it was loaded is corrected: every row that its old or new events, or a correction before it, speak of is set anew
under later timestamps of the same snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from driftline.deltas import ColumnDelta, ColumnSchema, RowDelta, TableSchema
from driftline.deltas.extraction import as_json
from driftline.deltas.from_events import row_id_of
from driftline.errors import PipelineError
from driftline.files import read_lines
from driftline.lake import Lake, register, registered
from driftline.lake.delta_tables import files_of, transaction_version
from driftline.lake.delta_tables import load as load_table
from driftline.lake.flushing import append_deltas
from driftline.lake.ingesting import (
    Extraction,
    Scheduler,
    commit_ingested,
    inferred_schema,
    plan_ingest,
    survey,
)
from driftline.lake.line_ranges import LineRange, line_ranges
from driftline.pipeline.lake_comparison import differing_rows, in_order_of_ids
from driftline.pipeline.load_chain import Load, LoadChain
from driftline.pipeline.typed_rows import Types, typed_event
from driftline.progress import Tracker

CORRECTIONS_PER_COMMIT = 200_000

Event = dict[str, Any]
Rows = dict[str, Any]
Work = list[tuple[LineRange, int]]


@dataclass(frozen=True)
class LoadJob:
    """What is loaded: a table's events (from nothing for the first snapshot), how, and where they go."""

    lake: Lake
    table: str
    gateway: str
    client_id: str
    key: tuple[str, ...]
    types: Types
    events: Path
    is_text: bool
    scheduler: Scheduler
    scratch: Path

    def read_events(self) -> Iterator[Event]:
        """The data events with typed rows."""
        return typed_events((json.loads(line) for line in read_lines(self.events)), self.types)


def typed_events(events: Iterable[Event], types: Types) -> Iterator[Event]:
    """Data events with typed rows; schema and stats are left out."""
    return (typed_event(event, types) for event in events if event["type"] not in ("schema", "stats"))


def is_loaded(chain: LoadChain, wanted: Load) -> bool:
    """Whether nothing is to be done for a snapshot."""
    known = chain.find(wanted.label)
    return known is not None and known.finished and _same(known, wanted)


def load_snapshot(job: LoadJob, chain: LoadChain, wanted: Load, tracker: Tracker) -> Load:
    """Bring the lake to a snapshot; what is already in is not written again."""
    known = chain.find(wanted.label)
    load = known if known is not None and _same(known, wanted) else _begin(job, chain, wanted, known)
    schema = table_schema(job)
    register(job.lake, schema)
    write = _correct if load.revision > 0 or load.by_comparison else _ingest
    return chain.finish(load, *write(job, chain, load, schema, tracker))


def holds(lake: Lake, table: str, load: Load) -> bool:
    """Whether the lake has what a load put there."""
    if load.deltas == 0:
        return True
    deltas = load_table(lake, table, "deltas")
    return transaction_version(deltas, load.transaction(load.pieces - 1)) is not None


def refuse_unknown_content(lake: Lake, table: str) -> None:
    """A table that somebody else filled cannot be brought to a snapshot by differences."""
    deltas = load_table(lake, table, "deltas")
    if deltas is not None and files_of(deltas):
        raise PipelineError(
            f"the lake already holds deltas of {table} that this pipeline's state does not know: restore the state "
            "directory, or name another lake",
            code="unknown_lake",
        )


def table_schema(job: LoadJob) -> TableSchema:
    """The schema of the table in the lake: declared types; for typed sources the rest is seen from their values."""
    names = json.loads(next(iter(read_lines(job.events))))["columns_b"]
    known = registered(job.lake, job.table)
    types: dict[str, Any] = {column.name: column.type for column in known.columns} if known else {}
    if known is None and not job.is_text:
        seen = inferred_schema(job.table, map(survey, line_ranges(job.events)), job.key)
        types = {column.name: column.type for column in seen.columns}
    types.update(job.types)
    return TableSchema(job.table, [ColumnSchema(name, types.get(name, "string")) for name in names], job.key)


def _same(known: Load, wanted: Load) -> bool:
    if wanted.previous is None:  # the snapshots before it may be gone; what it holds is what counts
        return known.snapshot == wanted.snapshot
    return (known.snapshot, known.source, known.previous, known.previous_revision) == (
        wanted.snapshot,
        wanted.source,
        wanted.previous,
        wanted.previous_revision,
    )


def _begin(job: LoadJob, chain: LoadChain, wanted: Load, known: Load | None) -> Load:
    """Write the load down before its first delta: its place in time and its events."""
    revision = 0 if known is None else known.revision + 1
    kept: tuple[str, ...] = known.events if known else ()
    if wanted.previous is not None:  # the first snapshot is compared with the lake itself when it changes
        kept = (*kept, chain.copy_events(wanted.label, revision, job.events))
    load = Load(
        wanted.label,
        wanted.snapshot,
        wanted.previous,
        wanted.previous_revision,
        wanted.source,
        known.start if known else wanted.start,
        revision,
        by_comparison=wanted.previous is None and bool(chain.loads),
        events=kept,
    )
    chain.keep(load)
    return load


def _ingest(job: LoadJob, chain: LoadChain, load: Load, schema: TableSchema, tracker: Tracker) -> tuple[int, int]:
    """The events become deltas in tasks; one commit takes them all."""
    reading = partial(typed_event, types=dict(job.types)) if job.types else None
    extraction = Extraction(job.table, job.client_id, load.first_hlc, schema, reading)
    plan = plan_ingest(job.lake, [job.table], job.gateway, extraction)
    work, events = _numbered(line_ranges(job.events))
    application = load.transaction(0)
    if transaction_version(load_table(job.lake, job.table, "deltas"), application) is None:
        with tracker.phase("deltas", total=events, unit="rows"):
            written = []
            for file in job.scheduler(plan, work):
                written.append(file)
                tracker.advance(file.deltas)
            commit_ingested(plan, written, application)
    return _committed(job, events, application)


def _committed(job: LoadJob, events: int, application: str) -> tuple[int, int]:
    # Cells that differ as text and not as values make an event and no delta; then there may be no commit.
    done = transaction_version(load_table(job.lake, job.table, "deltas"), application) is not None
    return (events, 1) if done else (0, 0)


def _numbered(ranges: Sequence[LineRange]) -> tuple[Work, int]:
    """Ranges of lines with the number of events before each; the first line is the schema, the last one the stats."""
    work: Work = []
    before = -1
    for lines in ranges:
        work.append((lines, max(before, 0)))
        before += _count_lines(lines)
    return work, before - 1


def _count_lines(lines: LineRange) -> int:
    with open(lines.path, "rb") as file:
        file.seek(lines.start)
        return file.read(lines.stop - lines.start).count(b"\n")


def _correct(job: LoadJob, chain: LoadChain, load: Load, schema: TableSchema, tracker: Tracker) -> tuple[int, int]:
    """Whole rows are set anew, in pieces; pieces that a killed run had committed are recognised."""
    rows = corrected_rows(job, chain, load)
    chain.keep_touched(load.label, {**chain.touched(load.label), **rows})
    deltas = _setting(job, rows, load.first_hlc)
    total, pieces = 0, 0
    with tracker.phase("corrections", total=len(rows), unit="rows"):
        while batch := list(islice(deltas, CORRECTIONS_PER_COMMIT)):
            append_deltas(job.lake, job.table, batch, job.gateway, {load.transaction(pieces): 1})
            total, pieces = total + len(batch), pieces + 1
            tracker.advance(len(batch))
    return total, pieces


def corrected_rows(job: LoadJob, chain: LoadChain, load: Load) -> Rows:
    """Every row that may be other than the lake has it, as the snapshot has it now; None where it has none."""
    if load.by_comparison or load.previous is None:
        return _differing_from_lake(job, load)
    rows: Rows = {}
    for event in typed_events(chain.events_of(load), job.types):
        rows.setdefault(row_id_of(event), event.get("before", event["row"] if event["type"] == "removed" else None))
    rows.update(chain.touched(load.previous))
    for event in job.read_events():
        rows[row_id_of(event)] = None if event["type"] == "removed" else event.get("row", event.get("after"))
    return rows


def _differing_from_lake(job: LoadJob, load: Load) -> Rows:
    """Compared with the lake as it was before this load: what a killed run had committed makes no difference."""
    from driftline.lake.state import state_rows

    there = state_rows(job.lake, job.table, as_of=load.first_hlc - 1)
    snapshot = ((row_id_of(event), event["row"]) for event in job.read_events())
    return dict(differing_rows(there, in_order_of_ids(snapshot, job.scratch)))


def _setting(job: LoadJob, rows: Rows, start: int) -> Iterator[RowDelta]:
    """Deltas that set whole rows, in the order of row ids."""
    for place, (row_id, row) in enumerate(sorted(rows.items())):
        columns = [ColumnDelta(name, as_json(value)) for name, value in (row or {}).items()]
        yield RowDelta.make(
            op="DELETE" if row is None else "INSERT",
            table=job.table,
            row_id=row_id,
            client_id=job.client_id,
            columns=columns,
            hlc=start + place,
        )

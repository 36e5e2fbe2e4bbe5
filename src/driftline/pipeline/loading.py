"""Deltas into the lake, so that its state as of each snapshot is that snapshot; exactly once, and mended on change.

The first snapshot goes in whole, every later one as its difference from the one before. A snapshot that changed
after it was loaded is corrected: every row that its old or new events, or a correction before it, speak of is set anew
under later timestamps of the same snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from driftline.deltas import ColumnDelta, ColumnSchema, RowDelta, TableSchema, from_events
from driftline.deltas.extraction import as_json
from driftline.deltas.from_events import row_id_of
from driftline.files import read_lines
from driftline.lake import Lake, flush, flushed_sequence, register
from driftline.pipeline.load_chain import Load, LoadChain
from driftline.pipeline.typed_rows import Types, infer_type, typed_event
from driftline.progress import Tracker

FLUSH_DELTAS = 200_000  # deltas of one commit; more than fit into memory come in several

Event = dict[str, Any]
Rows = dict[str, Any]


@dataclass(frozen=True)
class LoadJob:
    """What is loaded: a table's events (from nothing for the first snapshot) and where they go."""

    lake: Lake
    table: str
    gateway: str
    client_id: str
    key: tuple[str, ...]
    types: Types
    events: Path

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
    register(job.lake, table_schema(job))
    return chain.finish(load, _flush(job, load, _deltas(job, chain, load), tracker))


def holds(lake: Lake, table: str, gateway: str, load: Load) -> bool:
    """Whether the lake has what a load put there."""
    if load.deltas == 0:
        return True
    sequence = flushed_sequence(lake, table, gateway)
    return sequence is not None and sequence >= load.sequence + (load.deltas - 1) // FLUSH_DELTAS


def table_schema(job: LoadJob) -> TableSchema:
    """The schema of the table in the lake: declared types, for typed sources the types of the first values."""
    first = json.loads(next(iter(read_lines(job.events))))
    names = first["columns_b"]
    guessed: dict[str, Any] = dict(job.types)
    if set(names) - set(guessed):
        for event in islice(job.read_events(), 1000):
            row = event.get("row") or event.get("after") or {}
            for name, value in row.items():
                if value is not None:
                    guessed.setdefault(name, infer_type(value))
    columns = [ColumnSchema(name, guessed.get(name, "string")) for name in names]
    return TableSchema(job.table, columns, job.key)


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
    """Write the load down before its first delta: its place in time, its sequence and its events."""
    revision = 0 if known is None else known.revision + 1
    last = flushed_sequence(job.lake, job.table, job.gateway) or 0
    kept: tuple[str, ...] = known.events if known else ()
    if wanted.previous is not None:  # the first snapshot is compared with the lake itself when it changes
        kept = (*kept, chain.copy_events(wanted.label, revision, job.events))
    start = known.start if known else wanted.start
    load = Load(
        wanted.label,
        wanted.snapshot,
        wanted.previous,
        wanted.previous_revision,
        wanted.source,
        start,
        revision,
        last + 1,
        by_comparison=wanted.previous is None and bool(chain.loads),
        events=kept,
    )
    chain.keep(load)
    return load


def _deltas(job: LoadJob, chain: LoadChain, load: Load) -> Iterator[RowDelta]:
    if load.revision == 0 and not load.by_comparison:
        return from_events(job.read_events(), table=job.table, client_id=job.client_id, start=load.first_hlc)
    rows = corrected_rows(job, chain, load)
    chain.keep_touched(load.label, {**chain.touched(load.label), **rows})
    return _setting(job, rows, load.first_hlc)


def corrected_rows(job: LoadJob, chain: LoadChain, load: Load) -> Rows:
    """Every row that may be other than the lake has it, as the snapshot has it now; None where it has none."""
    if load.by_comparison or load.previous is None:
        return _differing_from_lake(job, chain, load)
    before_it = chain.touched(load.previous)
    rows: Rows = {}
    for event in typed_events(chain.events_of(load), job.types):
        rows.setdefault(row_id_of(event), event.get("before", event["row"] if event["type"] == "removed" else None))
    rows.update(before_it)
    for event in job.read_events():
        rows[row_id_of(event)] = None if event["type"] == "removed" else event.get("row", event.get("after"))
    return rows


def _differing_from_lake(job: LoadJob, chain: LoadChain, load: Load) -> Rows:
    from driftline.lake.state import state_rows

    there = dict(state_rows(job.lake, job.table, as_of=chain.end_of(load.label)))
    rows: Rows = {}
    for event in job.read_events():
        row_id = row_id_of(event)
        if there.pop(row_id, None) != event["row"]:
            rows[row_id] = event["row"]
    return {**rows, **dict.fromkeys(there)}


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


def _flush(job: LoadJob, load: Load, deltas: Iterator[RowDelta], tracker: Tracker) -> int:
    """Commit the deltas in pieces; pieces that a killed run had committed are recognised by their sequence."""
    total, piece = 0, 0
    with tracker.phase("deltas", unit="rows"):
        while batch := list(islice(deltas, FLUSH_DELTAS)):
            sequence = load.sequence + piece
            flush(job.lake, job.table, batch, gateway_id=job.gateway, sequence=sequence, check_ids=False)
            total, piece = total + len(batch), piece + 1
            tracker.advance(len(batch))
    return total

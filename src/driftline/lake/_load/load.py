"""Bring a table of the lake to a snapshot, exactly once, whatever was loaded before (deltas-and-lake §12).

A load is known by what it put there: the snapshot, the key, the declared types and the rules. Where the ledger says
that the lake holds the snapshot before it, the difference of the two goes in; in every other case the whole snapshot is
compared with what the lake holds, and what differs goes in. Either way it is one commit, which carries the ledger.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from driftline.core._json import JsonObject, canonical_json, sha256_hex
from driftline.core._objects import Place
from driftline.core._parts import LineRange, line_ranges
from driftline.core._progress import Tracker, silent
from driftline.deltas import Clock, ColumnSchema, TableSchema
from driftline.deltas._schema import Types, typed_event
from driftline.errors import DriftlineError, LakeError
from driftline.lake.compacting import Engine
from driftline.lake.comparing import CompareStaged
from driftline.lake.delta_tables import Commit, append, load, loaded, retried
from driftline.lake.generations import start_generation
from driftline.lake.ingesting import (
    Extraction,
    IngestedFile,
    IngestPlan,
    Scheduler,
    Survey,
    event_columns,
    inferred_schema,
    ingest_locally,
    plan_ingest,
    survey,
)
from driftline.lake.layout import Lake, relative
from driftline.lake.ledger import LOAD, Ledger, Positions, Window, greatest_hlc, read_ledger
from driftline.lake.local_engine import run_locally
from driftline.lake.parquet_files import DataFile
from driftline.lake.planning import plan_fold, with_staged
from driftline.lake.registry import every_column, register, registered
from driftline.lake.retention import refused_before

Surveyor = Callable[[Sequence[LineRange]], Iterable[Survey]]
REMEDY = "run it once with --full-refresh, which starts a new generation of the table and keeps the old one readable"


@dataclass(frozen=True)
class Schedulers:
    """Where the work of a load runs: the kernels of ingestion, of surveys and of folds."""

    ingest: Scheduler = ingest_locally
    survey: Surveyor = lambda ranges: map(survey, ranges)
    fold: Engine = run_locally


class SnapshotEvents(Protocol):
    """Files of table-diff events, made when they are asked for."""

    def difference(self) -> Place | None:
        """From the snapshot before it to this one; None where that is not at hand."""

    def whole(self) -> Place:
        """From nothing to this one."""


@dataclass(frozen=True)
class WantedSnapshot:
    """A snapshot that the lake is to hold: its name and bytes, the one before it, and where its time begins."""

    label: str
    fingerprint: str
    start: Callable[[Ledger], int]
    before: str | None = None  # the fingerprint of the snapshot that `difference` starts from


@dataclass(frozen=True)
class LoadJob:
    """Into which table loads go, by whom, under which key, types and rules, and where the work runs."""

    lake: Lake
    table: str
    by: str
    client_id: str
    key: tuple[str, ...]
    types: Types
    rules: Mapping[str, Any]
    is_text: bool
    schedulers: Schedulers = field(default_factory=Schedulers)
    tracker: Tracker = field(default_factory=silent)
    nulls: tuple[str, ...] = ()  # columns that the snapshot lacks: null, whatever its cells say
    columns: tuple[str, ...] | None = None  # only these go in; all of the snapshot's where none are named
    is_typed: bool = False  # events hold values of the declared types already

    def content(self, fingerprint: str) -> str:
        """What a load puts there, as a name: another snapshot, key, type or rule gives another one."""
        chosen = None if self.columns is None else sorted(self.columns)
        parts = [fingerprint, list(self.key), dict(self.types), dict(self.rules), chosen]
        return sha256_hex(canonical_json(parts))[:32]


def refuse_others(job: LoadJob, ledger: Ledger, *, follows_changes: bool = False) -> None:
    """A table that somebody else writes to cannot be promised to be a snapshot, and their rows must not be lost."""
    if ledger.windows if follows_changes else ledger.changes:
        was, wanted = ("snapshots", "change events")[:: 1 if follows_changes else -1]
        raise LakeError(
            f"the lake's table {job.table} was loaded from {was} and is to be loaded from {wanted} now: {REMEDY}",
            code="unknown_lake",
        )
    writers = sorted(ledger.others | {window.by for window in ledger.windows if window.by != job.by})
    if writers:
        raise LakeError(
            f"the lake's table {job.table} holds deltas that {job.by} did not load (by {', '.join(writers)}), "
            "or that a version before 0.2 loaded: "
            f"name another lake or table, or {REMEDY}",
            code="unknown_lake",
        )


def load_snapshot(job: LoadJob, wanted: WantedSnapshot, events: SnapshotEvents) -> Window:
    """Make the state as of a snapshot's window be the snapshot; what is already in is not written again."""
    ledger = read_ledger(job.lake, job.table)
    content = job.content(wanted.fingerprint)
    known = ledger.find(wanted.label)
    if known is not None and ledger.holds(wanted.label, content):
        return known
    start = known.start if known else wanted.start(ledger)
    window = Window(wanted.label, start, known.last if known else start - 1, content, job.by)
    return _load(job, ledger, window, events, _follows_directly(job, ledger, wanted, window))


def settle(job: LoadJob, fingerprint: str, events: SnapshotEvents) -> Window | None:
    """Make the state of now be the newest snapshot that is there, although later ones had been loaded and are gone."""
    ledger = read_ledger(job.lake, job.table)
    newest, content = ledger.newest, job.content(fingerprint)
    if newest is None or ledger.holds(newest.label, content):
        return None
    return _load(job, ledger, replace(newest, content=content), events, by_difference=False)


def load_changes(job: LoadJob, start: str, after: Positions, events: Place) -> int:
    """Put change events in, exactly once: one commit has the deltas and how far each file was read; how many deltas.

    `start` is the digest of the positions that the events begin at.
    """
    ledger = read_ledger(job.lake, job.table)
    refuse_others(job, ledger, follows_changes=True)
    if ledger.changes and ledger.changes_key != job.key:
        raise LakeError(
            f"table {job.table} was loaded under the key {', '.join(ledger.changes_key)}, by which its rows are known: "
            f"{REMEDY}",
            code="key_changed",
        )
    if positions_digest(ledger.changes) == positions_digest(after):
        return 0
    if positions_digest(ledger.changes) != start:
        raise LakeError(f"table {job.table} was loaded meanwhile: run it again", code="commit_conflict")
    first = max(Clock().now(), greatest_hlc(job.lake, job.table) + 1)
    with _explaining_types(job):
        _prepare(job, events, first, "of now")
        files, _ = _ingest(job, events, first)
    return _append(job, ledger, ledger.with_changes(after, job.key), files, "changes")


def positions_digest(positions: Positions) -> str:
    """A name for how far files were read; when they were looked at does not matter."""
    return sha256_hex(canonical_json({name: [each.offset, each.digest] for name, each in positions.items()}))


def count_differences(job: LoadJob, events: SnapshotEvents, timestamp: int) -> tuple[int, list[str]]:
    """How many rows a snapshot and the lake's state before a timestamp differ in, and some of their ids."""
    look = _Comparison(job, events.whole(), timestamp)
    results = look.run(writes=False)
    return sum(each["rows"] for each in results), [row_id for each in results for row_id in each["listed"]]


def refresh(job: LoadJob, events: SnapshotEvents) -> int:
    """Forget what was loaded: a new generation of the table, empty, with the columns of this snapshot; its number."""
    schema = table_schema(job, events.whole(), known=None)
    number = start_generation(job.lake, job.table, schema.columns)
    register(job.lake, schema)
    return number


def table_schema(job: LoadJob, events: Place, known: TableSchema | None) -> TableSchema:
    """Declared types; for the rest the ones that the lake has; for typed sources what their values are."""
    if job.columns is not None and known is not None:
        return known
    names = event_columns(events)
    types: JsonObject = {column.name: column.type for column in known.columns} if known else {}
    if not job.is_text and not set(names) <= {*types, *job.types}:
        seen = inferred_schema(job.table, job.schedulers.survey(line_ranges(events)), job.key)
        types = {**{column.name: column.type for column in seen.columns}, **types}
    types.update(job.types)
    return TableSchema(job.table, [ColumnSchema(name, types.get(name, "string")) for name in names], job.key)


def _follows_directly(job: LoadJob, ledger: Ledger, wanted: WantedSnapshot, window: Window) -> bool:
    """Whether the lake's state before a new window is exactly the snapshot that the difference starts from."""
    if ledger.find(wanted.label) is not None or wanted.before is None:
        return False
    before = ledger.before(window.start)
    return before is not None and ledger.holds(before.label, job.content(wanted.before))


def _load(job: LoadJob, ledger: Ledger, window: Window, events: SnapshotEvents, by_difference: bool) -> Window:
    first = window.last + 1
    difference = events.difference() if by_difference else None
    source = difference or events.whole()
    with _explaining_types(job):
        _prepare(job, source, first, window.label)
        if difference is not None or not (ledger.windows or ledger.others or ledger.changes):
            files, last = _ingest(job, source, first)
        else:
            files, last = _Comparison(job, source, first).write(), first
    return _commit(job, ledger, replace(window, last=last), files)


def _prepare(job: LoadJob, events: Place, first: int, label: str) -> None:
    """The schema that the snapshot needs; a timestamp before the horizon is refused."""
    schema = table_schema(job, events, registered(job.lake, job.table))
    _refuse_other_types(job, schema)
    register(job.lake, schema)
    limit = refused_before(load(job.lake, job.table, "deltas"))
    if limit is not None and first < limit:
        raise LakeError(
            f"snapshot {label} of {job.table} lies before the retention horizon {limit}: set 'since' to a later day",
            code="TOO_OLD",
        )


def _refuse_other_types(job: LoadJob, schema: TableSchema) -> None:
    deltas_table = load(job.lake, job.table, "deltas")
    ever = every_column(deltas_table) if deltas_table is not None else []
    there = {column.name.casefold(): column for column in ever}
    for column in schema.columns:
        known = there.get(column.name.casefold())
        if known is not None and known.type != column.type:
            raise _type_changed(job, f"column {column.name!r} is a {known.type} in the lake and a {column.type} now")
        if known is not None and known.name != column.name:  # Delta's names are the same in any case
            raise _type_changed(job, f"column {known.name!r} is now called {column.name!r}, another case only")


def _type_changed(job: LoadJob, problem: str) -> LakeError:
    return LakeError(f"table {job.table}: {problem}: {REMEDY}", code="type_changed", table=job.table)


@contextlib.contextmanager
def _explaining_types(job: LoadJob) -> Any:
    """A value that does not fit its column is a changed type of the source."""
    try:
        yield
    except DriftlineError as error:
        if error.code != "SCHEMA_ERROR":
            raise
        raise _type_changed(job, error.message) from error


def _ingest(job: LoadJob, events: Place, first: int) -> tuple[list[DataFile], int]:
    """Events become deltas with timestamps that count up; the files, and the last timestamp."""
    work, count = numbered(line_ranges(events))
    plan = _ingest_plan(job, first)
    with job.tracker.phase("deltas", total=count, unit="rows"):
        return [file.file for file in _told(job, job.schedulers.ingest(plan, work)) if file.file], first + max(
            0, count - 1
        )


def _ingest_plan(job: LoadJob, first: int, *, same_timestamp: bool = False) -> IngestPlan:
    needs_types = (job.types or job.nulls) and not job.is_typed
    reading = partial(typed_event, types=dict(job.types), nulls=job.nulls) if needs_types else None
    schema = registered(job.lake, job.table)
    assert schema is not None
    how = Extraction(job.table, job.client_id, first, schema, reading, same_timestamp)
    return plan_ingest(job.lake, [job.table], job.by, how)


def _told(job: LoadJob, files: Iterable[IngestedFile]) -> Iterable[IngestedFile]:
    for file in files:
        job.tracker.advance(file.deltas)
        yield file


def numbered(ranges: Sequence[LineRange]) -> tuple[list[tuple[LineRange, int]], int]:
    """Ranges of lines with the number of events before each; the first line is the schema, the last one the stats."""
    work: list[tuple[LineRange, int]] = []
    before = -1
    for lines in ranges:
        work.append((lines, max(before, 0)))
        before += lines.count()
    return work, max(0, before - 1)


class _Comparison:
    """A whole snapshot beside the lake's state before a timestamp: staged, compared where folds run, unstaged."""

    def __init__(self, job: LoadJob, events: Place, timestamp: int) -> None:
        self.job, self.events, self.timestamp = job, events, timestamp

    def write(self) -> list[DataFile]:
        """The files with what differs, waiting for their commit."""
        return [DataFile(*each["file"]) for each in self.run(writes=True)]

    def run(self, *, writes: bool) -> list[JsonObject]:
        """Compare range by range."""
        job = self.job
        work, count = numbered(line_ranges(self.events))
        staged: list[DataFile] = []
        try:
            with job.tracker.phase("staging", total=count, unit="rows"):
                plan = _ingest_plan(job, self.timestamp, same_timestamp=True)
                staged += [file.file for file in _told(job, job.schedulers.ingest(plan, work)) if file.file]
            folds = with_staged(plan_fold(job.lake, job.table, as_of=self.timestamp - 1), staged, self.timestamp)
            task = CompareStaged(self.timestamp, job.client_id, job.by, writes)
            return list(job.schedulers.fold(folds, task, job.tracker))
        finally:
            for file in staged:
                with contextlib.suppress(OSError):
                    job.lake.files().delete_file(relative(job.table, "deltas", file.path))


def _commit(job: LoadJob, ledger: Ledger, window: Window, files: Sequence[DataFile]) -> Window:
    """One commit with the deltas and the ledger, unless another load or writer was quicker."""
    count = sum(file.rows for file in files)
    after = ledger.with_window(replace(window, deltas=count))
    _append(job, ledger, after, files, window.label)
    done = after.find(window.label)
    assert done is not None
    return done


def _append(job: LoadJob, ledger: Ledger, after: Ledger, files: Sequence[DataFile], label: str) -> int:
    count = sum(file.rows for file in files)
    details = {"operation": LOAD, "gateway": job.by, "deltas": count, "label": label, "ledger": after.to_wire()}

    def attempt() -> bool:
        found = read_ledger(job.lake, job.table)
        if (found.number, found.others) != (ledger.number, ledger.others):
            raise LakeError(f"table {job.table} was written to meanwhile: run it again", code="commit_conflict")
        return append(loaded(job.lake, job.table), Commit(files, (), {LOAD: after.number}, details))

    retried(attempt, f"loading {label} into {job.table}")
    return count

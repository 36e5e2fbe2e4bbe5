"""Loads: bring a table of the lake to a snapshot, exactly once, whatever was loaded before (deltas-and-lake §12).

A load is identified by the snapshot, the key, the declared types and the rules. Where the load history says that the
lake has the snapshot before it, the difference of the two is written; otherwise the complete snapshot is compared with
the lake, and what differs is written. Either way it is one commit, which contains the load history.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core import (
    JsonObject,
    LineRange,
    Location,
    StrPath,
    Tracker,
    canonical_json,
    line_ranges,
    no_progress,
    sha256_hex,
)
from driftline.deltas import Clock, ColumnSchema, TableSchema, Types, check_table_name, decimal_scale, typed_event
from driftline.errors import DriftlineError, LakeError
from driftline.lake._fold.compact import Engine
from driftline.lake._fold.fold import fold
from driftline.lake._fold.local import RangeInput, RangeJob, Result, delta_ids, run_locally
from driftline.lake._fold.plan import FoldPlan, plan_fold, with_staged
from driftline.lake._load import ingest as ingestion
from driftline.lake._store import schemas
from driftline.lake._store.lake import Lake, attempt_token, delta_file_name, relative
from driftline.lake._store.parquet import DataFile, write_file
from driftline.lake._store.rows import ROW_ID, STAMPS, delta_file_schema, escape_columns, one_array
from driftline.lake._store.tables import Commit, load, loaded, retried
from driftline.sources import declared_numbers, fingerprint, has_text_cells as is_text, header_of, write_empty_like
from driftline.tables import TableDiffJob, TableOptions, check_options, find_engine

DEFAULT_GATEWAY = "extract"
HINT = "run it once with --full-refresh, which starts a new generation of the table and keeps the old one readable"

_LISTED = 3  # row ids of each range that a comparison names
_DOUBLES = ("number", "json")  # kinds of columns with doubles

Surveyor = Callable[[Sequence[LineRange]], Iterable[ingestion.Survey]]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Schedulers:
    """Where the work of a load runs: the kernels of ingestion, of surveys and of folds."""

    ingest: ingestion.Scheduler = ingestion.ingest_locally
    survey: Surveyor = lambda ranges: map(ingestion.survey, ranges)
    fold: Engine = run_locally


class SnapshotEvents(Protocol):
    """Files of table-diff events, made on demand."""

    def difference(self) -> Location | None:
        """From the snapshot before it to this one; None where that is not available."""

    def whole(self) -> Location:
        """From an empty table to this one."""


@dataclass(frozen=True)
class WantedSnapshot:
    """A snapshot to load: its name and fingerprint, the one before it, and its first timestamp."""

    label: str
    fingerprint: str
    start: Callable[[schemas.LoadHistory], int]
    before: str | None = None  # the fingerprint of the snapshot that `difference` starts from


@dataclass(frozen=True)
class LoadJob:
    """The table to load and its writer, the key, types and rules, and where the work runs."""

    lake: Lake
    table: str
    by: str
    client_id: str
    key: tuple[str, ...]
    types: Types
    rules: Mapping[str, Any]
    is_text: bool
    schedulers: Schedulers = field(default_factory=Schedulers)
    tracker: Tracker = field(default_factory=no_progress)
    nulls: tuple[str, ...] = ()  # columns that the snapshot lacks: null, whatever its cells are
    columns: tuple[str, ...] | None = None  # only these are loaded; by default all of the snapshot
    is_typed: bool = False  # events have values of the declared types already
    source_types: Types = field(default_factory=dict)  # numbers that the source declares; no part of a load's identity

    def content(self, fingerprint: str) -> str:
        """The identity of a load: another snapshot, key, type or rule gives another one."""
        chosen = None if self.columns is None else sorted(self.columns)
        parts = [fingerprint, list(self.key), dict(self.types), dict(self.rules), chosen]
        return sha256_hex(canonical_json(parts))[:32]


def check_unclaimed(job: LoadJob, ledger: schemas.LoadHistory, *, follows_changes: bool = False) -> None:
    """Refuse a table with other writers: it cannot be made equal to a snapshot without losing their rows."""
    if ledger.windows if follows_changes else ledger.changes:
        was, expected = ("snapshots", "change events")[:: 1 if follows_changes else -1]
        message = f"the lake's table {job.table} was loaded from {was} and is to be loaded from {expected} now"
        raise LakeError(f"{message}: {HINT}", code="unknown_lake")
    writers = sorted(ledger.others | {window.by for window in ledger.windows if window.by != job.by})
    if writers:
        problem = (
            f"holds deltas that {job.by} did not load (by {', '.join(writers)}), or that a version before 0.2 loaded"
        )
        message = f"the lake's table {job.table} {problem}: name another lake or table, or {HINT}"
        raise LakeError(message, code="unknown_lake")


def load_snapshot(job: LoadJob, expected: WantedSnapshot, events: SnapshotEvents) -> schemas.Window:
    """Make the state as of a snapshot's window equal to it; what was loaded before is not written again."""
    ledger = schemas.load_history(job.lake, job.table)
    content = job.content(expected.fingerprint)
    known = ledger.find(expected.label)
    if known is not None and ledger.holds(expected.label, content):
        return known
    start = known.start if known else expected.start(ledger)
    window = schemas.Window(expected.label, start, known.last if known else start - 1, content, job.by)
    # The difference is enough where the lake's state before a new window is the snapshot that it starts from.
    before = None if known is not None or expected.before is None else ledger.before(start)
    follows = before is not None and ledger.holds(before.label, job.content(expected.before or ""))
    return _load(job, ledger, window, events, follows)


def plan_loads(job: LoadJob, fingerprint: str, events: SnapshotEvents) -> schemas.Window | None:
    """Make the current state equal to the newest available snapshot, where later loaded ones are missing now."""
    ledger = schemas.load_history(job.lake, job.table)
    newest, content = ledger.newest, job.content(fingerprint)
    if newest is None or ledger.holds(newest.label, content):
        return None
    return _load(job, ledger, replace(newest, content=content), events, by_difference=False)


def load_changes(job: LoadJob, start: str, after: schemas.ReadOffsets, events: Location) -> int:
    """Load change events, exactly once: one commit has the deltas and how far each file was read; the number of deltas.

    `start` is the digest of the positions at which the events start.
    """
    ledger = schemas.load_history(job.lake, job.table)
    check_unclaimed(job, ledger, follows_changes=True)
    if ledger.changes and ledger.changes_key != job.key:
        key = ", ".join(ledger.changes_key)
        message = f"table {job.table} was loaded under the key {key}, by which its rows are known: {HINT}"
        raise LakeError(message, code="key_changed")
    if positions_digest(ledger.changes) == positions_digest(after):
        return 0
    if positions_digest(ledger.changes) != start:
        raise LakeError(f"table {job.table} was loaded meanwhile: run it again", code="commit_conflict")
    first = max(Clock().now(), schemas.greatest_hlc(job.lake, job.table) + 1)
    with _explaining_types(job):
        _prepare(job, events, first, "of now")
        files, _ = _ingest(job, events, first)
    return _append(job, ledger, ledger.with_changes(after, job.key), files, "changes")


def positions_digest(positions: schemas.ReadOffsets) -> str:
    """The identity of read positions, without the versions of the files."""
    return sha256_hex(canonical_json({name: [each.offset, each.digest] for name, each in positions.items()}))


def reload(job: LoadJob, events: Location) -> int:
    """Start a new generation of the table, empty, with the columns of this snapshot; its number."""
    schema = table_schema(job, events, known=None)
    number = schemas.start_generation(job.lake, job.table, schema.columns)
    schemas.register(job.lake, schema)
    return number


def resolve_columns(job: LoadJob, names: Sequence[str]) -> None:
    """Make these columns the table's: loads of earlier snapshots, which may lack some of them, registered theirs."""
    deltas_table = load(job.lake, job.table, "deltas")
    known = schemas.schema_of(deltas_table)
    if deltas_table is not None and known is not None and known.names != tuple(names):
        ever = {column.name: column for column in schemas.every_column(deltas_table)}
        schemas.register(job.lake, TableSchema(job.table, [ever[name] for name in names], job.key))


def table_schema(job: LoadJob, events: Location, known: TableSchema | None) -> TableSchema:
    """The schema: declared types, else those of the lake, else for typed sources those of their values."""
    if job.columns is not None and known is not None:
        return known
    names = ingestion.event_columns(events)
    types: JsonObject = {name: kind for name, kind in job.source_types.items() if name in names and kind != "number"}
    types.update({column.name: column.type for column in known.columns} if known else {})
    if not job.is_text and not set(names) <= {*types, *job.types}:
        seen = ingestion.inferred_schema(job.table, job.schedulers.survey(line_ranges(events)), job.key)
        types = {**{column.name: column.type for column in seen.columns}, **types}
    types.update(job.types)
    return TableSchema(job.table, [ColumnSchema(name, types.get(name, "string")) for name in names], job.key)


def _load(
    job: LoadJob, ledger: schemas.LoadHistory, window: schemas.Window, events: SnapshotEvents, by_difference: bool
) -> schemas.Window:
    first = window.last + 1
    difference = events.difference() if by_difference else None
    source = difference or events.whole()
    with _explaining_types(job):
        _prepare(job, source, first, window.label)
        if difference is not None or not (ledger.windows or ledger.others or ledger.changes):
            files, last = _ingest(job, source, first)
        else:
            files, last = [DataFile(*each["file"]) for each in _compare(job, source, first, writes=True)], first
    after = ledger.with_window(replace(window, last=last, deltas=sum(file.rows for file in files)))
    _append(job, ledger, after, files, window.label)
    done = after.find(window.label)
    assert done is not None
    return done


def _prepare(job: LoadJob, events: Location, first: int, label: str) -> None:
    """Register the schema of the snapshot; refuse a timestamp before the horizon."""
    schema = table_schema(job, events, schemas.registered(job.lake, job.table))
    _refuse_other_types(job, schema)
    schemas.register(job.lake, schema)
    limit = schemas.refused_before(load(job.lake, job.table, "deltas"))
    if limit is not None and first < limit:
        message = f"snapshot {label} of {job.table} lies before the retention horizon {limit}"
        raise LakeError(f"{message}: set 'since' to a later day", code="TOO_OLD")


def _refuse_other_types(job: LoadJob, schema: TableSchema) -> None:
    deltas_table = load(job.lake, job.table, "deltas")
    ever = schemas.every_column(deltas_table) if deltas_table is not None else []
    there = {column.name.casefold(): column for column in ever}
    for column in schema.columns:
        known = there.get(column.name.casefold())
        if known is not None and known.type != column.type:
            raise _type_changed(job, f"column {column.name!r} is a {known.type} in the lake and a {column.type} now")
        if known is not None and known.name != column.name:  # Delta's names ignore case
            raise _type_changed(job, f"column {known.name!r} is now called {column.name!r}, another case only")


def _type_changed(job: LoadJob, problem: str) -> LakeError:
    return LakeError(f"table {job.table}: {problem}: {HINT}", code="type_changed", table=job.table)


@contextlib.contextmanager
def _explaining_types(job: LoadJob) -> Any:
    """Report a value that does not fit its column as a changed type of the source, with the way out."""
    try:
        yield
    except DriftlineError as error:
        if error.code == "SCHEMA_ERROR" or (error.code == "wrong_type" and not job.is_text and not job.is_typed):
            raise _type_changed(job, error.message) from error
        if error.code != "inexact_number":
            raise
        words = f"table {job.table}, {error.message}, and {HINT}"
        raise LakeError(words, code=error.code, table=job.table) from error


def _ingest(
    job: LoadJob, events: Location, first: int, phase: str = "deltas", *, same_timestamp: bool = False
) -> tuple[list[DataFile], int]:
    """Turn events into deltas with rising timestamps; the files, and the last timestamp."""
    work, count = numbered(line_ranges(events))
    plan = _ingest_plan(job, first, same_timestamp)
    files: list[DataFile] = []
    with job.tracker.phase(phase, total=count, unit="rows"):
        for each in job.schedulers.ingest(plan, work):
            job.tracker.advance(each.deltas)
            files += [each.file] if each.file else []
    return files, first + max(0, count - 1)


def _ingest_plan(job: LoadJob, first: int, same_timestamp: bool) -> ingestion.IngestPlan:
    schema = schemas.registered(job.lake, job.table)
    assert schema is not None
    exact = {column.name: column.type for column in schema.columns if column.is_exact}
    types = {} if job.is_typed else {**job.types, **exact}
    nulls = () if job.is_typed else job.nulls
    reading = partial(typed_event, types=types, nulls=nulls) if types or nulls else None
    # Columns whose numbers must survive as doubles, as floats of the source do; True: the source has decimals.
    columns = [] if job.is_text or job.is_typed else [each.name for each in schema.columns if each.kind in _DOUBLES]
    declared = {name: job.source_types.get(name) for name in columns}
    doubles = {name: decimal_scale(kind) is not None for name, kind in declared.items() if kind != "number"}
    how = ingestion.Extraction(job.table, job.client_id, first, schema, reading, doubles, same_timestamp)
    return ingestion.plan_ingest(job.lake, [job.table], job.by, how)


def numbered(ranges: Sequence[LineRange]) -> tuple[list[tuple[LineRange, int]], int]:
    """Ranges of lines with the number of events before each; the first line is the schema, the last one the stats."""
    work: list[tuple[LineRange, int]] = []
    before = -1
    for lines in ranges:
        work.append((lines, max(before, 0)))
        before += lines.count()
    return work, max(0, before - 1)


def _compare(job: LoadJob, events: Location, timestamp: int, *, writes: bool) -> list[Result]:
    """A complete snapshot and the lake's state before a timestamp: staged, compared where folds run, unstaged."""
    staged: list[DataFile] = []
    try:
        staged += _ingest(job, events, timestamp, "staging", same_timestamp=True)[0]
        plan = plan_fold(job.lake, job.table, as_of=timestamp - 1, with_removed=True)
        folds = with_staged(plan, staged, timestamp)
        return list(job.schedulers.fold(folds, CompareStaged(timestamp, job.client_id, job.by, writes), job.tracker))
    finally:
        for file in staged:
            with contextlib.suppress(OSError):
                job.lake.files().delete_file(relative(job.table, "deltas", file.path))


def _append(
    job: LoadJob, ledger: schemas.LoadHistory, after: schemas.LoadHistory, files: Sequence[DataFile], label: str
) -> int:
    """One commit with the deltas and the load history, unless another load or writer was faster."""
    count = sum(file.rows for file in files)
    details = {"operation": schemas.LOAD, "gateway": job.by, "deltas": count, "label": label, "ledger": after.to_wire()}

    def attempt() -> bool:
        found = schemas.load_history(job.lake, job.table)
        if (found.number, found.others) != (ledger.number, ledger.others):
            raise LakeError(f"table {job.table} was written to meanwhile: run it again", code="commit_conflict")
        return loaded(job.lake, job.table).append(Commit(files, (), {schemas.LOAD: after.number}, details))

    retried(attempt, f"loading {label} into {job.table}")
    return count


# Comparison of a complete snapshot with the lake. The snapshot is staged as delta files that are never committed, all
# at the timestamp of the load. The job then folds both states of a range of row ids, the lake's and the staged one,
# compares them column by column and writes the differences as deltas. It runs where folds run; only names of files
# pass through the driver.


@dataclass(frozen=True)
class CompareStaged(RangeJob):
    """The job: deltas at `timestamp` are the snapshot, those before it the lake; `writes` is False to only count."""

    needs_originals = True  # so that no early fold mixes the two states
    every_range = True

    timestamp: int
    client_id: str
    gateway_id: str
    writes: bool = True

    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        """Compare one range; the result names the file with its differences."""
        is_staged = pc.equal(given.deltas["hlc"], self.timestamp)
        there = fold(plan.columns, given.deltas.filter(pc.invert(is_staged)), given.base, given.deletes).base
        expected = fold(plan.columns, given.deltas.filter(is_staged)).base
        rows = difference(plan.columns, there, expected)
        if rows.num_rows == 0:
            return []
        result: Result = {"rows": rows.num_rows, "listed": rows[ROW_ID][:_LISTED].to_pylist(), "file": None}
        if self.writes:
            name = delta_file_name(self.gateway_id, self.timestamp, self.timestamp, attempt_token())
            deltas = self._deltas(plan, rows)
            result["file"] = astuple(write_file(plan.lake, relative(plan.table, "deltas"), name, deltas))
        return [result]

    def _deltas(self, plan: FoldPlan, rows: pa.Table) -> pa.Table:
        """The differences in the schema of delta files, all at the timestamp of the load."""
        count = rows.num_rows
        schema = delta_file_schema(plan.columns)
        given = {name: rows[name] for name in rows.column_names}
        given["_client_id"] = pa.repeat(self.client_id, count)
        given["_hlc"] = pa.repeat(pa.scalar(self.timestamp, pa.int64()), count)
        given["_delta_id"] = pa.repeat("", count)
        deltas = pa.Table.from_arrays([given[name] for name in schema.names], schema=schema)
        ids = delta_ids(plan.table, deltas, plan.columns)
        return deltas.set_column(schema.get_field_index("_delta_id"), schema.field("_delta_id"), ids)


def difference(columns: Sequence[ColumnSchema], there: pa.Table, expected: pa.Table) -> pa.Table:
    """The changes from one state to the other, in the order of row ids: `_op`, `_row_id`, `_columns` and the values."""
    ids, selected_ids = one_array(there[ROW_ID]), one_array(expected[ROW_ID])
    positions = pc.index_in(selected_ids, value_set=ids)
    differs = _differing_cells(columns, there, expected, positions)
    is_new = _bools(pc.is_null(positions))
    kept = np.flatnonzero(differs.any(axis=1) | is_new)
    changed = _rows(columns, expected.take(pa.array(kept)), differs[kept], is_new[kept])
    gone = ids.filter(pc.invert(pc.is_in(ids, value_set=selected_ids)))
    fields, nothing = delta_file_schema(columns), np.zeros((len(gone), len(columns)), dtype=bool)
    values = {name: pa.nulls(len(gone), fields.field(name).type) for name in escape_columns(columns)}
    removed = _table(columns, pa.repeat("DELETE", len(gone)), gone, nothing, values)
    return pa.concat_tables([changed, removed]).sort_by(ROW_ID)


def _differing_cells(
    columns: Sequence[ColumnSchema], there: pa.Table, expected: pa.Table, positions: pa.Array
) -> Bools:
    """The cells of the new rows that differ from the lake; a column that was never set is not null.

    What the new rows do not set, a column that the schema no longer has, becomes null where the lake has a value.
    """
    before = there.take(positions)
    stamps, new_stamps = one_array(before[STAMPS]), one_array(expected[STAMPS])
    differs = np.zeros((expected.num_rows, max(1, len(columns))), dtype=bool)
    for number, name in enumerate(escape_columns(columns)):
        old, new = one_array(before[name]), one_array(expected[name])
        was_set = pc.is_valid(pc.struct_field(stamps, ["columns", name]))
        same = pc.fill_null(pc.equal(old, new), False)
        is_unset = pc.is_null(pc.struct_field(new_stamps, ["columns", name]))
        both_null = pc.and_(pc.and_(pc.is_null(old), pc.is_null(new)), pc.or_(was_set, is_unset))
        differs[:, number] = ~_bools(pc.or_(same, both_null))
    return differs


def _rows(columns: Sequence[ColumnSchema], rows: pa.Table, differs: Bools, is_new: Bools) -> pa.Table:
    """New rows with only the cells that must be set: all of an added row, the differing ones of another."""
    sets = (differs | is_new[:, None])[:, : len(columns)]
    values = {}
    for number, name in enumerate(escape_columns(columns)):
        column = one_array(rows[name])
        values[name] = pc.if_else(pa.array(sets[:, number]), column, pa.scalar(None, column.type))
    ops = pc.if_else(pa.array(is_new), "INSERT", "UPDATE")
    return _table(columns, ops, one_array(rows[ROW_ID]), sets, values)


def _table(columns: Sequence[ColumnSchema], ops: pa.Array, ids: pa.Array, sets: Bools, values: JsonObject) -> pa.Table:
    """Rows of changes, each with a list of the names of the columns that it sets."""
    names = pa.array([column.name for column in columns], pa.string())
    offsets = np.zeros(len(sets) + 1, dtype=np.int32)
    np.cumsum(sets.sum(axis=1), out=offsets[1:])
    named = pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(np.nonzero(sets)[1])))
    arrays = {"_op": ops, ROW_ID: ids, "_columns": named, **values}
    schema = delta_file_schema(columns)
    return pa.Table.from_arrays(
        [arrays[name] for name in schema.names if name in arrays],
        schema=pa.schema([field for field in schema if field.name in arrays]),
    )


def _bools(array: pa.Array) -> Bools:
    found: Bools = array.to_numpy(zero_copy_only=False)
    return found


# Extraction: the difference of two snapshots of a table becomes deltas in the lake. Deltas lead from A to B, so the
# lake must have A: by its load history, or by a comparison. The load itself is the one that pipelines use.


@dataclass(frozen=True, slots=True)
class ExtractResult:
    """The result of an extraction: the number of deltas, and their first timestamp."""

    table: str
    deltas: int
    start: int
    was_done_before: bool
    base_deltas: int = 0
    stats: JsonObject = field(default_factory=dict)


def extract_snapshots(
    lake: Lake,
    a: StrPath,
    b: StrPath,
    *,
    key: Iterable[str],
    table: str,
    client_id: str,
    start: int | None = None,
    header_mode: str = "strict",
    load_base: bool = False,
    diff_engine: str = "local",
    master: str | None = None,
    schedulers: Schedulers | None = None,
    tracker: Tracker | None = None,
) -> ExtractResult:
    """Diff two snapshots and append the deltas that lead from A to B; the lake must have A, or load it first."""
    check_table_name(table)
    options = check_options(key_columns=tuple(key), header_mode=header_mode)
    parent = None  # of the events: in a local lake, where Spark's tasks see them, else of this machine
    if lake.is_local:
        lake.make_directory(relative(table, "extracts"))
        parent = Path(lake.root, relative(table, "extracts"))
    with tempfile.TemporaryDirectory(prefix=".events-", dir=parent) as made:
        folder = Path(made)
        sides = [_as_file(side, folder) for side in (a, b)]
        diffs = _Diffs(sides[0], sides[1], options, folder, diff_engine, master, tracker or no_progress())
        known = schemas.registered(lake, table)
        job = LoadJob(
            lake,
            table,
            DEFAULT_GATEWAY,
            client_id,
            options.key_columns,
            {},
            {"header_mode": header_mode},
            is_text(sides[1]),
            schedulers or Schedulers(),
            tracker or no_progress(),
            columns=known.names if known else header_of(sides[1]),
            source_types=declared_numbers(sides[1]),
        )
        return _extract(job, diffs, start, load_base)


def _extract(job: LoadJob, diffs: _Diffs, start: int | None, load_base: bool) -> ExtractResult:
    ledger = schemas.load_history(job.lake, job.table)
    fingerprints = [fingerprint(side) for side in (diffs.a, diffs.b)]
    base, goal = map(job.content, fingerprints)
    newest = ledger.newest
    is_now = newest is not None and not ledger.others and ledger.holds(newest.label, base)
    for before, window in zip(ledger.windows, ledger.windows[1:], strict=False):
        if not is_now and (before.content, window.content) == (base, goal):
            return ExtractResult(job.table, 0, window.start, True)
    timestamp = _first_timestamp(job, start)
    loaded = None if is_now else _load_base(job, diffs, fingerprints[0], timestamp, load_base)
    expected = WantedSnapshot(f"b@{ledger.number}", fingerprints[1], partial(_behind, timestamp), fingerprints[0])
    window = load_snapshot(job, expected, diffs)
    return ExtractResult(job.table, window.deltas, window.start, False, loaded.deltas if loaded else 0, diffs.stats)


def _load_base(job: LoadJob, diffs: _Diffs, base: str, timestamp: int, load_base: bool) -> schemas.Window | None:
    """Make sure that the lake has A: load it, or raise with what differs."""
    label = f"a@{schemas.load_history(job.lake, job.table).number}"
    source = _OnlyBase(diffs)
    count, difference = 0, "it holds nothing yet"
    if schemas.greatest_hlc(job.lake, job.table) > 0:
        results = _compare(job, source.whole(), timestamp, writes=False)
        count, some = sum(each["rows"] for each in results), [row for each in results for row in each["listed"]]
        difference = f"{count:,} rows differ, as {', '.join(map(repr, some[:3]))}"
    else:
        count = diffs.base_rows()
    if count and not load_base:
        problem = (
            f"A is not what the lake holds of {job.table} ({difference}), so the deltas from A to B would not lead to B"
        )
        hint = "give the version that was loaded last, or load A first with --load-base"
        raise LakeError(f"{problem}: {hint}", code="base_mismatch", table=job.table)
    # A base that is there already needs no timestamp: B starts at the requested one.
    start = timestamp if count else timestamp - 1
    return load_snapshot(job, WantedSnapshot(label, base, partial(_behind, start)), source)


def _first_timestamp(job: LoadJob, requested: int | None) -> int:
    """The requested timestamp, or one after all deltas; older deltas would lose against those in the lake."""
    newest = schemas.greatest_hlc(job.lake, job.table)
    if requested is None:
        return max(Clock().now(), newest + 1)
    if requested <= newest:
        message = f"--start {requested} is not after {newest}, the newest delta of {job.table}: B would lose against it"
        raise LakeError(message, code="late_start")
    return requested


def _behind(timestamp: int, ledger: schemas.LoadHistory) -> int:
    return max(timestamp, ledger.newest.last + 1) if ledger.newest else timestamp


class _Diffs:
    """The events of an extraction, made by any engine of the table diff."""

    def __init__(
        self, a: str, b: str, options: TableOptions, folder: Path, engine: str, master: str | None, tracker: Tracker
    ) -> None:
        self.a, self.b, self._options, self._folder = a, b, options, folder
        self._engine, self._master, self._tracker = engine, master, tracker
        self.stats: JsonObject = {}

    def difference(self) -> Path:
        return self._events(self.a, self.b, "difference")

    def whole(self) -> Path:
        return self.whole_of(self.b, "b")

    def whole_of(self, side: str, name: str) -> Path:
        folder = self._folder / f"nothing-{name}"
        folder.mkdir(exist_ok=True)
        nothing = write_empty_like(side, self._options.reading("B"), folder)
        return self._events(str(nothing), side, f"whole-{name}")

    def base_rows(self) -> int:
        self.whole_of(self.a, "a")
        return int(self.stats["rows_added"])

    def _events(self, a: str, b: str, name: str) -> Path:
        target = self._folder / f"{name}.jsonl"
        if not target.exists():
            job = TableDiffJob(a, b, self._options, master=self._master, tracker=self._tracker)
            with open(target, "wb", buffering=1 << 20) as out:
                self.stats = find_engine(self._engine)(job, out.write).to_event()
        return target


@dataclass(frozen=True)
class _OnlyBase:
    """A as a snapshot to load."""

    diffs: _Diffs

    def difference(self) -> None:
        """None: there is no snapshot before it."""

    def whole(self) -> Path:
        return self.diffs.whole_of(self.diffs.a, "a")


def _as_file(side: StrPath, folder: Path) -> str:
    """An input that can be read several times: standard input is stored in a file."""
    if str(side) != "-":
        return str(side)
    target = folder / "standard-input.csv"
    with open(target, "wb") as out:
        shutil.copyfileobj(cast(Any, sys.stdin.buffer), out)
    return str(target)

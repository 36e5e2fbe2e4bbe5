"""The history of a table: its commits, the deltas of one row, the proof of its base, the change between two times."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core import JsonObject, Tracker, io_errors
from driftline.deltas import ColumnSchema, RowDelta, TableSchema, stamp_of
from driftline.errors import LakeError, OptionError
from driftline.lake._fold.compact import Engine
from driftline.lake._fold.fold import fold, needs_fold, replay, replay_order
from driftline.lake._fold.local import RangeInput, RangeJob, Result, load_part, run_locally
from driftline.lake._fold.plan import FoldPlan, KeyRange, bounds_of, plan_fold
from driftline.lake._read.state import all_deltas, part_folder
from driftline.lake._store import rows as stored
from driftline.lake._store.flush import count_waiting, identity_of
from driftline.lake._store.lake import Lake, Part, attempt_token, path_hlcs, timestamp_text
from driftline.lake._store.parquet import DataFile
from driftline.lake._store.schemas import Snapshot, newest_snapshot, required
from driftline.lake._store.tables import CommitEntry, commits_of

if TYPE_CHECKING:
    from driftline.changesets import Changeset, Table

_PARTS: tuple[Part, ...] = ("deltas", "deletes", "base", "state", "archive")
_HASH_BYTES = 16
_MODULUS = 1 << (8 * _HASH_BYTES)
_LISTED = 20


class LogEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One commit to one of a table's Delta tables."""

    part: str
    version: int
    timestamp_ms: int = msgspec.field(name="timestamp")
    operation: str
    files_added: int
    files_removed: int
    deltas: int | None
    gateway: str | None
    min_hlc: int | None
    max_hlc: int | None
    pins: dict[str, int]

    @property
    def commit(self) -> str:
        """The table and the version that the commit made."""
        return f"{self.part}@{self.version}"

    @property
    def time_range(self) -> str:
        """The timestamps of its deltas."""
        known = (hlc for hlc in (self.min_hlc, self.max_hlc) if hlc is not None)
        return " to ".join(map(timestamp_text, known))

    def to_dict(self) -> JsonObject:
        """The entry as plain data, hlcs as strings."""
        record: JsonObject = msgspec.to_builtins(self)
        record |= {name: None if record[name] is None else str(record[name]) for name in ("minHlc", "maxHlc")}
        return {name: value for name, value in record.items() if name != "pins" or value}


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A delta of a row: the columns that it won, and whether it still has an effect.

    `reasons` say for each of its columns why the value counts, or which later delta replaced it.
    """

    delta: RowDelta
    won: tuple[str, ...]
    is_visible: bool
    reasons: tuple[str, ...]

    @property
    def timestamp(self) -> str:
        return timestamp_text(self.delta.hlc)

    @property
    def values(self) -> list[tuple[str, Any, bool, str]]:
        """Its columns: name, value, whether the value counts, and the reason."""
        pairs = zip(self.delta.columns, self.reasons, strict=True)
        return [(each.column, each.value, each.column in self.won, reason) for each, reason in pairs]

    def to_dict(self) -> JsonObject:
        """The entry as plain data."""
        return {**self.delta.to_wire(), "won": list(self.won), "visible": self.is_visible}


def lake_log(lake: Lake, table: str) -> list[LogEntry]:
    """Every commit of a table that its logs still have, in the order of time."""
    lake.table_name(table)
    commits = [(part, commit) for part in _PARTS for commit in reversed(list(commits_of(lake, table, part)))]
    entries = [_log_entry(part, commit) for part, commit in commits if commit is not None]
    return sorted(entries, key=lambda entry: (entry.timestamp_ms, _PARTS.index(entry.part), entry.version))


def row_history(lake: Lake, table: str, row_id: str) -> list[HistoryEntry]:
    """Every delta of a row in the order of replay, with the columns that it won."""
    lake.table_name(table)
    found = {identity_of(delta): delta for delta in all_deltas(lake, table, row_id)}
    deltas = sorted(found.values(), key=replay_order)
    history: list[HistoryEntry] = []
    later: dict[str, RowDelta] = {}  # the next delta that sets a column
    next_delete: RowDelta | None = None
    for delta in reversed(deltas):
        names = [entry.column for entry in delta.columns]
        after = [later.get(name, next_delete) for name in names]
        won = tuple(name for name, other in zip(names, after, strict=True) if other is None)
        is_visible = next_delete is None and (delta.op == "DELETE" or bool(won) or not history)
        history.append(HistoryEntry(delta, won, is_visible, tuple(_reason(delta, other) for other in after)))
        if delta.op == "DELETE":
            later, next_delete = {}, delta
        later |= dict.fromkeys(names, delta)
    return history[::-1]


def _reason(delta: RowDelta, later: RowDelta | None) -> str:
    """Why a value counts, or which delta replaced it in the order of replay (deltas and the lake §2)."""
    if later is None:
        return "the last to set it"
    if later.op == "DELETE":
        return f"the row was deleted later, by {later.client_id}"
    if later.hlc > delta.hlc:
        return f"{later.client_id} set it later"
    if later.client_id != delta.client_id:
        return f"same clock, and {later.client_id} comes after {delta.client_id}"
    return "same clock and client, and the other delta's id is greater"


def _log_entry(part: Part, commit: CommitEntry) -> LogEntry:
    details = commit.details
    hlcs = [path_hlcs(path) for path in commit.adds] if part == "deltas" else []
    known = [pair for pair in hlcs if pair is not None]
    return LogEntry(
        part,
        commit.version,
        commit.timestamp,
        commit.operation,
        len(commit.adds),
        commit.removed,
        details.get("deltas"),
        details.get("gateway"),
        min((pair[0] for pair in known), default=None),
        max((pair[1] for pair in known), default=None),
        dict(details.get("pins", {})),
    )


# Verification: base and deletes are what a replay of all folded deltas gives. Both are counted and hashed per range in
# the tasks; the hash is a sum over rows, so it does not depend on their order. Differing rows are listed.


class Verification(msgspec.Struct, frozen=True, rename="camel"):
    """The proof: counts and hashes of both sides, and the rows that differ (the first ones of each range)."""

    table: str
    snapshot: int | None
    deltas: int
    rows_in_base: int
    rows_replayed: int
    hash_of_base: str
    hash_of_replay: str
    differing_rows: tuple[str, ...] = ()
    waiting: int = 0  # deltas in envelopes that no schema accepts: not part of the proof

    @property
    def is_proved(self) -> bool:
        """Whether base is the replay of its deltas."""
        same = self.rows_in_base == self.rows_replayed and self.hash_of_base == self.hash_of_replay
        return same and not self.differing_rows

    def to_dict(self) -> JsonObject:
        """The proof as plain data."""
        return {"table": self.table, "proved": self.is_proved, **msgspec.to_builtins(self)}


@dataclass(frozen=True)
class CompareWithBase(RangeJob):
    """The job of `verify`: fold a range from the deltas alone and compare it with the committed files."""

    every_range = True
    checks_ids = True

    snapshot: Snapshot
    needs_originals: bool = False  # for a replay in plain Python beside the fold kernel

    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        inside = replace(given.key_range, is_piece=True)
        base = _load_overlapping(plan, "base", self.snapshot.base, inside, stored.base_file_schema(plan.columns))
        dead = _load_overlapping(plan, "deletes", self.snapshot.deletes, inside, stored.deletes_file_schema())
        folded = fold(plan.columns, given.deltas, given.base, given.deletes)
        expected = _without_deaths(folded.base)
        actual = _without_deaths(base)
        result: Result = {
            "base": base.num_rows,
            "replayed": expected.num_rows,
            "base_hash": _hash(actual, plan.columns),
            "replay_hash": _hash(expected, plan.columns),
            "differing": [],
        }
        if result["base_hash"] != result["replay_hash"] or not actual.equals(expected):
            result["differing"] = _differing(actual, expected)
        deaths = [dead, folded.deletes]
        if plan.horizon is not None:  # tombstones below it may be removed in one of the two
            hlcs = [pc.struct_field(rows["_deleted"], ["hlc"]) for rows in deaths]
            deaths = [
                rows.filter(pc.greater_equal(each, plan.horizon)) for rows, each in zip(deaths, hlcs, strict=True)
            ]
        result["differing"] += [] if deaths[0].equals(deaths[1]) else _differing(*deaths)
        if self.needs_originals and not given.base.num_rows:  # not from an archived base, whose deltas are removed
            replayed = replay(original_deltas(plan, given.deltas))
            held = dict(stored.decode_state(base, plan.columns))
            every = replayed.keys() | held.keys()
            result["differing"] += [row_id for row_id in every if replayed.get(row_id) != held.get(row_id)]
        result["differing"] = sorted(set(result["differing"]))[:_LISTED]
        return [result]


def verify(
    lake: Lake, table: str, *, engine: Engine = run_locally, tracker: Tracker | None = None, oracle: bool = False
) -> Verification:
    """Replay every folded delta and compare the result with the newest snapshot."""
    required(lake, table)
    snapshot = newest_snapshot(lake, table)
    if snapshot is None:
        raise LakeError(f"table {table!r} has no snapshot to verify: compact it first", code="no_snapshot")
    plan = plan_fold(lake, table, full=True, deltas_version=snapshot.deltas_version, envelopes=False)
    results = list(engine(plan, CompareWithBase(snapshot, oracle), tracker))
    hashes = [sum(int(result[name], 16) for result in results) % _MODULUS for name in ("base_hash", "replay_hash")]
    return Verification(
        table,
        snapshot.base_version,
        plan.delta_count,
        sum(result["base"] for result in results),
        sum(result["replayed"] for result in results),
        f"{hashes[0]:032x}",
        f"{hashes[1]:032x}",
        tuple(row_id for result in results for row_id in result["differing"]),
        count_waiting(lake, table),
    )


def _load_overlapping(
    plan: FoldPlan, part: Part, files: Sequence[DataFile], inside: KeyRange, schema: pa.Schema
) -> pa.Table:
    overlapping = [file for file in files if _overlaps(file, inside)]
    return load_part(plan, part, overlapping, inside, schema).sort_by(stored.ROW_ID)


def _overlaps(file: DataFile, inside: KeyRange) -> bool:
    bounds = bounds_of(file)
    if bounds is None:
        return True
    low, high = bounds
    return (inside.low is None or high >= inside.low) and (inside.high is None or low < inside.high)


def _without_deaths(rows: pa.Table) -> pa.Table:
    """Rows without the stamp of a DELETE, which may have been removed with its tombstone."""
    stamps = stored.one_array(rows[stored.STAMPS])
    names = [name for name in (field.name for field in stamps.type) if name != "deleted"]
    kept = pa.StructArray.from_arrays([pc.struct_field(stamps, [name]) for name in names], names=names)
    return rows.set_column(rows.schema.get_field_index(stored.STAMPS), stored.STAMPS, kept).combine_chunks()


def _hash(rows: pa.Table, columns: Sequence[ColumnSchema]) -> str:
    """The sum of the rows' hashes: values and whether they are set; the stamps are compared one by one."""
    total = 0
    for line in stored.jsonl_bytes(rows, columns).splitlines():
        total += int.from_bytes(hashlib.sha256(line).digest()[:_HASH_BYTES], "big")
    return f"{total % _MODULUS:032x}"


def _differing(actual: pa.Table, expected: pa.Table) -> list[str]:
    left = {row[stored.ROW_ID]: row for row in actual.to_pylist()}
    right = {row[stored.ROW_ID]: row for row in expected.to_pylist()}
    found = [row_id for row_id in left.keys() | right.keys() if left.get(row_id) != right.get(row_id)]
    repeated = [] if len(left) == actual.num_rows else [actual[stored.ROW_ID][0].as_py()]
    return sorted(found + repeated)[:_LISTED]


# The net change between two timestamps: as table-diff events, a SQLite changeset, or the deltas with an effect. The
# window is every hlc after `since` up to and including `until`. Events compare the state at both ends, an absent column
# reading as null. Deltas are the originals of the window that win something: merged into the state at `since` they give
# the state at `until`.


CHANGES = ("events", "deltas")
CHANGESET = "changeset"

_COUNTED = ("added", "removed", "changed", "unchanged", "deltas")


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """The number of rows that the window added, removed, changed or left unchanged."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    unchanged: int = 0
    deltas: int = 0

    @property
    def any_difference(self) -> bool:
        """Whether anything changed."""
        return bool(self.added or self.removed or self.changed or self.deltas)


@dataclass(frozen=True)
class WriteChanges(RangeJob):
    """The job of `changes`: the net change of one range as a part file."""

    needs_originals = True

    folder: str
    kind: str
    since: int

    def __call__(self, plan: FoldPlan, given: RangeInput) -> list[Result]:
        window = given.deltas.filter(pc.greater(given.deltas["hlc"], self.since))
        if window.num_rows == 0:
            return []
        counts = dict.fromkeys((*_COUNTED, "absent"), 0)
        lines = self._deltas(plan, window) if self.kind == "deltas" else self._events(plan, given, window)
        path = Path(self.folder, f"part-{given.key_range.index:05d}-{attempt_token()}")
        with io_errors(path), open(path, "wb") as out:
            for kind, line in lines:
                counts[kind] += 1
                if line is not None:
                    out.write(stored.json_line(line))
        return [{"path": str(path), **counts}]

    def _deltas(self, plan: FoldPlan, window: pa.Table) -> Iterator[tuple[str, JsonObject | None]]:
        deltas = original_deltas(plan, needs_fold(plan.columns, window))
        for delta in sorted(deltas, key=lambda delta: (delta.row_id, stamp_of(delta))):
            yield "deltas", delta.to_wire()

    def _events(self, plan: FoldPlan, given: RangeInput, window: pa.Table) -> Iterator[tuple[str, JsonObject | None]]:
        touched = pc.unique(window["row_id"])
        before = _state(plan, given, touched, self.since)
        after = _state(plan, given, touched, None)
        for row_id in sorted(touched.to_pylist()):
            yield _event(plan, row_id, before.get(row_id), after.get(row_id))


def changes(
    lake: Lake,
    table: str,
    out: BinaryIO,
    *,
    since: int,
    until: int,
    kind: str = "events",
    engine: Engine = run_locally,
    tracker: Tracker | None = None,
) -> ChangeCounts:
    """Write the net change of the window (since, until] as JSONL, in the order of row ids."""
    if kind not in CHANGES:
        raise OptionError(f"unknown kind of changes {kind!r}: use one of {', '.join(CHANGES)}")
    if since > until:
        raise OptionError(f"the window is empty: --from {since} is after --to {until}", code="empty_window")
    plan = plan_fold(lake, table, as_of=until, snapshot_as_of=since)
    with part_folder(out) as folder:
        job = WriteChanges(str(folder), kind, since)
        parts = list(engine(plan, job, tracker))
        total = ChangeCounts(*(sum(part[name] for part in parts) for name in _COUNTED))
        if kind == "events":
            names = [*([] if plan.key else [stored.ROW_ID]), *(column.name for column in plan.columns)]
            out.write(stored.json_line({"type": "schema", "columns_a": names, "columns_b": names}))
        for part in parts:
            with open(part["path"], "rb") as source:
                shutil.copyfileobj(source, out, 1 << 20)
        if kind == "events":
            counts = {f"rows_{name}": getattr(total, name) for name in ("added", "removed", "changed", "unchanged")}
            compared = {"type": "stats", "rows_total_compared": total.changed + total.unchanged}
            out.write(stored.json_line({**compared, **counts}))
    return total


def original_deltas(plan: FoldPlan, stamped: pa.Table) -> Iterator[RowDelta]:
    """Stamped deltas with `ORIGINAL_COLUMNS`, as they were written; columns removed since are left out."""
    client = pc.cast(stamped["client"], pa.string())
    rest = (stamped[name] for name in ("hlc", "_delta_id", "_columns"))
    fixed = [stamped["_op"], stamped["row_id"], client, *rest]
    schema = stored.delta_file_schema(plan.columns)
    values = [stamped[name] for name in schema.names[len(stored.META_COLUMNS) :]]
    return stored.decode_deltas(pa.Table.from_arrays([*fixed, *values], schema=schema), plan.table, plan.columns)


def _state(plan: FoldPlan, given: RangeInput, touched: pa.Array, as_of: int | None) -> dict[str, JsonObject]:
    deltas, base, deletes = (
        rows.filter(pc.is_in(rows[name], value_set=touched))
        for rows, name in ((given.deltas, "row_id"), (given.base, stored.ROW_ID), (given.deletes, stored.ROW_ID))
    )
    if as_of is not None:
        deltas = deltas.filter(pc.less_equal(deltas["hlc"], as_of))
    return dict(stored.decode_state(fold(plan.columns, deltas, base, deletes).base, plan.columns))


def _event(
    plan: FoldPlan, row_id: str, before: JsonObject | None, after: JsonObject | None
) -> tuple[str, JsonObject | None]:
    old, new = _whole_row(plan, row_id, before), _whole_row(plan, row_id, after)
    key = {name: (new or old or {}).get(name) for name in plan.key or (stored.ROW_ID,)}
    if old is None and new is None:
        return "absent", None  # added and removed within the window
    if old is None:
        return "added", {"type": "added", "key": key, "row": new}
    if new is None:
        return "removed", {"type": "removed", "key": key, "row": old}
    changed = [name for name in old if old[name] != new[name] or type(old[name]) is not type(new[name])]
    if not changed:
        return "unchanged", None
    delta = {name: {"from": old[name], "to": new[name]} for name in changed}
    return "changed", {"type": "changed", "key": key, "changed": changed, "before": old, "after": new, "delta": delta}


def _whole_row(plan: FoldPlan, row_id: str, row: JsonObject | None) -> JsonObject | None:
    if row is None:
        return None
    start = {} if plan.key else {stored.ROW_ID: row_id}
    return {**start, **{column.name: row.get(column.name) for column in plan.columns}}


def write_changes(
    lake: Lake, table: str, out: BinaryIO, *, since: int, until: int, kind: str = "events", **options: Any
) -> ChangeCounts:
    """Write the changes of (since, until] as events, deltas or a changeset."""
    if kind != CHANGESET:
        return changes(lake, table, out, since=since, until=until, kind=kind, **options)
    with tempfile.TemporaryFile() as events:
        counts = changes(lake, table, events, since=since, until=until, kind="events", **options)
        events.seek(0)
        changeset_of_events(required(lake, table), map(json.loads, events)).write_to(out)
    return counts


def changeset_of_events(schema: TableSchema, events: Iterable[Mapping[str, Any]]) -> Changeset:
    """Data events of a window as a changeset: the row id is the key unless the schema names key columns."""
    from driftline.changesets import Changeset  # of the extra `sqlite`, which a lake does not need

    table = sqlite_table(schema)
    changeset = Changeset()
    for event in events:
        if event["type"] == "added":
            changeset.insert(table, _sql_row(schema, event["row"]))
        elif event["type"] == "removed":
            changeset.delete(table, _sql_row(schema, event["row"]))
        elif event["type"] == "changed":
            changeset.update(table, _sql_row(schema, event["before"]), _sql_row(schema, event["after"]))
    return changeset


def sqlite_table(schema: TableSchema) -> Table:
    """The SQLite table of a schema, as `materialize --format sqlite` makes it."""
    from driftline.changesets import Table

    columns = [(column.name, stored.KINDS[column.kind].sql) for column in schema.columns]
    if schema.key:
        return Table(schema.table, columns, schema.key)
    return Table(schema.table, [(stored.ROW_ID, "TEXT"), *columns], [stored.ROW_ID])


def _sql_row(schema: TableSchema, row: Mapping[str, Any]) -> JsonObject:
    values: JsonObject = {} if schema.key else {stored.ROW_ID: row[stored.ROW_ID]}
    for column in schema.columns:
        value = row[column.name]
        values[column.name] = None if value is None else stored.KINDS[column.kind].to_sql(value)
    return values

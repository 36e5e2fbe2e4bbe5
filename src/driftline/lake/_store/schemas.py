"""What properties and commits of a table say: its schema, generations and retention, its snapshots and loads.

Columns may be added and removed. The deltas table retains every column it ever had; retyping one, or adding a removed
name again with another type, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs

from driftline.core import JsonObject, canonical_json, sha256_hex
from driftline.deltas import MAX_HLC, ColumnSchema, ColumnType, TableSchema
from driftline.errors import DeltaError, LakeError
from driftline.lake._store.envelopes import waiting_envelopes
from driftline.lake._store.lake import Lake, relative
from driftline.lake._store.parquet import DataFile
from driftline.lake._store.rows import META_COLUMNS, STAMPS, delta_file_schema, unescape_name, value_fields
from driftline.lake._store.tables import Commit, StoredTable, commits_of, create, load, retried, transaction_version

SCHEMA_PROPERTY = "driftline.schema"
VERSION_PROPERTY = "driftline.schemaVersion"  # counts the changes, so that the age of a copy is known
GENERATION = "generation"  # application transaction, and operation of the commit
FIRST = 1
HORIZON_PROPERTY = "driftline.horizon"  # deltas below it are archived
REFUSE_PROPERTY = "driftline.refuse-before"  # set first, so that no delta is committed while the archive is made
ARCHIVED_BEFORE = "archive"  # application transaction of `archive`: the horizon it was made for

_COLUMN_TYPES: dict[pa.DataType, ColumnType] = {pa.float64(): "number", pa.bool_(): "boolean", pa.int64(): "integer"}


def register(lake: Lake, schema: TableSchema) -> None:
    """Make `schema` the table's current one; a table name that differs from another only in case is refused.

    The steps are columns, property, then the envelopes that the schema accepts; each can be repeated after a kill.
    """
    from driftline.lake._store.flush import flush_envelopes

    for known in lake.tables():
        if known != schema.table and known.casefold() == schema.table.casefold():
            problem = f"table {schema.table!r} differs from {known!r} only in case"
            raise DeltaError(problem, code="SCHEMA_ERROR", table=schema.table)
    retried(lambda: _try_register(lake, schema), f"registering the schema of {schema.table}")
    flush_envelopes(lake, schema.table)


def registered(lake: Lake, table: str) -> TableSchema | None:
    """The table's current schema, or None if none is registered."""
    return schema_of(load(lake, table, "deltas"))


def required(lake: Lake, table: str) -> TableSchema:
    """The table's current schema, or an error that says how to register one."""
    return required_table(lake, table)[1]


def required_table(lake: Lake, table: str) -> tuple[StoredTable, TableSchema]:
    """The current deltas table and its schema, of one read of the log."""
    deltas_table = load(lake, lake.table_name(table), "deltas")
    schema = schema_of(deltas_table)
    if deltas_table is None or schema is None:
        message = f"table {table!r} has no schema yet: register one with `driftline lake schema {table} FILE`"
        raise LakeError(message, code="no_schema", table=table)
    return deltas_table, schema


def schema_of(deltas_table: StoredTable | None) -> TableSchema | None:
    """The current schema of a loaded deltas table."""
    text = None if deltas_table is None else deltas_table.property(SCHEMA_PROPERTY)
    return None if text is None else TableSchema.from_wire(json.loads(text))


def schema_version(deltas_table: StoredTable | None) -> int:
    """How often the schema was changed; 0 where none is registered."""
    if deltas_table is None or schema_of(deltas_table) is None:
        return 0
    return int(deltas_table.property(VERSION_PROPERTY) or 1)


def every_column(deltas_table: StoredTable) -> list[ColumnSchema]:
    """Every column the deltas table ever had, removed ones too, in the order of its files."""
    return [
        ColumnSchema(unescape_name(field.name), (field.metadata or {}).get(b"driftline.type", b"string").decode())
        for field in deltas_table.schema()
        if field.name not in META_COLUMNS
    ]


def _try_register(lake: Lake, schema: TableSchema) -> bool:
    deltas_table = load(lake, schema.table, "deltas")
    text = json.dumps(schema.to_wire(), ensure_ascii=False)
    if deltas_table is None:
        described = Commit(metadata={"operation": "schema"})
        create(lake, schema.table, "deltas", delta_file_schema(schema.columns), described)
        return _try_register(lake, schema)  # a store may accept only its own properties when a table is created
    if schema_of(deltas_table) == schema:
        return True
    added = _added_columns(every_column(deltas_table), schema)
    details = {"operation": "schema"}
    # Columns first: a crash in between leaves unused columns, and the next try continues.
    if added:
        return deltas_table.add_columns(added, details) and _try_register(lake, schema)
    properties = {SCHEMA_PROPERTY: text, VERSION_PROPERTY: str(schema_version(deltas_table) + 1)}
    return deltas_table.set_properties(properties, details)


def column_type(stored: pa.DataType) -> ColumnType:
    """The type of a column by its type in the files; json is text to every reader."""
    if pa.types.is_decimal(stored):
        return f"decimal({stored.scale})"
    return _COLUMN_TYPES.get(stored, "string")


def _added_columns(ever: Sequence[ColumnSchema], schema: TableSchema) -> list[pa.Field]:
    known = {column.name.casefold(): column for column in ever}
    added = []
    for column in schema.columns:
        before = known.get(column.name.casefold())
        if before is None:
            added += value_fields([column])
        elif before != column:
            raise _changed(schema.table, before, column)
    return added


def _changed(table: str, before: ColumnSchema, after: ColumnSchema) -> DeltaError:
    problem = f"cannot be renamed to {after.name!r}"
    if before.name == after.name:
        problem = f"is a {before.type} and cannot become a {after.type}"
    problem = f"column {before.name!r} of table {table} {problem}"
    message = f"{problem}: add a column under a new name, migrate the values, then remove the old one"
    return DeltaError(message, code="SCHEMA_ERROR", table=table, column=before.name)


# Generations: a new one starts empty and may have other types; earlier ones stay readable (deltas-and-lake §13). It is
# one commit to the deltas table that removes all files and sets the columns; earlier versions retain what was there.
# Snapshots of an earlier generation are known by the number that their commit pins.


def generation_of(delta_table: StoredTable | None) -> int:
    """The generation that a loaded Delta table belongs to."""
    return transaction_version(delta_table, GENERATION) or FIRST


def start_generation(lake: Lake, table: str, columns: Sequence[ColumnSchema]) -> int:
    """Start a new generation with these columns; its number. A table that does not exist yet stays so."""
    number = FIRST

    def attempt() -> bool:
        nonlocal number
        deltas_table = load(lake, table, "deltas")
        if deltas_table is None:
            return True
        number = generation_of(deltas_table) + 1
        details = {"operation": GENERATION, "generation": number}
        commit = Commit(transactions={GENERATION: number}, metadata=details, overwrite=True)
        return deltas_table.append(commit, delta_file_schema(columns))

    retried(attempt, f"starting a generation of {table}")
    return number


def last_versions(lake: Lake, table: str) -> dict[int, int]:
    """The last version of `deltas` in each generation, as far as the log has them; the newest one is the current."""
    deltas_table = load(lake, table, "deltas")
    if deltas_table is None:
        return {}
    ends = {generation_of(deltas_table): deltas_table.version()}
    if FIRST in ends:
        return ends
    begun: int | None = None
    for entry in commits_of(lake, table, "deltas", deltas_table.version()):
        if entry is None:
            break
        if begun is not None:
            ends[begun - 1] = entry.version
        begun = entry.transactions.get(GENERATION)
    return ends


def version_of_generation(lake: Lake, table: str, number: int) -> int:
    """The version of `deltas` that a generation ended with."""
    ends = last_versions(lake, lake.table_name(table))
    if number not in ends:
        known = ", ".join(map(str, sorted(ends))) or "none"
        raise LakeError(f"table {table!r} has no generation {number} (there is {known})", code="unknown_generation")
    return ends[number]


# Retention: the horizon below which deltas are refused, and the archived base that replay then starts from.


def horizon_of(deltas_table: StoredTable | None) -> int | None:
    """The hlc from which deltas are kept, or None if all are."""
    return number_property(deltas_table, HORIZON_PROPERTY)


def refused_before(deltas_table: StoredTable | None) -> int | None:
    """The hlc below which new deltas are refused, or None."""
    return number_property(deltas_table, REFUSE_PROPERTY)


def archive_files(lake: Lake, table: str, horizon: int | None) -> list[DataFile]:
    """The archived base for a horizon; none without a horizon."""
    if horizon is None:
        return []
    for entry in commits_of(lake, table, "archive"):
        if entry is not None and entry.transactions.get(ARCHIVED_BEFORE) == horizon:
            archive = load(lake, table, "archive", entry.version)
            if archive is not None:
                return archive.files()
    raise LakeError(f"the archived base of table {table!r} for horizon {horizon} is missing", code="missing_archive")


def check_horizon(table: str, as_of: int | None, horizon: int | None) -> None:
    """Refuse a timestamp before the horizon, whose deltas are archived."""
    if as_of is not None and horizon is not None and as_of < horizon - 1:
        message = f"table {table!r} keeps history from {horizon} on; {as_of} is before that"
        raise LakeError(message, code="TOO_OLD", table=table, horizon=str(horizon))


def too_old(table: str, hlc: int, horizon: int, index: int) -> LakeError:
    """The error for a delta below the horizon."""
    message = f"delta {index} of table {table!r} has hlc {hlc}, before the retention horizon {horizon}"
    return LakeError(message, code="TOO_OLD", table=table, index=index)


def number_property(deltas_table: StoredTable | None, name: str) -> int | None:
    """A property that is a number; None where it is not set."""
    text = None if deltas_table is None else deltas_table.property(name)
    return None if text is None else int(text)


# Snapshots: versions of `base` with the versions of deltas and deletes that they pin. The pins are application
# transactions of the base commit (metadata is removed by log clean-up, transactions stay). Readers use the pinned
# versions, never the latest; where a pin is lost, the caller folds in full.


LOAD = "load"
MAX_WINDOWS = 400  # of one commit; older snapshots stay in the lake and can no longer be corrected
FOLDED_DELTAS = "compact"  # version of `deltas` that the snapshot folds
PINNED_DELETES = "compact:deletes"  # version of `deletes` that goes with it
GREATEST_HLC = "compact:max-hlc"  # greatest hlc among the folded deltas
FOLDED_GENERATION = "compact:generation"  # generation of the table that the deltas are of

Pins = tuple[int, int, int]
ReadOffsets = Mapping[str, "ReadFile"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of `base`, what it folds and the files that make it up."""

    base_version: int
    deltas_version: int
    deletes_version: int
    max_hlc: int
    columns: frozenset[str]
    base: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...]
    generation: int = 1

    @property
    def pins(self) -> Pins:
        """What its base commit pins."""
        return self.deltas_version, self.deletes_version, self.max_hlc

    def covers(self, columns: Sequence[ColumnSchema], lake: Lake, table: str) -> bool:
        """Whether it can replace the deltas it folds: no column that these deltas may set has been left out."""
        missing = {column.name for column in columns} - self.columns
        if not missing:
            return True
        deltas_then = load(lake, table, "deltas", self.deltas_version)
        return deltas_then is not None and not missing & _column_names(deltas_then)


def newest_snapshot(lake: Lake, table: str) -> Snapshot | None:
    """The latest snapshot, or None if there is none or its pins are lost."""
    return snapshot_of(lake, table, load(lake, table, "base"))


def snapshot_as_of(lake: Lake, table: str, as_of: int, base_table: StoredTable | None) -> Snapshot | None:
    """The newest snapshot whose greatest hlc is not after `as_of` and whose files still exist."""
    if base_table is None:
        return None
    for entry in commits_of(lake, table, "base", base_table.version()):
        if entry is None:
            return None
        greatest = entry.transactions.get(GREATEST_HLC)
        if greatest is not None and greatest <= as_of:
            snapshot = snapshot_of(lake, table, load(lake, table, "base", entry.version))
            if snapshot is not None and snapshot.max_hlc <= as_of and _files_exist(lake, table, snapshot):
                return snapshot
    return None


def pins_of(base_table: StoredTable | None) -> Pins | None:
    """Folded deltas version, pinned deletes version and greatest hlc; None if there is no base or a pin is lost."""
    names = (FOLDED_DELTAS, PINNED_DELETES, GREATEST_HLC)
    folded, deletes, greatest = (transaction_version(base_table, name) for name in names)
    if folded is None or deletes is None or greatest is None:
        return None
    return folded, deletes, greatest


def snapshot_of(lake: Lake, table: str, base_table: StoredTable | None) -> Snapshot | None:
    """The snapshot that a loaded version of `base` is, or None if there is none or its pins are lost."""
    pins = pins_of(base_table)
    if base_table is None or pins is None:
        return None
    folded, deletes, greatest = pins
    deletes_table = load(lake, table, "deletes", deletes)
    if deletes_table is None:
        return None
    return Snapshot(
        base_table.version(),
        folded,
        deletes,
        greatest,
        frozenset(_column_names(base_table)),
        tuple(base_table.files()),
        tuple(deletes_table.files()),
        transaction_version(base_table, FOLDED_GENERATION) or 1,
    )


def _files_exist(lake: Lake, table: str, snapshot: Snapshot) -> bool:
    parts = {"base": snapshot.base, "deletes": snapshot.deletes}
    paths = [relative(table, part, file.path) for part, files in parts.items() for file in files]
    return all(info.type == pa_fs.FileType.File for info in lake.files().get_file_info(paths))


def _column_names(delta_table: StoredTable) -> set[str]:
    return {unescape_name(name) for name in delta_table.schema().names if name not in META_COLUMNS and name != STAMPS}


# The load history: which snapshots were loaded, stored in the commits of the loads (deltas-and-lake §12). Every load is
# one commit to the deltas table, and that commit has the complete history: a window of timestamps for each snapshot and
# what was loaded into it. So the history cannot disagree with the lake: a lake that was restored, replaced or lost has
# its own, and a load that was killed left none.


@dataclass(frozen=True, slots=True)
class Window:
    """One loaded snapshot: the timestamps that belong to it, and its content.

    Loads are counted: `verified` is the one after which its state was the snapshot, `written` the last one that wrote
    deltas into it, `since` the first one with this content.
    """

    label: str
    start: int
    last: int
    content: str
    by: str
    deltas: int = 0
    verified: int = 0
    written: int = 0
    since: int = 0

    def to_wire(self) -> list[Any]:
        """The window as plain data; timestamps are text, because JSON numbers end at 2^53."""
        counts = [self.deltas, self.verified, self.written, self.since]
        return [self.label, str(self.start), str(self.last), self.content, self.by, *counts]

    @classmethod
    def from_wire(cls, entry: Sequence[Any]) -> Window:
        """The window of plain data."""
        label, start, last, content, by, *counts = entry
        return cls(label, int(start), int(last), content, by, *counts)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """How far a file of change events was read: so many bytes and their hash; `mark` is its version if that was all."""

    offset: int
    digest: str
    mark: str = ""

    def to_wire(self) -> list[Any]:
        """The position as plain data."""
        return [self.offset, self.digest, self.mark]


@dataclass(frozen=True, slots=True)
class LoadHistory:
    """The windows of a table in the order of time, and other writers since the last load.

    `number` counts the loads of all generations, so that two that run at once are noticed. A table that follows change
    events has no windows; `changes` says how far each of their files was read.
    """

    windows: tuple[Window, ...] = ()
    number: int = 0
    others: frozenset[str] = frozenset()
    changes: ReadOffsets = field(default_factory=dict)
    changes_key: tuple[str, ...] = ()  # the columns that rows of change events are known by

    @property
    def newest(self) -> Window | None:
        """The window of the current state."""
        return self.windows[-1] if self.windows else None

    def find(self, label: str) -> Window | None:
        """The window of a snapshot."""
        return next((window for window in self.windows if window.label == label), None)

    def before(self, start: int) -> Window | None:
        """The last window that starts before a timestamp."""
        return next((window for window in reversed(self.windows) if window.start < start), None)

    def after(self, start: int) -> Window | None:
        """The first window that starts after a timestamp."""
        return next((window for window in self.windows if window.start > start), None)

    def end_of(self, window: Window) -> int:
        """The last timestamp that may belong to a window."""
        following = self.after(window.start)
        return following.start - 1 if following else MAX_HLC

    def digest(self, until: int | None = None) -> str:
        """A text for the state up to a timestamp: it changes when a load writes deltas up to there.

        Loads are counted, so the greatest number of one that wrote into these windows is enough.
        """
        written = (window.written for window in self.windows if until is None or window.start <= until)
        positions = {name: [each.offset, each.digest] for name, each in self.changes.items()}
        return sha256_hex(canonical_json([max(written, default=0), positions, sorted(self.others)]))

    def holds(self, label: str, content: str) -> bool:
        """Whether the state as of a snapshot has this content: it had once, and no earlier window has changed since."""
        known = self.find(label)
        return known is not None and known.content == content and self._sound()[self.windows.index(known)]

    def _sound(self) -> list[bool]:
        """Each window depends on those before it, back to a sound one with the same content when it was verified."""
        found: list[bool] = []
        for index, window in enumerate(self.windows):
            found.append(True)
            for earlier in range(index - 1, -1, -1):
                other = self.windows[earlier]
                if found[earlier] and other.since <= window.verified:
                    break
                if other.written > window.verified:
                    found[index] = False
                    break
        return found

    def with_window(self, window: Window) -> LoadHistory:
        """The history after the load of a window."""
        number = self.number + 1
        known = next((other for other in self.windows if other.start == window.start), None)
        is_same = known is not None and known.content == window.content
        done = replace(
            window,
            verified=number,
            written=number if window.deltas else known.written if known else 0,
            since=known.since if known is not None and is_same else number,
        )
        windows = sorted([*(other for other in self.windows if other is not known), done], key=lambda each: each.start)
        return LoadHistory(tuple(windows[-MAX_WINDOWS:]), number)

    def with_changes(self, changes: ReadOffsets, key: Sequence[str]) -> LoadHistory:
        """The history after a load of change events."""
        return LoadHistory((), self.number + 1, changes=dict(changes), changes_key=tuple(key))

    def to_wire(self) -> JsonObject:
        """The history as plain data."""
        windows = {"number": self.number, "windows": [window.to_wire() for window in self.windows]}
        changes = {name: position.to_wire() for name, position in self.changes.items()}
        return {**windows, "changes": changes, "changes_key": list(self.changes_key)} if changes else windows


def load_history(lake: Lake, table: str) -> LoadHistory:
    """The history in the newest load of a table, and the writers after it."""
    deltas_table = load(lake, table, "deltas")
    if deltas_table is None:
        return LoadHistory()
    number = deltas_table.transaction(LOAD) or 0
    others: set[str] = {"waiting envelopes"} if waiting_envelopes(lake, table, deltas_table) else set()
    for commit in commits_of(lake, table, "deltas", deltas_table.version()):
        if commit is None:
            problem = f"the log of tables/{table}/deltas no longer holds its first versions"
            hint = "so what was loaded is not known: --full-refresh loads it anew"
            raise LakeError(f"{problem}, {hint}", code="unknown_lake")
        details = commit.details
        if details.get("operation") == LOAD:
            held = details["ledger"]
            windows = tuple(Window.from_wire(entry) for entry in held["windows"])
            changes = {name: ReadFile(*entry) for name, entry in held.get("changes", {}).items()}
            return LoadHistory(windows, number, frozenset(others), changes, tuple(held.get("changes_key", ())))
        if details.get("operation") == GENERATION:
            break
        if commit.new_data:
            others.add(str(details.get("gateway") or "somebody"))
    return LoadHistory((), number, frozenset(others))


def greatest_hlc(lake: Lake, table: str) -> int:
    """The greatest timestamp of the table's delta files."""
    deltas_table = load(lake, table, "deltas")
    return 0 if deltas_table is None else max((file.max_hlc or 0 for file in deltas_table.files()), default=0)

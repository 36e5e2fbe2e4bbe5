"""Maintenance of a lake: the backlog of unfolded deltas, vacuum, and the retention horizon."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from driftline.core import JsonObject, Tracker
from driftline.deltas import make_hlc, physical_ms
from driftline.errors import LakeError, OptionError
from driftline.lake._fold.compact import Engine, WriteSnapshot, collect_changes, compact
from driftline.lake._fold.local import run_locally
from driftline.lake._fold.plan import new_files, plan_fold, usable_snapshot
from driftline.lake._store.envelopes import envelope_paths, maker_of, origin_of
from driftline.lake._store.flush import count_set_aside, count_waiting, envelope_transaction, log_transaction
from driftline.lake._store.lake import Lake, Part, relative
from driftline.lake._store.rows import base_file_schema
from driftline.lake._store.schemas import (
    ARCHIVED_BEFORE,
    HORIZON_PROPERTY,
    REFUSE_PROPERTY,
    horizon_of,
    last_versions,
    refused_before,
    schema_of,
)
from driftline.lake._store.snapshots import newest_snapshot, pins_of
from driftline.lake._store.tables import (
    Commit,
    StoredTable,
    create,
    load,
    loaded,
    retried,
    transaction_version,
)

DEFAULT_HOURS = 168


@dataclass(frozen=True, slots=True)
class Backlog:
    """Deltas that no snapshot folds: their number, their bytes, and the commit time of the oldest."""

    deltas: int
    size: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """The backlog at which a table is compacted: one of these is reached."""

    deltas: int = 50_000
    size: int = 64 << 20
    seconds: float = 300.0

    def is_due(self, backlog: Backlog) -> bool:
        """Whether a table with this backlog is compacted."""
        if backlog.since_ms is None:
            return False
        age = time.time() - backlog.since_ms / 1000
        return backlog.deltas >= self.deltas or backlog.size >= self.size or age >= self.seconds


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of a table, for its operator."""

    table: str
    columns: tuple[str, ...] | None  # None: no schema is registered
    rows: int | None  # in `state`; None: it was never compacted
    unfolded: int
    waiting: int
    set_aside: int
    state_age_seconds: int | None  # age of the oldest delta that the state lacks; 0 where it is up to date

    def to_dict(self) -> JsonObject:
        """The status as plain data."""
        return {
            "table": self.table,
            "columns": None if self.columns is None else list(self.columns),
            "rows": self.rows,
            "unfolded": self.unfolded,
            "waiting": self.waiting,
            "setAside": self.set_aside,
            "stateAgeSeconds": self.state_age_seconds,
        }


def backlog_of(lake: Lake, table: str) -> Backlog:
    """The backlog of a table."""
    base_table = load(lake, table, "base")
    deltas_table = load(lake, table, "deltas")
    schema = schema_of(deltas_table)
    if deltas_table is None or schema is None:
        return Backlog(0, 0, None)
    snapshot = usable_snapshot(lake, table, None, schema.columns, deltas_table, base_table)
    found = new_files(lake, table, deltas_table, pins_of(base_table), snapshot)
    files = deltas_table.files() if found is None else found
    return Backlog(
        sum(file.rows for file in files),
        sum(file.size for file in files),
        min((file.committed_ms for file in files), default=None),
    )


def compact_due(lake: Lake, policy: CompactionPolicy, **options: Any) -> list[str]:
    """Compact the tables whose backlog is large or old enough; their names."""
    due = [table for table in lake.tables() if policy.is_due(backlog_of(lake, table))]
    for table in due:
        compact(lake, table, **options)
    return due


def status_of(lake: Lake, table: str) -> TableStatus:
    """A table's schema, rows and backlog."""
    schema = schema_of(load(lake, table, "deltas"))
    state = load(lake, table, "state")
    backlog = backlog_of(lake, table)
    age = None if state is None else 0
    if state is not None and backlog.since_ms is not None:
        age = max(0, round(time.time() - backlog.since_ms / 1000))
    return TableStatus(
        table,
        None if schema is None else schema.names,
        None if state is None else sum(file.rows for file in state.files()),
        backlog.deltas,
        count_waiting(lake, table),
        count_set_aside(lake, table),
        age,
    )


# Vacuum removes files that no retained version refers to, and envelopes whose deltas are in Parquet. A snapshot needs
# the versions of `deletes` that it pins, so these are retained with it, whatever their age.


def vacuum(lake: Lake, table: str, *, hours: int = DEFAULT_HOURS, dry_run: bool = False) -> list[str]:
    """Remove what is older than `hours` and not needed; the paths, relative to the lake.

    Snapshots younger than that, and always the newest, stay readable.
    """
    lake.table_name(table)
    cutoff = datetime.now(UTC) - timedelta(hours=hours)
    kept: dict[Part, list[int]] = {"base": [], "deletes": [], "archive": [], "state": []}
    base_table = load(lake, table, "base")
    if base_table is not None:
        kept["base"] = sorted({*base_table.versions_since(cutoff.timestamp() * 1000), base_table.version()})
        pins = [pins_of(load(lake, table, "base", version)) for version in kept["base"]]
        kept["deletes"] = sorted({pin[1] for pin in pins if pin is not None})
    kept["deltas"] = sorted(last_versions(lake, table).values())  # earlier generations stay readable
    gone: list[str] = []
    for part, versions in kept.items():
        delta_table = load(lake, table, part)
        if delta_table is not None:
            gone += [relative(table, part, path) for path in delta_table.vacuum(versions, hours, dry_run)]
    names = envelope_paths(lake, table)
    deltas_table = load(lake, table, "deltas") if names else None
    for name in names:
        path = relative(table, "envelopes", name)
        changed = lake.files().get_file_info(path).mtime
        if changed is not None and changed < cutoff and _is_needless(deltas_table, name):
            gone.append(path)
            if not dry_run:
                lake.files().delete_file(path)
    return sorted(gone)


def _is_needless(deltas_table: StoredTable | None, name: str) -> bool:
    """Whether an envelope can be removed: its deltas are in Parquet and no flush can need it again."""
    marked = [transaction_version(deltas_table, envelope_transaction(each)) for each in (name, *origin_of(name))]
    if None in marked:
        return False
    maker = maker_of(name)
    return maker is None or (transaction_version(deltas_table, log_transaction(maker[0])) or 0) >= maker[1]


# The retention horizon. Stages: refuse older deltas, compact (so that all deltas below the horizon are folded), archive
# the state just before it, set it, remove delta files below it. Each can be repeated after a kill.


def set_horizon(
    lake: Lake, table: str, horizon: int, *, engine: Engine = run_locally, tracker: Tracker | None = None
) -> int:
    """Retain deltas from `horizon` on; the number of delta files removed."""
    lake.table_name(table)
    if horizon > make_hlc(physical_ms()):
        raise OptionError(f"the horizon {horizon} lies in the future: every new delta would be refused")
    before = horizon_of(load(lake, table, "deltas"))
    if before is not None and horizon < before:
        raise LakeError(
            f"table {table!r} keeps history from {before} on: the horizon cannot move back to {horizon}",
            code="TOO_OLD",
        )
    _set_property(lake, table, REFUSE_PROPERTY, horizon)
    compact(lake, table, engine=engine, tracker=tracker)
    if before != horizon:
        _archive(lake, table, horizon, engine, tracker)
        _set_property(lake, table, HORIZON_PROPERTY, horizon)
    return _remove_old_files(lake, table, horizon)


def _archive(lake: Lake, table: str, horizon: int, engine: Engine, tracker: Tracker | None) -> None:
    snapshot = newest_snapshot(lake, table)
    if snapshot is None:
        raise LakeError(f"table {table!r} has nothing to archive", code="no_snapshot")
    plan = plan_fold(lake, table, full=True, as_of=horizon - 1, deltas_version=snapshot.deltas_version, envelopes=False)
    job = WriteSnapshot(every_range=True, base_part="archive", with_deletes=False)
    files = collect_changes(plan, engine(plan, job, tracker)).base
    details = {"operation": "archive", "horizon": str(horizon)}
    commit = Commit(files, (), {ARCHIVED_BEFORE: horizon}, details, overwrite=True)
    schema = base_file_schema(plan.columns)

    def attempt() -> bool:
        archive = load(lake, table, "archive")
        return create(lake, table, "archive", schema, commit) if archive is None else archive.append(commit, schema)

    retried(attempt, f"archiving {table}")


def _set_property(lake: Lake, table: str, name: str, value: int) -> None:
    def attempt() -> bool:
        deltas_table = loaded(lake, table)
        current = refused_before(deltas_table) if name == REFUSE_PROPERTY else horizon_of(deltas_table)
        if current is not None and current >= value:
            return True
        return deltas_table.set_properties({name: str(value)}, {"operation": "retention"})

    retried(attempt, f"setting the horizon of {table}")


def _remove_old_files(lake: Lake, table: str, horizon: int) -> int:
    removed: list[str] = []

    def attempt() -> bool:
        deltas_table = loaded(lake, table)
        files = deltas_table.files()
        removed[:] = [file.path for file in files if file.max_hlc is not None and file.max_hlc < horizon]
        if not removed:
            return True
        return deltas_table.append(Commit((), removed, {}, {"operation": "retention"}))

    retried(attempt, f"removing old deltas of {table}")
    return len(removed)

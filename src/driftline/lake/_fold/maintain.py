"""Move the retention horizon: archive the state below it, then let the deltas below it go.

Stages: refuse older deltas, compact (so that nothing below the horizon is unfolded), archive the state just before
the horizon, set the horizon, remove delta files that lie wholly below it. Each can be repeated after a kill.
"""

from __future__ import annotations

from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError

from driftline.core._progress import Tracker
from driftline.deltas._deltas import make_hlc, physical_ms
from driftline.errors import LakeError, OptionError
from driftline.lake.columns import base_file_schema
from driftline.lake.compacting import Engine, WriteSnapshot, collect_changes, compact
from driftline.lake.delta_tables import Commit, append, create, files_of, load, loaded, retried
from driftline.lake.layout import Lake
from driftline.lake.local_engine import run_locally
from driftline.lake.planning import FoldPlan, plan_fold
from driftline.lake.retention import ARCHIVED_BEFORE, HORIZON_PROPERTY, REFUSE_PROPERTY, horizon_of, refused_before
from driftline.lake.snapshots import newest_snapshot


def set_horizon(
    lake: Lake, table: str, horizon: int, *, engine: Engine = run_locally, tracker: Tracker | None = None
) -> int:
    """Keep deltas from `horizon` on; how many delta files went away."""
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
    retried(lambda: _try_archive(plan, commit), f"archiving {table}")


def _try_archive(plan: FoldPlan, commit: Commit) -> bool:
    schema = base_file_schema(plan.columns)
    archive = load(plan.lake, plan.table, "archive")
    if archive is None:
        return create(plan.lake, plan.table, "archive", schema, commit)
    return append(archive, commit, schema)


def _set_property(lake: Lake, table: str, name: str, value: int) -> None:
    def attempt() -> bool:
        deltas_table = loaded(lake, table)
        current = refused_before(deltas_table) if name == REFUSE_PROPERTY else horizon_of(deltas_table)
        if current is not None and current >= value:
            return True
        note = CommitProperties(custom_metadata={"driftline": {"operation": "retention"}})
        try:
            deltas_table.alter.set_table_properties(
                {name: str(value)}, raise_if_not_exists=False, commit_properties=note
            )
        except CommitFailedError:
            return False
        return True

    retried(attempt, f"setting the horizon of {table}")


def _remove_old_files(lake: Lake, table: str, horizon: int) -> int:
    removed: list[str] = []

    def attempt() -> bool:
        deltas_table = loaded(lake, table)
        files = files_of(deltas_table)
        removed[:] = [file.path for file in files if file.max_hlc is not None and file.max_hlc < horizon]
        if not removed:
            return True
        return append(deltas_table, Commit((), removed, {}, {"operation": "retention"}))

    retried(attempt, f"removing old deltas of {table}")
    return len(removed)

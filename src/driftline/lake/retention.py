"""Retention: the horizon below which deltas are refused, and the archived base that replay then starts from."""

from __future__ import annotations

from deltalake import DeltaTable

from driftline.errors import LakeError
from driftline.lake.delta_tables import commit_entries, files_of, load
from driftline.lake.layout import Lake
from driftline.lake.parquet_files import DataFile

HORIZON_PROPERTY = "driftline.horizon"  # deltas below it are archived
REFUSE_PROPERTY = "driftline.refuse-before"  # set first, so that nothing slips in while the archive is made
ARCHIVED_BEFORE = "archive"  # application transaction of `archive`: the horizon it was made for


def horizon_of(deltas_table: DeltaTable | None) -> int | None:
    """The hlc from which deltas are kept, or None if all are."""
    return _number(deltas_table, HORIZON_PROPERTY)


def refused_before(deltas_table: DeltaTable | None) -> int | None:
    """The hlc below which new deltas are refused, or None."""
    return _number(deltas_table, REFUSE_PROPERTY)


def archive_files(lake: Lake, table: str, horizon: int | None) -> list[DataFile]:
    """The archived base for a horizon; none without a horizon."""
    if horizon is None:
        return []
    newest = load(lake, table, "archive")
    for version in range(newest.version() if newest else -1, -1, -1):
        if _archived_before(lake, table, version) == horizon:
            archive = load(lake, table, "archive", version)
            if archive is not None:
                return files_of(archive)
    raise LakeError(f"the archived base of table {table!r} for horizon {horizon} is missing", code="missing_archive")


def check_horizon(table: str, as_of: int | None, horizon: int | None) -> None:
    """Refuse to travel to a timestamp before the horizon: its deltas are gone."""
    if as_of is not None and horizon is not None and as_of < horizon - 1:
        raise LakeError(
            f"table {table!r} keeps history from {horizon} on; {as_of} is before that",
            code="TOO_OLD",
            table=table,
            horizon=str(horizon),
        )


def too_old(table: str, hlc: int, horizon: int, index: int) -> LakeError:
    """The error for a delta below the horizon."""
    return LakeError(
        f"delta {index} of table {table!r} has hlc {hlc}, before the retention horizon {horizon}",
        code="TOO_OLD",
        table=table,
        index=index,
    )


def _archived_before(lake: Lake, table: str, version: int) -> int | None:
    for entry in commit_entries(lake, table, "archive", version) or []:
        if entry.get("txn", {}).get("appId") == ARCHIVED_BEFORE:
            return int(entry["txn"]["version"])
    return None


def _number(deltas_table: DeltaTable | None, name: str) -> int | None:
    if deltas_table is None:
        return None
    text = deltas_table.metadata().configuration.get(name)
    return None if text is None else int(text)

"""Vacuum: files that no kept version refers to, and envelopes whose deltas are in Parquet, go away.

A snapshot needs the versions of `deletes` that it pins, so these are kept with it, whatever their age.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from deltalake import DeltaTable

from driftline.lake.delta_tables import load, transaction_version
from driftline.lake.envelopes import envelope_paths, maker_of, origin_of
from driftline.lake.flushing import envelope_transaction, log_transaction
from driftline.lake.generations import last_versions
from driftline.lake.layout import Lake, Part, relative
from driftline.lake.snapshots import pins_of

DEFAULT_HOURS = 168


def vacuum(lake: Lake, table: str, *, hours: int = DEFAULT_HOURS, dry_run: bool = False) -> list[str]:
    """Remove what is older than `hours` and not needed; the paths, relative to the lake.

    Snapshots younger than that, and always the newest, stay readable.
    """
    lake.table_name(table)
    base_versions, deletes_versions = _kept_versions(lake, table, hours)
    kept: dict[Part, list[int]] = {"base": base_versions, "deletes": deletes_versions, "archive": [], "state": []}
    kept["deltas"] = sorted(last_versions(lake, table).values())  # earlier generations stay readable
    gone: list[str] = []
    for part, versions in kept.items():
        delta_table = load(lake, table, part)
        if delta_table is not None:
            gone += [relative(table, part, path) for path in _vacuum(delta_table, versions, hours, dry_run)]
    return sorted(gone + _flushed_envelopes(lake, table, hours, dry_run))


def _vacuum(delta_table: DeltaTable, versions: list[int], hours: int, dry_run: bool) -> list[str]:
    paths: list[str] = delta_table.vacuum(
        retention_hours=hours,
        dry_run=dry_run,
        enforce_retention_duration=False,
        full=True,
        keep_versions=versions or [delta_table.version()],
    )
    return paths


def _kept_versions(lake: Lake, table: str, hours: int) -> tuple[list[int], list[int]]:
    base_table = load(lake, table, "base")
    if base_table is None:
        return [], []
    cutoff = (datetime.now(UTC) - timedelta(hours=hours)).timestamp() * 1000
    young = [entry["version"] for entry in base_table.history() if entry.get("timestamp", 0) >= cutoff]
    base_versions = sorted({*young, base_table.version()})
    pins = [pins_of(load(lake, table, "base", version)) for version in base_versions]
    return base_versions, sorted({pin[1] for pin in pins if pin is not None})


def _flushed_envelopes(lake: Lake, table: str, hours: int, dry_run: bool) -> list[str]:
    cutoff = datetime.now(UTC) - timedelta(hours=hours)
    gone = []
    names = envelope_paths(lake, table)
    deltas_table = load(lake, table, "deltas") if names else None
    for name in names:
        path = relative(table, "envelopes", name)
        changed = lake.files().get_file_info(path).mtime
        if changed is not None and changed < cutoff and _is_needless(deltas_table, name):
            gone.append(path)
            if not dry_run:
                lake.files().delete_file(path)
    return gone


def _is_needless(deltas_table: DeltaTable | None, name: str) -> bool:
    """An envelope is a decision: it may go once its deltas are in Parquet and no flush can ask for it again."""
    marked = [transaction_version(deltas_table, envelope_transaction(each)) for each in (name, *origin_of(name))]
    if None in marked:
        return False
    maker = maker_of(name)
    return maker is None or (transaction_version(deltas_table, log_transaction(maker[0])) or 0) >= maker[1]

"""Generations of a table: a new one begins empty and may have other types; the ones before it stay readable.

A generation is one commit to the deltas table that takes all files out and sets the columns; Delta's versions keep what
was there. Snapshots of an earlier generation are known by the number that their commit pins (deltas-and-lake §13).
"""

from __future__ import annotations

from collections.abc import Sequence

from deltalake import DeltaTable

from driftline.core._json import JsonObject
from driftline.deltas import ColumnSchema
from driftline.errors import LakeError
from driftline.lake.columns import delta_file_schema
from driftline.lake.delta_tables import Commit, append, commit_entries, load, retried, transaction_version
from driftline.lake.layout import Lake

APPLICATION = "generation"
FIRST = 1


def generation_of(delta_table: DeltaTable | None) -> int:
    """The generation that a loaded Delta table belongs to."""
    return transaction_version(delta_table, APPLICATION) or FIRST


def start_generation(lake: Lake, table: str, columns: Sequence[ColumnSchema]) -> int:
    """Begin a new generation with these columns; its number. A table that was never filled just stays."""
    number = FIRST

    def attempt() -> bool:
        nonlocal number
        deltas_table = load(lake, table, "deltas")
        if deltas_table is None:
            return True
        number = generation_of(deltas_table) + 1
        details = {"operation": APPLICATION, "generation": number}
        commit = Commit(transactions={APPLICATION: number}, metadata=details, overwrite=True)
        return append(deltas_table, commit, delta_file_schema(columns))

    retried(attempt, f"starting a generation of {table}")
    return number


def last_versions(lake: Lake, table: str) -> dict[int, int]:
    """The last version of `deltas` in each generation, as far as the log tells; the newest one is the current."""
    deltas_table = load(lake, table, "deltas")
    if deltas_table is None:
        return {}
    ends = {generation_of(deltas_table): int(deltas_table.version())}
    if generation_of(deltas_table) == FIRST:
        return ends
    for version in range(deltas_table.version(), 0, -1):
        begun = _begun_by(commit_entries(lake, table, "deltas", version) or [])
        if begun is not None:
            ends[begun - 1] = version - 1
    return ends


def version_of_generation(lake: Lake, table: str, number: int) -> int:
    """The version of `deltas` that a generation ended with."""
    ends = last_versions(lake, lake.table_name(table))
    if number not in ends:
        known = ", ".join(map(str, sorted(ends))) or "none"
        raise LakeError(f"table {table!r} has no generation {number} (there is {known})", code="unknown_generation")
    return ends[number]


def _begun_by(entries: Sequence[JsonObject]) -> int | None:
    found = (entry["txn"]["version"] for entry in entries if entry.get("txn", {}).get("appId") == APPLICATION)
    return next(found, None)

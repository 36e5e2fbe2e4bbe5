"""The logs that flush into a lake: claims of gateways' names, positions, and files of other writers.

The Delta table `gateways` says which log owns which gateway's name (deltas-and-lake §4): one row a gateway, with the
ids of earlier owners. Every claim increments the transaction `claim:{gateway}`, so that of two claims at once one
fails. The position of a log is in the transactions of the tables' commits, and in the names of envelopes where a table
has no schema yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from driftline.core import JsonObject
from driftline.deltas import ColumnSchema, RowDelta, check_gateway_id
from driftline.errors import LakeError
from driftline.lake._store.envelopes import envelope_paths, last_sequence, maker_of, read_envelope
from driftline.lake._store.flush import arrival_transaction, log_transaction
from driftline.lake._store.lake import Lake, attempt_token, is_written_by, relative
from driftline.lake._store.parquet import DataFile, read_batches, read_file, write_file
from driftline.lake._store.rows import decode_deltas, delta_file_schema
from driftline.lake._store.schemas import every_column, horizon_of
from driftline.lake._store.tables import (
    Commit,
    StoredTable,
    append,
    commits_of,
    create_at,
    files_of,
    load,
    load_at,
    loaded,
    retried,
    transaction_version,
)

CLAIMS = "gateways"
NOT_INSPECTED = -1  # the version of a table of which nothing is known yet

_SCHEMA = pa.schema(
    [
        pa.field("gateway", pa.string(), nullable=False),
        pa.field("log_id", pa.string(), nullable=False),
        pa.field("was", pa.list_(pa.string()), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class LogClaim:
    """The log that owns a gateway's name, and the ids of those before it, newest first."""

    log_id: str
    was: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Every log that ever owned the name, newest first."""
        return self.log_id, *self.was


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The greatest sequence of a log in the lake; the arrival of that record, where a commit has it."""

    sequence: int
    arrival: int | None


def claim_of(lake: Lake, gateway: str) -> LogClaim | None:
    """The claim on a gateway's name, or None."""
    row = _row(lake, load_at(lake, CLAIMS), gateway)
    return None if row is None else LogClaim(row["log_id"], tuple(row["was"]))


def take_claim(lake: Lake, gateway: str, claim: LogClaim, before: LogClaim | None) -> bool:
    """Replace the claim `before`; False if the lake has another one by now."""
    check_gateway_id(gateway)
    taken = False

    def attempt() -> bool:
        nonlocal taken
        table = load_at(lake, CLAIMS)
        if table is None:
            create_at(lake, CLAIMS, CLAIMS, _SCHEMA, Commit(metadata={"operation": "claims"}))
            return False
        if claim_of(lake, gateway) == claim:
            taken = True
            return True
        if claim_of(lake, gateway) != before:
            return True
        taken = _commit(lake, table, gateway, claim)
        return taken

    retried(attempt, f"claiming gateway {gateway}")
    # The newest row is the claim: another log may have made its own right after this one.
    return taken and claim_of(lake, gateway) == claim


def log_position(lake: Lake, log_id: str) -> LogPosition | None:
    """The position of a log, over all tables."""
    marks = [mark for table in lake.tables() for mark in _table_marks(lake, table, log_id)]
    return max(marks, key=lambda mark: (mark.sequence, mark.arrival or 0), default=None)


def unnamed_sequence(lake: Lake, gateway: str) -> int | None:
    """The greatest sequence of a log of the first version, which the lake has by the gateway's name alone."""
    found: list[int] = []
    for table in lake.tables():
        in_parquet = transaction_version(load(lake, table, "deltas"), f"flush:{gateway}")
        found += [number for number in (in_parquet, last_sequence(lake, table, gateway)) if number is not None]
    return max(found, default=None)


def _table_marks(lake: Lake, table: str, log_id: str) -> list[LogPosition]:
    deltas_table = load(lake, table, "deltas")
    committed = transaction_version(deltas_table, log_transaction(log_id))
    arrival = transaction_version(deltas_table, arrival_transaction(log_id))
    marks = [] if committed is None else [LogPosition(committed, arrival)]
    makers = (maker_of(name) for name in envelope_paths(lake, table))
    return [*marks, *(LogPosition(maker[1], None) for maker in makers if maker is not None and maker[0] == log_id)]


def _commit(lake: Lake, table: StoredTable, gateway: str, claim: LogClaim) -> bool:
    number = (transaction_version(table, f"claim:{gateway}") or 0) + 1
    row = {"gateway": gateway, "log_id": claim.log_id, "was": list(claim.was), "number": number}
    name = f"{gateway}-{number}-{attempt_token()}.parquet"
    file = write_file(lake, CLAIMS, name, pa.Table.from_pylist([row], schema=_SCHEMA))
    earlier = [file.path for file in files_of(table) if _gateway_of(file) == gateway]
    details = {"operation": "claim", "gateway": gateway, "log": claim.log_id}
    return append(table, Commit([file], earlier, {f"claim:{gateway}": number}, details))


def _row(lake: Lake, table: StoredTable | None, gateway: str) -> JsonObject | None:
    files = [] if table is None else [file for file in files_of(table) if _gateway_of(file) == gateway]
    rows = [row for file in files for row in read_file(lake, f"{CLAIMS}/{file.path}", _SCHEMA).to_pylist()]
    return max(rows, key=lambda row: (row["number"], row["log_id"]), default=None)


def _gateway_of(file: DataFile) -> str:
    return file.path.rsplit("-", 2)[0]


# Deltas of other writers: the files that reached a table since a version, and not from one log.


@dataclass(frozen=True, slots=True)
class ForeignFiles:
    """Paths relative to the lake, and the version and envelopes that were inspected."""

    version: int
    envelopes: list[str]
    files: list[str]
    archived_below: int | None = None  # deltas up to this timestamp are only in the archived base


def foreign_files(lake: Lake, table: str, version: int, envelopes: set[str], log_id: str) -> ForeignFiles:
    """Delta files committed after a version and envelopes not inspected yet, without those that this log wrote."""
    names = envelope_paths(lake, table)
    new = [relative(table, "envelopes", name) for name in names if name not in envelopes]
    deltas_table = load(lake, table, "deltas")
    if deltas_table is None:
        return ForeignFiles(version, names, _not_of(log_id, new))
    latest = deltas_table.version()
    paths = _added_since(lake, table, version, latest, log_id)
    if paths is None:  # the first inspection, a cleaned-up log, or a lake that was set back
        paths = [file.path for file in files_of(deltas_table)]
    horizon = horizon_of(deltas_table)
    files = [relative(table, "deltas", path) for path in paths]
    return ForeignFiles(latest, names, _not_of(log_id, files + new), None if horizon is None else horizon - 1)


def deltas_in(lake: Lake, table: str, path: str) -> Iterator[RowDelta]:
    """The deltas of a file that `foreign_files` named; where it was merged into others, those of all files."""
    if path.endswith(".json"):
        yield from read_envelope(lake, table, path.removeprefix(relative(table, "envelopes") + "/")).deltas
        return
    deltas_table = loaded(lake, table)
    columns = every_column(deltas_table)
    try:
        yield from _decoded(lake, table, path, columns)
    except LakeError as error:
        if error.code != "missing_file":
            raise
        for file in files_of(deltas_table):
            yield from _decoded(lake, table, relative(table, "deltas", file.path), columns)


def _decoded(lake: Lake, table: str, path: str, columns: Sequence[ColumnSchema]) -> Iterator[RowDelta]:
    for batch in read_batches(lake, path, delta_file_schema(columns)):
        yield from decode_deltas(batch, table, columns)


def _added_since(lake: Lake, table: str, version: int, latest: int, log_id: str) -> list[str] | None:
    """The files of the commits after a version, None where the table's log does not have them any more."""
    if version == NOT_INSPECTED or version > latest:
        return None
    paths: list[Sequence[str]] = []
    for entry in commits_of(lake, table, "deltas", latest):
        if entry is None:
            return None
        if entry.version == version:
            break
        if log_transaction(log_id) not in entry.transactions:
            paths.append(entry.new_data)
    return [path for added in reversed(paths) for path in added]


def _not_of(log_id: str, paths: list[str]) -> list[str]:
    return [path for path in paths if not is_written_by(path, log_id)]

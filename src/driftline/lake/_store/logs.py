"""What a lake knows of the logs that flush into it (deltas-and-lake §4).

The Delta table `gateways` says which log speaks for which gateway: one row a gateway, with the ids of the logs that
spoke for it before. Every claim counts the transaction `claim:{gateway}` on, so that of two claims at once one fails.
How far a log has come is in the transactions of the tables' commits, and in the names of envelopes where a table has no
schema yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from driftline.core._json import JsonObject
from driftline.deltas._deltas import check_gateway_id
from driftline.lake.delta_tables import (
    Commit,
    append,
    create_at,
    files_of,
    load,
    load_at,
    retried,
    transaction_version,
)
from driftline.lake.envelopes import envelope_paths, last_sequence, maker_of
from driftline.lake.flushing import arrival_transaction, log_transaction
from driftline.lake.layout import Lake, attempt_token
from driftline.lake.parquet_files import DataFile, read_file, write_file

CLAIMS = "gateways"

_SCHEMA = pa.schema(
    [
        pa.field("gateway", pa.string(), nullable=False),
        pa.field("log_id", pa.string(), nullable=False),
        pa.field("was", pa.list_(pa.string()), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Claim:
    """The log that speaks for a gateway, and the ids of those before it, newest first."""

    log_id: str
    was: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Every log that ever spoke for the gateway, newest first."""
        return self.log_id, *self.was


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The greatest sequence of a log that the lake holds; the arrival of that record, where a commit carries it."""

    sequence: int
    arrival: int | None


def claim_of(lake: Lake, gateway: str) -> Claim | None:
    """The claim on a gateway's name, or None if nobody made one."""
    row = _row(lake, load_at(lake, CLAIMS), gateway)
    return None if row is None else Claim(row["log_id"], tuple(row["was"]))


def take_claim(lake: Lake, gateway: str, claim: Claim, before: Claim | None) -> bool:
    """Replace a claim by another one; False if that other one is not there any more."""
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
    # The newest row is the claim: a rival may have made its own right after this one.
    return taken and claim_of(lake, gateway) == claim


def log_position(lake: Lake, log_id: str) -> LogPosition | None:
    """How far a log has come, over all tables."""
    marks = [mark for table in lake.tables() for mark in _table_marks(lake, table, log_id)]
    return max(marks, key=lambda mark: (mark.sequence, mark.arrival or 0), default=None)


def unnamed_sequence(lake: Lake, gateway: str) -> int | None:
    """The greatest sequence that a log of the first version flushed: the lake knew it by its gateway's name alone."""
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


def _commit(lake: Lake, table: DeltaTable, gateway: str, claim: Claim) -> bool:
    number = (transaction_version(table, f"claim:{gateway}") or 0) + 1
    row = {"gateway": gateway, "log_id": claim.log_id, "was": list(claim.was), "number": number}
    name = f"{gateway}-{number}-{attempt_token()}.parquet"
    file = write_file(lake, CLAIMS, name, pa.Table.from_pylist([row], schema=_SCHEMA))
    earlier = [file.path for file in files_of(table) if _gateway_of(file) == gateway]
    details = {"operation": "claim", "gateway": gateway, "log": claim.log_id}
    return append(table, Commit([file], earlier, {f"claim:{gateway}": number}, details))


def _row(lake: Lake, table: DeltaTable | None, gateway: str) -> JsonObject | None:
    files = [] if table is None else [file for file in files_of(table) if _gateway_of(file) == gateway]
    rows = [row for file in files for row in read_file(lake, f"{CLAIMS}/{file.path}", _SCHEMA).to_pylist()]
    return max(rows, key=lambda row: (row["number"], row["log_id"]), default=None)


def _gateway_of(file: DataFile) -> str:
    return file.path.rsplit("-", 2)[0]

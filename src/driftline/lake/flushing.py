"""Flush: deltas into the lake, exactly once for every gateway and sequence.

The application transaction `flush:{gateway}` carries the last log sequence; before every try the table is loaded
anew and the sequence compared, because a fresh handle would append a second time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from driftline.deltas import ColumnSchema, RowDelta
from driftline.deltas.names import check_column_names, check_gateway_id
from driftline.errors import DeltaError, DriftlineError, LakeError
from driftline.lake.delta_tables import Commit, append, load, retried, transaction_version
from driftline.lake.envelopes import (
    Envelope,
    envelope_paths,
    last_sequence,
    read_envelope,
    write_envelope,
    wrong_id,
)
from driftline.lake.layout import Lake, attempt_token, delta_file_name, relative
from driftline.lake.parquet_files import DataFile, write_file
from driftline.lake.registry import every_column, required, schema_of
from driftline.lake.retention import refused_before, too_old
from driftline.lake.rows import encode_deltas

_ROWS_PER_FILE = 500_000
_HEX_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FlushResult:
    """What a flush wrote: paths below the table, and how many deltas; nothing if it had been done before."""

    table: str
    deltas: int
    files: tuple[str, ...]
    format: str

    @property
    def was_done_before(self) -> bool:
        """Whether this sequence was already in the lake."""
        return not self.files


def flush(
    lake: Lake,
    table: str,
    deltas: Iterable[RowDelta],
    *,
    gateway_id: str,
    sequence: int,
    check_ids: bool = True,
) -> FlushResult:
    """Append one gateway's deltas of one table; `sequence` is the last log sequence among them.

    With a registered schema they become Parquet, without one a JSON envelope. A sequence that is already in the
    lake changes nothing.
    """
    batch = tuple(deltas)
    check_gateway_id(gateway_id)
    _check_batch(table, batch, check_ids)
    if not batch:
        return FlushResult(table, 0, (), "none")
    if schema_of(load(lake, table, "deltas")) is None:
        return _flush_envelope(lake, table, batch, gateway_id, sequence)
    return append_deltas(lake, table, batch, gateway_id, {f"flush:{gateway_id}": sequence})


def flushed_sequence(lake: Lake, table: str, gateway_id: str) -> int | None:
    """The last sequence of this gateway that the lake holds for a table, or None."""
    in_parquet = transaction_version(load(lake, table, "deltas"), f"flush:{gateway_id}")
    in_envelopes = last_sequence(lake, table, gateway_id)
    return max((number for number in (in_parquet, in_envelopes) if number is not None), default=None)


def flush_envelopes(lake: Lake, table: str) -> list[FlushResult]:
    """Turn the waiting envelopes of a table that has got a schema into Parquet, each exactly once."""
    required(lake, table)
    results: list[FlushResult] = []
    misfits: list[DriftlineError] = []
    for name in envelope_paths(lake, table):
        if is_flushed(lake, table, name):
            continue
        try:
            envelope = read_envelope(lake, table, name)
            if envelope.deltas:
                mark = {f"envelope:{name}": 1}
                results.append(append_deltas(lake, table, envelope.deltas, envelope.gateway_id, mark))
        except DriftlineError as error:  # one envelope that does not fit must not hold up the others
            misfits.append(type(error)(f"{name}: {error.message}", code=error.code, **error.context))
    if misfits:
        raise misfits[0]
    return results


def is_flushed(lake: Lake, table: str, envelope: str) -> bool:
    """Whether an envelope's deltas are in the deltas table."""
    return transaction_version(load(lake, table, "deltas"), f"envelope:{envelope}") is not None


def append_deltas(
    lake: Lake, table: str, batch: Sequence[RowDelta], gateway_id: str, transactions: dict[str, int]
) -> FlushResult:
    """Commit deltas to the deltas table unless its transactions say that it was done before."""
    written: list[DataFile] = []

    def attempt() -> bool:
        deltas_table = load(lake, table, "deltas")
        if deltas_table is None:
            raise LakeError(f"table {table!r} has no schema", code="no_schema", table=table)
        if _is_done(deltas_table, transactions):
            written.clear()
            return True
        _check_age(table, batch, refused_before(deltas_table))
        if not written:
            written.extend(write_delta_files(lake, table, batch, gateway_id, every_column(deltas_table)))
        details = {"operation": "flush", "gateway": gateway_id, "deltas": len(batch)}
        return append(deltas_table, Commit(adds=written, transactions=transactions, metadata=details))

    retried(attempt, f"flushing to {table}")
    files = tuple(file.path for file in written)
    return FlushResult(table, len(batch) if files else 0, files, "parquet")


def _flush_envelope(lake: Lake, table: str, batch: tuple[RowDelta, ...], gateway_id: str, sequence: int) -> FlushResult:
    done = last_sequence(lake, table, gateway_id)
    if done is not None and done >= sequence:
        return FlushResult(table, 0, (), "json")
    name = write_envelope(lake, table, Envelope(gateway_id, batch), sequence)
    return FlushResult(table, len(batch), (name,), "json")


def write_delta_files(
    lake: Lake, table: str, batch: Sequence[RowDelta], gateway_id: str, columns: Sequence[ColumnSchema]
) -> list[DataFile]:
    """Write deltas as files of bounded length that are still to be committed."""
    files = []
    for start in range(0, len(batch), _ROWS_PER_FILE):
        rows = batch[start : start + _ROWS_PER_FILE]
        hlcs = [delta.hlc for delta in rows]
        name = delta_file_name(gateway_id, min(hlcs), max(hlcs), attempt_token())
        files.append(write_file(lake, relative(table, "deltas"), name, encode_deltas(rows, columns)))
    return files


def _is_done(deltas_table: object, transactions: dict[str, int]) -> bool:
    for application, version in transactions.items():
        done = transaction_version(deltas_table, application)
        if done is not None and done >= version:
            return True
    return False


def _check_batch(table: str, batch: Sequence[RowDelta], check_ids: bool) -> None:
    for position, delta in enumerate(batch):
        if delta.table != table:
            raise DeltaError(f"delta {position} is of table {delta.table!r}, not {table!r}", index=position)
        check_column_names(tuple(entry.column for entry in delta.columns))
        if not (delta.has_own_id() if check_ids else _HEX_ID.fullmatch(delta.delta_id)):
            raise wrong_id(f"the batch for {table}", position, delta)


def _check_age(table: str, batch: Sequence[RowDelta], horizon: int | None) -> None:
    if horizon is None:
        return
    for position, delta in enumerate(batch):
        if delta.hlc < horizon:
            raise too_old(table, delta.hlc, horizon, position)

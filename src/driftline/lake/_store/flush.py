"""Flushes: deltas into the lake, exactly once, and the deltas that are pending in envelopes.

A log's range is flushed in three durable steps (deltas-and-lake §5): deltas that no schema accepts are written to an
envelope, created only if it is absent, so that a second try follows the decision of the first; the rest is committed as
Parquet together with the transactions `log:{log_id}` (the last sequence) and `log:{log_id}:arrival`; then the log notes
it. Before every try the table is loaded anew: a stale handle would append a second time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from driftline.core import JsonObject
from driftline.deltas import ColumnSchema, RowDelta, check_column_names, check_gateway_id
from driftline.errors import DeltaError, DriftlineError, LakeError
from driftline.lake._store import envelopes
from driftline.lake._store.lake import (
    Lake,
    attempt_token,
    delta_file_name,
    is_written_by,
    log_attempt,
    path_hlcs,
    relative,
)
from driftline.lake._store.parquet import DataFile, read_batches, read_file, write_file
from driftline.lake._store.rows import HLC, delta_file_schema, encode_deltas
from driftline.lake._store.schemas import every_column, refused_before, required_table, schema_of, too_old
from driftline.lake._store.stamps import id_prefixes
from driftline.lake._store.tables import Commit, StoredTable, load, loaded, retried, transaction_version

Identity = tuple[str, str]  # delta id and operation

# Every commit after a lookup of ids increments this transaction: of two lookups in the same version one commit fails,
# and looks up again.
CHECKED = "checked"

_ROWS_PER_FILE = 500_000
_HEX_ID = re.compile(r"[0-9a-f]{64}")
_ID_COLUMNS = pa.schema([field for field in delta_file_schema(()) if field.name in ("_op", HLC, "_delta_id")])


@dataclass(frozen=True, slots=True)
class FlushResult:
    """The result of a flush: paths below the table, and the number of deltas; none if it had been done before."""

    table: str
    deltas: int
    files: tuple[str, ...]
    format: str
    known: int = 0  # deltas that were in the lake already
    waiting: int = 0  # deltas that no schema accepts
    set_aside: int = 0  # deltas below the retention horizon

    @property
    def was_done_before(self) -> bool:
        """Whether this sequence was already in the lake."""
        return not self.files

    def to_dict(self) -> JsonObject:
        """The result as plain data."""
        counts = {"deltas": self.deltas, "known": self.known, "waiting": self.waiting, "setAside": self.set_aside}
        return {"table": self.table, **counts, "format": self.format, "files": list(self.files)}


@dataclass(frozen=True, slots=True)
class LogRange:
    """A range of a log's records: its last sequence, and the arrival of that record."""

    gateway_id: str
    log_id: str
    target: int
    arrival: int

    @property
    def transactions(self) -> dict[str, int]:
        """The application transactions of its commit."""
        return {log_transaction(self.log_id): self.target, arrival_transaction(self.log_id): self.arrival}

    def is_in(self, deltas_table: StoredTable | None) -> bool:
        """Whether the table has the range; records of another log with the same id are an error."""
        sequence, arrival = (transaction_version(deltas_table, name) for name in self.transactions)
        if sequence is None or sequence < self.target:
            return False
        if (sequence, arrival) != (self.target, self.arrival):
            raise LakeError(f"the lake holds sequence {sequence} of this log already", code="log_set_back")
        return True


def log_transaction(log_id: str) -> str:
    """The application transaction with a log's last sequence."""
    return f"log:{log_id}"


def arrival_transaction(log_id: str) -> str:
    """The application transaction with the arrival of that record."""
    return f"log:{log_id}:arrival"


def flush(
    lake: Lake, table: str, deltas: Iterable[RowDelta], *, gateway_id: str, sequence: int, check_ids: bool = True
) -> FlushResult:
    """Append deltas of one table under a counter of the caller; a sequence that is in the lake changes nothing.

    With a registered schema they become Parquet, without one a JSON envelope.
    """
    batch = tuple(deltas)
    check_gateway_id(gateway_id)
    _check_batch(table, batch, check_ids)
    unknown(f"the batch for {table}", batch, set())  # refuses an id with two operations
    if not batch:
        return FlushResult(table, 0, (), "none")
    if schema_of(load(lake, table, "deltas")) is not None:
        return append_deltas(lake, table, batch, gateway_id, {f"flush:{gateway_id}": sequence})
    done = envelopes.last_sequence(lake, table, gateway_id)
    if done is not None and done >= sequence:
        return FlushResult(table, 0, (), "json")
    name = envelopes.create_envelope(lake, table, envelopes.Envelope(gateway_id, batch), f"s{sequence}")
    return FlushResult(table, len(batch), (name,), "json")


def flush_range(lake: Lake, table: str, deltas: Sequence[RowDelta], log_range: LogRange) -> FlushResult:
    """Flush one table's deltas of a log's range, once, however often it is called for this range."""
    _check_batch(table, deltas, check_ids=False)
    gateway_id, log_id = log_range.gateway_id, log_range.log_id
    suffix = envelopes.log_suffix(log_id, log_range.target)
    result = FlushResult(table, 0, (), "none")

    def attempt() -> bool:
        nonlocal result
        deltas_table = load(lake, table, "deltas")
        if log_range.is_in(deltas_table):
            return True
        fresh = without(deltas, existing_ids(lake, table, deltas_table, log_id=log_id).known(deltas))
        late, timely = set_aside(lake, table, fresh, deltas_table, gateway_id, suffix)
        rest = without(timely, _held(lake, table, timely, deltas_table, gateway_id, suffix))
        result = FlushResult(
            table, len(timely), (), "json", len(deltas) - len(fresh), len(timely) - len(rest), len(late)
        )
        if deltas_table is None or schema_of(deltas_table) is None:
            return True
        # Also without files: the transactions mark this range as done.
        files = _committed(lake, table, deltas_table, rest, gateway_id, log_range.transactions, log_id)
        result = replace(result, files=files or (), format="parquet")
        return files is not None

    retried(attempt, f"flushing to {table}")
    return result


def flush_content(
    lake: Lake, table: str, deltas: Sequence[RowDelta], gateway_id: str, transaction: str, suffix: str
) -> FlushResult:
    """Flush deltas that may be in the lake already; a table without a schema gets them as an envelope."""
    _check_batch(table, deltas, check_ids=False)
    if schema_of(load(lake, table, "deltas")) is not None:
        return append_deltas(lake, table, deltas, gateway_id, {transaction: 1}, looks_up=True)
    fresh = unknown(f"the batch for {table}", deltas, existing_ids(lake, table, None).known(deltas))
    known = len(deltas) - len(fresh)
    if not fresh:
        return FlushResult(table, 0, (), "json", known)
    name = envelopes.create_envelope(lake, table, envelopes.Envelope(gateway_id, tuple(fresh)), suffix)
    return FlushResult(table, len(fresh), (name,), "json", known)


def flush_envelopes(lake: Lake, table: str) -> list[FlushResult]:
    """Convert the deltas of pending envelopes that fit into Parquet, each envelope exactly once."""
    deltas_table, _ = required_table(lake, table)
    results: list[FlushResult] = []
    damaged: list[DriftlineError] = []
    for name in envelopes.waiting_envelopes(lake, table, deltas_table):
        try:
            result = _convert(lake, table, name)
        except DriftlineError as error:  # one unreadable envelope must not block the others
            damaged.append(error)
        else:
            results += [result] if result is not None else []
    if damaged:
        raise damaged[0]
    return results


def append_deltas(
    lake: Lake,
    table: str,
    batch: Sequence[RowDelta],
    gateway_id: str,
    transactions: dict[str, int],
    *,
    looks_up: bool = False,
) -> FlushResult:
    """Commit deltas unless the table's transactions show that it was done before.

    With `looks_up` those that the lake has already are left out.
    """
    result = FlushResult(table, 0, (), "parquet", known=len(batch) if looks_up else 0)

    def attempt() -> bool:
        nonlocal result
        deltas_table = loaded(lake, table)
        if is_done(deltas_table, transactions):
            return True
        fresh = batch
        if looks_up:
            fresh = unknown(f"the batch for {table}", batch, existing_ids(lake, table, deltas_table).known(batch))
        horizon = refused_before(deltas_table)
        for position, delta in enumerate(fresh):
            if horizon is not None and delta.hlc < horizon:
                raise too_old(table, delta.hlc, horizon, position)
        if not fresh:
            return True
        files = _committed(lake, table, deltas_table, fresh, gateway_id, transactions, looks_up=looks_up)
        if files is not None:
            result = FlushResult(table, len(fresh), files, "parquet", len(batch) - len(fresh))
        return files is not None

    retried(attempt, f"flushing to {table}")
    return result


def _committed(
    lake: Lake,
    table: str,
    deltas_table: StoredTable,
    deltas: Sequence[RowDelta],
    gateway_id: str,
    transactions: Mapping[str, int],
    log_id: str | None = None,
    *,
    looks_up: bool = True,
    **details: str,
) -> tuple[str, ...] | None:
    """Write deltas and commit them; the paths of their files, None after a conflict."""
    files = write_delta_files(lake, table, deltas, gateway_id, every_column(deltas_table), log_id)
    metadata = {"operation": "flush", "gateway": gateway_id, "deltas": len(deltas), **details}
    marks = {**transactions, **(checked(deltas_table) if looks_up else {})}
    return tuple(file.path for file in files) if deltas_table.append(Commit(files, (), marks, metadata)) else None


def checked(deltas_table: StoredTable | None) -> dict[str, int]:
    """The transaction of a commit after a lookup of ids in this version of the table."""
    return {CHECKED: (transaction_version(deltas_table, CHECKED) or 0) + 1}


def fits(delta: RowDelta, columns: Mapping[str, ColumnSchema]) -> bool:
    """Whether a delta fits the table's files: every column known, every value of its type."""
    return all(entry.column in columns and columns[entry.column].accepts(entry.value) for entry in delta.columns)


def columns_by_name(deltas_table: StoredTable) -> dict[str, ColumnSchema]:
    """Every column of the table's files."""
    return {column.name: column for column in every_column(deltas_table)}


def write_delta_files(
    lake: Lake,
    table: str,
    batch: Sequence[RowDelta],
    gateway_id: str,
    columns: Sequence[ColumnSchema],
    log_id: str | None = None,
) -> list[DataFile]:
    """Write deltas as files of bounded length, not committed yet."""
    files = []
    for start in range(0, len(batch), _ROWS_PER_FILE):
        rows = batch[start : start + _ROWS_PER_FILE]
        hlcs = [delta.hlc for delta in rows]
        attempt = attempt_token() if log_id is None else log_attempt(log_id)
        name = delta_file_name(gateway_id, min(hlcs), max(hlcs), attempt)
        files.append(write_file(lake, relative(table, "deltas"), name, encode_deltas(rows, columns)))
    return files


def _held(
    lake: Lake, table: str, deltas: Sequence[RowDelta], deltas_table: StoredTable | None, gateway_id: str, suffix: str
) -> set[Identity]:
    """The deltas in the envelope of a range: as an earlier try decided, or those that do not fit now."""
    name = envelopes.find_envelope(lake, table, suffix)
    if name is None:
        misfits = _misfits(deltas, deltas_table)
        if not misfits:
            return set()
        name = envelopes.create_envelope(lake, table, envelopes.Envelope(gateway_id, misfits), suffix)
    return {identity_of(delta) for delta in envelopes.read_envelope(lake, table, name).deltas}


def _misfits(deltas: Sequence[RowDelta], deltas_table: StoredTable | None) -> tuple[RowDelta, ...]:
    if deltas_table is None or schema_of(deltas_table) is None:
        return tuple(deltas)
    columns = columns_by_name(deltas_table)
    return tuple(delta for delta in deltas if not fits(delta, columns))


def set_aside(
    lake: Lake, table: str, deltas: Iterable[RowDelta], deltas_table: StoredTable | None, gateway_id: str, suffix: str
) -> tuple[list[RowDelta], list[RowDelta]]:
    """The deltas below the retention horizon, which could restore deleted rows, and the others.

    Late ones are stored in an envelope of their own; the horizon is part of its name, because it may move.
    """
    floor = refused_before(deltas_table)
    late: list[RowDelta] = []
    timely: list[RowDelta] = []
    for delta in deltas:
        (late if delta.hlc < (floor or 0) else timely).append(delta)
    if late:
        envelope = envelopes.Envelope(gateway_id, tuple(late))
        envelopes.create_envelope(lake, table, envelope, f"{suffix}-h{floor}", envelopes.SET_ASIDE)
    return late, timely


def _convert(lake: Lake, table: str, name: str) -> FlushResult | None:
    """Commit the deltas of an envelope that fit; None where none does. The others stay pending in another one."""
    envelope = envelopes.read_envelope(lake, table, name)
    transactions = {envelopes.envelope_transaction(name): 1}
    result: FlushResult | None = None

    def attempt() -> bool:
        nonlocal result
        deltas_table = loaded(lake, table)
        if is_done(deltas_table, transactions):
            return True
        floor = refused_before(deltas_table) or 0
        timely = [delta for delta in envelope.deltas if delta.hlc >= floor]
        rest = _rest_of(lake, table, name, envelopes.Envelope(envelope.gateway_id, tuple(timely)), deltas_table)
        if timely and len(rest) == len(timely):
            return True
        suffix = name.rpartition("/")[2].removesuffix(".json")
        late, _ = set_aside(lake, table, envelope.deltas, deltas_table, envelope.gateway_id, suffix)
        taken = without(timely, rest)
        fresh = without(taken, ExistingIds(lake, table, tuple(deltas_table.files())).known(taken))
        files = _committed(lake, table, deltas_table, fresh, envelope.gateway_id, transactions, envelope=name)
        counts = (len(taken) - len(fresh), len(rest), len(late))
        result = FlushResult(table, len(fresh), files or (), "parquet", *counts)
        return files is not None

    retried(attempt, f"flushing to {table}")
    return result


def _rest_of(
    lake: Lake, table: str, name: str, envelope: envelopes.Envelope, deltas_table: StoredTable
) -> set[Identity]:
    """The deltas of an envelope that stay pending: as an earlier try decided, or those that do not fit."""
    if not envelopes.exists(lake, table, envelopes.rest_of(name)):
        misfits = _misfits(envelope.deltas, deltas_table)
        if not misfits or len(misfits) == len(envelope.deltas):
            return {identity_of(delta) for delta in misfits}
        envelopes.create_rest(lake, table, name, envelopes.Envelope(envelope.gateway_id, misfits))
    return {identity_of(delta) for delta in envelopes.read_envelope(lake, table, envelopes.rest_of(name)).deltas}


def is_done(deltas_table: StoredTable | None, transactions: Mapping[str, int]) -> bool:
    """Whether there is a commit with one of these transactions."""
    done = ((transaction_version(deltas_table, application), version) for application, version in transactions.items())
    return any(last is not None and last >= version for last, version in done)


def _check_batch(table: str, batch: Sequence[RowDelta], check_ids: bool) -> None:
    for position, delta in enumerate(batch):
        if delta.table != table:
            raise DeltaError(f"delta {position} is of table {delta.table!r}, not {table!r}", index=position)
        check_column_names(tuple(entry.column for entry in delta.columns))
        if not (delta.has_own_id() if check_ids else _HEX_ID.fullmatch(delta.delta_id)):
            raise envelopes.wrong_id(f"the batch for {table}", position, delta)


# Existing ids: a delta that may be in the lake already is looked up by its id, which contains the timestamp, so only
# files with a range of timestamps around its own can have it. Files that the flushing log wrote are skipped: a log
# never takes an id twice.


@dataclass(frozen=True, slots=True)
class ExistingIds:
    """The files of a table in which ids are looked up; small, so that tasks on other machines can do it."""

    lake: Lake
    table: str
    files: tuple[DataFile, ...] = ()
    envelopes: tuple[str, ...] = ()

    def known(self, deltas: Sequence[RowDelta]) -> set[Identity]:
        """What the lake has under the ids of the deltas, which may also be another operation."""
        hlcs = sorted({delta.hlc for delta in deltas})
        requested = pa.array(sorted({delta.delta_id for delta in deltas}), pa.string())
        found: set[Identity] = set()
        for file in self.files:
            if _reaches_over(hlcs, file.min_hlc, file.max_hlc):
                for batch in read_batches(self.lake, relative(self.table, "deltas", file.path), _ID_COLUMNS):
                    rows = batch.filter(pc.is_in(batch["_delta_id"], value_set=requested))
                    found.update(zip(rows["_delta_id"].to_pylist(), rows["_op"].to_pylist(), strict=True))
        ids = {delta.delta_id for delta in deltas}
        for name in self.envelopes:
            if _reaches_over(hlcs, *(path_hlcs(name) or (None, None))):
                held = envelopes.read_envelope(self.lake, self.table, name).deltas
                found |= {identity_of(each) for each in held if each.delta_id in ids}
        return found


def existing_ids(lake: Lake, table: str, deltas_table: StoredTable | None, *, log_id: str | None = None) -> ExistingIds:
    """The files of a table in the lake, without those that this log wrote."""
    files = [] if deltas_table is None else deltas_table.files()
    names = envelopes.envelope_paths(lake, table)
    if log_id is not None:
        files = [file for file in files if not is_written_by(file.path, log_id)]
        names = [name for name in names if not is_written_by(name, log_id)]
    return ExistingIds(lake, table, tuple(files), tuple(names))


def repeated_rows(lake: Lake, table: str, files: Sequence[DataFile]) -> dict[str, list[int]]:
    """By file, the rows whose delta is in an earlier file already; an id with another operation is refused.

    The first 8 bytes of the ids select the deltas to compare: almost always none.
    """
    prefixes = [id_prefixes(_ids_of(lake, table, file)["_delta_id"].combine_chunks()) for file in files]
    values, counts = np.unique(np.concatenate([np.empty(0, np.int64), *prefixes]), return_counts=True)
    suspects = values[counts > 1]
    seen: dict[str, set[str]] = {}
    found: dict[str, list[int]] = {}
    for file, own in zip(files, prefixes, strict=True):
        rows = np.flatnonzero(np.isin(own, suspects)).tolist()
        ids = _ids_of(lake, table, file).take(pa.array(rows)).to_pylist() if rows else []
        for row, each in zip(rows, ids, strict=True):
            if _is_again(table, row, (each["_delta_id"], each["_op"]), seen):
                found.setdefault(file.path, []).append(row)
    return found


def _ids_of(lake: Lake, table: str, file: DataFile) -> pa.Table:
    return read_file(lake, relative(table, "deltas", file.path), _ID_COLUMNS)


def identity_of(delta: RowDelta) -> Identity:
    """The identity of a delta."""
    return delta.delta_id, delta.op


def unknown(name: str, deltas: Iterable[RowDelta], known: set[Identity]) -> list[RowDelta]:
    """The deltas that are not known, each once; a known id with another operation is refused.

    Deltas that a gateway has acknowledged are not refused, see `without`: the lake then stores both operations.
    """
    seen: dict[str, set[str]] = {}
    for delta_id, op in known:
        seen.setdefault(delta_id, set()).add(op)
    return [delta for position, delta in enumerate(deltas) if not _is_again(name, position, identity_of(delta), seen)]


def _is_again(name: str, position: int, identity: Identity, seen: dict[str, set[str]]) -> bool:
    """Whether a delta was seen before; it is added to those that were."""
    delta_id, op = identity
    ops = seen.get(delta_id)
    if ops is None:
        seen[delta_id] = {op}
        return False
    if op not in ops:
        raise envelopes.other_op(name, position, delta_id)
    return True


def without(deltas: Iterable[RowDelta], known: set[Identity]) -> list[RowDelta]:
    """The deltas that are not known, each once."""
    return list({identity_of(delta): delta for delta in deltas if identity_of(delta) not in known}.values())


def _reaches_over(hlcs: Sequence[int], low: int | None, high: int | None) -> bool:
    """Whether any of the sorted timestamps is within the bounds."""
    if low is None or high is None:
        return True
    index = bisect_left(hlcs, low)
    return index < len(hlcs) and hlcs[index] <= high


# Pending deltas in envelopes: readers fold what the schema accepts, the others are counted. An envelope becomes Parquet
# when a schema is registered or the table is compacted. A kill can happen in between, so readers never rely on it: a
# table's state has the deltas of its envelopes as soon as the schema accepts them.


@dataclass(frozen=True, slots=True)
class WaitingEnvelope:
    """A pending envelope: its name, the row ids of the deltas that a fold takes, and the number of the others."""

    name: str
    row_ids: tuple[str, ...]
    waiting: int


def envelopes_of(lake: Lake, table: str, deltas_table: StoredTable | None) -> tuple[WaitingEnvelope, ...]:
    """The pending envelopes of a table."""
    if deltas_table is None or schema_of(deltas_table) is None:
        return ()
    columns, floor = columns_by_name(deltas_table), refused_before(deltas_table)
    found = []
    for name in envelopes.waiting_envelopes(lake, table, deltas_table):
        deltas = envelopes.read_envelope(lake, table, name).deltas
        taken = _taken(deltas, columns, floor)
        late = sum(delta.hlc < (floor or 0) for delta in deltas)
        found.append(WaitingEnvelope(name, tuple(delta.row_id for delta in taken), len(deltas) - len(taken) - late))
    return tuple(found)


def read_taken(lake: Lake, table: str, name: str, columns: Sequence[ColumnSchema], floor: int | None) -> pa.Table:
    """The deltas of an envelope that a fold takes, as rows of a delta file."""
    by_name = {column.name: column for column in columns}
    return encode_deltas(_taken(envelopes.read_envelope(lake, table, name).deltas, by_name, floor), columns)


def count_waiting(lake: Lake, table: str) -> int:
    """The number of deltas that no schema accepts; without a schema every delta in an envelope."""
    deltas_table = load(lake, table, "deltas")
    if schema_of(deltas_table) is None:
        names = envelopes.waiting_envelopes(lake, table, deltas_table)
        return sum(len(envelopes.read_envelope(lake, table, name).deltas) for name in names)
    return sum(each.waiting for each in envelopes_of(lake, table, deltas_table))


def count_set_aside(lake: Lake, table: str) -> int:
    """The number of deltas below the retention horizon that are set aside."""
    names = envelopes.envelope_paths(lake, table, envelopes.SET_ASIDE)
    found = (envelopes.read_envelope(lake, table, name, envelopes.SET_ASIDE) for name in names)
    return len({delta.delta_id for envelope in found for delta in envelope.deltas})


def _taken(deltas: Sequence[RowDelta], columns: dict[str, ColumnSchema], floor: int | None) -> list[RowDelta]:
    return [delta for delta in deltas if delta.hlc >= (floor or 0) and fits(delta, columns)]

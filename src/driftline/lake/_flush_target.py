"""The lake for the flushes of a gateway: claims, positions, flushes, schemas, horizons, deltas of other writers.

The Delta table `gateways` says which log owns which gateway's name (deltas-and-lake §4): one row a gateway, with the
ids of earlier owners. Every claim increments the transaction `claim:{gateway}`, so that of two claims at once one
fails. The position of a log is in the transactions of the tables' commits, and in the names of envelopes where a table
has no schema yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from driftline.core import sha256_hex
from driftline.deltas import ColumnSchema, RowDelta, RowMerge, TableSchema, check_gateway_id
from driftline.errors import DriftlineError, LakeError
from driftline.lake._read.state import folded_rows, write_rows
from driftline.lake._store.envelopes import (
    envelope_paths,
    find_envelope,
    last_sequence,
    log_suffix,
    maker_of,
    read_envelope,
    waiting_envelopes,
)
from driftline.lake._store.flush import FlushResult, LogRange, arrival_transaction, flush_range, log_transaction
from driftline.lake._store.lake import Lake, Part, attempt_token, is_written_by, relative
from driftline.lake._store.parquet import DataFile, read_batches, read_file, write_file
from driftline.lake._store.rows import decode_deltas, delta_file_schema
from driftline.lake._store.schemas import every_column, horizon_of, refused_before, register, schema_of
from driftline.lake._store.tables import (
    Commit,
    StoredTable,
    commits_of,
    create_at,
    load,
    load_at,
    loaded,
    retried,
    transaction_version,
)

CLAIMS = "gateways"
NOT_INSPECTED = -1  # the version of a table of which nothing is known yet

Claim = tuple[str, ...]  # the id of the log that owns a gateway's name, and of those before it, newest first

_TYPES = {"gateway": pa.string(), "log_id": pa.string(), "was": pa.list_(pa.string()), "number": pa.int64()}
_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _TYPES.items()])


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The greatest sequence of a log in the lake; the arrival of that record, where a commit has it."""

    sequence: int
    arrival: int | None


@dataclass(frozen=True, slots=True)
class ForeignFiles:
    """Paths relative to the lake, and the version and envelopes that were inspected."""

    version: int
    envelopes: list[str]
    files: list[str]
    archived_below: int | None = None  # deltas up to this timestamp are only in the archived base
    sequence: int = 0  # the greatest one that the table has of the log


@contextmanager
def _lake_errors() -> Iterator[None]:
    """Turn every error of a file system, an object store or a library into a `LakeError`."""
    try:
        yield
    except DriftlineError:
        raise
    except Exception as error:
        raise LakeError(f"the lake cannot be used: {type(error).__name__}: {error}") from error


class FlushTarget:
    """Commits to the Delta tables of a lake."""

    def __init__(self, location: str) -> None:
        self.lake = Lake(location)

    # Claims and positions of logs.

    def claim(self, gateway: str) -> Claim | None:
        """The log that owns a gateway's name, and those before it."""
        table = load_at(self.lake, CLAIMS)
        files = [] if table is None else [file for file in table.files() if _gateway_of(file) == gateway]
        rows = [row for file in files for row in read_file(self.lake, f"{CLAIMS}/{file.path}", _SCHEMA).to_pylist()]
        newest = max(rows, key=lambda row: (row["number"], row["log_id"]), default=None)
        return None if newest is None else (newest["log_id"], *newest["was"])

    def take_claim(self, gateway: str, claim: Claim, before: Claim | None) -> bool:
        """Replace the claim `before`; False if the lake has another one by now."""
        check_gateway_id(gateway)

        def attempt() -> bool:
            table = load_at(self.lake, CLAIMS)
            if table is None:
                create_at(self.lake, CLAIMS, CLAIMS, _SCHEMA, Commit(metadata={"operation": "claims"}))
                return False
            found = self.claim(gateway)
            if found == claim or found != before:
                return True
            number = (transaction_version(table, f"claim:{gateway}") or 0) + 1
            row = {"gateway": gateway, "log_id": claim[0], "was": list(claim[1:]), "number": number}
            name = f"{gateway}-{number}-{attempt_token()}.parquet"
            file = write_file(self.lake, CLAIMS, name, pa.Table.from_pylist([row], schema=_SCHEMA))
            earlier = [file.path for file in table.files() if _gateway_of(file) == gateway]
            details = {"operation": "claim", "gateway": gateway, "log": claim[0]}
            return table.append(Commit([file], earlier, {f"claim:{gateway}": number}, details))

        retried(attempt, f"claiming gateway {gateway}")
        # The newest row is the claim: another log may have made its own right after this one.
        return self.claim(gateway) == claim

    def position(self, log_id: str) -> LogPosition | None:
        """The position of a log, over all tables."""
        tables = ((load(self.lake, table, "deltas"), envelope_paths(self.lake, table)) for table in self.lake.tables())
        found = (position for each in tables for position in _positions(*each, log_id))
        return max(found, key=lambda each: (each.sequence, each.arrival or 0), default=None)

    def unnamed_sequence(self, gateway: str) -> int | None:
        """The position of a log of the first version, which the lake has by the gateway's name alone."""
        found: list[int | None] = []
        for table in self.lake.tables():
            found.append(transaction_version(load(self.lake, table, "deltas"), f"flush:{gateway}"))
            found.append(last_sequence(self.lake, table, gateway))
        return max((number for number in found if number is not None), default=None)

    def enveloped(self, log_id: str, sequence: int) -> list[RowDelta]:
        """The deltas in a log's envelopes that end at a sequence."""
        suffix = log_suffix(log_id, sequence)
        names = ((table, find_envelope(self.lake, table, suffix)) for table in self.lake.tables())
        found = (read_envelope(self.lake, table, name).deltas for table, name in names if name is not None)
        return [delta for deltas in found for delta in deltas]

    # Flushes and facts of tables.

    def append(self, table: str, deltas: Sequence[RowDelta], log_range: LogRange) -> FlushResult:
        """Add one table's deltas of a range once, however often it is called for it."""
        return flush_range(self.lake, table, deltas, log_range)

    def register(self, schema: TableSchema) -> None:
        """Make the schema the table's current one, or refuse a change of a column's type."""
        register(self.lake, schema)

    def tables(self) -> list[str]:
        """The tables of the lake."""
        return self.lake.tables()

    def facts(self) -> dict[str, tuple[TableSchema | None, int | None]]:
        """By table, its schema and the hlc below which the lake refuses deltas."""
        tables = {table: load(self.lake, table, "deltas") for table in self.lake.tables()}
        return {table: (schema_of(deltas), refused_before(deltas)) for table, deltas in tables.items()}

    def versions(self) -> dict[str, int]:
        """The current version of every table's deltas, -1 where there are only envelopes."""
        tables = {table: load(self.lake, table, "deltas") for table in self.lake.tables()}
        return {table: -1 if deltas is None else deltas.version() for table, deltas in tables.items()}

    # Rows for snapshots.

    def enveloped_rows(self, table: str, version: int, log_id: str, flushed: int, made_ms: int) -> dict[str, RowMerge]:
        """The merged rows of the envelopes that were pending at a version of the deltas, with or without a schema.

        Of a log's own envelopes those up to a sequence count, of others those made before a time: later ones reach
        clients through the log.
        """
        found: dict[str, RowMerge] = {}
        for name, is_own in self._pending_at(table, version, log_id, flushed):
            envelope = read_envelope(self.lake, table, name)
            if is_own or envelope.made_ms < made_ms:
                for delta in envelope.deltas:
                    found.setdefault(delta.row_id, RowMerge()).add(delta)
        return found

    def pending_digest(self, table: str, version: int, log_id: str, flushed: int) -> str:
        """The digest of the names of those envelopes, as of now; empty where there are none."""
        names = "\n".join(name for name, _ in self._pending_at(table, version, log_id, flushed))
        return sha256_hex(names) if names else ""

    def is_current(self, path: str) -> bool:
        """Whether a file below the lake's root is part of its table as it is now, so that no vacuum has removed it."""
        _, table, part, *rest = path.split("/", 3)
        known: tuple[Part, ...] = ("deltas", "base", "deletes", "state")
        found = next((load(self.lake, table, each) for each in known if each == part), None)
        return found is not None and any(file.path == rest[0] for file in found.files())

    def write_rows(self, table: str, version: int, more: Mapping[str, RowMerge], target: Path) -> None:
        """Write a table's rows at a version, joined with further merged rows, for pages of a snapshot."""
        write_rows(self.lake, table, version, more, target)

    def folded_rows(self, table: str, version: int) -> list[tuple[str, RowMerge]]:
        """A table's rows at a version, with their stamps."""
        return list(folded_rows(self.lake, table, version))

    def _pending_at(self, table: str, version: int, log_id: str, flushed: int) -> Iterator[tuple[str, bool]]:
        """The envelopes that were pending at a version, and whether the log made them, then up to a sequence."""
        deltas_table = None if version < 0 else load(self.lake, table, "deltas", version)
        for name in waiting_envelopes(self.lake, table, deltas_table):
            maker, sequence = maker_of(name) or ("", 0)
            if maker != log_id or sequence <= flushed:
                yield name, maker == log_id

    # Deltas of other writers: the files that reached a table since a version, and not from one log.

    def foreign_files(self, table: str, version: int, envelopes: set[str], log_id: str) -> ForeignFiles:
        """Delta files committed after a version and envelopes not inspected yet, without those that this log wrote."""
        names = envelope_paths(self.lake, table)
        new = [relative(table, "envelopes", name) for name in names if name not in envelopes]
        deltas_table = load(self.lake, table, "deltas")
        sequence = max((each.sequence for each in _positions(deltas_table, names, log_id)), default=0)
        if deltas_table is None:
            foreign = [path for path in new if not is_written_by(path, log_id)]
            return ForeignFiles(version, names, foreign, sequence=sequence)
        latest, horizon = deltas_table.version(), horizon_of(deltas_table)
        paths = self._added_since(table, version, latest, log_id)
        if paths is None:  # the first inspection, a cleaned-up log, or a lake that was set back
            paths = [file.path for file in deltas_table.files()]
        files = [relative(table, "deltas", path) for path in paths] + new
        foreign = [path for path in files if not is_written_by(path, log_id)]
        return ForeignFiles(latest, names, foreign, None if horizon is None else horizon - 1, sequence)

    def deltas_in(self, table: str, path: str) -> Iterator[RowDelta]:
        """The deltas of a file that `foreign_files` named; where it was merged into others, those of all files."""
        with _lake_errors():
            if path.endswith(".json"):
                yield from read_envelope(self.lake, table, path.removeprefix(relative(table, "envelopes") + "/")).deltas
                return
            deltas_table = loaded(self.lake, table)
            columns = every_column(deltas_table)
            try:
                yield from self._decoded(table, path, columns)
            except LakeError as error:
                if error.code != "missing_file":
                    raise
                for file in deltas_table.files():
                    yield from self._decoded(table, relative(table, "deltas", file.path), columns)

    def _decoded(self, table: str, path: str, columns: Sequence[ColumnSchema]) -> Iterator[RowDelta]:
        for batch in read_batches(self.lake, path, delta_file_schema(columns)):
            yield from decode_deltas(batch, table, columns)

    def _added_since(self, table: str, version: int, latest: int, log_id: str) -> list[str] | None:
        """The files of the commits after a version, None where the table's log does not have them any more."""
        if version == NOT_INSPECTED or version > latest:
            return None
        paths: list[Sequence[str]] = []
        for entry in commits_of(self.lake, table, "deltas", latest):
            if entry is None:
                return None
            if entry.version == version:
                break
            if log_transaction(log_id) not in entry.transactions:
                paths.append(entry.new_data)
        return [path for added in reversed(paths) for path in added]


# Every public method raises the errors of a lake; the generator `deltas_in` does so by itself.
for _name, _method in list(vars(FlushTarget).items()):
    if not _name.startswith("_") and _name != "deltas_in":
        setattr(FlushTarget, _name, _lake_errors()(_method))


def _positions(deltas_table: StoredTable | None, envelopes: list[str], log_id: str) -> Iterator[LogPosition]:
    """The positions of a log that one table names."""
    committed = transaction_version(deltas_table, log_transaction(log_id))
    if committed is not None:
        yield LogPosition(committed, transaction_version(deltas_table, arrival_transaction(log_id)))
    for maker in map(maker_of, envelopes):
        if maker is not None and maker[0] == log_id:
            yield LogPosition(maker[1], None)


def _gateway_of(file: DataFile) -> str:
    return file.path.rsplit("-", 2)[0]

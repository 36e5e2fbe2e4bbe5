"""The lake for the flushes of a gateway: claims, positions, flushes, schemas, horizons, deltas of other writers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from driftline.deltas import RowDelta, RowMerge, TableSchema
from driftline.errors import DriftlineError, LakeError

if TYPE_CHECKING:
    from driftline.lake._store.flush import FlushResult, LogRange
    from driftline.lake._store.lake import Lake
    from driftline.lake._store.logs import ForeignFiles, LogClaim, LogPosition

# Imports are inside the methods: a gateway without a flush yet does not load the large libraries of the lake.


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What the gateway needs of a table to check pushes."""

    schema: TableSchema | None
    schema_version: int
    refused_before: int | None  # the hlc below which the lake refuses deltas


class FlushTarget:
    """Commits to the Delta tables of a lake."""

    def __init__(self, location: str) -> None:
        self._location = location

    @cached_property
    def lake(self) -> Lake:
        """The lake itself."""
        from driftline.lake._store.lake import Lake

        return Lake(self._location)

    def claim(self, gateway: str) -> LogClaim | None:
        """The log that owns a gateway's name."""
        from driftline.lake._store.logs import claim_of

        with _lake_errors():
            return claim_of(self.lake, gateway)

    def take_claim(self, gateway: str, claim: LogClaim, before: LogClaim | None) -> bool:
        """Replace the claim `before`; False if the lake has another one by now."""
        from driftline.lake._store.logs import take_claim

        with _lake_errors():
            return take_claim(self.lake, gateway, claim, before)

    def position(self, log_id: str) -> LogPosition | None:
        """The position of a log in the lake."""
        from driftline.lake._store.logs import log_position

        with _lake_errors():
            return log_position(self.lake, log_id)

    def unnamed_sequence(self, gateway: str) -> int | None:
        """The position of a log of the first version, which the lake has by the gateway's name."""
        from driftline.lake._store.logs import unnamed_sequence

        with _lake_errors():
            return unnamed_sequence(self.lake, gateway)

    def enveloped(self, log_id: str, sequence: int) -> list[RowDelta]:
        """The deltas in a log's envelopes that end at a sequence."""
        from driftline.lake._store.envelopes import find_envelope, log_suffix, read_envelope

        found: list[RowDelta] = []
        with _lake_errors():
            for table in self.lake.tables():
                name = find_envelope(self.lake, table, log_suffix(log_id, sequence))
                found += [] if name is None else read_envelope(self.lake, table, name).deltas
        return found

    def append(self, table: str, deltas: Sequence[RowDelta], log_range: LogRange) -> FlushResult:
        """Add one table's deltas of a range once, however often it is called for it."""
        from driftline.lake._store.flush import flush_range

        with _lake_errors():
            return flush_range(self.lake, table, deltas, log_range)

    def register(self, schema: TableSchema) -> None:
        """Make the schema the table's current one, or refuse a change of a column's type."""
        from driftline.lake._store.schemas import register

        with _lake_errors():
            register(self.lake, schema)

    def versions(self) -> dict[str, int]:
        """The current version of every table's deltas, -1 where there are only envelopes."""
        from driftline.lake._store.tables import load

        with _lake_errors():
            tables = {table: load(self.lake, table, "deltas") for table in self.lake.tables()}
            return {table: -1 if deltas is None else deltas.version() for table, deltas in tables.items()}

    def enveloped_rows(self, table: str, version: int, log_id: str, flushed: int, made_ms: int) -> dict[str, RowMerge]:
        """The rows of the envelopes that were pending at a version: this log's up to a sequence, others' by time."""
        from driftline.lake._store.flush import enveloped_rows

        with _lake_errors():
            return enveloped_rows(self.lake, table, version, (log_id, flushed), made_ms)

    def pending_digest(self, table: str, version: int, log_id: str, flushed: int) -> str:
        """The digest of the names of those envelopes, as of now; empty where there are none."""
        from driftline.lake._store.flush import pending_digest

        with _lake_errors():
            return pending_digest(self.lake, table, version, (log_id, flushed))

    def is_current(self, path: str) -> bool:
        """Whether a file below the lake's root is part of its table as it is now, so that no vacuum has removed it."""
        from driftline.lake._store.tables import files_of, load

        _, table, part, *rest = path.split("/", 3)
        with _lake_errors():
            found = load(self.lake, table, part) if part in ("deltas", "base", "deletes", "state") else None  # type: ignore[arg-type]
            return found is not None and any(file.path == rest[0] for file in files_of(found))

    def write_rows(self, table: str, version: int, more: Mapping[str, RowMerge], target: Path) -> None:
        """Write a table's rows at a version, joined with further merged rows, for pages of a snapshot."""
        from driftline.lake._read.bootstrap import write_rows

        with _lake_errors():
            write_rows(self.lake, table, version, more, target)

    def folded_rows(self, table: str, version: int) -> list[tuple[str, RowMerge]]:
        """A table's rows at a version, with their stamps."""
        from driftline.lake._read.bootstrap import folded_rows

        with _lake_errors():
            return list(folded_rows(self.lake, table, version))

    def tables(self) -> list[str]:
        """The tables of the lake."""
        with _lake_errors():
            return self.lake.tables()

    def foreign_files(self, table: str, version: int, envelopes: set[str], log_id: str) -> ForeignFiles:
        """Files with deltas that reached a table after a version and not from this log."""
        from driftline.lake._store.logs import foreign_files

        with _lake_errors():
            return foreign_files(self.lake, table, version, envelopes, log_id)

    def deltas_in(self, table: str, path: str) -> Iterator[RowDelta]:
        """The deltas of a delta file or an envelope; of none where the file has been merged into others since."""
        from driftline.lake._store.logs import deltas_in

        with _lake_errors():
            yield from deltas_in(self.lake, table, path)

    def facts(self) -> Mapping[str, TableFacts]:
        """Schemas and horizons of every table."""
        from driftline.lake._store.schemas import refused_before, schema_of, schema_version
        from driftline.lake._store.tables import load

        with _lake_errors():
            tables = {table: load(self.lake, table, "deltas") for table in self.lake.tables()}
            return {
                table: TableFacts(schema_of(deltas), schema_version(deltas), refused_before(deltas))
                for table, deltas in tables.items()
            }


@contextmanager
def _lake_errors() -> Iterator[None]:
    """Turn every error of a file system, an object store or a library into a `LakeError`."""
    try:
        yield
    except DriftlineError:
        raise
    except Exception as error:
        raise LakeError(f"the lake cannot be used: {type(error).__name__}: {error}") from error

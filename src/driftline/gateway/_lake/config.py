"""What a gateway takes over from its lake (schemas, horizons, deltas of other writers), and its configuration.

The configuration is stored as documents of the log, so that all processes of a gateway see a change with the next
request; its number rises with every change. The lake owns schemas (deltas-and-lake §3): the copy is refreshed every
30 seconds and after `/admin/schema`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from driftline.deltas import TableSchema
from driftline.errors import GatewayError
from driftline.gateway._log.log import UNSEEDED, DeltaLog, Entry
from driftline.gateway._sync.push import entry_of
from driftline.gateway._sync.row_index import RowIndex
from driftline.gateway._sync.rules import SyncRules, read_stored_rules

if TYPE_CHECKING:
    from driftline.lake import FlushTarget

IMPORTED = "imported"  # document: by table, the commits that were inspected and the files that are still to be read

_BATCH_DELTAS = 2000  # in one transaction, so that pushes are not blocked
_ROUND_DELTAS = 50_000  # in one round, so that flushes are not blocked


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of a gateway; `number` rises with every change."""

    number: int
    schemas: Mapping[str, TableSchema]
    is_strict: bool  # an admin registered schemas here: tables without one are refused
    floors: Mapping[str, int]  # by table, the hlc below which the lake refuses deltas
    rules: SyncRules | None
    rules_number: int
    closed: str | None  # why pushes are refused

    def exact_types(self, rules: SyncRules | None) -> dict[str, dict[str, str]]:
        """The types of columns with exact numbers, in the tables that a caller under these rules may see."""
        shown = self.schemas if rules is None else self.schemas.keys() & rules.tables()
        columns = {
            table: {each.name: each.type for each in self.schemas[table].columns if each.is_exact} for table in shown
        }
        return {table: types for table, types in sorted(columns.items()) if types}


def load_configuration(log: DeltaLog) -> Configuration:
    """The configuration in the documents of the log."""
    head = log.head()
    schemas, is_strict = _schemas(log.document("schemas"))
    rules, closed = log.document("rules"), log.document("closed")
    return Configuration(
        head.config,
        schemas,
        is_strict,
        json.loads(log.document("floors") or b"{}"),
        None if rules is None else read_stored_rules(rules),
        head.rules,
        None if closed is None else closed.decode(),
    )


def copy_facts(log: DeltaLog, store: FlushTarget) -> None:
    """Replace the copy of schemas and horizons by the lake's."""
    _, is_strict = _schemas(log.document("schemas"))
    facts = store.facts()
    schemas = {table: schema for table, (schema, _) in facts.items() if schema is not None}
    floors = {table: floor for table, (_, floor) in facts.items() if floor is not None}
    _set(log, "schemas", _schemas_document(schemas, is_strict))
    _set(log, "floors", json.dumps(floors, sort_keys=True).encode())


def note_registered(log: DeltaLog, schema: TableSchema) -> None:
    """Add an admin's schema to the copy, after the lake has it."""
    schemas, _ = _schemas(log.document("schemas"))
    _set(log, "schemas", _schemas_document({**schemas, schema.table: schema}, is_strict=True))


def close_gateway(log: DeltaLog, reason: str | None) -> None:
    """Refuse pushes from now on, or accept them again (None)."""
    _set(log, "closed", None if reason is None else reason.encode())


def _set(log: DeltaLog, name: str, body: bytes | None) -> None:
    if log.document(name) != body:
        log.change_document(name, lambda _: body, "config")


def _schemas(document: bytes | None) -> tuple[dict[str, TableSchema], bool]:
    plain: Any = json.loads(document or b"{}")
    if isinstance(plain, list):  # format of the first version: only admins could register any
        plain = {"strict": bool(plain), "schemas": plain}
    schemas = [TableSchema.from_wire(each) for each in plain.get("schemas", [])]
    return {schema.table: schema for schema in schemas}, plain.get("strict", False)


def _schemas_document(schemas: Mapping[str, TableSchema], is_strict: bool) -> bytes:
    plain = [schemas[table].to_wire() for table in sorted(schemas)]
    return json.dumps({"strict": is_strict, "schemas": plain}, ensure_ascii=False).encode()


# Import. Clients pull from the log, so deltas that reached the lake another way (another log, `lake extract`,
# `lake flush`) are taken into it (deltas-and-lake §6). Every commit is inspected once; its files stay in a list until
# they are read, which a kill only makes longer: a delta that the log knows is not taken twice. Imported records are
# marked and never flushed back.


@dataclass(slots=True)
class ImportProgress:
    """The progress of a table's import."""

    version: int = -1  # of the deltas table
    files: list[str] = field(default_factory=list)  # paths to read, relative to the lake
    envelopes: list[str] = field(default_factory=list)  # names that were inspected


def import_foreign(log: DeltaLog, store: FlushTarget) -> tuple[int, list[str], bool]:
    """Import what is new in the lake and not of this log, except ids that the log knows with another operation.

    The number of new deltas, a message for each refused one, and whether nothing is left to read.
    """
    taken = read = left = 0
    refused: list[str] = []
    for table in store.tables():
        progress = ImportProgress(**json.loads(log.document(IMPORTED) or b"{}").get(table, {}))
        found = store.foreign_files(table, progress.version, set(progress.envelopes), log.identity().log_id)
        progress.version, progress.envelopes = found.version, found.envelopes
        progress.files += [path for path in found.files if path not in progress.files]
        if found.archived_below is not None:
            log.forget_below(found.archived_below)
        _note(log, table, progress)
        while progress.files and read < _ROUND_DELTAS:
            fresh, seen = _import_file(log, store, table, progress.files[0], refused)
            taken, read = taken + fresh, read + seen
            progress.files.pop(0)
            _note(log, table, progress)
        left += len(progress.files)
    return taken, refused, left == 0


def seed_rows(log: DeltaLog, store: FlushTarget) -> None:
    """Take rows from the lake that the log's records do not make: those of tables whose old deltas were archived.

    Write rules are evaluated on rows, so pushes are refused until all of them are there.
    """
    stored = log.document("rules")
    if stored is not None:
        versions = store.versions()
        archived = [table for table, (_, floor) in store.facts().items() if floor is not None]
        folds = {(table, row): fold for table in archived for row, fold in store.folded_rows(table, versions[table])}
        RowIndex(log).seed(read_stored_rules(stored), log.head().rules, folds)
    log.change_document(UNSEEDED, lambda _: None, "config")


def _import_file(log: DeltaLog, store: FlushTarget, table: str, path: str, refused: list[str]) -> tuple[int, int]:
    """Import one file; the number of new deltas, and of all."""
    batch: list[Entry] = []
    fresh = seen = 0
    for delta in store.deltas_in(table, path):
        batch.append(entry_of(delta))
        seen += 1
        if len(batch) == _BATCH_DELTAS:
            fresh += _import_batch(log, batch, path, refused)
            batch.clear()
    return fresh + _import_batch(log, batch, path, refused), seen


def _import_batch(log: DeltaLog, batch: list[Entry], path: str, refused: list[str]) -> int:
    """Import a batch; refused deltas are left out and named, so that one does not block all others."""
    while True:
        try:
            return log.import_foreign(batch)
        except GatewayError as error:
            if "index" not in error.context:
                raise
            left_out = batch.pop(error.index)
            refused.append(f"import of {path}, delta {left_out.delta_id.hex()[:16]}…: its id is known with another op")


def _note(log: DeltaLog, table: str, progress: ImportProgress) -> None:
    def change(before: bytes | None) -> bytes:
        return json.dumps({**json.loads(before or b"{}"), table: asdict(progress)}).encode()

    log.change_document(IMPORTED, change)

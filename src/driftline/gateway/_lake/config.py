"""What a gateway goes by: the lake's schemas and horizons (a copy), the admins' sync rules, and whether it is closed.

Everything is kept as documents of the log, so that all processes of a gateway see a change with the next request; the
number of the configuration rises with every change. The lake owns schemas (deltas-and-lake §3): the copy is renewed
every 30 seconds and after `/admin/schema`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from driftline.deltas import TableSchema
from driftline.gateway.log import DeltaLog
from driftline.gateway.rules import SyncRules, read_stored_rules
from driftline.lake._flush_target import TableFacts


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a gateway goes by; `number` changes with every change."""

    number: int
    schemas: Mapping[str, TableSchema]
    is_strict: bool  # an admin registered schemas here: tables without one are refused
    floors: Mapping[str, int]  # by table, the hlc below which the lake takes no deltas any more
    rules: SyncRules | None
    rules_number: int
    closed: str | None  # why pushes are refused


def load_configuration(log: DeltaLog) -> Configuration:
    """The configuration as the log's documents have it."""
    numbers = log.numbers()
    schemas, is_strict = _schemas(log.document("schemas"))
    rules, closed = log.document("rules"), log.document("closed")
    return Configuration(
        numbers.config,
        schemas,
        is_strict,
        json.loads(log.document("floors") or b"{}"),
        None if rules is None else read_stored_rules(rules),
        numbers.rules,
        None if closed is None else closed.decode(),
    )


def copy_facts(log: DeltaLog, facts: Mapping[str, TableFacts]) -> None:
    """Make the copy of schemas and horizons what the lake says."""
    _, is_strict = _schemas(log.document("schemas"))
    schemas = {table: fact.schema for table, fact in facts.items() if fact.schema is not None}
    floors = {table: fact.refused_before for table, fact in facts.items() if fact.refused_before is not None}
    _set(log, "schemas", _schemas_document(schemas, is_strict))
    _set(log, "floors", json.dumps(floors, sort_keys=True).encode())


def note_registered(log: DeltaLog, schema: TableSchema) -> None:
    """Take an admin's schema into the copy, after the lake has it."""
    schemas, _ = _schemas(log.document("schemas"))
    _set(log, "schemas", _schemas_document({**schemas, schema.table: schema}, is_strict=True))


def close_gateway(log: DeltaLog, reason: str | None) -> None:
    """Refuse pushes from now on, or take them again (None)."""
    _set(log, "closed", None if reason is None else reason.encode())


def _set(log: DeltaLog, name: str, body: bytes | None) -> None:
    if log.document(name) != body:
        log.change_document(name, lambda _: body, "config")


def _schemas(document: bytes | None) -> tuple[dict[str, TableSchema], bool]:
    plain: Any = json.loads(document or b"{}")
    if isinstance(plain, list):  # as the first version kept them: only admins could register any
        plain = {"strict": bool(plain), "schemas": plain}
    schemas = [TableSchema.from_wire(each) for each in plain.get("schemas", [])]
    return {schema.table: schema for schema in schemas}, plain.get("strict", False)


def _schemas_document(schemas: Mapping[str, TableSchema], is_strict: bool) -> bytes:
    plain = [schemas[table].to_wire() for table in sorted(schemas)]
    return json.dumps({"strict": is_strict, "schemas": plain}, ensure_ascii=False).encode()

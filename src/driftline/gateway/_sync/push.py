"""Pushes: a request body becomes validated log entries, or an error that names the delta and the field.

The body is decoded into records; the canonical text that the id hashes is also what the log stores and pulls send.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from driftline.deltas import (
    ColumnDelta,
    Op,
    RowDelta,
    TableSchema,
    abbreviate,
    check_column_names,
    check_id,
    check_table_name,
    check_value,
    columns_text,
    delta_hlc_from_wire,
    hash_input,
    hlc_from_wire,
    latest_admitted,
)
from driftline.errors import DeltaError, GatewayError
from driftline.gateway._log.log import OP_CODES, Entry, check_clock

MAX_DELTAS = 10_000

IsKnown = Callable[[Entry], bool]
Problem = tuple[int, str, str | None]  # the position of a delta, what is wrong with it, and in which column


class WireDelta(msgspec.Struct, forbid_unknown_fields=True):
    """A delta of a push body."""

    op: Op
    table: str
    rowId: str  # noqa: N815 - the wire's names
    clientId: str  # noqa: N815
    columns: list[ColumnDelta]
    hlc: str
    deltaId: str  # noqa: N815


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    clientId: str  # noqa: N815
    deltas: list[WireDelta]
    lastSeenHlc: str | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class Push:
    """A push whose deltas are all well formed and have the right id."""

    client_id: str
    deltas: Sequence[WireDelta]
    entries: Sequence[Entry]
    last_seen_hlc: int | None


_decoder = msgspec.json.Decoder(_Body)
_stored_decoder = msgspec.json.Decoder(RowDelta, strict=False)  # the hlc is text


def parse_push(data: bytes) -> Push:
    """The push of a request body."""
    try:
        body = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise GatewayError(f"the body is not a push: {str(error)[:200]}") from error
    except RecursionError as error:
        raise GatewayError("the body is nested too deep") from error
    if len(body.deltas) > MAX_DELTAS:
        message = f"a push holds at most {MAX_DELTAS} deltas, this one has {len(body.deltas)}"
        raise GatewayError(message, limit=MAX_DELTAS)
    check_id("clientId", body.clientId)
    last_seen = None if body.lastSeenHlc is None else hlc_from_wire(body.lastSeenHlc, "lastSeenHlc")
    entries = []
    problems: list[Problem] = []
    for index, delta in enumerate(body.deltas):
        try:
            entries.append(_entry(delta))
        except DeltaError as error:
            problems.append((index, error.message, error.context.get("column")))
    refuse(problems, "VALIDATION_ERROR")
    return Push(body.clientId, body.deltas, entries, last_seen)


def refuse(problems: Sequence[Problem], code: str) -> None:
    """Refuse a batch for these deltas, if there are any: all positions for programs, the first one in the message."""
    if problems:
        index, message, column = problems[0]
        raise GatewayError(
            f"deltas[{index}]: {message}", code=code, positions=[each[0] for each in problems], column=column
        )


def stored_delta(body: bytes) -> RowDelta:
    """The delta of a log record, which was checked when it was appended."""
    return _stored_decoder.decode(body)


def entry_of(delta: RowDelta) -> Entry:
    """A delta that was checked elsewhere, as a log entry."""
    columns = list(delta.columns)
    wire = WireDelta(delta.op, delta.table, delta.row_id, delta.client_id, columns, str(delta.hlc), delta.delta_id)
    body = _body(wire, delta.hlc, columns_text(columns))
    return Entry(delta.hlc, bytes.fromhex(delta.delta_id), OP_CODES[delta.op], delta.table, body)


def check_authors(push: Push, client_id: str) -> None:
    """A client pushes its own deltas only."""
    problem = "clientId is not the token's subject"
    if push.client_id != client_id:
        raise GatewayError(problem, code="FORBIDDEN")
    others = (index for index, delta in enumerate(push.deltas) if delta.clientId != client_id)
    refuse([(index, problem, None) for index in others], "FORBIDDEN")


def check_clocks(push: Push, physical: int, clock: Callable[[], int], is_known: IsKnown) -> None:
    """No new delta may be from too far in the future; the log's clock is read only where it decides."""
    if max((entry.hlc for entry in push.entries), default=0) > latest_admitted(0, physical):
        fresh = [index for index, entry in enumerate(push.entries) if not is_known(entry)]
        check_clock(push.entries, fresh, clock(), physical)


def check_schemas(push: Push, schemas: Mapping[str, TableSchema], is_strict: bool, is_known: IsKnown) -> None:
    """Columns and types of values follow a table's schema; where `is_strict`, every table must have one.

    A delta that the log has is acknowledged whatever has changed since; the same is true of horizons.
    """
    if not schemas and not is_strict:
        return
    problems: list[Problem] = []
    for index, delta in enumerate(push.deltas):
        problem = _schema_problem(delta, schemas.get(delta.table), is_strict)
        if problem and not is_known(push.entries[index]):
            problems.append((index, *problem))
    refuse(problems, "SCHEMA_ERROR")


def read_schemas(document: bytes | None) -> tuple[dict[str, TableSchema], bool]:
    """The schemas in a document of the log, and whether every table must have one."""
    plain: Any = json.loads(document or b"{}")
    if isinstance(plain, list):  # format of the first version: only admins could register any
        plain = {"strict": bool(plain), "schemas": plain}
    schemas = [TableSchema.from_wire(each) for each in plain.get("schemas", [])]
    return {schema.table: schema for schema in schemas}, plain.get("strict", False)


def exact_types(schemas: Mapping[str, TableSchema]) -> dict[str, dict[str, str]]:
    """By table, the types of columns with exact numbers; tables without any are left out."""
    types = {
        table: {each.name: each.type for each in schema.columns if each.is_exact} for table, schema in schemas.items()
    }
    return {table: found for table, found in sorted(types.items()) if found}


def check_horizons(push: Push, floors: Mapping[str, int], is_known: IsKnown) -> None:
    """Refuse deltas from before a lake's retention horizon, which could restore deleted rows."""
    if not floors:
        return
    late = [(index, entry) for index, entry in enumerate(push.entries) if entry.hlc < floors.get(entry.table, 0)]
    old = [index for index, entry in late if not is_known(entry)]
    refuse([(index, "older than the lake's horizon", None) for index in old], "TOO_OLD")


def _entry(delta: WireDelta) -> Entry:
    table = check_table_name(delta.table)
    hlc = delta_hlc_from_wire(delta.hlc)
    check_id("rowId", delta.rowId)
    check_id("clientId", delta.clientId)
    if delta.columns and delta.op == "DELETE":
        raise DeltaError("a DELETE has no columns", field="columns")
    check_column_names(tuple([entry.column for entry in delta.columns]))
    for entry in delta.columns:
        # The decoder has checked everything but the depth and the size of integers.
        if type(entry.value) in (dict, list, int):
            check_value(entry.column, entry.value)
    columns = columns_text(delta.columns)
    digest = hashlib.sha256(hash_input(delta.clientId, hlc, table, delta.rowId, columns)).digest()
    if digest.hex() != delta.deltaId:
        raise DeltaError(f"deltaId {abbreviate(delta.deltaId)} does not match the delta's content", field="deltaId")
    return Entry(hlc, digest, OP_CODES[delta.op], table, _body(delta, hlc, columns))


def _body(delta: WireDelta, hlc: int, columns: str) -> bytes:
    text = msgspec.json.encode
    return b'{"op":"%b","table":"%b","rowId":%b,"clientId":%b,"columns":%b,"hlc":"%d","deltaId":"%b"}' % (
        delta.op.encode(),
        delta.table.encode(),
        text(delta.rowId),
        text(delta.clientId),
        columns.encode(),
        hlc,
        delta.deltaId.encode(),
    )


def _schema_problem(delta: WireDelta, schema: TableSchema | None, is_strict: bool) -> tuple[str, str | None] | None:
    if schema is None:
        return (f"table {delta.table} has no schema", None) if is_strict else None
    for entry in delta.columns:
        column = schema.by_name.get(entry.column)
        if column is None:
            return f"table {delta.table} has no column {abbreviate(entry.column)}", entry.column
        if not column.accepts(entry.value):
            return f"column {abbreviate(entry.column)} of table {delta.table} is a {column.type}", entry.column
    return None

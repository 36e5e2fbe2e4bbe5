"""wal2json of PostgreSQL, formats 1 (one message a transaction) and 2 (one message a change).

Format 1 leaves NULLs out of old rows, so that a whole old row with NULLs looks like a part of one; and it does not tell
of TRUNCATE at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from driftline.changesets._cdc.events import (
    CdcEvent,
    CdcKind,
    CdcValue,
    Image,
    Message,
    cdc_error,
    member,
    plain_json_value,
)

_KINDS: dict[str, CdcKind] = {"insert": "insert", "update": "update", "delete": "delete", "truncate": "truncate"}
_ACTIONS: dict[str, CdcKind] = {
    "I": "insert",
    "U": "update",
    "D": "delete",
    "T": "truncate",
    "B": "begin",
    "C": "commit",
}
_EXACT_NUMBERS = ("numeric", "decimal")
_FLOATS = ("real", "double precision", "float")


def matches(message: Message) -> bool:
    """Whether a message is wal2json's."""
    return "change" in message or "action" in message


def events(message: Message) -> Iterator[CdcEvent]:
    """The events of a message of either format."""
    transaction = None if message.get("xid") is None else str(message["xid"])
    if "action" in message:
        yield from _change_of_format_2(message, transaction)
        return
    yield CdcEvent("begin", transaction=transaction)
    for change in member(message, "change", list):
        yield from _change_of_format_1(change, transaction)
    yield CdcEvent("commit", transaction=transaction)


def _change_of_format_1(change: Message, transaction: str | None) -> Iterator[CdcEvent]:
    kind = member(change, "kind", str)
    if kind == "message":
        return
    if kind not in _KINDS:
        raise cdc_error("unknown_message", f"wal2json has no change of kind {kind!r}")
    new = _columns(change, "columnnames", "columntypes", "columnvalues") if "columnnames" in change else None
    keys = change.get("oldkeys")
    old = None if keys is None else _columns(keys, "keynames", "keytypes", "keyvalues")
    table = member(change, "table", str)
    yield CdcEvent(_KINDS[kind], table, str(change.get("schema", "")), old, new, transaction=transaction)


def _columns(source: Message, names: str, types: str, values: str) -> Image:
    columns = member(source, names, list)
    declared = source.get(types) or [""] * len(columns)
    given = member(source, values, list)
    if not len(columns) == len(declared) == len(given):
        raise cdc_error("invalid_message", f"{len(columns)} {names}, {len(declared)} types and {len(given)} values")
    return {name: _value(value, kind) for name, kind, value in zip(columns, declared, given, strict=True)}


def _change_of_format_2(message: Message, transaction: str | None) -> Iterator[CdcEvent]:
    action = member(message, "action", str)
    if action == "M":
        return
    if action not in _ACTIONS:
        raise cdc_error("unknown_message", f"wal2json has no action {action!r}")
    kind = _ACTIONS[action]
    if kind in ("begin", "commit"):
        yield CdcEvent(kind, transaction=transaction)
        return
    new, old = (
        None if message.get(side) is None else _typed(member(message, side, list)) for side in ("columns", "identity")
    )
    table = member(message, "table", str)
    yield CdcEvent(kind, table, str(message.get("schema", "")), old, new, transaction=transaction)


def _typed(columns: Sequence[Message]) -> Image:
    return {
        member(column, "name", str): _value(column.get("value"), str(column.get("type") or "")) for column in columns
    }


def _value(value: Any, declared: str) -> CdcValue:
    """A value by its PostgreSQL type (changesets §10.2)."""
    if value is None or isinstance(value, bool):
        return plain_json_value(value)
    if declared.endswith("[]"):
        return plain_json_value(value)
    if declared.startswith(_EXACT_NUMBERS):
        return str(value)
    if declared.startswith(_FLOATS):
        return float(value)
    if declared == "bytea":
        return _bytes(value)
    return plain_json_value(value)


def _bytes(value: Any) -> bytes:
    try:
        return bytes.fromhex(value.removeprefix("\\x"))
    except (ValueError, AttributeError):
        raise cdc_error("invalid_message", "a bytea value is not hexadecimal") from None

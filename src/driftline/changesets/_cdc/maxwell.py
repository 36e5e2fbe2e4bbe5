"""Maxwell of MySQL: rows with the old values of changed columns, so that old rows are whole."""

from __future__ import annotations

from collections.abc import Iterator

from driftline.changesets._cdc.events import CdcEvent, CdcKind, Image, Message, cdc_error, member, plain_json_value

_ROWS: dict[str, CdcKind] = {
    "insert": "insert",
    "bootstrap-insert": "insert",
    "update": "update",
    "delete": "delete",
}
_IGNORED = ("bootstrap-start", "bootstrap-complete", "heartbeat")


def matches(message: Message) -> bool:
    """Whether a message is Maxwell's."""
    return "type" in message and "database" in message


def events(message: Message) -> Iterator[CdcEvent]:
    """The events of a message."""
    kind = member(message, "type", str)
    if kind in _IGNORED:
        return
    if kind not in _ROWS:
        raise cdc_error(
            "ddl", f"{kind} of {message.get('table') or message['database']}: changes hold rows, no schemas"
        )
    transaction = None if message.get("xid") is None else str(message["xid"])
    if "xoffset" in message and not message.get("commit"):
        # Rows before the last of a transaction are numbered; the last one says that it was committed.
        yield CdcEvent("begin", transaction=transaction)
    data = _image(member(message, "data", dict))
    old = None
    if _ROWS[kind] != "insert":
        old = {**data, **_image(message.get("old") or {})}
    table = member(message, "table", str)
    new = None if kind == "delete" else data
    yield CdcEvent(_ROWS[kind], table, str(message["database"]), old, new, transaction=transaction)
    if message.get("commit"):
        yield CdcEvent("commit", transaction=transaction)


def _image(row: Message) -> Image:
    return {name: plain_json_value(value) for name, value in row.items()}

"""Debezium's change events, with or without the schema of Kafka Connect's JSON converter."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
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

UNAVAILABLE = "__debezium_unavailable_value"

_OPS: dict[str, CdcKind] = {"c": "insert", "r": "insert", "u": "update", "d": "delete", "t": "truncate"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODED_UNAVAILABLE = base64.b64encode(UNAVAILABLE.encode()).decode()
_UNKNOWN = object()


def matches(message: Message) -> bool:
    """Whether a message is Debezium's."""
    return "payload" in message or ("op" in message and "source" in message)


def events(message: Message) -> Iterator[CdcEvent]:
    """The events of a message; messages and the marks of transactions are passed over."""
    payload = message.get("payload", message)
    if payload is None:
        return
    if not isinstance(payload, Mapping):
        raise cdc_error("invalid_message", "a payload is a JSON object")
    if "status" in payload or payload.get("op") == "m":
        return
    op = member(payload, "op", str)
    if op not in _OPS:
        raise cdc_error("unknown_message", f"Debezium has no operation {op!r}")
    source = member(payload, "source", dict)
    fields = _fields(message.get("schema"))
    old, new = (_image(payload.get(side), fields) for side in ("before", "after"))
    transaction = None if source.get("txId") is None else str(source["txId"])
    namespace = ".".join(str(source[part]) for part in ("db", "schema") if source.get(part))
    # With PostgreSQL's usual identity the image before has the key, and NULL for everything that is not known.
    yield CdcEvent(_OPS[op], member(source, "table", str), namespace, old, new, False, transaction)


def _fields(schema: object) -> dict[str, Message]:
    """The columns that the schema describes, by name."""
    sides = schema.get("fields") or () if isinstance(schema, Mapping) else ()
    found: dict[str, Message] = {}
    for side in sides:
        if side.get("field") in ("before", "after"):
            found.update({field["field"]: field for field in side.get("fields") or ()})
    return found


def _image(row: Message | None, fields: Mapping[str, Message]) -> Image | None:
    if row is None:
        return None
    if not isinstance(row, Mapping):
        raise cdc_error("invalid_message", "a row is a JSON object")
    values = {name: _value(value, fields.get(name, {})) for name, value in row.items()}
    return {name: value for name, value in values.items() if value is not _UNKNOWN}


def _value(value: Any, field: Message) -> Any:
    """A value by its type in the schema (changesets §10.2); what Debezium does not know is `_UNKNOWN`."""
    if value is None or isinstance(value, bool):
        return plain_json_value(value)
    if value == UNAVAILABLE or (value == _ENCODED_UNAVAILABLE and field.get("type") == "bytes"):
        return _UNKNOWN
    meaning = str(field.get("name") or "")
    try:
        if meaning in _MEANINGS:
            return _MEANINGS[meaning](value, field)
        if field.get("type") == "bytes":
            return base64.b64decode(value, validate=True)
        if field.get("type") in ("float", "float32", "double", "float64"):
            return float(value)
    except (TypeError, ValueError, KeyError, OverflowError, binascii.Error):
        raise cdc_error("invalid_message", f"{str(value)[:40]!r} is no {meaning or field.get('type')}") from None
    return plain_json_value(value)


def _decimal(value: Any, field: Message) -> CdcValue:
    return _scaled(value, int(field["parameters"]["scale"]))


def _variable_decimal(value: Any, field: Message) -> CdcValue:
    return _scaled(value["value"], int(value["scale"]))


def _scaled(encoded: str, scale: int) -> str:
    unscaled = int.from_bytes(base64.b64decode(encoded, validate=True), "big", signed=True)
    return format(Decimal(unscaled).scaleb(-scale), "f")


def _days(value: Any, field: Message) -> CdcValue:
    return (_EPOCH + timedelta(days=int(value))).strftime("%Y-%m-%d")


def _instant(per_second: int) -> Callable[[Any, Message], CdcValue]:
    def convert(value: Any, field: Message) -> CdcValue:
        moment = _EPOCH + timedelta(microseconds=int(value) * 1_000_000 // per_second)
        return moment.strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0")

    return convert


def _time_of_day(per_second: int) -> Callable[[Any, Message], CdcValue]:
    def convert(value: Any, field: Message) -> CdcValue:
        return (_EPOCH + timedelta(microseconds=int(value) * 1_000_000 // per_second)).strftime("%H:%M:%S.%f")

    return convert


# What a field means beyond its type: decimals, and epochs in units of a second.
_MEANINGS: dict[str, Callable[[Any, Message], CdcValue]] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.data.VariableScaleDecimal": _variable_decimal,
    "org.apache.kafka.connect.data.Date": _days,
    "io.debezium.time.Date": _days,
    "org.apache.kafka.connect.data.Timestamp": _instant(1_000),
    "io.debezium.time.Timestamp": _instant(1_000),
    "io.debezium.time.MicroTimestamp": _instant(1_000_000),
    "io.debezium.time.NanoTimestamp": _instant(1_000_000_000),
    "org.apache.kafka.connect.data.Time": _time_of_day(1_000),
    "io.debezium.time.Time": _time_of_day(1_000),
    "io.debezium.time.MicroTime": _time_of_day(1_000_000),
    "io.debezium.time.NanoTime": _time_of_day(1_000_000_000),
}

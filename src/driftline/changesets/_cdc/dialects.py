"""Messages of wal2json, Debezium and Maxwell, a line each or printed, as events of rows (changesets §10)."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from driftline.changesets._format.table import MAX_INTEGER, MIN_INTEGER, Value, refused
from driftline.core import canonical_json, exact_number
from driftline.deltas import as_double, survives
from driftline.errors import ChangesetError, OptionError

CdcKind = Literal["insert", "update", "delete", "truncate", "begin", "commit"]


class NumberText(str):
    """A JSON number with a fraction or an exponent, kept as its text so that no digit is lost."""

    __slots__ = ()


class DecimalText(str):
    """The digits of a value that its database declares as an exact number; text in a changeset."""

    __slots__ = ()


CdcValue = Value | NumberText
Image = dict[str, CdcValue]
Message = Mapping[str, Any]  # a parsed JSON object

UNAVAILABLE = "__debezium_unavailable_value"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODED_UNAVAILABLE = base64.b64encode(UNAVAILABLE.encode()).decode()
_UNKNOWN = object()
_JSON_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_EXACT_NUMBERS = ("numeric", "decimal")
_FLOATS = ("real", "double precision", "float")
_INSTANT, _TIME_OF_DAY = "%Y-%m-%d %H:%M:%S.%f", "%H:%M:%S.%f"
# What numbers of Kafka Connect and Debezium mean: how they are written, and their unit in nanoseconds.
_TIMES = {
    "Date": ("%Y-%m-%d", 86_400 * 10**9),
    "Timestamp": (_INSTANT, 10**6),
    "MicroTimestamp": (_INSTANT, 10**3),
    "NanoTimestamp": (_INSTANT, 1),
    "Time": (_TIME_OF_DAY, 10**6),
    "MicroTime": (_TIME_OF_DAY, 10**3),
    "NanoTime": (_TIME_OF_DAY, 1),
}

# The operations by the member of a message that names them: wal2json's formats 1 and 2, Debezium and Maxwell.
# None is for messages that are passed over: they change no row.
_OPERATIONS: dict[str, dict[str, CdcKind | None]] = {
    "kind": {"insert": "insert", "update": "update", "delete": "delete", "truncate": "truncate", "message": None},
    "action": {"I": "insert", "U": "update", "D": "delete", "T": "truncate", "B": "begin", "C": "commit", "M": None},
    "op": {"c": "insert", "r": "insert", "u": "update", "d": "delete", "t": "truncate", "m": None},
    "type": {
        "insert": "insert",
        "bootstrap-insert": "insert",
        "update": "update",
        "delete": "delete",
        "bootstrap-start": None,
        "bootstrap-complete": None,
        "heartbeat": None,
    },
}


@dataclass(frozen=True, slots=True)
class CdcEvent:
    """A change of a row, or the begin or commit of a transaction, as a message describes it.

    `old` and `new` hold the columns that the message has. `is_whole` says that columns missing from `old` are known
    to be no columns at all; an image of a key alone is not whole.
    """

    kind: CdcKind
    table: str = ""
    namespace: str = ""  # the database or schema that the table is in
    old: Image | None = None
    new: Image | None = None
    is_whole: bool = True
    transaction: str | None = None


# wal2json of PostgreSQL, formats 1 (one message a transaction) and 2 (one message a change). Format 1 leaves NULLs out
# of old rows, so that a whole old row with NULLs looks like a part of one; and it has no message for TRUNCATE.


def _wal2json_events(message: Message) -> Iterator[CdcEvent]:
    transaction = _transaction(message, "xid")
    if "action" in message:
        yield from _wal2json_change(message, "action", transaction)
        return
    yield CdcEvent("begin", transaction=transaction)
    for change in _member(message, "change", list):
        yield from _wal2json_change(change, "kind", transaction)
    yield CdcEvent("commit", transaction=transaction)


def _wal2json_change(change: Message, name: str, transaction: str | None) -> Iterator[CdcEvent]:
    kind = _operation(change, name, f"wal2json has no {'action' if name == 'action' else 'change of kind'}")
    if kind in ("begin", "commit"):
        yield CdcEvent(kind, transaction=transaction)
    elif kind is not None:
        if name == "kind":
            keys = change.get("oldkeys")
            old = None if keys is None else _columns(keys, "key")
            new = _columns(change, "column") if "columnnames" in change else None
        else:
            old, new = (
                None if change.get(side) is None else _typed(_member(change, side, list))
                for side in ("identity", "columns")
            )
        table = _member(change, "table", str)
        yield CdcEvent(kind, table, str(change.get("schema", "")), old, new, transaction=transaction)


def _columns(source: Message, prefix: str) -> Image:
    names, values = (_member(source, f"{prefix}{what}", list) for what in ("names", "values"))
    types = source.get(f"{prefix}types") or [""] * len(names)
    if not len(names) == len(types) == len(values):
        counts = f"{len(names)} {prefix}names, {len(types)} types and {len(values)} values"
        raise refused("invalid_message", counts)
    return {name: _postgresql_value(value, kind) for name, kind, value in zip(names, types, values, strict=True)}


def _typed(columns: Sequence[Message]) -> Image:
    return {
        _member(column, "name", str): _postgresql_value(column.get("value"), str(column.get("type") or ""))
        for column in columns
    }


def _postgresql_value(value: Any, declared: str) -> CdcValue:
    """A value by its PostgreSQL type (changesets §10.2)."""
    if value is None or isinstance(value, bool) or declared.endswith("[]"):
        return _plain_value(value)
    if declared.startswith(_EXACT_NUMBERS):
        return DecimalText(value)
    if declared.startswith(_FLOATS):
        return float(value)
    if declared == "bytea":
        try:
            return bytes.fromhex(value.removeprefix("\\x"))
        except (ValueError, AttributeError):
            raise refused("invalid_message", "a bytea value is not hexadecimal") from None
    return _plain_value(value)


# Debezium, with or without the schema of Kafka Connect's JSON converter.


def _debezium_events(message: Message) -> Iterator[CdcEvent]:
    """The event of a row; logical messages and the marks of transactions are passed over."""
    payload = message.get("payload", message)
    if payload is None:
        return
    if not isinstance(payload, Mapping):
        raise refused("invalid_message", "a payload is a JSON object")
    if "status" in payload:
        return
    kind = _operation(payload, "op", "Debezium has no operation")
    if kind is None:
        return
    source = _member(payload, "source", dict)
    fields = _fields(message.get("schema"))
    old, new = (_described_image(payload.get(side), fields) for side in ("before", "after"))
    namespace = ".".join(str(source[part]) for part in ("db", "schema") if source.get(part))
    table = _member(source, "table", str)
    # With PostgreSQL's usual identity the image before has the key, and NULL for everything that is not known.
    yield CdcEvent(kind, table, namespace, old, new, False, _transaction(source, "txId"))


def _fields(schema: object) -> dict[str, Message]:
    """The columns that the schema describes, by name."""
    sides = schema.get("fields") or () if isinstance(schema, Mapping) else ()
    found: dict[str, Message] = {}
    for side in sides:
        if side.get("field") in ("before", "after"):
            found.update({field["field"]: field for field in side.get("fields") or ()})
    return found


def _described_image(row: Message | None, fields: Mapping[str, Message]) -> Image | None:
    if row is None:
        return None
    if not isinstance(row, Mapping):
        raise refused("invalid_message", "a row is a JSON object")
    values = {name: _described_value(value, fields.get(name, {})) for name, value in row.items()}
    return {name: value for name, value in values.items() if value is not _UNKNOWN}


def _described_value(value: Any, field: Message) -> Any:
    """A value by its type in the schema (changesets §10.2); what Debezium does not know is `_UNKNOWN`."""
    if value is None or isinstance(value, bool):
        return _plain_value(value)
    if value == UNAVAILABLE or (value == _ENCODED_UNAVAILABLE and field.get("type") == "bytes"):
        return _UNKNOWN
    meaning = str(field.get("name") or "")
    source, _, name = meaning.rpartition(".")
    try:
        if meaning == "org.apache.kafka.connect.data.Decimal":
            return _scaled(value, field["parameters"]["scale"])
        if meaning == "io.debezium.data.VariableScaleDecimal":
            return _scaled(value["value"], value["scale"])
        if source in ("org.apache.kafka.connect.data", "io.debezium.time") and name in _TIMES:
            return _time(value, name)
        if field.get("type") == "bytes":
            return base64.b64decode(value, validate=True)
        if field.get("type") in ("float", "float32", "double", "float64"):
            return float(value)
    except (TypeError, ValueError, KeyError, OverflowError, binascii.Error):
        raise refused("invalid_message", f"{str(value)[:40]!r} is no {meaning or field.get('type')}") from None
    return _plain_value(value)


def _scaled(encoded: str, scale: object) -> str:
    unscaled = int.from_bytes(base64.b64decode(encoded, validate=True), "big", signed=True)
    return DecimalText(format(Decimal(unscaled).scaleb(-int(str(scale))), "f"))


def _time(value: object, name: str) -> str:
    """A date, a time of day or an instant from a number of its units since 1970 or midnight."""
    form, nanoseconds = _TIMES[name]
    instant = _EPOCH + timedelta(microseconds=int(str(value)) * nanoseconds // 1000)
    return instant.strftime(form).rjust(26 if form == _INSTANT else 0, "0")


# Maxwell of MySQL: rows with the old values of changed columns, so that old rows are whole.


def _maxwell_events(message: Message) -> Iterator[CdcEvent]:
    word = _member(message, "type", str)
    if word not in _OPERATIONS["type"]:
        raise refused("ddl", f"{word} of {message.get('table') or message['database']}: changes hold rows, no schemas")
    kind = _OPERATIONS["type"][word]
    if kind is None:
        return
    transaction = _transaction(message, "xid")
    if "xoffset" in message and not message.get("commit"):
        # Rows before the last of a transaction are numbered; the last one says that it was committed.
        yield CdcEvent("begin", transaction=transaction)
    data = _plain_image(_member(message, "data", dict))
    old = None if kind == "insert" else {**data, **_plain_image(message.get("old") or {})}
    table = _member(message, "table", str)
    new = None if kind == "delete" else data
    yield CdcEvent(kind, table, str(message["database"]), old, new, transaction=transaction)
    if message.get("commit"):
        yield CdcEvent("commit", transaction=transaction)


def _plain_image(row: Message) -> Image:
    return {name: _plain_value(value) for name, value in row.items()}


# Which messages are a source's own, in the order in which they are matched, and the events of a message.
_DIALECTS: dict[str, tuple[Callable[[Message], bool], Callable[[Message], Iterator[CdcEvent]]]] = {
    "wal2json": (lambda message: "change" in message or "action" in message, _wal2json_events),
    "debezium": (lambda message: "payload" in message or {"op", "source"} <= message.keys(), _debezium_events),
    "maxwell": (lambda message: {"type", "database"} <= message.keys(), _maxwell_events),
}


# Members and values of all dialects.


def _operation(message: Message, name: str, unknown: str) -> CdcKind | None:
    word = _member(message, name, str)
    if word not in _OPERATIONS[name]:
        raise refused("unknown_message", f"{unknown} {word!r}")
    return _OPERATIONS[name][word]


def _transaction(source: Message, name: str) -> str | None:
    return None if source.get(name) is None else str(source[name])


def _member(message: Message, name: str, kind: type) -> Any:
    """A member that a message must have, of the right type."""
    value = message.get(name)
    if not isinstance(value, kind):
        raise refused("invalid_message", f'"{name}" is missing or is not what it should be')
    return value


def _plain_value(value: Any) -> CdcValue:
    """A JSON value whose type is all that is known about it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dict | list):
        numbers = _with_numbers(value)
        if not survives(numbers):
            raise refused(
                "inexact_number", f"a double would change a number in {json.dumps(value)[:80]}: write it as text"
            )
        return canonical_json(as_double(numbers))
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        return NumberText(value)
    return value  # type: ignore[no-any-return]


def _with_numbers(value: object) -> Any:
    if isinstance(value, NumberText):
        return exact_number(value)
    if isinstance(value, dict):
        return {name: _with_numbers(item) for name, item in value.items()}
    return [_with_numbers(item) for item in value] if isinstance(value, list) else value


# Lines of messages.


def events_of(lines: Iterable[str | bytes], source: str | None = None) -> Iterator[tuple[int, CdcEvent]]:
    """The events of messages, each with the number of its first line; tombstones are passed over."""
    names = ", ".join(_DIALECTS)
    if source not in (None, *_DIALECTS):
        raise OptionError(f"change data comes from {names}, not {source}")
    dialects = [dialect for name, dialect in _DIALECTS.items() if source in (None, name)]
    for number, message in _messages(lines):
        with AtLine(number):
            events = next((events for matches, events in dialects if matches(message)), None)
            if events is None:
                raise refused("unknown_message", f"not a message of {source or 'any known source: ' + names}")
            found = list(events(message))
        for event in found:
            yield number, event


class AtLine:
    """Adds the number of a line, or the offset of a byte, to errors about its message."""

    def __init__(self, number: int, unit: str = "line") -> None:
        self._number, self._unit = number, unit

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ChangesetError):
            text = error.message if self._unit == "line" else error.message.removeprefix("line 1: ")
            place = {"line" if self._unit == "line" else "offset": self._number}
            raise ChangesetError(f"{self._unit} {self._number}: {text}", code=error.code, **place) from error


def _messages(lines: Iterable[str | bytes]) -> Iterator[tuple[int, Message]]:
    """The messages of a file: one a line, printed over several lines, or the elements of arrays of either form."""
    waiting: list[Any] = []  # lines of a value whose brackets are not all closed
    depth = first = 0
    for number, line in enumerate(lines, 1):
        if not waiting or (line[:1] in ("{", b"{") and waiting[0].lstrip()[:1] not in ("[", b"[")):
            value = _parsed(line)
            if value is not _UNKNOWN:
                yield from _checked(first, _whole_value(waiting, first)) if waiting else ()
                yield from _checked(number, value)
                continue
        first = number if not waiting else first
        waiting.append(line)
        depth += _nesting(line)
        if depth <= 0:
            yield from _checked(first, _whole_value(waiting, first))
            waiting, depth = [], 0
    if waiting:
        yield from _checked(first, _whole_value(waiting, first))


def _parsed(line: str | bytes) -> Any:
    try:
        return json.loads(line, parse_float=NumberText, parse_constant=_no_constant) if line.strip() else None
    except (ValueError, RecursionError):
        return _UNKNOWN


def _whole_value(lines: list[Any], number: int) -> Any:
    with AtLine(number):
        try:
            return json.loads(lines[0][:0].join(lines), parse_float=NumberText, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise refused("invalid_message", f"not a JSON message: {error}") from None


def _nesting(line: str | bytes) -> int:
    """How many brackets a line opens and does not close; those in texts do not count."""
    text = line.decode("latin-1") if isinstance(line, bytes) else line
    bare = _JSON_TEXT.sub("", text)
    return bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")


def _checked(number: int, value: object) -> Iterator[tuple[int, Message]]:
    for message in value if isinstance(value, list) else [value]:
        if isinstance(message, dict):
            yield number, message
        elif message is not None:
            with AtLine(number):
                raise refused("invalid_message", "a message is a JSON object")


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")

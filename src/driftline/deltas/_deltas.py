"""Row deltas: one mutation of one row, with its id, its timestamp of a hybrid logical clock, and its names.

A timestamp is one integer that orders by `<`: 48 bits of wall milliseconds, 16 bits of counter.

>>> delta = RowDelta.make(
...     op="UPDATE", table="users", row_id="7", client_id="laptop", columns=[ColumnDelta("age", 31)], hlc=1000000
... )
>>> RowDelta.from_wire(delta.to_wire()) == delta
True
>>> clock = Clock(wall=lambda: 1_000_000)
>>> [split_hlc(clock.now()) for _ in range(2)]
[(1000000, 0), (1000000, 1)]
"""

from __future__ import annotations

import hashlib
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from json.encoder import encode_basestring
from typing import Any, Literal, cast

import msgspec

from driftline.core import Json, JsonObject, canonical_json
from driftline.deltas._numbers import as_double, survives
from driftline.errors import ClockDriftError, DeltaError

Op = Literal["INSERT", "UPDATE", "DELETE"]
OPS = ("INSERT", "UPDATE", "DELETE")

COUNTER_BITS = 16
MAX_COUNTER = (1 << COUNTER_BITS) - 1
MAX_DRIFT_MS = 5000
_STEPS_AHEAD = 1 << 14
MAX_HLC = (1 << 63) - 1  # `_hlc` is a signed int64 in Parquet, so wall clocks stay below 2^47
MAX_COLUMN_NAME = 255
_MAX_WALL_MS = MAX_HLC >> COUNTER_BITS
_MAX_EXACT_INTEGER = 1 << 53
_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_GATEWAY_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_CONTROL_OR_SURROGATE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class ColumnDelta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column and its new value, which is JSON data; null is a value."""

    column: str
    value: Json


ColumnEntry = ColumnDelta | Mapping[str, Any]


class RowDelta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One INSERT, UPDATE or DELETE of one row by one client at one timestamp."""

    op: Op
    table: str
    row_id: str
    client_id: str
    columns: tuple[ColumnDelta, ...]
    hlc: int
    delta_id: str

    def __post_init__(self) -> None:
        # The shape only: names and values are checked where deltas come in (from_wire, the gateway, the lake).
        if self.op not in OPS:
            raise DeltaError(f"op is INSERT, UPDATE or DELETE, not {abbreviate(self.op)}", field="op")
        if type(self.hlc) is not int or not 0 <= self.hlc <= MAX_HLC:
            raise DeltaError(f"hlc is an integer from 0 to 2^63 - 1, not {abbreviate(self.hlc)}", field="hlc")
        if type(self.columns) is not tuple:
            given: Any = self.columns
            if not isinstance(given, list) or not all(isinstance(entry, ColumnDelta) for entry in given):
                raise DeltaError(f"columns is a sequence of ColumnDelta, not {abbreviate(given)}", field="columns")
            msgspec.structs.force_setattr(self, "columns", tuple(given))
        if self.columns and self.op == "DELETE":
            raise DeltaError("a DELETE has no columns", field="columns")

    @classmethod
    def make(
        cls, *, op: Op, table: str, row_id: str, client_id: str, columns: Iterable[ColumnDelta], hlc: int
    ) -> RowDelta:
        """A delta with the id that its content has."""
        entries = tuple(columns)
        identity = delta_id(client_id=client_id, hlc=hlc, table=table, row_id=row_id, columns=entries)
        return cls(op=op, table=table, row_id=row_id, client_id=client_id, columns=entries, hlc=hlc, delta_id=identity)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> RowDelta:
        """The delta of a JSON object, each field checked; whether the id fits the content is `has_own_id`."""
        return delta_from_wire(data)

    def to_wire(self) -> JsonObject:
        """The delta as JSON data, its timestamp as a decimal string."""
        return {
            "op": self.op,
            "table": self.table,
            "rowId": self.row_id,
            "clientId": self.client_id,
            "columns": [
                {"column": entry.column, "value": as_json(entry.value, on_wire=True)} for entry in self.columns
            ],
            "hlc": str(self.hlc),
            "deltaId": self.delta_id,
        }

    def has_own_id(self) -> bool:
        """Whether the id is the hash of the content."""
        return self.delta_id == delta_id(
            client_id=self.client_id, hlc=self.hlc, table=self.table, row_id=self.row_id, columns=self.columns
        )


# Delta ids: SHA-256 over the canonical JSON of client, timestamp, table, row and columns. The text of ordinary content
# is put together from cached parts; `canonical_json` writes the rest. A property test compares the two.
def delta_id(*, client_id: str, hlc: int | str, table: str, row_id: str, columns: Iterable[ColumnEntry]) -> str:
    """The id of a delta: equal content, equal id. It hashes its arguments and validates nothing.

    >>> delta_id(client_id="c", hlc=1, table="t", row_id="r", columns=[])[:16]
    '2dcebce880c5d195'
    """
    entries: Sequence[ColumnEntry] = columns if isinstance(columns, list | tuple) else list(columns)
    return hashlib.sha256(hash_input(client_id, hlc, table, row_id, columns_text(entries))).hexdigest()


def hash_input(client_id: str, hlc: int | str, table: str, row_id: str, columns_json: str) -> bytes:
    """The bytes that a delta id hashes, given the canonical text of its columns."""
    text = (
        f'{{"clientId":{_repeated_text(client_id)},"columns":{columns_json},"hlc":"{hlc}",'
        f'"rowId":{encode_basestring(row_id)},"table":{_repeated_text(table)}}}'
    )
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates are escaped, pairs are joined
        client, hlc, row, table = map(canonical_json, (client_id, str(hlc), row_id, table))
        text = f'{{"clientId":{client},"columns":{columns_json},"hlc":{hlc},"rowId":{row},"table":{table}}}'
        return text.encode()


def columns_text(columns: Sequence[ColumnEntry]) -> str:
    """The canonical JSON of a delta's columns, in their order, each entry complete."""
    parts = []
    for entry in columns:
        if type(entry) is ColumnDelta:
            value = entry.value
            write = _WRITERS.get(type(value), canonical_json)
            parts.append(f"{_entry_start(entry.column)}{write(value)}}}")
        else:
            parts.append(canonical_json(entry))
    text = f"[{','.join(parts)}]"
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return canonical_json([msgspec.structs.asdict(each) if isinstance(each, ColumnDelta) else each for each in columns])


@lru_cache(maxsize=4096)
def _entry_start(column: str) -> str:
    return f'{{"column":{encode_basestring(column)},"value":'


_repeated_text = lru_cache(maxsize=4096)(encode_basestring)


def _float_text(value: float) -> str:
    # Between 1e-4 and 1e16 Python and JavaScript print the same shortest digits, but for a trailing ".0".
    text = repr(value)
    if "e" in text or "n" in text or value == 0:
        return canonical_json(value)
    return text[:-2] if text.endswith(".0") else text


_WRITERS: dict[type, Callable[[Any], str]] = {
    str: encode_basestring,
    int: lambda value: repr(value) if -_MAX_EXACT_INTEGER <= value <= _MAX_EXACT_INTEGER else canonical_json(value),
    float: _float_text,
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null",
}


# The hybrid logical clock.
def make_hlc(wall_ms: int, counter: int = 0) -> int:
    """The timestamp of a wall clock and a counter; a full counter carries into the wall clock."""
    if counter > MAX_COUNTER:
        wall_ms, counter = wall_ms + 1, 0
    if not 0 <= wall_ms <= _MAX_WALL_MS:
        raise DeltaError(f"wall clock {wall_ms} ms does not fit a timestamp (0 to 2^47 - 1)", wall_ms=wall_ms)
    return wall_ms << COUNTER_BITS | counter


def split_hlc(hlc: int) -> tuple[int, int]:
    """Wall milliseconds and counter of a timestamp."""
    return hlc >> COUNTER_BITS, hlc & MAX_COUNTER


def physical_ms() -> int:
    """Milliseconds since 1970 by this machine's clock."""
    return time.time_ns() // 1_000_000


def check_drift(hlc: int, physical: int) -> None:
    """Refuse a timestamp more than 5000 ms ahead of physical time."""
    ahead = (hlc >> COUNTER_BITS) - physical
    if ahead > MAX_DRIFT_MS:
        raise ClockDriftError(f"Remote clock is {ahead}ms ahead (max drift: {MAX_DRIFT_MS}ms)", ahead_ms=ahead)


def latest_admitted(clock: int, physical: int) -> int:
    """The greatest timestamp that a log accepts: 5000 ms ahead of physical time, or a few steps ahead of its clock.

    So a timestamp that the log has issued is always accepted back. Drift is not counted from the log's own clock, or
    each push could carry it 5000 ms further.
    """
    return min(max(make_hlc(physical + MAX_DRIFT_MS, MAX_COUNTER), clock + _STEPS_AHEAD), MAX_HLC)


class Clock:
    """A hybrid logical clock; every timestamp is greater than all before it, also under threads.

    `wall` gives physical milliseconds, `last` is the timestamp to continue from (a new clock is at 0).
    """

    def __init__(self, wall: Callable[[], int] | None = None, *, last: int = 0) -> None:
        self._wall = wall or physical_ms
        self._last = _checked(last)
        self._lock = threading.Lock()

    @property
    def last(self) -> int:
        """The newest timestamp given so far."""
        return self._last

    def now(self) -> int:
        """The next timestamp."""
        with self._lock:
            self._last = self._next()
            return self._last

    def take(self, count: int) -> range:
        """Several timestamps in a row, in one step."""
        with self._lock:
            first = self._next() if count else self._last
            # Adding carries a full counter into the wall clock, as counting does.
            taken = range(first, first + count)
            self._last = _checked(taken[-1]) if count else self._last
            return taken

    def recv(self, remote: int) -> int:
        """Step past a remote timestamp; one too far ahead is an error and leaves the clock as it was."""
        if type(remote) is not int or remote < 0:
            raise DeltaError(f"a timestamp is a non-negative integer, not {remote!r}")
        with self._lock:
            physical = int(self._wall())
            check_drift(remote, physical)
            self._last = _after(self._last, _checked(remote), physical)
            return self._last

    def follow(self, remote: int) -> int:
        """Step past the timestamp of a delta that the log accepts, see `latest_admitted`."""
        with self._lock:
            self._last = _after(self._last, _checked(remote), int(self._wall()))
            return self._last

    def _next(self) -> int:
        previous_wall, previous_counter = split_hlc(self._last)
        physical = int(self._wall())
        return make_hlc(physical) if physical > previous_wall else make_hlc(previous_wall, previous_counter + 1)


def _after(last: int, remote: int, physical: int) -> int:
    """The timestamp that follows `last`, `remote` and physical time."""
    previous_wall, previous_counter = split_hlc(last)
    remote_wall, remote_counter = split_hlc(remote)
    local_wall = max(physical, previous_wall)
    local_counter = previous_counter if local_wall == previous_wall else -1
    if remote_wall > local_wall:
        return make_hlc(remote_wall, remote_counter + 1)
    if remote_wall == local_wall:
        return make_hlc(local_wall, max(local_counter, remote_counter) + 1)
    return make_hlc(local_wall, local_counter + 1)


def _checked(hlc: int) -> int:
    if type(hlc) is not int or not 0 <= hlc <= MAX_HLC:
        raise DeltaError(f"timestamp {hlc!r} is not an integer from 0 to 2^63 - 1")
    return hlc


# Names of tables, gateways and columns.
def check_table_name(name: str) -> str:
    """The name, or an error that says what table names look like."""
    return _matching(_TABLE_NAME, name, "table name", "letters, digits or _")


def check_gateway_id(name: str) -> str:
    """The id, or an error that says what gateway ids look like."""
    return _matching(_GATEWAY_ID, name, "gateway id", "letters, digits, _ or -")


def _matching(pattern: re.Pattern[str], name: str, what: str, allowed: str) -> str:
    if not isinstance(name, str) or not pattern.fullmatch(name):
        message = f"{what} {abbreviate(name)} is not valid: a letter, then up to 63 {allowed}"
        raise DeltaError(message, field=what.partition(" ")[0])
    return name


def check_column_name(name: str) -> str:
    """The name, or an error that says what is wrong with it."""
    problem = ""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_COLUMN_NAME:
        problem = f"1 to {MAX_COLUMN_NAME} characters"
    elif name.startswith("_"):
        problem = "it begins with _"
    elif _CONTROL_OR_SURROGATE.search(name):
        problem = "control characters and lone surrogates are not allowed"
    if problem:
        raise DeltaError(f"column name {abbreviate(name)} is not valid: {problem}", field="columns")
    return name


# A stream of deltas repeats a few sets of columns, so each set is checked once.
@lru_cache(maxsize=4096)
def check_column_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, each valid and unique ignoring case."""
    seen: dict[str, str] = {}
    for name in names:
        folded = check_column_name(name).casefold()
        if folded in seen and seen[folded] == name:
            raise DeltaError(f"column {abbreviate(name)} is named twice", field="columns")
        if folded in seen:
            message = f"columns {abbreviate(seen[folded])} and {abbreviate(name)} differ only in case"
            raise DeltaError(message, field="columns")
        seen[folded] = name
    return names


def abbreviate(value: object, limit: int = 60) -> str:
    """A value for an error message, cut to a length."""
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


# Deltas as JSON data: strict on the way in.


MAX_ID_LENGTH = 1024  # row ids, client ids: they become keys in files and databases
MAX_NESTING = 64
_PLAIN = frozenset({str, int, bool, type(None)})

_FIELDS = ("op", "table", "rowId", "clientId", "columns", "hlc", "deltaId")
_DECIMAL = re.compile(r"[0-9]{1,19}")
_SURROGATE = re.compile("[\ud800-\udfff]")


def delta_from_wire(data: Json, *, stored: bool = False) -> RowDelta:
    """The delta of a JSON object; the first malformed field is named.

    A `stored` one was accepted earlier, so its hlc may be 0, which is refused now because no `since` can fetch it.
    """
    if not isinstance(data, Mapping):
        raise DeltaError(f"a delta is an object, not {abbreviate(data)}", field="delta")
    for name in _FIELDS:
        if name not in data:
            raise DeltaError(f"a delta needs the member {name}", field=name)
    if len(data) != len(_FIELDS):
        unknown = next(name for name in data if name not in _FIELDS)
        raise DeltaError(f"a delta has no member {abbreviate(unknown)}", field="delta")
    op = data["op"]
    if not isinstance(op, str) or op not in OPS:
        raise DeltaError(f"op is INSERT, UPDATE or DELETE, not {abbreviate(op)}", field="op")
    return RowDelta(
        op=cast(Op, op),
        table=check_table_name(check_text("table", data["table"])),
        row_id=check_id("rowId", data["rowId"]),
        client_id=check_id("clientId", data["clientId"]),
        columns=_columns(op, data["columns"]),
        hlc=hlc_from_wire(data["hlc"]) if stored else delta_hlc_from_wire(data["hlc"]),
        delta_id=check_id("deltaId", data["deltaId"]),
    )


def hlc_from_wire(value: Json, field: str = "hlc") -> int:
    """The timestamp of its decimal text; numbers, hex, blanks and signs are refused."""
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise DeltaError(f"{field} is a string of decimal digits, not {abbreviate(value)}", field=field)
    hlc = int(value)
    if hlc > MAX_HLC:
        raise DeltaError(f"{field} {value} is beyond 2^63 - 1", field=field)
    return hlc


def delta_hlc_from_wire(value: Json) -> int:
    """The timestamp of a delta: it is above 0, because no `since` could fetch one at 0."""
    hlc = hlc_from_wire(value)
    if hlc == 0:
        raise DeltaError("the hlc of a delta is greater than 0", field="hlc")
    return hlc


def check_id(field: str, value: Json) -> str:
    """A row, client or delta id: text of a limited length."""
    text = check_text(field, value)
    if not 1 <= len(text) <= MAX_ID_LENGTH:
        raise DeltaError(f"{field} has {len(text)} characters: 1 to {MAX_ID_LENGTH} are allowed", field=field)
    return text


def check_text(field: str, value: Json) -> str:
    """A string that UTF-8 can encode."""
    if not isinstance(value, str):
        raise DeltaError(f"{field} is a string, not {abbreviate(value)}", field=field)
    if not value.isascii() and _SURROGATE.search(value):
        raise DeltaError(f"{field} holds a lone surrogate", field=field)
    return value


def check_value(column: str, value: Json, depth: int = 0) -> None:
    """Refuse what is not JSON data, what UTF-8 cannot encode, what is nested too deep and what a double changes."""
    if value is None or isinstance(value, bool | float):
        return
    if isinstance(value, int):
        if not survives(value):
            message = f"column {abbreviate(column)}: a double does not hold the integer {value}: send it as text"
            raise DeltaError(message, field="columns", column=column)
    elif isinstance(value, str):
        if not value.isascii() and _SURROGATE.search(value):
            message = f"the value of column {abbreviate(column)} holds a lone surrogate"
            raise DeltaError(message, field="columns", column=column)
    elif depth >= MAX_NESTING:
        message = f"the value of column {abbreviate(column)} is nested deeper than {MAX_NESTING}"
        raise DeltaError(message, field="columns")
    elif isinstance(value, Mapping | list | tuple):
        for item in chain.from_iterable(value.items()) if isinstance(value, Mapping) else value:
            check_value(column, item, depth + 1)
    else:
        message = f"the value of column {abbreviate(column)} is a {type(value).__name__}, which is not JSON"
        raise DeltaError(message, field="columns")


def _columns(op: str, data: Json) -> tuple[ColumnDelta, ...]:
    if not isinstance(data, list | tuple):
        raise DeltaError(f"columns is a list, not {abbreviate(data)}", field="columns")
    if data and op == "DELETE":
        raise DeltaError("a DELETE has no columns", field="columns")
    entries = tuple(_column(entry) for entry in data)
    check_column_names(tuple(entry.column for entry in entries))
    return entries


def _column(data: Json) -> ColumnDelta:
    if not isinstance(data, Mapping) or len(data) != 2 or "column" not in data or "value" not in data:
        raise DeltaError(
            f"an entry of columns is {{column, value}} and no more, not {abbreviate(data)}", field="columns"
        )
    name = check_text("column", data["column"])
    check_value(name, data["value"])
    return ColumnDelta(name, as_json(data["value"]))


def as_json(value: Json, *, on_wire: bool = False) -> Json:
    """The value as a delta carries it: NaN and the infinities as null; on the wire -0 is 0, as JavaScript writes it."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, float):
        return 0 if on_wire and value == 0 else value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return as_double(value)
    if isinstance(value, Mapping):
        return {name: as_json(item, on_wire=on_wire) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item, on_wire=on_wire) for item in value]
    return value

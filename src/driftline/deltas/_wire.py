"""Deltas as JSON data: strict on the way in, timestamps as decimal strings on the way out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import cast

from driftline.core import Json, JsonObject
from driftline.deltas._deltas import (
    MAX_HLC,
    OPS,
    ColumnDelta,
    Op,
    RowDelta,
    abbreviate,
    check_column_names,
    check_table_name,
)
from driftline.deltas._extract import as_json
from driftline.deltas._numbers import survives
from driftline.errors import DeltaError

MAX_ID_LENGTH = 1024  # row ids, client ids: they become keys in files and databases
MAX_NESTING = 64

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
    op = check_op(data["op"])
    return RowDelta(
        op=op,
        table=check_table_name(check_text("table", data["table"])),
        row_id=check_id("rowId", data["rowId"]),
        client_id=check_id("clientId", data["clientId"]),
        columns=_columns(op, data["columns"]),
        hlc=hlc_from_wire(data["hlc"]) if stored else delta_hlc_from_wire(data["hlc"]),
        delta_id=check_id("deltaId", data["deltaId"]),
    )


def delta_to_wire(delta: RowDelta) -> JsonObject:
    """The delta as JSON data."""
    return {
        "op": delta.op,
        "table": delta.table,
        "rowId": delta.row_id,
        "clientId": delta.client_id,
        "columns": [{"column": entry.column, "value": _wire_value(entry.value)} for entry in delta.columns],
        "hlc": str(delta.hlc),
        "deltaId": delta.delta_id,
    }


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


def check_op(value: Json) -> Op:
    """The operation, or an error naming the three there are."""
    if not isinstance(value, str) or value not in OPS:
        raise DeltaError(f"op is INSERT, UPDATE or DELETE, not {abbreviate(value)}", field="op")
    return cast(Op, value)


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
            raise DeltaError(
                f"column {abbreviate(column)}: a double does not hold the integer {value}: send it as text",
                field="columns",
                column=column,
            )
        return
    if isinstance(value, str):
        if not value.isascii() and _SURROGATE.search(value):
            message = f"the value of column {abbreviate(column)} holds a lone surrogate"
            raise DeltaError(message, field="columns", column=column)
        return
    if depth >= MAX_NESTING:
        raise DeltaError(
            f"the value of column {abbreviate(column)} is nested deeper than {MAX_NESTING}", field="columns"
        )
    if isinstance(value, Mapping):
        for name, item in value.items():
            check_value(column, name, depth + 1)
            check_value(column, item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            check_value(column, item, depth + 1)
    else:
        raise DeltaError(
            f"the value of column {abbreviate(column)} is a {type(value).__name__}, which is not JSON", field="columns"
        )


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


def _wire_value(value: Json) -> Json:
    # JSON.stringify writes -0 as 0 and non-finite numbers as null.
    if isinstance(value, float):
        return 0 if value == 0 else value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_wire_value(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _wire_value(item) for name, item in value.items()}
    return value

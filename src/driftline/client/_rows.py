"""Rows as an application writes them, reads them, queries them and subscribes to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from driftline import deltas
from driftline.core import JsonObject
from driftline.errors import DeltaError

ColumnTypes = Mapping[str, str]
Where = Iterable[Mapping[str, Any]]
Filters = tuple[tuple[str, str, Any], ...]  # column, operator, value


@dataclass(frozen=True, slots=True)
class Change:
    """A row that changed; `columns` is None where it was deleted."""

    table: str
    row_id: str
    columns: JsonObject | None


@dataclass(slots=True, eq=False)
class Subscription:
    """A callback for changes of rows, until it is closed."""

    table: str
    row_id: str | None
    filters: Filters
    callback: Callable[[list[Change]], object]
    is_open: bool = True

    def close(self) -> None:
        """End it: no call begins after this."""
        self.is_open = False

    def news(
        self, key: deltas.RowKey, before: deltas.RowState, after: deltas.RowState, types: ColumnTypes
    ) -> list[Change]:
        """The notification about a row that changed; one that passes the filters no longer is reported as removed."""
        if self.table != key[0] or self.row_id not in (None, key[1]):
            return []
        if passes(after, self.filters, types):
            return [Change(*key, deepcopy(read_columns(after, types)))]
        return [Change(*key, None)] if passes(before, self.filters, types) else []


def read_filters(table: str, where: Where) -> Filters:
    """Filters `{column, op, value}`, checked: what could never match is an error."""
    deltas.check_table_name(table)
    found: list[tuple[str, str, Any]] = []
    for item in where:
        if not isinstance(item, Mapping) or set(item) != {"column", "op", "value"}:
            raise DeltaError(f"where is a list of filters {{column, op, value}}, not {deltas.abbreviate(item)}")
        column, op, value = deltas.check_column_name(item["column"]), item["op"], item["value"]
        value = list(value) if isinstance(value, tuple) else value
        if op not in deltas.FILTER_OPS:
            raise DeltaError(f"op is one of {', '.join(deltas.FILTER_OPS)}, not {deltas.abbreviate(op)}", column=column)
        if op == "in" and not isinstance(value, list):
            raise DeltaError("the value of an `in` filter is a list", column=column)
        if op in deltas.ORDER_OPS and isinstance(value, list):
            raise DeltaError(f"the value of a `{op}` filter is one value: a list has no order", column=column)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Decimal):
                check_exact(column, 0.0 if each.is_finite() else float("nan"))
            elif type(each) is not int:  # exact columns have integers of any size
                check_exact(column, each)
                deltas.check_value(column, each)
        found.append((column, op, value))
    return tuple(found)


def passes(state: deltas.RowState, filters: Filters, types: ColumnTypes) -> bool:
    """Whether a row is there and passes all filters."""
    return state.live and all(
        deltas.holds(op, deltas.comparable(state.columns.get(column, deltas.ABSENT), types.get(column)), value)
        for column, op, value in filters
    )


def read_columns(state: deltas.RowState, types: ColumnTypes) -> JsonObject | None:
    """A row's columns as the application sees them, None where it is missing."""
    if not state.live:
        return None
    return {name: _python_value(types.get(name), value) for name, value in state.columns.items()}


def wire_columns(columns: Mapping[str, Any], types: ColumnTypes) -> JsonObject:
    """The columns as deltas carry them; what would not come back as it was put is refused."""
    found: JsonObject = {}
    for name, value in columns.items():
        kind = types.get(deltas.check_text("column", name))
        if kind is None or value is None:
            check_exact(name, value)
            deltas.check_value(name, value)
            found[name] = value
            continue
        try:
            found[name] = deltas.exact_wire(kind, value)
        except ValueError as error:
            raise DeltaError(
                f"column {deltas.abbreviate(name)} is {kind}, which does not hold {value!r}", column=name
            ) from error
    return found


def _python_value(kind: str | None, wire: Any) -> Any:
    if kind is None or wire is None:
        return wire
    try:
        return deltas.exact_value(kind, wire)
    except ValueError:  # of a delta from before the column had this type
        return wire


def check_exact(column: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            deltas.check_text(f"a key in column {deltas.abbreviate(column)}", name)
            check_exact(column, item)
    elif isinstance(value, list | tuple):
        for item in value:
            check_exact(column, item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise DeltaError(f"column {deltas.abbreviate(column)}: {value} is not JSON: put None or a text", column=column)
    elif type(value) is int and not -deltas.SAFE_INTEGER <= value <= deltas.SAFE_INTEGER:
        message = f"{value} is beyond ±(2^53 - 1), where doubles are not exact: put a text"
        raise DeltaError(f"column {deltas.abbreviate(column)}: {message}", column=column)

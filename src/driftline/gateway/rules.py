"""Sync rules: which rows a caller sees. Filters of a bucket must all hold, one bucket is enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec

from driftline.canonical import canonical_json
from driftline.deltas.names import check_column_name, check_table_name
from driftline.errors import DeltaError, GatewayError

FilterOp = Literal["eq", "neq", "in", "gt", "lt", "gte", "lte"]
FILTER_OPS: tuple[str, ...] = get_args(FilterOp)

_CLAIM = "jwt:"
_MISSING = object()


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition on one column; a value `jwt:claim` stands for the caller's claim."""

    column: str
    op: FilterOp
    value: Any


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of some tables for which all filters hold."""

    name: str
    tables: list[str]
    filters: list[Filter] = []


class SyncRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row is visible when one bucket takes it."""

    version: int
    buckets: list[Bucket]

    def columns_of(self, table: str) -> list[str]:
        """The columns that decide about rows of a table."""
        names = {item.column for bucket in self.buckets if table in bucket.tables for item in bucket.filters}
        return sorted(names)

    def sees(self, table: str, columns: Mapping[str, Any], claims: Mapping[str, Any]) -> bool:
        """Whether a caller sees a living row with these columns."""
        return any(
            table in bucket.tables and all(_holds(item, columns, claims) for item in bucket.filters)
            for bucket in self.buckets
        )


def parse_rules(data: bytes) -> SyncRules:
    """The rules of a JSON document; what is wrong with it is named."""
    try:
        rules = msgspec.json.decode(data, type=SyncRules)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise GatewayError(f"the body is not a set of sync rules: {str(error)[:200]}") from error
    names = [bucket.name for bucket in rules.buckets]
    if len(set(names)) < len(names):
        raise GatewayError("two buckets have the same name")
    for bucket in rules.buckets:
        _check_bucket(bucket)
    return rules


def _check_bucket(bucket: Bucket) -> None:
    try:
        for table in bucket.tables:
            check_table_name(table)
        for item in bucket.filters:
            check_column_name(item.column)
            if item.op == "in" and not (isinstance(item.value, list) or _is_claim(item.value)):
                raise DeltaError("the value of an `in` filter is a list or a jwt: claim")
    except DeltaError as error:
        raise GatewayError(f"bucket {bucket.name!r}: {error.message}") from error
    if not bucket.tables:
        raise GatewayError(f"bucket {bucket.name!r} names no table")


def _holds(item: Filter, columns: Mapping[str, Any], claims: Mapping[str, Any]) -> bool:
    wanted = claims.get(item.value[len(_CLAIM) :], _MISSING) if _is_claim(item.value) else item.value
    found = columns.get(item.column, _MISSING)
    if wanted is _MISSING or found is _MISSING:
        return False
    return _COMPARE[item.op](found, wanted)


def _is_claim(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(_CLAIM)


def _among(found: Any, wanted: Any) -> bool:
    # A claim may be one value or a list of them (teams, projects): either way the row's value is one of them.
    choices = wanted if isinstance(wanted, list) else [wanted]
    return canonical_json(found) in {canonical_json(choice) for choice in choices}


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(found: Any, wanted: Any) -> bool:
        alike = (_is_number(found) and _is_number(wanted)) or (isinstance(found, str) and isinstance(wanted, str))
        return alike and compare(found, wanted)

    return holds


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": _among,
    "in": _among,
    "neq": lambda found, wanted: not _among(found, wanted),
    "gt": _ordered(lambda found, wanted: found > wanted),
    "lt": _ordered(lambda found, wanted: found < wanted),
    "gte": _ordered(lambda found, wanted: found >= wanted),
    "lte": _ordered(lambda found, wanted: found <= wanted),
}

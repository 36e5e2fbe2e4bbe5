"""Sync rules: which rows a caller sees (gateway §9). All filters of a bucket must match, one bucket is enough."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args

import msgspec

from driftline.core import Json, canonical_json, sha256_hex, utf16_sort_key
from driftline.deltas import check_column_name, check_table_name
from driftline.errors import DeltaError, GatewayError

FilterOp = Literal["eq", "neq", "in", "gt", "lt", "gte", "lte"]
FILTER_OPS: tuple[str, ...] = get_args(FilterOp)
Operation = Literal["insert", "update", "delete"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
VERSION = 1
READ, OPEN = "read", "open"

ABSENT = object()  # a column, claim or parameter that is missing: no filter matches it

_CLAIM, _PARAMETER = "jwt:", "param:"
_DIGEST_LENGTH = 16
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition on one column; `jwt:name` stands for the caller's claim, `param:name` for `?p.name=`."""

    column: str
    op: FilterOp
    value: Json

    def reference(self) -> tuple[str, str] | None:
        """The claim or parameter that the value stands for: its kind and its name."""
        for kind in (_CLAIM, _PARAMETER):
            if isinstance(self.value, str) and self.value.startswith(kind):
                return kind, self.value[len(kind) :]
        return None


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of some tables that match all filters."""

    name: str
    tables: list[str]
    filters: list[Filter] = []


class Asker(msgspec.Struct, frozen=True):
    """What a view depends on: the caller's claims, and the parameters of the request, which only narrow it."""

    claims: Mapping[str, Any]
    parameters: Mapping[str, str] = {}

    def value(self, kind: str, name: str) -> Json:
        """The value of a claim or a parameter."""
        return (self.claims if kind == _CLAIM else self.parameters).get(name, ABSENT)


class WrittenColumns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The columns that a delta may name, whether they win or not."""

    only: list[str] | None = None
    without: list[str] = msgspec.field(name="except", default_factory=list)

    def allow(self, names: Iterable[str]) -> bool:
        """Whether all of these may be written."""
        return all((self.only is None or name in self.only) and name not in self.without for name in names)


class WriteCondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a row is before and after a write: visible to the writer (`read`), or passing all filters."""

    before: list[Filter] | str = READ
    after: list[Filter] | str = READ
    columns: WrittenColumns = WrittenColumns()
    ids: str | None = None  # a claim whose text, and a colon, new row ids start with

    def filters(self) -> list[Filter]:
        """The filters of both sides."""
        return [item for side in (self.before, self.after) if not isinstance(side, str) for item in side]


class WriteEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may be done with rows of some tables; an operation that is not named is not allowed."""

    tables: list[str]
    insert: WriteCondition | str | bool = False
    update: WriteCondition | str | bool = False
    delete: WriteCondition | str | bool = False

    def condition(self, operation: Operation) -> WriteCondition | None:
        """The condition of an operation, None where it is not allowed."""
        found: WriteCondition | str | bool = getattr(self, operation)
        return found if isinstance(found, WriteCondition) else WriteCondition() if found == READ else None


class SyncRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row is visible when one bucket contains it; without `writes`, a client may write what it may read."""

    version: int
    buckets: list[Bucket]
    writes: list[WriteEntry] | str = []

    def tables(self) -> set[str]:
        """The tables that a bucket names."""
        return {table for bucket in self.buckets for table in bucket.tables}

    def columns_of(self, table: str) -> list[str]:
        """The columns of a table that filters use."""
        names = {item.column for bucket in self.buckets if table in bucket.tables for item in bucket.filters}
        return sorted(names)

    def sees(
        self, table: str, columns: Mapping[str, Any], claims: Mapping[str, Any], parameters: Mapping[str, str] = {}
    ) -> bool:
        """Whether a caller sees a living row with these columns."""
        asker = Asker(claims, parameters)
        return any(
            table in bucket.tables and all(matches(item, columns, asker) for item in bucket.filters)
            for bucket in self.buckets
        )

    def view_digest(self, claims: Mapping[str, Any], parameters: Mapping[str, str] = {}) -> str:
        """Identifies a view by the claims and parameters that the rules use; the order of a list does not matter.

        A cursor has it: a caller that gains a team would never get that team's older rows with an old cursor.
        """
        asker = Asker(claims, parameters)
        found = {f"{kind}{name}": asker.value(kind, name) for kind, name in self._references()}
        used = {name: _sorted_list(value) for name, value in found.items() if value is not ABSENT}
        return sha256_hex(canonical_json(used))[:_DIGEST_LENGTH]

    def _references(self) -> Iterable[tuple[str, str]]:
        every = (item.reference() for bucket in self.buckets for item in bucket.filters)
        return {reference for reference in every if reference is not None}


NO_RULES = SyncRules(VERSION, [])


def parse_rules(data: bytes) -> SyncRules:
    """The rules of a JSON document; what is wrong with it is named."""
    rules = read_stored_rules(data)
    if rules.version != VERSION:
        raise GatewayError(f"sync rules of version {rules.version} are not understood: version must be {VERSION}")
    names = [bucket.name for bucket in rules.buckets]
    if len(set(names)) < len(names):
        raise GatewayError("two buckets have the same name")
    for bucket in rules.buckets:
        _check_bucket(bucket)
    _check_writes(rules.writes)
    return rules


def read_stored_rules(data: bytes) -> SyncRules:
    """Rules that were accepted once: older versions of driftline were less strict, with the same semantics."""
    try:
        return msgspec.json.decode(data, type=SyncRules)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise GatewayError(f"the body is not a set of sync rules: {str(error)[:200]}") from error


def _check_bucket(bucket: Bucket) -> None:
    try:
        for table in bucket.tables:
            check_table_name(table)
        for item in bucket.filters:
            check_column_name(item.column)
            _check_value(item)
    except DeltaError as error:
        raise GatewayError(f"bucket {bucket.name!r}: {error.message}") from error
    if not bucket.tables:
        raise GatewayError(f"bucket {bucket.name!r} names no table")


def _check_writes(writes: list[WriteEntry] | str) -> None:
    if isinstance(writes, str):
        if writes != OPEN:
            raise GatewayError(f'writes is a list of entries or "{OPEN}", not {writes[:40]!r}')
        return
    for number, entry in enumerate(writes):
        try:
            for table in entry.tables:
                check_table_name(table)
            for operation in OPERATIONS:
                _check_operation(operation, getattr(entry, operation))
        except DeltaError as error:
            raise GatewayError(f"writes[{number}]: {error.message}") from error
        if not entry.tables:
            raise GatewayError(f"writes[{number}] names no table")


def _check_operation(operation: Operation, found: WriteCondition | str | bool) -> None:
    if not isinstance(found, WriteCondition):
        if found not in (READ, False):
            raise DeltaError(f'{operation} is "{READ}", false or a condition, not {found!r:.40}')
        return
    for side in (found.before, found.after):
        if isinstance(side, str) and side != READ:
            raise DeltaError(f'before and after are "{READ}" or filters, not {side[:40]!r}')
    for item in found.filters():
        check_column_name(item.column)
        _check_value(item)
        if (reference := item.reference()) and reference[0] == _PARAMETER:
            raise DeltaError(f"{item.value}: a parameter is chosen by the caller and protects nothing")
    if found.ids is not None and (operation != "insert" or not found.ids.removeprefix(_CLAIM)):
        raise DeltaError("ids is a claim (jwt:name) that the row ids of an insert start with")
    if found.ids is not None and not found.ids.startswith(_CLAIM):
        raise DeltaError("ids is a claim: jwt:name")


def _check_value(item: Filter) -> None:
    is_list, reference = isinstance(item.value, list), item.reference()
    if item.op == "in" and not is_list and reference is None:
        raise DeltaError("the value of an `in` filter is a list, a jwt: claim or a param:")
    if item.op in ORDER_OPS and is_list:
        raise DeltaError(f"the value of a `{item.op}` filter is one value: a list has no order")
    if reference is not None and not reference[1]:
        raise DeltaError(f"{item.value} names nothing")


def matches(item: Filter, columns: Mapping[str, Any], asker: Asker) -> bool:
    reference = item.reference()
    wanted = item.value if reference is None else asker.value(*reference)
    return holds(item.op, columns.get(item.column, ABSENT), wanted)


def _sorted_list(value: Json) -> Json:
    return sorted(map(canonical_json, value)) if isinstance(value, list) else value


def holds(op: str, found: Json, wanted: Json) -> bool:
    """Whether a row's value passes a filter."""
    if found is ABSENT or wanted is ABSENT:
        return False
    if op in ("eq", "in"):
        return _is_any_of(found, wanted)
    if op == "neq":
        return not _is_any_of(found, wanted)
    order = _order(found, wanted)
    return order is not None and _ORDERED[op](order)


_ORDERED: Mapping[str, Callable[[int], bool]] = {
    "gt": lambda order: order > 0,
    "lt": lambda order: order < 0,
    "gte": lambda order: order >= 0,
    "lte": lambda order: order <= 0,
}
ORDER_OPS = tuple(_ORDERED)


def _is_any_of(found: Json, wanted: Json) -> bool:
    return any(_equal(found, each) for each in wanted) if isinstance(wanted, list) else _equal(found, wanted)


def _equal(found: Json, wanted: Json) -> bool:
    if found is None:
        return wanted is None
    if isinstance(found, bool):
        return wanted is found or (isinstance(wanted, str) and wanted == ("true" if found else "false"))
    if _is_number(found):
        return _compared(_double(found), _number_of(wanted)) == 0
    if isinstance(found, str):
        text = canonical_json(wanted) if _is_number(wanted) and _double(wanted) is not None else wanted
        return isinstance(text, str) and found == text
    return isinstance(wanted, dict | list) and canonical_json(found) == canonical_json(wanted)


def _order(found: Json, wanted: Json) -> int | None:
    """-1, 0 or 1; None where the two have no order."""
    if _is_number(found):
        return _compared(_double(found), _number_of(wanted))
    if isinstance(found, str) and isinstance(wanted, str):
        one, other = utf16_sort_key(found), utf16_sort_key(wanted)
        return (one > other) - (one < other)
    return None


def _compared(one: float | None, other: float | None) -> int | None:
    return None if one is None or other is None else (one > other) - (one < other)


def _number_of(wanted: Json) -> float | None:
    """A filter's value as a number: one already, or text that is a JSON number."""
    if _is_number(wanted):
        return _double(wanted)
    return _double(wanted) if isinstance(wanted, str) and _JSON_NUMBER.fullmatch(wanted) else None


def _double(value: Json) -> float | None:
    try:
        number = float(value)
    except OverflowError:  # an integer beyond every double
        return None
    return number if math.isfinite(number) else None


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

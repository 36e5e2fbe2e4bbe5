"""Sync rules: which rows a caller sees, and which deltas it may push (gateway §9).

All filters of a bucket must match, one bucket is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import msgspec

from driftline.core import Json, JsonObject, exact_dumps, exact_number, sha256_hex
from driftline.deltas import (
    ABSENT,
    ORDER_OPS,
    FilterOp,
    RowDelta,
    RowKey,
    RowMerge,
    Types,
    check_column_name,
    check_table_name,
    comparable,
    holds,
)
from driftline.errors import DeltaError, GatewayError
from driftline.gateway._log.log import UNSEEDED, Claims, Entry, Head, Session, StoredRow, unavailable
from driftline.gateway._sync.push import exact_types, read_schemas, stored_delta
from driftline.gateway._sync.row_index import IndexedRow, is_live, read_row, values_of, written_row

Operation = Literal["insert", "update", "delete"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
VERSION = 1
READ, OPEN = "read", "open"

_CLAIM, _PARAMETER = "jwt:", "param:"
_DIGEST_LENGTH = 16


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

    def operand(self, claims: Claims, parameters: Mapping[str, str]) -> Json:
        """The value itself, or the claim or parameter that it stands for."""
        reference = self.reference()
        if reference is None:
            return self.value
        return (claims if reference[0] == _CLAIM else parameters).get(reference[1], ABSENT)

    def is_parameter(self) -> bool:
        """Whether the caller chooses the value, so that it only narrows a view."""
        return isinstance(self.value, str) and self.value.startswith(_PARAMETER)


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of some tables that match all filters."""

    name: str
    tables: list[str]
    filters: list[Filter] = []


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


class RulesDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON document of a set of rules."""

    version: int
    buckets: list[Bucket]
    writes: list[WriteEntry] | str = []


class SyncRules(RulesDocument, frozen=True):
    """A row is visible when one bucket contains it; without `writes`, a client may write what it may read."""

    types: Mapping[str, Types] = {}  # by table, the columns whose numbers are exact: they are compared by value

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
        types = self.types.get(table, {})
        return any(
            table in bucket.tables and passes_all(bucket.filters, columns, types, claims, parameters)
            for bucket in self.buckets
        )

    def view_digest(self, claims: Mapping[str, Any], parameters: Mapping[str, str] = {}) -> str:
        """Identifies a view by the claims, parameters and exact types that the rules use; lists have no order.

        A cursor has it: a caller that gains a team would never get that team's older rows with an old cursor.
        """
        items = [item for bucket in self.buckets for item in bucket.filters if item.reference() is not None]
        found = {str(item.value): item.operand(claims, parameters) for item in items}
        lists = {name: sorted(map(exact_dumps, value)) for name, value in found.items() if isinstance(value, list)}
        kinds = {
            f"type:{table}:{name}": types[name]
            for table, types in self.types.items()
            for name in types.keys() & self.columns_of(table)
        }
        used = {name: value for name, value in {**found, **lists, **kinds}.items() if value is not ABSENT}
        text = exact_dumps(dict(sorted(used.items())))
        return sha256_hex(text.encode("utf-8", "surrogatepass"))[:_DIGEST_LENGTH]


NO_RULES = SyncRules(VERSION, [])
_decoder = msgspec.json.Decoder(RulesDocument, float_hook=exact_number)


def parse_rules(data: bytes) -> SyncRules:
    """The rules of a JSON document; what is wrong with it is named."""
    rules = read_stored_rules(data)
    if rules.version != VERSION:
        raise GatewayError(f"sync rules of version {rules.version} are not understood: version must be {VERSION}")
    names = [bucket.name for bucket in rules.buckets]
    if len(set(names)) < len(names):
        raise GatewayError("two buckets have the same name")
    for bucket in rules.buckets:
        with _checking(f"bucket {bucket.name!r}", bucket.tables):
            for item in bucket.filters:
                _check_filter(item)
    if isinstance(rules.writes, str):
        if rules.writes != OPEN:
            raise GatewayError(f'writes is a list of entries or "{OPEN}", not {rules.writes[:40]!r}')
        return rules
    for number, entry in enumerate(rules.writes):
        with _checking(f"writes[{number}]", entry.tables):
            for operation in OPERATIONS:
                _check_operation(operation, getattr(entry, operation))
    return rules


def read_stored_rules(data: bytes, types: Mapping[str, Types] | None = None) -> SyncRules:
    """Rules that were accepted once: older versions of driftline were less strict, with the same semantics."""
    try:
        found = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError) as error:
        raise GatewayError(f"the body is not a set of sync rules: {str(error)[:200]}") from error
    return SyncRules(found.version, found.buckets, found.writes, types or {})


@contextmanager
def _checking(where: str, tables: Sequence[str]) -> Iterator[None]:
    """Check the tables of an entry, and name the entry in every error."""
    try:
        for table in tables:
            check_table_name(table)
        yield
    except DeltaError as error:
        raise GatewayError(f"{where}: {error.message}") from error
    if not tables:
        raise GatewayError(f"{where} names no table")


def _check_operation(operation: Operation, found: WriteCondition | str | bool) -> None:
    if not isinstance(found, WriteCondition):
        if found not in (READ, False):
            raise DeltaError(f'{operation} is "{READ}", false or a condition, not {found!r:.40}')
        return
    for side in (found.before, found.after):
        if isinstance(side, str) and side != READ:
            raise DeltaError(f'before and after are "{READ}" or filters, not {side[:40]!r}')
    for item in found.filters():
        _check_filter(item)
        if item.is_parameter():
            raise DeltaError(f"{item.value}: a parameter is chosen by the caller and protects nothing")
    is_claim = found.ids is not None and found.ids.startswith(_CLAIM) and found.ids != _CLAIM
    if found.ids is not None and not (is_claim and operation == "insert"):
        raise DeltaError("ids is a claim (jwt:name) that the row ids of an insert start with")


def _check_filter(item: Filter) -> None:
    check_column_name(item.column)
    is_list, reference = isinstance(item.value, list), item.reference()
    if item.op == "in" and not is_list and reference is None:
        raise DeltaError("the value of an `in` filter is a list, a jwt: claim or a param:")
    if item.op in ORDER_OPS and is_list:
        raise DeltaError(f"the value of a `{item.op}` filter is one value: a list has no order")
    if reference is not None and not reference[1]:
        raise DeltaError(f"{item.value} names nothing")


def passes_all(
    filters: Iterable[Filter], columns: Mapping[str, Any], types: Types, claims: Claims, parameters: Mapping[str, str]
) -> bool:
    """Whether a row with these columns passes every filter; a caller's parameters only narrow its view."""
    return all(
        holds(
            item.op,
            comparable(columns.get(item.column, ABSENT), types.get(item.column)),
            item.operand(claims, parameters),
        )
        for item in filters
    )


# Write rules, evaluated on the row before and after each delta of a push, inside the transaction of the append, on rows
# that contain every record before it: of two pushes for one free row id, one is refused. So the append itself keeps the
# merged rows up to date while sync rules are set. A refused delta gets no sequence, so replicas, which merge the log,
# never evaluate anything.


RULES_REASON = "rules"
MAX_BEHIND = 20_000  # records that are merged within a request; more are merged in the background

_REFUSAL = "the sync rules do not allow these writes"  # one text for all: it says nothing about rows


def rows_behind() -> GatewayError:
    """The error of a push while rows are merged for new rules."""
    return unavailable("rows are being merged for new sync rules", RULES_REASON)


class RowRules:
    """The judge of a log: reads the rules in the append's transaction."""

    def __init__(self) -> None:
        self._parsed: tuple[int, SyncRules | None, bool] = (-1, None, True)

    def begin(self, session: Session, head: Head, entries: Sequence[Entry]) -> Judgement | None:
        """The rules for this append, None where there are none."""
        if self._parsed[0] != head.config:
            stored = session.document("rules")
            types = exact_types(read_schemas(session.document("schemas"))[0])
            rules = None if stored is None else read_stored_rules(stored, types)
            self._parsed = (head.config, rules, session.document(UNSEEDED) is None)
        _, rules, is_seeded = self._parsed
        if rules is None or not entries:
            return None
        behind = head.last - head.projected
        if not is_seeded or head.projected_rules != head.rules or behind > MAX_BEHIND:
            raise rows_behind()
        judgement = Judgement(session, rules)
        if behind:  # records of another writer: an import from the lake, or an append before there were rules
            records = session.records(head.projected, head.last, behind)
            judgement.merge({record.seq: record.body for record in records})
        return judgement


class Judgement:
    """The merged rows that one append touches, and what its writers may do with them."""

    def __init__(self, session: Session, rules: SyncRules) -> None:
        self._session = session
        self._rules = rules
        self._rows: dict[RowKey, IndexedRow] = {}
        self._changed: set[RowKey] = set()
        self._watched: dict[str, list[str]] = {}

    def check(self, batch: Sequence[Entry], fresh: Sequence[int], claims: Claims | None) -> Sequence[int]:
        """Refuse the batch where its writer may not write a delta; the positions that the writer will not see.

        Each delta is evaluated as though the refused ones before it were left out.
        """
        if claims is None:
            return ()
        writer = Writer(self._rules, claims)
        deltas = {position: stored_delta(batch[position].body) for position in fresh}
        self._load(deltas.values())
        folds: dict[RowKey, RowMerge] = {}
        refused: list[int] = []
        hidden: list[int] = []
        for position, delta in deltas.items():
            key = (delta.table, delta.row_id)
            before = folds.get(key) or self._rows[key].fold
            after = RowMerge(dict(before.columns), before.written, before.deleted)
            after.add(delta)
            if not writer.allows(delta, before, after):
                refused.append(position)
                continue
            folds[key] = after
            if is_live(after) and not writer.sees(delta.table, after):
                hidden.append(position)
        if refused:
            raise GatewayError(_REFUSAL, code="FORBIDDEN", reason="write_rules", positions=refused)
        return hidden

    def merge(self, bodies: Mapping[int, bytes]) -> None:
        """Merge the deltas of records, by their sequences."""
        deltas = {seq: stored_delta(body) for seq, body in bodies.items()}
        self._load(deltas.values())
        for seq, delta in deltas.items():
            key = (delta.table, delta.row_id)
            if delta.table not in self._watched:
                self._watched[delta.table] = self._rules.columns_of(delta.table)
            self._rows[key].add(seq, delta, self._watched[delta.table])
            self._changed.add(key)

    def changed(self) -> dict[RowKey, StoredRow]:
        """The merged rows to store with the append."""
        return {key: written_row(self._rows[key]) for key in self._changed}

    def _load(self, deltas: Any) -> None:
        missing = {(delta.table, delta.row_id) for delta in deltas} - self._rows.keys()
        stored = self._session.rows(sorted(missing))
        for key in missing:
            self._rows[key] = read_row(stored[key]) if key in stored else IndexedRow()


class Writer:
    """What one caller may write; `param:` filters of buckets only narrow a view and are left out."""

    def __init__(self, rules: SyncRules, claims: Claims) -> None:
        self._claims = claims
        self._is_open = rules.writes == OPEN
        self._entries: dict[str, list[WriteEntry]] = {}
        self._columns: dict[str, set[str]] = {}
        buckets = [
            msgspec.structs.replace(each, filters=[item for item in each.filters if not item.is_parameter()])
            for each in rules.buckets
        ]
        self._rules = msgspec.structs.replace(rules, buckets=buckets)
        for entry in rules.writes if not isinstance(rules.writes, str) else ():
            conditions = [entry.condition(operation) for operation in OPERATIONS]
            names = {item.column for each in conditions if each is not None for item in each.filters()}
            for table in entry.tables:
                self._entries.setdefault(table, []).append(entry)
                self._columns.setdefault(table, set()).update(names)

    def allows(self, delta: RowDelta, before: RowMerge, after: RowMerge) -> bool:
        """Whether a delta that leads from one state of its row to the other may be written."""
        if self._is_open:
            return True
        was_live, lives = is_live(before), is_live(after)
        is_update = was_live or delta.op == "UPDATE"
        operation: Operation = "delete" if delta.op == "DELETE" else "update" if is_update else "insert"
        # A dead row is evaluated by the values that its DELETE covers: who saw it may delete or change it late.
        old = self._values(delta.table, before, covered=not was_live)
        if operation != "insert" and before.written is None:
            return False
        # It would change nothing, below a DELETE that the caller never got: only the caller's own store would show it.
        if operation == "insert" and not lives and not self._reads(delta.table, old):
            return False
        new = self._values(delta.table, after) if lives else None
        conditions: list[WriteCondition | None] = [WriteCondition()]  # the default: what may be read may be written
        if delta.table in self._entries:
            conditions = [entry.condition(operation) for entry in self._entries[delta.table]]
        return any(self._holds(each, delta, operation, old, new) for each in conditions if each is not None)

    def sees(self, table: str, fold: RowMerge) -> bool:
        """Whether the caller sees a living row."""
        return self._reads(table, self._values(table, fold))

    def _holds(
        self, condition: WriteCondition, delta: RowDelta, operation: Operation, old: JsonObject, new: JsonObject | None
    ) -> bool:
        if not condition.columns.allow(entry.column for entry in delta.columns):
            return False
        if operation == "insert" and condition.ids is not None:
            claim = self._claims.get(condition.ids.partition(":")[2])
            if not (isinstance(claim, str) and claim and delta.row_id.startswith(f"{claim}:")):
                return False
        if operation != "insert" and not self._passes(delta.table, condition.before, old):
            return False
        return operation == "delete" or new is None or self._passes(delta.table, condition.after, new)

    def _passes(self, table: str, requested: list[Filter] | str, values: JsonObject) -> bool:
        if isinstance(requested, str):
            return self._reads(table, values)
        return passes_all(requested, values, self._rules.types.get(table, {}), self._claims, {})

    def _reads(self, table: str, values: JsonObject) -> bool:
        return self._rules.sees(table, values, self._claims)

    def _values(self, table: str, fold: RowMerge, *, covered: bool = False) -> JsonObject:
        names = {*self._rules.columns_of(table), *self._columns.get(table, ())}
        return values_of(fold, names, covered=covered)

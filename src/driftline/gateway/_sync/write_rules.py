"""Write rules: which deltas a caller may push (gateway §9), evaluated on the row before and after each of them.

They are evaluated inside the transaction of the append, on rows that contain every record before it: of two pushes for
one free row id, one is refused. So the append itself keeps the merged rows up to date while sync rules are set. A
refused delta gets no sequence, so replicas, which merge the log, never evaluate anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from driftline.core import JsonObject
from driftline.deltas import RowDelta, RowKey, RowMerge
from driftline.errors import GatewayError
from driftline.gateway._log.log import UNSEEDED, Claims, Entry, Head, Session, StoredRow, unavailable
from driftline.gateway._sync.push import stored_delta
from driftline.gateway._sync.row_index import IndexedRow, is_live, read_row, values_of, written_row
from driftline.gateway._sync.rules import (
    OPEN,
    OPERATIONS,
    READ,
    Asker,
    Bucket,
    Filter,
    Operation,
    SyncRules,
    WriteCondition,
    WriteEntry,
    matches,
    read_stored_rules,
)

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
            rules = None if stored is None else read_stored_rules(stored)
            self._parsed = (head.config, rules, session.document(UNSEEDED) is None)
        _, rules, is_seeded = self._parsed
        if rules is None or not entries:
            return None
        behind = head.last - head.projected
        if not is_seeded or head.projected_rules != head.rules or behind > MAX_BEHIND:
            raise rows_behind()
        judgement = Judgement(session, rules)
        if behind:  # records of another writer: an import from the lake, or an append before there were rules
            judgement.catch_up(head.projected, head.last)
        return judgement


class Judgement:
    """The merged rows that one append touches, and what its writers may do with them."""

    def __init__(self, session: Session, rules: SyncRules) -> None:
        self._session = session
        self._rules = rules
        self._rows: dict[RowKey, IndexedRow] = {}
        self._changed: set[RowKey] = set()
        self._watched: dict[str, list[str]] = {}

    def catch_up(self, after: int, last: int) -> None:
        """Merge records that are not in the stored rows yet."""
        records = self._session.records(after, last, last - after)
        deltas = [stored_delta(record.body) for record in records]
        self._load(deltas)
        for record, delta in zip(records, deltas, strict=True):
            self._add(record.seq, delta)

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

    def take(self, batch: Sequence[Entry], fresh: Sequence[int], first: int) -> None:
        """Merge the deltas of an accepted batch, which get sequences from `first` on."""
        deltas = [stored_delta(batch[position].body) for position in fresh]
        self._load(deltas)
        for seq, delta in enumerate(deltas, first):
            self._add(seq, delta)

    def changed(self) -> dict[RowKey, StoredRow]:
        """The merged rows to store with the append."""
        return {key: written_row(self._rows[key]) for key in self._changed}

    def _add(self, seq: int, delta: RowDelta) -> None:
        key = (delta.table, delta.row_id)
        if delta.table not in self._watched:
            self._watched[delta.table] = self._rules.columns_of(delta.table)
        self._rows[key].add(seq, delta, self._watched[delta.table])
        self._changed.add(key)

    def _load(self, deltas: Any) -> None:
        missing = {(delta.table, delta.row_id) for delta in deltas} - self._rows.keys()
        stored = self._session.rows(sorted(missing))
        for key in missing:
            self._rows[key] = read_row(stored[key]) if key in stored else IndexedRow()


class Writer:
    """What one caller may write; `param:` filters of buckets only narrow a view and are left out."""

    def __init__(self, rules: SyncRules, claims: Claims) -> None:
        self._asker = Asker(claims)
        self._is_open = rules.writes == OPEN
        self._entries: dict[str, list[WriteEntry]] = {}
        self._buckets: dict[str, list[list[Filter]]] = {}
        self._columns: dict[str, set[str]] = {}
        for bucket in rules.buckets:
            self._add_bucket(bucket)
        for entry in rules.writes if not isinstance(rules.writes, str) else ():
            self._add_entry(entry)

    def allows(self, delta: RowDelta, before: RowMerge, after: RowMerge) -> bool:
        """Whether a delta that leads from one state of its row to the other may be written."""
        if self._is_open:
            return True
        was_live, lives = is_live(before), is_live(after)
        operation = _operation(delta, was_live)
        # A dead row is evaluated by the values that its DELETE covers: who saw it may delete or change it late.
        old = self._values(delta.table, before, covered=not was_live)
        if operation != "insert" and before.written is None:
            return False
        # It would change nothing, below a DELETE that the caller never got: only the caller's own store would show it.
        if operation == "insert" and not lives and not self._reads(delta.table, old):
            return False
        new = self._values(delta.table, after) if lives else None
        conditions = (each for each in self._conditions(delta.table, operation) if each is not None)
        return any(self._holds(each, delta, operation, old, new) for each in conditions)

    def sees(self, table: str, fold: RowMerge) -> bool:
        """Whether the caller sees a living row."""
        return self._reads(table, self._values(table, fold))

    def _holds(
        self, condition: WriteCondition, delta: RowDelta, operation: Operation, old: JsonObject, new: JsonObject | None
    ) -> bool:
        if not condition.columns.allow(entry.column for entry in delta.columns):
            return False
        if operation == "insert" and not self._may_have_id(condition, delta.row_id):
            return False
        if operation != "insert" and not self._passes(delta.table, condition.before, old):
            return False
        return operation == "delete" or new is None or self._passes(delta.table, condition.after, new)

    def _may_have_id(self, condition: WriteCondition, row_id: str) -> bool:
        if condition.ids is None:
            return True
        claim = self._asker.claims.get(condition.ids.partition(":")[2])
        return isinstance(claim, str) and bool(claim) and row_id.startswith(f"{claim}:")

    def _passes(self, table: str, wanted: list[Filter] | str, values: JsonObject) -> bool:
        if wanted == READ:
            return self._reads(table, values)
        return all(matches(item, values, self._asker) for item in wanted if not isinstance(item, str))

    def _reads(self, table: str, values: JsonObject) -> bool:
        return any(all(matches(item, values, self._asker) for item in each) for each in self._buckets.get(table, ()))

    def _conditions(self, table: str, operation: Operation) -> list[WriteCondition | None]:
        if table not in self._entries:
            return [WriteCondition()]  # the default: what may be read may be written
        return [entry.condition(operation) for entry in self._entries[table]]

    def _values(self, table: str, fold: RowMerge, *, covered: bool = False) -> JsonObject:
        return values_of(fold, self._columns.get(table, ()), covered=covered)

    def _add_bucket(self, bucket: Bucket) -> None:
        kept = [item for item in bucket.filters if (item.reference() or ("",))[0] != "param:"]
        for table in bucket.tables:
            self._buckets.setdefault(table, []).append(kept)
            self._columns.setdefault(table, set()).update(item.column for item in kept)

    def _add_entry(self, entry: WriteEntry) -> None:
        conditions = [entry.condition(operation) for operation in OPERATIONS]
        names = {item.column for each in conditions if each is not None for item in each.filters()}
        for table in entry.tables:
            self._entries.setdefault(table, []).append(entry)
            self._columns.setdefault(table, set()).update(names)


def _operation(delta: RowDelta, was_live: bool) -> Operation:
    if delta.op == "DELETE":
        return "delete"
    return "update" if was_live or delta.op == "UPDATE" else "insert"

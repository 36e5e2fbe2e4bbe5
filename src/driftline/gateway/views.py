"""What a caller under sync rules is sent for each record of the log.

As long as a row has been visible in every moment of its life the caller has all its deltas, and gets the next one as
it is. Once the row was alive and hidden that chain is broken: from then on the caller gets the row's merged values,
stamped with the time of arrival, which is greater than every timestamp before it and rises with the log. So a caller
always ends at the merged state of the rows it may see, whatever arrives late.

A delta that a DELETE of its row covers is not sent: it changes nothing, and a caller who began with a snapshot after
that DELETE knows nothing of it and would show the delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from driftline.deltas import ColumnDelta, RowDelta
from driftline.deltas.merging import RowKey, stamp_of
from driftline.deltas.row_delta import Op
from driftline.gateway.log import Record
from driftline.gateway.push import WireDelta, stored_delta, wire_delta
from driftline.gateway.row_index import IndexedRow, Moment, RowIndex
from driftline.gateway.rules import SyncRules


@dataclass(slots=True)
class View:
    """One caller's sight of the rows, for the length of a request."""

    index: RowIndex
    rules: SyncRules
    claims: Mapping[str, Any]
    gateway: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    _rows: dict[RowKey, IndexedRow] = field(default_factory=dict)

    def sent_for(self, record: Record) -> list[bytes]:
        """The deltas that tell this caller about a record; none when the row is not its business."""
        delta = wire_delta(record.body)
        row = self._row((delta.table, delta.rowId))
        earlier = [moment for moment in row.history if moment.seq < record.seq]
        after = next((moment for moment in reversed(row.history) if moment.seq <= record.seq), None)
        was_visible = bool(earlier) and self._sees(delta.table, earlier[-1])
        is_visible = after is not None and self._sees(delta.table, after)
        if self._has_whole_story(delta.table, earlier):
            if delta.op != "DELETE" and _is_covered(record, row):
                return []
            died = after is not None and not after.live
            if is_visible or (died and delta.op == "DELETE" and earlier):
                return [record.body]
            return [self._tombstone(delta, record)] if was_visible else []
        if is_visible:
            return self._merged(delta, record, row, entering=not was_visible)
        return [self._tombstone(delta, record)] if was_visible else []

    def _row(self, key: RowKey) -> IndexedRow:
        if key not in self._rows:
            self._rows[key] = self.index.row(key)
        return self._rows[key]

    def _sees(self, table: str, moment: Moment) -> bool:
        return moment.live and self.rules.sees(table, moment.columns, self.claims, self.parameters)

    def _has_whole_story(self, table: str, earlier: Iterable[Moment]) -> bool:
        """Whether the row was visible whenever it lived, from its beginning on."""
        seen = False
        for moment in earlier:
            if self._sees(table, moment):
                seen = True
            elif moment.live or not seen:
                return False
        return True

    def _merged(self, delta: WireDelta, record: Record, row: IndexedRow, *, entering: bool) -> list[bytes]:
        present = row.fold.state()
        if not self._sees(delta.table, row.history[-1]):
            return []  # a later record takes the row away again
        if entering or delta.op == "DELETE":
            whole = [ColumnDelta(name, value) for name, value in present.columns.items()]
            insert = self._made("INSERT", delta, whole, record.arrival + 1)
            return [insert] if entering else [self._tombstone(delta, record), insert]
        changed = [
            ColumnDelta(entry.column, present.columns[entry.column])
            for entry in delta.columns
            if entry.column in present.columns
        ]
        return [self._made("UPDATE", delta, changed, record.arrival + 1)] if changed else []

    def _tombstone(self, delta: WireDelta, record: Record) -> bytes:
        return self._made("DELETE", delta, [], record.arrival)

    def _made(self, op: Op, delta: WireDelta, columns: list[ColumnDelta], hlc: int) -> bytes:
        made = RowDelta.make(
            op=op,
            table=delta.table,
            row_id=delta.rowId,
            client_id=f"gateway:{self.gateway}",
            columns=columns,
            hlc=hlc,
        )
        return msgspec.json.encode(made.to_wire())


def _is_covered(record: Record, row: IndexedRow) -> bool:
    return row.fold.deleted is not None and stamp_of(stored_delta(record.body)) < row.fold.deleted

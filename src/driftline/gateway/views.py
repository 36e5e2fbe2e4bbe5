"""What a caller under sync rules is sent for each record of the log.

As long as a row has been visible all its life the caller has all its deltas, and gets the next one as
it is. Once the row was alive and hidden that chain is broken: from then on the caller gets the row's merged values,
stamped with the time of arrival, which is greater than every timestamp before it and rises with the log. So a caller
always ends at the merged state of the rows it may see, whatever arrives late.

A delta that a DELETE of its row covers is not sent: it changes nothing, and a caller who began with a snapshot after
that DELETE knows nothing of it and would show the delta.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import msgspec

from driftline.deltas import ColumnDelta, RowDelta
from driftline.deltas._deltas import Op
from driftline.deltas._merge import RowFold, RowKey, stamp_of
from driftline.gateway.log import Record
from driftline.gateway.push import WireDelta, stored_delta, wire_delta
from driftline.gateway.row_index import RowIndex, RowVersion, Story
from driftline.gateway.rules import SyncRules


@dataclass
class View:
    """One caller's sight of the rows, for the length of a request."""

    index: RowIndex
    rules: SyncRules
    claims: Mapping[str, Any]
    gateway: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    rules_number: int = 0
    _folds: dict[RowKey, RowFold] = field(default_factory=dict)
    _stories: dict[RowKey, Story] = field(default_factory=dict)

    def sent_for(self, record: Record) -> list[bytes]:
        """The deltas that tell this caller about a record; none when the row is not its business.

        Records are asked for in the order of the log.
        """
        delta = wire_delta(record.body)
        story = self._story((delta.table, delta.rowId), record.seq)
        after = story.at(record.seq)
        was_visible = story.before is not None and story.sees(story.before)
        is_visible = after is not None and story.sees(after)
        if story.is_whole:
            if delta.op != "DELETE" and self._is_covered(delta, record):
                # It changes nothing in the end, but what it hid in between is told by nobody else.
                return [self._tombstone(delta, record)] if was_visible and not is_visible else []
            died = after is not None and not after.live
            if is_visible or (died and delta.op == "DELETE" and story.before is not None):
                return [record.body]
            return [self._tombstone(delta, record)] if was_visible else []
        if is_visible:
            return self._merged(delta, record, entering=not was_visible)
        return [self._tombstone(delta, record)] if was_visible else []

    def close(self) -> None:
        """Keep how far rows were followed, for the next page of this caller."""
        for key, story in self._stories.items():
            self.index.remember(key, story, self._name)

    @cached_property
    def _name(self) -> tuple[int, str]:
        return self.rules_number, self.rules.view_digest(self.claims, self.parameters)

    def _story(self, key: RowKey, seq: int) -> Story:
        story = self._stories.get(key)
        if story is None:
            story = self._stories[key] = self.index.story(key, seq, partial(self._sees, key[0]), self._name)
        return story

    def _fold(self, key: RowKey) -> RowFold:
        if key not in self._folds:
            self._folds[key] = self.index.fold(key)
        return self._folds[key]

    def _is_covered(self, delta: WireDelta, record: Record) -> bool:
        deleted = self._fold((delta.table, delta.rowId)).deleted
        return deleted is not None and stamp_of(stored_delta(record.body)) < deleted

    def _sees(self, table: str, version: RowVersion) -> bool:
        return version.live and self.rules.sees(table, version.columns, self.claims, self.parameters)

    def _merged(self, delta: WireDelta, record: Record, *, entering: bool) -> list[bytes]:
        present = self._fold((delta.table, delta.rowId)).state()
        if not self._sees(delta.table, RowVersion(record.seq, present.live, present.columns)):
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

"""The atomic unit of change: one mutation of one row.

>>> delta = RowDelta.make(
...     op="UPDATE", table="users", row_id="7", client_id="laptop", columns=[ColumnDelta("age", 31)], hlc=1000000
... )
>>> RowDelta.from_wire(delta.to_wire()) == delta
True
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from driftline.core._json import JsonObject
from driftline.deltas.clock import MAX_HLC
from driftline.deltas.column_delta import ColumnDelta
from driftline.deltas.identity import delta_id as id_of
from driftline.deltas.names import shorten
from driftline.errors import DeltaError

Op = Literal["INSERT", "UPDATE", "DELETE"]
OPS = ("INSERT", "UPDATE", "DELETE")


class RowDelta(msgspec.Struct, frozen=True, kw_only=True):
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
            raise DeltaError(f"op is INSERT, UPDATE or DELETE, not {shorten(self.op)}", field="op")
        if type(self.hlc) is not int or not 0 <= self.hlc <= MAX_HLC:
            raise DeltaError(f"hlc is an integer from 0 to 2^63 - 1, not {shorten(self.hlc)}", field="hlc")
        if type(self.columns) is not tuple:
            msgspec.structs.force_setattr(self, "columns", _column_tuple(self.columns))
        if self.columns and self.op == "DELETE":
            raise DeltaError("a DELETE has no columns", field="columns")

    @classmethod
    def make(
        cls, *, op: Op, table: str, row_id: str, client_id: str, columns: Iterable[ColumnDelta], hlc: int
    ) -> RowDelta:
        """A delta with the id that its content has."""
        entries = tuple(columns)
        identity = id_of(client_id=client_id, hlc=hlc, table=table, row_id=row_id, columns=entries)
        return cls(op=op, table=table, row_id=row_id, client_id=client_id, columns=entries, hlc=hlc, delta_id=identity)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> RowDelta:
        """The delta of a JSON object, each field checked; whether the id fits the content is `has_own_id`."""
        from driftline.deltas.wire import delta_from_wire

        return delta_from_wire(data)

    def to_wire(self) -> JsonObject:
        """The delta as JSON data, its timestamp as a decimal string."""
        from driftline.deltas.wire import delta_to_wire

        return delta_to_wire(self)

    def has_own_id(self) -> bool:
        """Whether the id is the hash of the content."""
        return self.delta_id == id_of(
            client_id=self.client_id, hlc=self.hlc, table=self.table, row_id=self.row_id, columns=self.columns
        )


def _column_tuple(columns: Any) -> tuple[ColumnDelta, ...]:
    if not isinstance(columns, list) or not all(isinstance(entry, ColumnDelta) for entry in columns):
        raise DeltaError(f"columns is a sequence of ColumnDelta, not {shorten(columns)}", field="columns")
    return tuple(columns)

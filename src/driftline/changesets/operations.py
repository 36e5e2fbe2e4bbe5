"""Typed operations: what a record of a changeset or patchset says."""

from __future__ import annotations

from typing import Literal

import msgspec

from driftline.changesets.format import DELETE, INSERT, UPDATE, Row, encode_value
from driftline.changesets.table import Table

Kind = Literal["insert", "update", "delete"]

_CODES: dict[str, int] = {"insert": INSERT, "update": UPDATE, "delete": DELETE}


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One change: `old` and `new` are rows in column order, with `UNDEFINED` for fields the record leaves out.

    An insert has no `old`, a delete no `new`. In patchsets `old` holds the key only.
    """

    table: Table
    kind: Kind
    old: Row | None
    new: Row | None
    indirect: int = 0

    @property
    def key(self) -> Row:
        """The key values in column order."""
        row = self.new if self.old is None else self.old
        assert row is not None
        return tuple(row[index] for index in self.table.key_indexes)

    def encode(self, *, patchset: bool = False) -> bytes:
        """The record of this operation."""
        head = bytes([_CODES[self.kind], self.indirect])
        return head + b"".join(map(encode_value, self._fields(patchset)))

    def _fields(self, patchset: bool) -> Row:
        if self.old is None:
            return self.new or ()
        if self.new is None:
            return self.key if patchset else self.old
        if not patchset:
            return self.old + self.new
        flags = self.table.key_flags
        return tuple(old if flag else new for old, new, flag in zip(self.old, self.new, flags, strict=True))

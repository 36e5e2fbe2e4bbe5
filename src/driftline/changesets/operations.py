"""Typed operations: what a record of a changeset or patchset says.

>>> from driftline.changesets import Table
>>> users = Table("users", columns=[("id", "INTEGER"), ("name", "TEXT")], primary_key=["id"])
>>> born = Operation(users, "insert", None, (1, "Alice"))
>>> renamed = Operation(users, "update", (1, "Alice"), (UNDEFINED, "Alicia"))
>>> renamed.old_values, renamed.new_values
({'id': 1, 'name': 'Alice'}, {'name': 'Alicia'})
>>> renamed.reverse()
<update of users: {'id': 1, 'name': 'Alicia'} -> {'name': 'Alice'}>
>>> born + renamed
<insert of users: {'id': 1, 'name': 'Alicia'}>
>>> print(born + born.reverse())
None
"""

from __future__ import annotations

from typing import Literal

import msgspec

from driftline.changesets.format import DELETE, INSERT, UNDEFINED, UPDATE, Row, Value, encode_value
from driftline.changesets.names import folded
from driftline.changesets.table import Table
from driftline.errors import ChangesetError

Kind = Literal["insert", "update", "delete"]

KIND_CODES: dict[str, int] = {"insert": INSERT, "update": UPDATE, "delete": DELETE}


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One change: `old` and `new` are rows in column order, with `UNDEFINED` for fields the record leaves out.

    An insert has no `old`, a delete no `new`. In patchsets `old` holds the key only.
    """

    table: Table
    kind: Kind
    old: Row | None
    new: Row | None
    indirect: int = 0
    patchset: bool = False

    @property
    def key(self) -> Row:
        """The key values in column order."""
        row = self.new if self.old is None else self.old
        assert row is not None
        return tuple(row[index] for index in self.table.key_indexes)

    @property
    def old_values(self) -> dict[str, Value]:
        """The values before, by column name; columns that the record leaves out are absent."""
        return _by_name(self.table, self.old)

    @property
    def new_values(self) -> dict[str, Value]:
        """The values after, by column name; columns that the record leaves out are absent."""
        return _by_name(self.table, self.new)

    def reverse(self) -> Operation:
        """The operation that undoes this one; a patchset's cannot be undone (changesets §3.3)."""
        if self.patchset:
            raise patchset_not_invertible()
        if self.kind != "update":
            kind: Kind = "delete" if self.kind == "insert" else "insert"
            return Operation(self.table, kind, self.new, self.old, self.indirect)
        old, new = self.old or (), self.new or ()
        flags = self.table.key_flags
        before = tuple(o if flag else n for o, n, flag in zip(old, new, flags, strict=True))
        after = tuple(UNDEFINED if flag else o for o, flag in zip(old, flags, strict=True))
        return Operation(self.table, "update", before, after, self.indirect)

    def __add__(self, other: Operation) -> Operation | None:
        """What both do one after the other, by the rules of a changegroup (changesets §3.1); None for nothing."""
        if not isinstance(other, Operation):
            return NotImplemented
        from driftline.changesets.changegroup import summed

        self._check_same_row(other)
        return summed(self, other)

    def _check_same_row(self, other: Operation) -> None:
        same_table = folded(self.table.name) == folded(other.table.name)
        if not same_table or self.table.key_flags != other.table.key_flags or self.patchset != other.patchset:
            raise ChangesetError(
                f"operations on {self.table.name} and {other.table.name}: only changes of one format and one table "
                "have a sum",
                code="schema_mismatch",
            )
        if list(map(encode_value, self.key)) != list(map(encode_value, other.key)):
            raise ChangesetError(
                f"table {self.table.name}: operations on the rows {self.key} and {other.key} have no sum",
                code="different_rows",
            )

    def encode(self, *, patchset: bool | None = None) -> bytes:
        """The record of this operation, in its own format unless told otherwise."""
        head = bytes([KIND_CODES[self.kind], self.indirect])
        return head + b"".join(map(encode_value, self._fields(self.patchset if patchset is None else patchset)))

    def _fields(self, patchset: bool) -> Row:
        if self.old is None:
            return self.new or ()
        if self.new is None:
            return self.key if patchset else self.old
        if not patchset:
            return self.old + self.new
        flags = self.table.key_flags
        return tuple(old if flag else new for old, new, flag in zip(self.old, self.new, flags, strict=True))

    def __repr__(self) -> str:
        sides = [str(side) for side in (self.old_values, self.new_values) if side]
        return f"<{self.kind} of {self.table.name}: {' -> '.join(sides)}{', indirect' if self.indirect else ''}>"


def patchset_not_invertible() -> ChangesetError:
    """The error for undoing what does not hold the old values."""
    return ChangesetError(
        "a patchset cannot be inverted: it does not hold the old values", code="patchset_not_invertible"
    )


def _by_name(table: Table, row: Row | None) -> dict[str, Value]:
    pairs = zip(table.column_names, row or (), strict=row is not None)
    return {name: value for name, value in pairs if value is not UNDEFINED}

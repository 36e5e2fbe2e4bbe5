"""Changes that a database does not take as they are, and the answers to them (changesets §6.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import apsw

from driftline.changesets.format import Row
from driftline.changesets.operations import Operation
from driftline.errors import OptionError

Reason = Literal["DATA", "NOTFOUND", "CONFLICT", "CONSTRAINT", "FOREIGN_KEY"]
Action = Literal["abort", "omit", "replace"]
Handler = Callable[["Conflict"], Action]

REASONS: dict[int, Reason] = {
    apsw.SQLITE_CHANGESET_DATA: "DATA",
    apsw.SQLITE_CHANGESET_NOTFOUND: "NOTFOUND",
    apsw.SQLITE_CHANGESET_CONFLICT: "CONFLICT",
    apsw.SQLITE_CHANGESET_CONSTRAINT: "CONSTRAINT",
    apsw.SQLITE_CHANGESET_FOREIGN_KEY: "FOREIGN_KEY",
}
ACTION_CODES: dict[Action, int] = {
    "abort": apsw.SQLITE_CHANGESET_ABORT,
    "omit": apsw.SQLITE_CHANGESET_OMIT,
    "replace": apsw.SQLITE_CHANGESET_REPLACE,
}
_REPLACEABLE = ("DATA", "CONFLICT")


@dataclass(frozen=True, slots=True)
class Conflict:
    """A change that could not be applied: why, which one, and the row that is in the way.

    `operation` is None for foreign keys, and it and `current` are None where text is not UTF-8 and cannot be shown.
    """

    reason: Reason
    operation: Operation | None
    current: Row | None
    foreign_key_violations: int | None = None

    def describe(self) -> str:
        """The conflict in one line."""
        if self.reason == "FOREIGN_KEY":
            return f"FOREIGN_KEY conflict, {self.foreign_key_violations} rows would lose what they refer to"
        if self.operation is None:
            return f"{self.reason} conflict at a row with text that is not UTF-8"
        operation = self.operation
        names = [operation.table.column_names[index] for index in operation.table.key_indexes]
        key = ", ".join(f"{name}={value!r}" for name, value in zip(names, operation.key, strict=True))
        return f"{self.reason} conflict at {operation.kind} of {operation.table.name} ({key})"


def handler_of(on_conflict: Action | Handler) -> Handler:
    """A function that answers conflicts, checked for answers that SQLite does not take."""
    if not callable(on_conflict):
        return _one_answer(_action(on_conflict))

    def answer(conflict: Conflict) -> Action:
        action = _action(on_conflict(conflict))
        if action == "replace" and conflict.reason not in _REPLACEABLE:
            raise OptionError(f"a {conflict.reason} conflict cannot be answered with replace: omit or abort")
        return action

    return answer


def _one_answer(action: Action) -> Handler:
    def answer(conflict: Conflict) -> Action:
        return "omit" if action == "replace" and conflict.reason not in _REPLACEABLE else action

    return answer


def _action(answer: object) -> Action:
    """An answer in words of either case, or as SQLite's constant."""
    for name, code in ACTION_CODES.items():
        if answer == code or (isinstance(answer, str) and answer.lower() == name):
            return name
    raise OptionError(f"a conflict is answered with abort, omit or replace, not {answer!r}")

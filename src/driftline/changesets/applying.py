"""Changesets against real databases: apply, rebase and diff, done by SQLite itself through apsw.

All of a file is applied or nothing: SQLite works inside a savepoint and rolls it back on abort or error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import apsw

from driftline.changesets.changeset import ChangeFile, Changeset, Patchset, parse
from driftline.changesets.format import UNDEFINED, Row
from driftline.changesets.operations import Kind, Operation
from driftline.changesets.schema import Database, opened, tables_from_database
from driftline.changesets.table import Table
from driftline.errors import ChangesetError, ConflictError, OptionError

Reason = Literal["DATA", "NOTFOUND", "CONFLICT", "CONSTRAINT", "FOREIGN_KEY"]
Action = Literal["abort", "omit", "replace"]


@dataclass(frozen=True, slots=True)
class Conflict:
    """A change that could not be applied: why, which one, and the row that is in the way."""

    reason: Reason
    operation: Operation | None
    current: Row | None
    foreign_key_violations: int | None = None


@dataclass(slots=True)
class Applied:
    """What applying a file did: the conflicts met, the tables it could not touch, and what rebasing needs."""

    conflicts: list[tuple[Conflict, Action]] = field(default_factory=list)
    skipped_tables: list[str] = field(default_factory=list)
    rebase_data: bytes = b""

    def __bytes__(self) -> bytes:
        return self.rebase_data


Handler = Callable[[Conflict], Action]

_REASONS: dict[int, Reason] = {
    apsw.SQLITE_CHANGESET_DATA: "DATA",
    apsw.SQLITE_CHANGESET_NOTFOUND: "NOTFOUND",
    apsw.SQLITE_CHANGESET_CONFLICT: "CONFLICT",
    apsw.SQLITE_CHANGESET_CONSTRAINT: "CONSTRAINT",
    apsw.SQLITE_CHANGESET_FOREIGN_KEY: "FOREIGN_KEY",
}
_ACTIONS: dict[Action, int] = {
    "abort": apsw.SQLITE_CHANGESET_ABORT,
    "omit": apsw.SQLITE_CHANGESET_OMIT,
    "replace": apsw.SQLITE_CHANGESET_REPLACE,
}
_KINDS: dict[str, Kind] = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}


def apply(
    data: bytes | ChangeFile,
    database: Database,
    on_conflict: Action | Handler = "abort",
    *,
    tables: Collection[str] | Callable[[str], bool] | None = None,
) -> Applied:
    """Apply a changeset or patchset to a database, whole or not at all.

    `on_conflict` is one answer for all conflicts ("replace" where SQLite allows it, "omit" elsewhere) or a function
    from a `Conflict` to an answer; `tables` limits what is touched. An "abort" raises `ConflictError`.
    """
    content = bytes(data)
    applied = Applied()
    handler = on_conflict if callable(on_conflict) else _one_answer(on_conflict)
    with opened(database, write=True) as connection:
        run = _Run(connection, handler, _table_test(tables), applied)
        try:
            found = apsw.Changeset.apply(content, connection, filter=run.wants, conflict=run.decide, rebase=True)
        except apsw.Error as error:
            raise _explained(error, content, run) from error
    applied.rebase_data = found or b""
    return applied


class _Run:
    """The callbacks of one application."""

    def __init__(
        self, connection: apsw.Connection, handler: Handler, wanted: Callable[[str], bool], applied: Applied
    ) -> None:
        self._known = {table.name.lower(): table for table in tables_from_database(connection)}
        self._handler = handler
        self._wanted = wanted
        self._applied = applied
        self.aborted_by: Conflict | None = None

    def wants(self, name: str) -> bool:
        if not self._wanted(name):
            return False
        # SQLite passes over tables it does not find; callers are told.
        if name.lower() not in self._known:
            self._applied.skipped_tables.append(name)
        return True

    def decide(self, reason: int, change: Any) -> int:
        conflict = _conflict(_REASONS[reason], change, self._known)
        action = _action(self._handler(conflict))
        self._applied.conflicts.append((conflict, action))
        if action == "abort":
            self.aborted_by = conflict
        return _ACTIONS[action]


def _conflict(reason: Reason, change: Any, known: dict[str, Table]) -> Conflict:
    if reason == "FOREIGN_KEY":
        return Conflict(reason, None, None, change.fk_conflicts)
    table = known[change.name.lower()]
    operation = Operation(table, _KINDS[change.op], _row(change.old), _row(change.new), int(change.indirect))
    return Conflict(reason, operation, _row(change.conflict))


def _row(values: tuple[Any, ...] | None) -> Row | None:
    return None if values is None else tuple(UNDEFINED if value is apsw.no_change else value for value in values)


def _action(answer: object) -> Action:
    """An answer in words of either case, or as SQLite's constant."""
    for name, code in _ACTIONS.items():
        if answer == code or (isinstance(answer, str) and answer.lower() == name):
            return name
    raise OptionError(f"a conflict is answered with abort, omit or replace, not {answer!r}")


def _one_answer(wanted: object) -> Handler:
    action = _action(wanted)

    def answer(conflict: Conflict) -> Action:
        if action == "replace" and conflict.reason not in ("DATA", "CONFLICT"):
            return "omit"
        return action

    return answer


def _table_test(tables: Collection[str] | Callable[[str], bool] | None) -> Callable[[str], bool]:
    if tables is None:
        return lambda name: True
    if callable(tables):
        return tables
    wanted = {name.lower() for name in ([tables] if isinstance(tables, str) else tables)}
    return lambda name: name.lower() in wanted


def _explained(error: apsw.Error, content: bytes, run: _Run) -> ChangesetError:
    # SQLite has another error code for an abort because of foreign keys, so the answer itself is looked at.
    if run.aborted_by is not None:
        conflict = run.aborted_by
        return ConflictError(f"nothing was applied: {describe(conflict)}", reason=conflict.reason, conflict=conflict)
    parse(content)  # raises with the offset when the bytes are at fault
    return ChangesetError(f"the changes could not be applied: {error}", code="apply_failed")


def describe(conflict: Conflict) -> str:
    """A conflict in one line."""
    if conflict.operation is None:
        return f"FOREIGN_KEY conflict, {conflict.foreign_key_violations} rows would lose what they refer to"
    operation = conflict.operation
    names = [operation.table.column_names[index] for index in operation.table.key_indexes]
    key = ", ".join(f"{name}={value!r}" for name, value in zip(names, operation.key, strict=True))
    return f"{conflict.reason} conflict at {operation.kind} of {operation.table.name} ({key})"


def rebase(data: bytes | ChangeFile, *rebase_data: bytes | Applied) -> Changeset | Patchset:
    """Local changes moved behind remote ones: `rebase_data` is what applying the remote changes gave."""
    rebaser = apsw.Rebaser()  # type: ignore[no-untyped-call]
    tables = [table for table in data.tables if table.is_named] if isinstance(data, ChangeFile) else []
    try:
        for item in rebase_data:
            rebaser.configure(bytes(item))
        return parse(rebaser.rebase(bytes(data)), tables)
    except apsw.Error as error:
        for content in (data, *rebase_data):
            parse(bytes(content))
        raise ChangesetError(f"the changes could not be rebased: {error}", code="rebase_failed") from error


def diff(
    old: os.PathLike[str] | str,
    new: os.PathLike[str] | str,
    *,
    tables: Iterable[str] | None = None,
    patchset: bool = False,
) -> Changeset | Patchset:
    """The changes that turn one database file into another, for all tables with a primary key or those named."""
    with opened(old):
        pass  # a missing or foreign file is explained before it is attached
    with opened(new) as connection:
        # Read-only, as the connection is; ATTACH takes the name as a parameter, so that any path will do.
        connection.execute("ATTACH ? AS old_version", (f"{Path(old).resolve().as_uri()}?mode=ro",))
        found = _shared_tables(connection, None if tables is None else {name.lower() for name in tables})
        session = apsw.Session(connection, "main")
        try:
            for table in found:
                session.attach(table.name)
                session.diff("old_version", table.name)
            data = session.patchset() if patchset else session.changeset()
        except apsw.Error as error:
            raise ChangesetError(f"the databases cannot be compared: {error}", code="diff_failed") from error
        finally:
            session.close()
    return parse(data, found)


def _shared_tables(connection: apsw.Connection, wanted: set[str] | None) -> list[Table]:
    """Tables to compare, which must be the same on both sides: changes of rows cannot make or alter tables."""
    new = {table.name.lower(): table for table in tables_from_database(connection)}
    old = {table.name.lower(): table for table in tables_from_database(connection, schema="old_version")}
    names = [name for name in (*new, *(old.keys() - new.keys())) if wanted is None or name in wanted]
    missing = sorted((wanted or set()) - {*names})
    if missing:
        raise ChangesetError(f'no database has a table "{missing[0]}" with a primary key', code="unknown_table")
    for name in names:
        if name not in new or name not in old:
            side = "new" if name in new else "old"
            raise ChangesetError(f'table "{name}" is only in the {side} database: name the tables to compare')
        if new[name].column_names != old[name].column_names or new[name].key_flags != old[name].key_flags:
            raise ChangesetError(f'table "{name}" has other columns or another key', code="schema_mismatch")
    return [new[name] for name in names]

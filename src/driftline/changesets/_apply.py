"""Changesets and patchsets applied to a database by SQLite itself, completely or not at all (changesets §6).

The file is read to its end and checked against the database's tables first. Then SQLite applies it inside a transaction
of driftline's own, so that any failure, also in a caller's function, leaves the database as it was.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar, get_args

import apsw

from driftline.changesets._format import database as sqlite
from driftline.changesets._format.database import StoredTable, explained, savepoint, switched
from driftline.changesets._format.read import Header, Window, key_of, records_in, with_headers
from driftline.changesets._format.streams import Open, Summary, iterate, operations_of, reopenable, summary
from driftline.changesets._format.table import (
    DELETE,
    INSERT,
    PATCHSET_MARKER,
    UNDEFINED,
    Kind,
    Operation,
    Row,
    Table,
    encode_value,
    folded,
    patchset_not_invertible,
    quoted,
    refused,
)
from driftline.core import open_bytes
from driftline.errors import ChangesetError, ConflictError, OptionError

if TYPE_CHECKING:
    from driftline.changesets._format.streams import Changes

Reason = Literal["DATA", "NOTFOUND", "CONFLICT", "CONSTRAINT", "FOREIGN_KEY"]
Action = Literal["abort", "omit", "replace"]
Handler = Callable[["Conflict"], Action]
TableFilter = Collection[str] | Callable[[str], bool]
ChangeFilter = Callable[[Operation], bool]
T = TypeVar("T")
RowKey = tuple[str, bytes]  # a row: its table's folded name and its encoded key

MAX_APPLIED_COLUMNS = 998  # SQLite's apply writes conditions that are too deep for its parser beyond this

# SQLite's constants have the same words in their names.
_REASONS: dict[int, Reason] = {getattr(apsw, f"SQLITE_CHANGESET_{reason}"): reason for reason in get_args(Reason)}
_ACTION_CODES: dict[Action, int] = {
    action: getattr(apsw, f"SQLITE_CHANGESET_{action.upper()}") for action in get_args(Action)
}
_AS_RECORDED = (
    ": triggers or cascades of the database act on these tables; --as-recorded switches them off for a file that "
    "already holds what they do, as files of diff and of sessions do"
)
_ACTING = "('CASCADE', 'SET NULL', 'SET DEFAULT')"
_WITH_ACTIONS = (
    'SELECT f."table" FROM sqlite_schema AS s, pragma_foreign_key_list(s.name) AS f '  # noqa: S608
    "WHERE s.type = 'table' AND s.sql LIKE '%references%' "
    f"AND (f.on_delete IN {_ACTING} OR f.on_update IN {_ACTING})"
)
_REPLACEABLE = ("DATA", "CONFLICT")
_ALWAYS_SHOWN = ("insert", "update", "delete", "applied")
_KINDS: dict[str, Kind] = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}


@dataclass(slots=True)
class TableReport:
    """What became of one table's changes: the file's records by kind, then how many were applied and how many not."""

    insert: int = 0
    update: int = 0
    delete: int = 0
    applied: int = 0  # with replaced ones, and with those that change nothing: SQLite does not tell them apart
    omitted: int = 0
    replaced: int = 0
    filtered: int = 0
    skipped: int = 0


@dataclass(slots=True)
class Applied:
    """What applying a file did: counts by table, the conflicts met, the tables left out, and what rebasing needs."""

    tables: dict[str, TableReport] = field(default_factory=dict)
    conflicts: list[tuple[Conflict, Action]] = field(default_factory=list)
    skipped_tables: list[str] = field(default_factory=list)
    rebase_data: bytes = b""
    altered: list[Operation] = field(default_factory=list)  # what triggers and cascades made of rows
    rebuilt: list[str] = field(default_factory=list)  # full-text indexes of changed tables, built again
    stale: list[str] = field(default_factory=list)  # those that no trigger kept, and that were not built again

    def __bytes__(self) -> bytes:
        return self.rebase_data

    @property
    def kinds(self) -> list[str]:
        """The counts that are shown: those of the file, and what else is not zero in some table."""
        reports = self.tables.values()
        names = [each.name for each in fields(TableReport)]
        return [name for name in names if name in _ALWAYS_SHOWN or any(getattr(each, name) for each in reports)]

    @property
    def rows(self) -> list[tuple[str, list[int]]]:
        """The name of each table and its counts, in the order of `kinds`."""
        return [(name, [getattr(report, kind) for kind in self.kinds]) for name, report in self.tables.items()]

    @property
    def warnings(self) -> list[str]:
        """What the database lacks for some of the changes."""
        skipped = [f"the database has no table {name}, its changes were left out" for name in self.skipped_tables]
        stale = [f"no trigger keeps the full-text index {name}: --as-recorded builds it again" for name in self.stale]
        return skipped + stale

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, as `--format json` prints it."""
        from driftline.changesets._format.show import plain_operation

        return {
            "tables": {name: asdict(report) for name, report in self.tables.items()},
            "conflicts": [
                {"reason": conflict.reason, "action": action, "change": plain_operation(conflict.operation)}
                for conflict, action in self.conflicts
            ],
            "skipped_tables": self.skipped_tables,
            "altered": [plain_operation(operation) for operation in self.altered],
            **({"rebuilt": self.rebuilt, "stale": self.stale} if self.rebuilt or self.stale else {}),
        }


def apply(  # noqa: PLR0913 - the options of the command
    data: Changes,
    database: sqlite.Database,
    on_conflict: Action | Handler = "abort",
    *,
    tables: TableFilter | None = None,
    change_filter: ChangeFilter | None = None,
    allow_extra_columns: bool = False,
    skip_missing_tables: bool = False,
    foreign_keys: bool | None = None,
    foreign_key_actions: bool = True,
    triggers: bool = True,
    as_recorded: bool = False,
    ignore_noop: bool = False,
    invert: bool = False,
    timeout: float = sqlite.PATIENCE,
) -> Applied:
    """Apply a changeset or patchset to a database, completely or not at all.

    `on_conflict` is one answer for all conflicts ("replace" where SQLite allows it, "omit" elsewhere) or a function
    from a `Conflict` to an answer; an "abort" raises `ConflictError`. `tables` and `change_filter` limit what is
    touched. Foreign keys are enforced where a file name is given; a connection keeps its own setting.

    Triggers and cascades run as for any statement; rows that they altered are in `altered`. With `as_recorded` they
    are off: files of `diff` and of sessions already hold every effect of theirs, and full-text indexes of changed
    tables are built again; without it those that no trigger keeps are in `stale`.
    """
    if as_recorded:
        triggers = foreign_key_actions = False
    handler = _handler_of(on_conflict)
    flags = (
        (0 if foreign_key_actions else apsw.SQLITE_CHANGESETAPPLY_FKNOACTION)
        | (apsw.SQLITE_CHANGESETAPPLY_IGNORENOOP if ignore_noop else 0)
        | (apsw.SQLITE_CHANGESETAPPLY_INVERT if invert else 0)
    )
    try:
        with reopenable(data) as open_changes, sqlite.connect(database, write=True, timeout=timeout) as connection:
            with open_changes() as stream:
                found = summary(stream)
            _check_file(found, invert)
            selected = _selected_tables(found, tables)
            with _transaction(database, connection, foreign_keys, triggers):
                fit = _fit_file(found, connection, selected, allow_extra_columns, skip_missing_tables)
                effects = _Effects(connection, fit.tables, triggers=triggers, actions=foreign_key_actions)
                hint = _AS_RECORDED if effects.are_possible else ""
                is_patchset = found.marker == PATCHSET_MARKER
                run = _ApplyRun(connection, open_changes, fit, handler, change_filter, flags, is_patchset, hint)
                with effects.watched():
                    rebase_data = run.apply()
                    altered = effects.altered(run.operations, run.passed_over())
                indexes = list(_indexes_of(connection, fit.tables, triggers))
                for name in indexes if as_recorded else ():
                    _rebuild(connection, name)
    except _CallbackFailed as failed:
        raise failed.error from None
    missing = list(fit.missing.values())
    rebuilt, stale = (indexes, []) if as_recorded else ([], indexes)
    return Applied(_reports(found, fit, run, invert), run.conflicts, missing, rebase_data, altered, rebuilt, stale)


def _check_file(found: Summary, invert: bool) -> None:
    if invert and found.marker == PATCHSET_MARKER:
        raise patchset_not_invertible()
    for section in found.sections:
        name = section.table.name.encode(errors="surrogateescape")
        try:
            name.decode()
        except UnicodeDecodeError:
            raise refused("invalid_name", f"the name of table {name!r} is not UTF-8") from None


@contextmanager
def _transaction(
    database: sqlite.Database, connection: apsw.Connection, foreign_keys: bool | None, triggers: bool
) -> Iterator[None]:
    """A write transaction from its start, or a savepoint of a connection; complete or not at all."""
    if connection is database:
        with explained("the database"), switched(connection, foreign_keys, triggers), savepoint(connection):
            yield
        return
    with explained(str(database)), switched(connection, foreign_keys is not False, triggers):
        # A transaction that begins by reading fails at once where another connection writes.
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _indexes_of(connection: apsw.Connection, changed: Collection[str], triggers: bool) -> Iterator[str]:
    """The full-text indexes of changed tables, except those that a trigger keeps."""
    query = "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema WHERE sql IS NOT NULL"
    objects: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    views = {folded(name) for kind, name, *_ in objects if kind == "view"}
    found = [row for row in objects if triggers and row[0] == "trigger"]
    keepers = {(folded(table), folded(token.name)) for *_, table, _, text in found for token in sqlite.scan(text)}
    for kind, name, _, rootpage, text in objects:
        content = folded(sqlite.content_of_index(text) or "") if kind == "table" and not rootpage else ""
        if (content in changed or (content in views and changed)) and (content, folded(name)) not in keepers:
            yield str(name)


def _rebuild(connection: apsw.Connection, name: str) -> None:
    try:
        connection.execute(sqlite.rebuild_statement(name))
    except apsw.SQLError as error:
        raise refused("apply_failed", f"nothing was applied: index {name}: {error}. {sqlite.REGISTER}") from error


def _reports(found: Summary, fit: _Fit, run: _ApplyRun, invert: bool) -> dict[str, TableReport]:
    reports: dict[str, TableReport] = {}
    spelling: dict[str, str] = {}
    for section in found.sections:
        name = folded(section.table.name)
        report = reports.setdefault(spelling.setdefault(name, section.table.name), TableReport())
        counts = section.statistics()
        report.insert += counts["delete" if invert else "insert"]
        report.update += counts["update"]
        report.delete += counts["insert" if invert else "delete"]
    for name, shown in spelling.items():
        report = reports[shown]
        records = report.insert + report.update + report.delete
        report.omitted, report.replaced = run.decided[name, "omit"], run.decided[name, "replace"]
        report.skipped = records if name in fit.missing else 0
        report.filtered = records if name in fit.filtered else run.filtered[name]
        report.applied = records - report.omitted - report.skipped - report.filtered
    return reports


# Conflicts, and their resolution (changesets §6.3).


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

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.operation is None else self.operation.table.column_names

    @property
    def rows(self) -> list[tuple[str, list[str]]]:
        """The rows that meet, as SQL literals: what the change expects, what the database has, what it would write."""
        from driftline.changesets._format.show import sql_literal

        if self.operation is None:
            return []
        rows = (("expected", self.operation.old), ("in the database", self.current), ("wanted", self.operation.new))
        return [
            (name, ["" if value is UNDEFINED else sql_literal(value) for value in row]) for name, row in rows if row
        ]


def _handler_of(on_conflict: Action | Handler) -> Handler:
    """The function that resolves conflicts, with a check for actions that SQLite does not accept."""
    if not callable(on_conflict):
        action = _action(on_conflict)
        return lambda conflict: "omit" if action == "replace" and conflict.reason not in _REPLACEABLE else action

    def answer(conflict: Conflict) -> Action:
        action = _action(on_conflict(conflict))
        if action == "replace" and conflict.reason not in _REPLACEABLE:
            raise OptionError(f"a {conflict.reason} conflict cannot be answered with replace: omit or abort")
        return action

    return answer


def _action(answer: object) -> Action:
    """An answer in words of either case, or as SQLite's constant."""
    for name, code in _ACTION_CODES.items():
        if answer == code or (isinstance(answer, str) and answer.lower() == name):
            return name
    raise OptionError(f"a conflict is answered with abort, omit or replace, not {answer!r}")


# The tables of a file compared with those of the database, before the first row is applied (changesets §6.2).


@dataclass(slots=True)
class _Fit:
    """Which tables of a file are to be changed: with the database's column names, filtered out, or missing."""

    tables: dict[str, Table] = field(default_factory=dict)
    filtered: set[str] = field(default_factory=set)
    missing: dict[str, str] = field(default_factory=dict)  # folded name -> the file's spelling


def _fit_file(
    found: Summary,
    connection: apsw.Connection,
    selected: Collection[str],
    allow_extra_columns: bool,
    skip_missing_tables: bool,
) -> _Fit:
    """What of a file is to be applied; everything that does not fit is reported in one error."""
    names = {folded(section.table.name) for section in found.sections}
    stored = sqlite.stored_tables(connection, names=names)
    fit = _Fit()
    misfits: dict[str, str] = {}
    for section in found.sections:
        name = folded(section.table.name)
        if name not in selected:
            fit.filtered.add(name)
        elif name not in stored and skip_missing_tables:
            fit.missing[name] = section.table.name
        else:
            table, known = section.table, stored.get(name)
            misfit = _misfit(table, known, allow_extra_columns) if known else "the database has no such table"
            if known is None or misfit is not None:
                misfits[table.name] = str(misfit)
            else:
                whole = known.table
                columns = whole.columns[: table.width]
                fit.tables[name] = whole if columns == whole.columns else Table(whole.name, columns, whole.primary_key)
    if misfits:
        is_there = folded(next(iter(misfits))) in stored
        raise _refusal(misfits, "schema_mismatch" if is_there else "unknown_table")
    return fit


def _selected_tables(found: Summary, tables: TableFilter | None) -> set[str]:
    """The folded names of the file's tables that are to be changed: all, those named, or those a function selects."""
    held = {folded(section.table.name): section.table.name for section in found.sections}
    if tables is None:
        return set(held)
    if callable(tables):
        return {name for name, spelling in held.items() if tables(spelling)}
    names = [tables] if isinstance(tables, str) else list(tables)
    unknown = {name: "the file has no changes of it" for name in names if folded(name) not in held}
    if unknown:
        raise _refusal(unknown, "unknown_table")
    return set(map(folded, names))


def _misfit(table: Table, stored: StoredTable, allow_extra_columns: bool) -> str | None:
    """Why changes do not fit a table of the database."""
    if not stored.has_rows:
        return "it is a virtual table in the database, which has no rows of its own"
    if stored.hides_rowid:
        return "it has no key, and a column hides its rowid"
    flags, width = stored.table.key_flags, table.width
    virtual = "it is a virtual table in the database: " if stored.kind == "virtual" else ""
    columns = f"{virtual}the file has {width} columns, the database {len(flags)}"
    if len(flags) < width:
        return columns
    if flags[:width] != table.key_flags or any(flags[width:]):
        key = sorted((flag, index) for index, flag in enumerate(table.key_flags) if flag)
        in_file = f"column{'s' * (len(key) > 1)} {', '.join(str(index + 1) for _, index in key)}"
        return f"the file's key is {in_file}, the database's is {', '.join(stored.table.primary_key)}"
    if len(flags) > width and not allow_extra_columns:
        return f"{columns} (--allow-extra-columns lets defaults fill them)"
    return (
        f"SQLite applies changes of at most {MAX_APPLIED_COLUMNS} columns" if len(flags) > MAX_APPLIED_COLUMNS else None
    )


def _refusal(misfits: dict[str, str], code: str) -> ChangesetError:
    text = "; ".join(f"table {table}: {reason}" for table, reason in misfits.items())
    return ChangesetError(f"nothing was applied: {text}", code=code, tables=list(misfits))


# Attempts to apply a file: SQLite's callbacks, and inserts that wait until rows are removed (changesets §6.5).


class _Again(Exception):  # noqa: N818 - it rolls an attempt back, it is no fault
    """Rows are in the way that later changes of the file remove."""


class _CallbackFailed(Exception):  # noqa: N818 - carries another error out of the transaction
    """A caller's function raised `error`: it is not SQLite's, and is passed on without an explanation."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


@dataclass
class _ApplyRun:
    """Applies a file in as many attempts as inserts have to be moved, mostly one; then reports what was decided.

    SQLite calls back from C, where an exception of a caller's function would be lost or turned into another one. So
    every callback is guarded: the first exception is stored, the rest of the file is passed over, and it is raised in
    the end.
    """

    connection: apsw.Connection
    open_changes: Open
    fit: _Fit
    handler: Handler
    change_filter: ChangeFilter | None
    flags: int
    is_patchset: bool
    hint: str

    def __post_init__(self) -> None:
        self._actions: dict[tuple[Reason, Kind, RowKey] | None, Action] = {}
        self._moved: set[RowKey] = set()
        # Whether every change is filtered. For whole tables SQLite calls back once a table, which is a third quicker.
        self._looks_at_changes = self.change_filter is not None
        self._start()

    def _start(self) -> None:
        self.conflicts: list[tuple[Conflict, Action]] = []
        self.decided: Counter[tuple[str, str]] = Counter()
        self.filtered: Counter[str] = Counter()
        self._failure: BaseException | None = None
        self._is_lost = False  # whether this attempt will be rolled back
        self._number = -1  # of the current change, where every change is filtered

    def apply(self) -> bytes:
        """Apply the file; what rebasing needs."""
        while True:
            self._start()
            try:
                with self._file() as self._open_current, savepoint(self.connection):
                    return self._attempt(self._open_current)
            except _Again:
                continue

    def operations(self) -> Iterator[Operation]:
        """The changes as they were to be applied."""
        is_inverted = bool(self.flags & apsw.SQLITE_CHANGESETAPPLY_INVERT)
        with self.open_changes() as stream:
            for operation in operations_of(stream, self.fit.tables.values()):
                if folded(operation.table.name) in self.fit.tables:
                    yield operation.reverse() if is_inverted else operation

    def passed_over(self) -> set[RowKey] | None:
        """The rows whose changes were omitted; not known where a function chose the changes."""
        if self.change_filter is not None:
            return None
        return {_row_key(conflict.operation) for conflict, _ in self.conflicts if conflict.operation is not None}

    def _attempt(self, open_changes: Open) -> bytes:
        filters: dict[str, Any] = {"filter": lambda name: self._guarded(self._has_table, name, False)}
        if self._looks_at_changes:
            filters = {"filter_change": lambda change: self._guarded(self._is_selected, change, False)}
        try:
            with open_changes() as stream:
                rebase_data = apsw.Changeset.apply(
                    stream.read,
                    self.connection,
                    **filters,
                    conflict=lambda reason, change: self._guarded(
                        lambda given: self._decide(_REASONS[reason], given), change, apsw.SQLITE_CHANGESET_ABORT
                    ),
                    flags=self.flags,
                    rebase=True,
                )
        except apsw.Error as error:
            self._raise_cause(error)
            raise
        if self._failure is not None:
            raise _CallbackFailed(self._failure)
        if self._is_lost:
            raise _Again
        return rebase_data or b""

    def _has_table(self, name: str) -> bool:
        return folded(name) in self.fit.tables

    def _guarded(self, call: Callable[[Any], T], change: Any, after_failure: T) -> T:
        if self._failure is None:
            try:
                return call(change)
            except BaseException as error:  # noqa: BLE001 - raised again when SQLite has returned
                self._failure = error
        return after_failure

    def _raise_cause(self, error: apsw.Error) -> None:
        if self._failure is not None:
            raise _CallbackFailed(self._failure) from None
        if self.conflicts and self.conflicts[-1][1] == "abort":
            conflict = self.conflicts[-1][0]
            raise ConflictError(
                f"nothing was applied: {conflict.describe()}{self.hint}", reason=conflict.reason, conflict=conflict
            ) from error
        if isinstance(error, apsw.SQLError | apsw.CorruptError | apsw.MisuseError | apsw.ConstraintError):
            cause = sqlite.hidden_cause(self.connection, self.fit.tables.values()) or f"SQLite says: {error}"
            raise refused("apply_failed", f"nothing was applied: {cause}") from error

    def _is_selected(self, change: Any) -> bool:
        self._number += 1
        name = folded(change.name)
        if name not in self.fit.tables:
            return False
        if self.change_filter is None:
            return True
        operation = self._operation(change)
        assert operation is not None
        if self.change_filter(operation):
            return True
        self.filtered[name] += 1
        return False

    def _decide(self, reason: Reason, change: Any) -> int:
        conflict = self._conflict(reason, change)
        if reason == "CONFLICT" and self._moves(conflict):
            self._is_lost = True
        if self._is_lost:
            return apsw.SQLITE_CHANGESET_OMIT
        if reason == "FOREIGN_KEY":
            # Leaving rows that refer to nothing is no answer.
            self.conflicts.append((conflict, "abort"))
            return apsw.SQLITE_CHANGESET_ABORT
        # The handler is called once a conflict, however many attempts the file takes.
        operation = conflict.operation
        identity = None if operation is None else (reason, operation.kind, _row_key(operation))
        action = self._actions.get(identity) or self.handler(conflict)
        if identity is not None:
            self._actions[identity] = action
        self.conflicts.append((conflict, action))
        self.decided[folded(change.name), action] += 1
        return _ACTION_CODES[action]

    def _moves(self, conflict: Conflict) -> bool:
        """Whether an insert met a row whose key is equal for SQL and different for a session, and has not moved yet."""
        operation = conflict.operation
        if operation is None or conflict.current is None:
            return False
        indexes = operation.table.key_indexes
        current = b"".join(encode_value(conflict.current[index]) for index in indexes)
        key = _row_key(operation)
        if current == key[1] or key in self._moved:
            return False
        self._moved.add(key)
        return True

    def _conflict(self, reason: Reason, change: Any) -> Conflict:
        if reason == "FOREIGN_KEY":
            return Conflict(reason, None, None, change.fk_conflicts)
        try:
            current = _row(change.conflict)
        except UnicodeDecodeError:
            current = None
        # Constraints are checked again at the end of a table, when the number of the change is no longer known.
        return Conflict(reason, self._operation(change, is_at_number=reason != "CONSTRAINT"), current)

    def _operation(self, change: Any, *, is_at_number: bool = True) -> Operation | None:
        table = self.fit.tables[folded(change.name)]
        try:
            old, new = _row(change.old), _row(change.new)
        except UnicodeDecodeError:
            if is_at_number and not self._looks_at_changes:
                self._looks_at_changes = self._is_lost = True
            if not is_at_number or self._number < 0:
                return None
            # Text that apsw cannot decode is read again from the file.
            with self._open_current() as stream:
                found = next(islice(operations_of(stream, self.fit.tables.values()), self._number, None))
            return found.reverse() if self.flags & apsw.SQLITE_CHANGESETAPPLY_INVERT else found
        return Operation(table, _KINDS[change.op], old, new, int(change.indirect), self.is_patchset)

    @contextmanager
    def _file(self) -> Iterator[Open]:
        """The file, with moved inserts at its end."""
        if not self._moved:
            yield self.open_changes
            return
        with tempfile.NamedTemporaryFile() as reordered:
            with self.open_changes() as stream:
                reordered.writelines(with_headers(self._reordered(stream)))
            reordered.flush()
            yield lambda: open_bytes(reordered.name)

    def _reordered(self, stream: IO[bytes]) -> Iterator[tuple[Header, bytes]]:
        kind = DELETE if self.flags & apsw.SQLITE_CHANGESETAPPLY_INVERT else INSERT
        waiting: list[tuple[Header, bytes]] = []
        for header, records in records_in(Window(b"", stream.read)):
            name = folded(header.table.name)
            for record in records:
                if record[0] == kind and (name, key_of(record, header)) in self._moved:
                    waiting.append((header, record))
                else:
                    yield header, record
        yield from waiting


def _row(values: tuple[Any, ...] | None) -> Row | None:
    return None if values is None else tuple(UNDEFINED if value is apsw.no_change else value for value in values)


def _row_key(operation: Operation) -> RowKey:
    """The identity of the row of an operation."""
    return folded(operation.table.name), b"".join(map(encode_value, operation.key))


# What triggers and cascades did beside the changes of a file, by a session that watches the apply (changesets §6).
#
# A file of `diff` or of a session already holds these effects. Without `as_recorded` they happen a second time, so that
# rows can become other ones than the file says: those are named.


class _Effects:
    """Finds the rows that triggers and cascades altered; where no touched table has any, nothing is watched."""

    def __init__(
        self, connection: apsw.Connection, tables: Mapping[str, Table], *, triggers: bool, actions: bool
    ) -> None:
        self._connection = connection
        triggers = triggers and bool(connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, -1))
        actions = actions and bool(connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, -1))
        queries = ["SELECT tbl_name FROM sqlite_schema WHERE type = 'trigger'"] if triggers else []
        queries += [_WITH_ACTIONS] if actions else []
        self.are_possible = any(folded(name) in tables for query in queries for (name,) in connection.execute(query))
        self._session: apsw.Session | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Record what happens to the database, where triggers or cascades can happen."""
        if not self.are_possible:
            yield
            return
        self._session = apsw.Session(self._connection, "main")
        try:
            self._session.config(apsw.SQLITE_SESSION_OBJCONFIG_ROWID, 1)
            self._session.attach()
            yield
        finally:
            self._session.close()

    def altered(self, recorded: Callable[[], Iterable[Operation]], passed_over: set[RowKey] | None) -> list[Operation]:
        """What happened to rows and is not what the file says; `passed_over` are rows that were not to be changed.

        It is None where a caller's function chose single changes: then only rows that did change are compared.
        """
        if self._session is None:
            return []
        changes = iterate(self._session.changeset(), sqlite.tables_from_database(self._connection))
        query = "SELECT name, 1 FROM pragma_table_list WHERE type = 'shadow'"
        shadows = dict(self._connection.execute(query))  # of virtual tables, which a session does not see
        done = {_row_key(change): change for change in changes if change.table.name not in shadows}
        found = []
        for change in recorded():
            key = _row_key(change)
            happened = done.pop(key, None)
            if happened is not None and not _agrees(happened, change):
                found.append(happened)
            elif happened is None and passed_over is not None and key not in passed_over and self._is_undone(change):
                found.append(change.reverse() if not change.patchset else change)
        return found + list(done.values())

    def _is_undone(self, change: Operation) -> bool:
        """Whether a change that left no trace is not there: a trigger took it back, or it was nothing new."""
        names = ", ".join(map(quoted, change.table.column_names))
        equal = "= ?" if change.table.rowid_key else "IS ? COLLATE BINARY"  # virtual tables find rowids by = alone
        where = " AND ".join(f"{quoted(key)} {equal}" for key in change.table.primary_key)
        query = f"SELECT {names} FROM {quoted(change.table.name)} WHERE {where}"  # noqa: S608
        row = self._connection.execute(query, change.key).fetchall()
        if not row or change.new is None:
            return bool(row) != (change.new is not None)
        return not _same_where_known(row[0], change.new)


def _agrees(happened: Operation, recorded: Operation) -> bool:
    if happened.new is None or recorded.new is None:
        return happened.new is recorded.new
    if any(now is not UNDEFINED and then is UNDEFINED for now, then in zip(happened.new, recorded.new, strict=False)):
        return False
    return _same_where_known(happened.new, recorded.new)


def _same_where_known(one: Row, other: Row) -> bool:
    known = ((a, b) for a, b in zip(one, other, strict=False) if a is not UNDEFINED and b is not UNDEFINED)
    return all(encode_value(a) == encode_value(b) for a, b in known)

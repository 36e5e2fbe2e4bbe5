"""One application of a file: SQLite's callbacks, and inserts that have to wait for rows to go (changesets §6.5).

SQLite calls back from C, where an exception of a caller's function would be lost or turned into another one. So every
callback runs in a guard: the first exception is kept, the rest of the file is passed over, and it is raised in the end.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any, TypeVar

import apsw

from driftline.changesets.conflicts import ACTION_CODES, REASONS, Action, Conflict, Handler, Reason
from driftline.changesets.fitting import Fit
from driftline.changesets.format import DELETE, INSERT, UNDEFINED, Row, encode_value
from driftline.changesets.names import folded
from driftline.changesets.operations import Kind, Operation
from driftline.changesets.reading import Header, RawRecord, Window, raw_records_in
from driftline.changesets.streams import Open
from driftline.changesets.summaries import iterate
from driftline.core._files import open_bytes
from driftline.errors import ChangesetError, ConflictError

ChangeFilter = Callable[[Operation], bool]
T = TypeVar("T")

_KINDS: dict[str, Kind] = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
_Place = tuple[str, tuple[bytes, ...]]  # a row: its table's folded name and its encoded key


class _Again(Exception):  # noqa: N818 - it rolls an attempt back, it is no fault
    """Rows are in the way that later changes of the file remove."""


class CallbackFailed(Exception):  # noqa: N818 - carries another error out of the transaction
    """A caller's function raised `error`: it is not SQLite's, and nobody is to explain it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class ApplyRun:
    """Applies a file in as many attempts as inserts have to be moved, mostly one; then says what was decided."""

    def __init__(
        self,
        connection: apsw.Connection,
        open_changes: Open,
        fit: Fit,
        handler: Handler,
        change_filter: ChangeFilter | None,
        *,
        flags: int,
        is_patchset: bool,
    ) -> None:
        self._connection = connection
        self._open_changes = open_changes
        self._fit = fit
        self._handler = handler
        self._change_filter = change_filter
        self._flags = flags
        self._is_patchset = is_patchset
        self._answers: dict[tuple[Reason, Kind, _Place], Action] = {}
        self._moved: set[_Place] = set()
        # Whether every change is looked at. For whole tables SQLite asks once a table, which is a third quicker.
        self._looks_at_changes = change_filter is not None
        self._start()

    def _start(self) -> None:
        self.conflicts: list[tuple[Conflict, Action]] = []
        self.decided: Counter[tuple[str, str]] = Counter()
        self.filtered: Counter[str] = Counter()
        self._failure: BaseException | None = None
        self._is_lost = False  # whether this attempt will be rolled back
        self._number = -1  # of the change that SQLite is at, where every change is looked at

    def apply(self) -> bytes:
        """Apply the file; what rebasing needs."""
        while True:
            self._start()
            try:
                with self._file() as self._open_current, self._connection:
                    return self._attempt(self._open_current)
            except _Again:
                continue

    def _attempt(self, open_changes: Open) -> bytes:
        try:
            with open_changes() as stream:
                rebase_data = apsw.Changeset.apply(
                    stream.read,
                    self._connection,
                    **self._filters(),
                    conflict=lambda reason, change: self._guarded(
                        lambda given: self._decide(REASONS[reason], given), change, apsw.SQLITE_CHANGESET_ABORT
                    ),
                    flags=self._flags,
                    rebase=True,
                )
        except apsw.Error as error:
            self._raise_cause(error)
            raise
        if self._failure is not None:
            raise CallbackFailed(self._failure)
        if self._is_lost:
            raise _Again
        return rebase_data or b""

    def _filters(self) -> dict[str, Callable[[Any], bool]]:
        if self._looks_at_changes:
            return {"filter_change": lambda change: self._guarded(self._wants, change, False)}
        return {"filter": lambda name: self._guarded(lambda given: folded(given) in self._fit.tables, name, False)}

    def _guarded(self, call: Callable[[Any], T], change: Any, after_failure: T) -> T:
        if self._failure is None:
            try:
                return call(change)
            except BaseException as error:  # noqa: BLE001 - raised again when SQLite has returned
                self._failure = error
        return after_failure

    def _raise_cause(self, error: apsw.Error) -> None:
        if self._failure is not None:
            raise CallbackFailed(self._failure) from None
        if self.conflicts and self.conflicts[-1][1] == "abort":
            conflict = self.conflicts[-1][0]
            raise ConflictError(
                f"nothing was applied: {conflict.describe()}", reason=conflict.reason, conflict=conflict
            ) from error
        if isinstance(error, apsw.SQLError | apsw.CorruptError | apsw.MisuseError | apsw.ConstraintError):
            raise ChangesetError(f"nothing was applied: SQLite says: {error}", code="apply_failed") from error

    def _wants(self, change: Any) -> bool:
        self._number += 1
        name = folded(change.name)
        if name not in self._fit.tables:
            return False
        if self._change_filter is None:
            return True
        operation = self._operation(change)
        assert operation is not None
        if self._change_filter(operation):
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
        action = self._answer(conflict)
        self.conflicts.append((conflict, action))
        self.decided[folded(change.name), action] += 1
        return ACTION_CODES[action]

    def _answer(self, conflict: Conflict) -> Action:
        """The handler's answer; it is asked once, however often the file is tried."""
        if conflict.operation is None:
            return self._handler(conflict)
        asked = (conflict.reason, conflict.operation.kind, _place(conflict.operation))
        if asked not in self._answers:
            self._answers[asked] = self._handler(conflict)
        return self._answers[asked]

    def _moves(self, conflict: Conflict) -> bool:
        """Whether an insert met a row whose key is equal for SQL and different for a session, and has not moved yet."""
        operation = conflict.operation
        if operation is None or conflict.current is None:
            return False
        indexes = operation.table.key_indexes
        current = tuple(encode_value(conflict.current[index]) for index in indexes)
        place = _place(operation)
        if current == place[1] or place in self._moved:
            return False
        self._moved.add(place)
        return True

    def _conflict(self, reason: Reason, change: Any) -> Conflict:
        if reason == "FOREIGN_KEY":
            return Conflict(reason, None, None, change.fk_conflicts)
        try:
            current = _row(change.conflict)
        except UnicodeDecodeError:
            current = None
        # Constraints are looked at again at the end of a table, when the number of the change is no longer known.
        return Conflict(reason, self._operation(change, is_at_number=reason != "CONSTRAINT"), current)

    def _operation(self, change: Any, *, is_at_number: bool = True) -> Operation | None:
        table = self._fit.tables[folded(change.name)]
        try:
            old, new = _row(change.old), _row(change.new)
        except UnicodeDecodeError:
            if is_at_number and not self._looks_at_changes:
                self._looks_at_changes = self._is_lost = True
            return self._operation_at(self._number) if is_at_number and self._number >= 0 else None
        return Operation(table, _KINDS[change.op], old, new, int(change.indirect), self._is_patchset)

    def _operation_at(self, number: int) -> Operation:
        """A change with text that apsw cannot decode, read again from the file."""
        found = next(islice(iterate(_opened_file(self._open_current), self._fit.tables.values()), number, None))
        is_inverted = bool(self._flags & apsw.SQLITE_CHANGESETAPPLY_INVERT)
        return found.reverse() if is_inverted else found

    @contextmanager
    def _file(self) -> Iterator[Open]:
        """The file, with moved inserts at its end."""
        if not self._moved:
            yield self._open_changes
            return
        with tempfile.NamedTemporaryFile() as reordered:
            with self._open_changes() as stream:
                self._write_reordered(stream, reordered)
            reordered.flush()
            yield lambda: open_bytes(reordered.name)

    def _write_reordered(self, stream: IO[bytes], out: IO[bytes]) -> None:
        kind = DELETE if self._flags & apsw.SQLITE_CHANGESETAPPLY_INVERT else INSERT
        waiting: list[tuple[Header, RawRecord]] = []
        current: Header | None = None
        for header, record in raw_records_in(Window(b"", stream.read)):
            if record.kind == kind and _raw_place(header, record) in self._moved:
                waiting.append((header, record))
            else:
                _write_record(out, header, record, header is not current)
                current = header
        for header, record in waiting:
            _write_record(out, header, record, header is not current)
            current = header


def _opened_file(open_changes: Open) -> Any:
    return open_changes()


def _row(values: tuple[Any, ...] | None) -> Row | None:
    return None if values is None else tuple(UNDEFINED if value is apsw.no_change else value for value in values)


def _place(operation: Operation) -> _Place:
    return folded(operation.table.name), tuple(map(encode_value, operation.key))


def _raw_place(header: Header, record: RawRecord) -> _Place:
    fields = record.new or record.old or []
    return folded(header.table.name), tuple(fields[index] for index in header.table.key_indexes)


def _write_record(out: IO[bytes], header: Header, record: RawRecord, is_new_section: bool) -> None:
    if is_new_section:
        out.write(header.table.header(header.marker))
    out.write(record.encode())

"""Changesets against real databases: applied by SQLite itself through apsw, whole or not at all (changesets §6).

The file is read to its end and held against the database's tables first. Then SQLite applies it inside a transaction
of our own, so that whatever goes wrong, also in a caller's function, leaves the database as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import apsw

from driftline.changesets.apply_run import ApplyRun, CallbackFailed, ChangeFilter
from driftline.changesets.conflicts import Action, Conflict, Handler, handler_of
from driftline.changesets.database import PATIENCE, Database, explained, opened
from driftline.changesets.fitting import Fit, TableFilter, fit_file, wanted_tables
from driftline.changesets.format import PATCHSET_MARKER
from driftline.changesets.names import folded
from driftline.changesets.operations import patchset_not_invertible
from driftline.changesets.streams import reopenable
from driftline.changesets.summaries import Summary, summary
from driftline.errors import ChangesetError, OptionError

if TYPE_CHECKING:
    from driftline.changesets.streams import Changes


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

    def __bytes__(self) -> bytes:
        return self.rebase_data

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, as `--format json` prints it."""
        from driftline.changesets.showing import plain_operation

        return {
            "tables": {name: asdict(report) for name, report in self.tables.items()},
            "conflicts": [
                {"reason": conflict.reason, "action": action, "change": plain_operation(conflict.operation)}
                for conflict, action in self.conflicts
            ],
            "skipped_tables": self.skipped_tables,
        }


@dataclass(frozen=True, slots=True)
class _Switches:
    """What of SQLite is switched while a file is applied (changesets §6.4)."""

    foreign_keys: bool | None
    foreign_key_actions: bool
    triggers: bool
    ignore_noop: bool
    invert: bool

    def flags(self) -> int:
        return (
            (0 if self.foreign_key_actions else apsw.SQLITE_CHANGESETAPPLY_FKNOACTION)
            | (apsw.SQLITE_CHANGESETAPPLY_IGNORENOOP if self.ignore_noop else 0)
            | (apsw.SQLITE_CHANGESETAPPLY_INVERT if self.invert else 0)
        )


def apply(
    data: Changes,
    database: Database,
    on_conflict: Action | Handler = "abort",
    *,
    tables: TableFilter | None = None,
    change_filter: ChangeFilter | None = None,
    allow_extra_columns: bool = False,
    skip_missing_tables: bool = False,
    foreign_keys: bool | None = None,
    foreign_key_actions: bool = True,
    triggers: bool = True,
    ignore_noop: bool = False,
    invert: bool = False,
    timeout: float = PATIENCE,
) -> Applied:
    """Apply a changeset or patchset to a database, whole or not at all.

    `on_conflict` is one answer for all conflicts ("replace" where SQLite allows it, "omit" elsewhere) or a function
    from a `Conflict` to an answer; an "abort" raises `ConflictError`. `tables` and `change_filter` limit what is
    touched. Foreign keys are enforced where a file name is given; a connection keeps its own setting.
    """
    switches = _Switches(foreign_keys, foreign_key_actions, triggers, ignore_noop, invert)
    handler = handler_of(on_conflict)
    try:
        with reopenable(data) as open_changes, opened(database, write=True, timeout=timeout) as connection:
            with open_changes() as stream:
                found = summary(stream)
            _check_file(found, invert)
            wanted = wanted_tables(found, tables)
            with _transaction(database, connection, switches):
                fit = fit_file(
                    found,
                    connection,
                    wanted,
                    allow_extra_columns=allow_extra_columns,
                    skip_missing_tables=skip_missing_tables,
                )
                run = ApplyRun(
                    connection,
                    open_changes,
                    fit,
                    handler,
                    change_filter,
                    flags=switches.flags(),
                    is_patchset=found.marker == PATCHSET_MARKER,
                )
                rebase_data = run.apply()
    except CallbackFailed as failed:
        raise failed.error from None
    return Applied(_reports(found, fit, run, invert), run.conflicts, list(fit.missing.values()), rebase_data)


def _check_file(found: Summary, invert: bool) -> None:
    if invert and found.marker == PATCHSET_MARKER:
        raise patchset_not_invertible()
    for section in found.sections:
        name = section.table.name.encode(errors="surrogateescape")
        try:
            name.decode()
        except UnicodeDecodeError:
            raise ChangesetError(f"the name of table {name!r} is not UTF-8", code="invalid_name") from None


@contextmanager
def _transaction(database: Database, connection: apsw.Connection, switches: _Switches) -> Iterator[None]:
    """A transaction that writes from its first moment on, or a savepoint of a connection; whole or not at all."""
    if connection is database:
        with explained("the database"), _switched(connection, switches, switches.foreign_keys), connection:
            yield
        return
    with explained(str(database)), _switched(connection, switches, switches.foreign_keys is not False):
        # A transaction that begins by reading fails at once where another connection writes.
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


@contextmanager
def _switched(connection: apsw.Connection, switches: _Switches, foreign_keys: bool | None) -> Iterator[None]:
    """Foreign keys and triggers as wanted, and afterwards as they were."""
    had_keys = bool(connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, -1))
    had_triggers = bool(connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, -1))
    keys = had_keys if foreign_keys is None else foreign_keys
    if keys != had_keys and connection.in_transaction:
        raise OptionError("foreign keys cannot be switched inside a transaction: end it, or leave them as they are")
    try:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, int(keys))
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(had_triggers and switches.triggers))
        yield
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, int(had_keys))
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(had_triggers))


def _reports(found: Summary, fit: Fit, run: ApplyRun, invert: bool) -> dict[str, TableReport]:
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

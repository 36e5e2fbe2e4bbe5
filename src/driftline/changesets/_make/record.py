"""Recording what happens to a database: a session on a connection, or all that a command does (changesets §9)."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, Self

import apsw

from driftline.changesets._format.changeset import Changeset, Patchset
from driftline.changesets._format.database import connect, copied, explained, file_name, tables_from_database
from driftline.changesets._format.table import folded
from driftline.changesets._make.databases import DiffFindings, DiffSettings, diff_to
from driftline.core import StrPath, explain_os_error
from driftline.errors import ChangesetError, OptionError


def _switch(name: str, doc: str) -> Any:
    """A property that SQLite's session has under the same name."""
    return property(lambda own: getattr(own._session, name), lambda own, to: setattr(own._session, name, to), doc=doc)


class Session:
    """Records the changes of one connection; what other connections write is not seen.

    >>> connection = apsw.Connection(":memory:")
    >>> _ = connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    >>> with Session(connection) as session:
    ...     _ = connection.execute("INSERT INTO t VALUES (1, 'a')")
    ...     session.changeset().operations
    [<insert of t: {'id': 1, 'v': 'a'}>]
    """

    def __init__(self, connection: apsw.Connection, tables: Iterable[str] | None = None, rowid: bool = True) -> None:
        self._connection = _checked(connection)
        self._session = apsw.Session(connection, "main")
        try:
            self._attach(tables, rowid)
        except BaseException:
            self._session.close()
            raise

    def _attach(self, tables: Iterable[str] | None, rowid: bool) -> None:
        self._session.config(apsw.SQLITE_SESSION_OBJCONFIG_SIZE, 1)
        if rowid:
            self._session.config(apsw.SQLITE_SESSION_OBJCONFIG_ROWID, 1)
        if tables is None:
            self._session.attach()
            return
        known = {folded(table.name) for table in tables_from_database(self._connection)}
        for name in [tables] if isinstance(tables, str) else tables:
            if folded(name) not in known:
                raise ChangesetError(f'the database has no table "{name}" to record', code="unknown_table")
            self._session.attach(name)

    def changeset(self) -> Changeset:
        """What happened so far, with old values."""
        with explained("the session"):
            return Changeset.from_bytes(self._session.changeset(), tables_from_database(self._connection))

    def patchset(self) -> Patchset:
        """What happened so far, with keys and new values."""
        with explained("the session"):
            return Patchset.from_bytes(self._session.patchset(), tables_from_database(self._connection))

    @property
    def size(self) -> int:
        """How many bytes the changeset has at most."""
        return self._session.changeset_size

    enabled = _switch("enabled", "Whether changes are recorded now.")
    indirect = _switch("indirect", "Whether changes are recorded as indirect now.")

    def close(self) -> None:
        """Stop recording."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _checked(connection: Any) -> apsw.Connection:
    if isinstance(connection, apsw.Connection):
        return connection
    file_name(connection)  # says why a connection of Python's own module will not do
    raise OptionError("a session records an open apsw.Connection; for a file there is `driftline changeset record`")


def record(
    out: IO[bytes], database: StrPath, command: Sequence[str], *, patchset: bool = False, allow_incomplete: bool = False
) -> tuple[int, DiffFindings]:
    """Run a command and write what changed in a database file meanwhile; the command's exit code.

    A copy from before is compared with what is there afterwards: the net change, with that of all other writers.
    """
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before.db"
        with connect(database) as connection, explained(str(database)):
            copied(connection, before).close()
        try:
            code = subprocess.run(list(command), check=False).returncode
        except OSError as error:
            raise explain_os_error(error, command[0]) from error
        settings = DiffSettings(patchset=patchset, allow_incomplete=allow_incomplete)
        found = diff_to(out, before, database, settings)
    return (128 - code if code < 0 else code), found

"""The changes between two database files, found by driftline itself (changesets §5).

SQLite's own function passes over tables without a key, over differences that a collation hides and over generated
columns. What a changeset cannot say is a problem and stops the diff; what it leaves out by its nature is a note.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, repeat
from operator import itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

import apsw

from driftline.changesets._apply import MAX_APPLIED_COLUMNS
from driftline.changesets._format.database import (
    REGISTER,
    STAT1,
    StoredTable,
    connect,
    copied,
    encoding_of,
    explained,
    file_name,
    file_uri,
    register_any,
    shape_differences,
    stored_tables,
    tables_from_database,
)
from driftline.changesets._format.show import LINES, operation_text, plain_operation, value_rows
from driftline.changesets._format.table import (
    CHANGESET_MARKER,
    PATCHSET_MARKER,
    UNDEFINED,
    Column,
    Operation,
    Row,
    Table,
    encode_value,
    folded,
    hash_fields,
    refused,
    session_places,
)
from driftline.changesets._make.table_diff import NEW, OLD, TablePair, if_changed, recoded
from driftline.core import DiffMembers, StrPath, explain_os_error, write_all
from driftline.errors import ChangesetError, OptionError

if TYPE_CHECKING:
    import polars as pl

    from driftline.changesets._format.changeset import Changeset, Patchset
    from driftline.changesets._make.sections import Spool

_CHUNK_ROWS = 1 << 14
_FEW_ROWS = 1 << 12
_Event = tuple[Row | None, Row | None]  # a row before and after
_COPY_BYTES = 1 << 20
_SHOWN_NAMES = 5
_UNTOUCHED = "differs; changes of rows do not touch it"
_OBJECTS = "SELECT type, name, sql FROM {}.sqlite_schema WHERE type <> 'table' AND sql IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Problem:
    """A difference that a changeset cannot say."""

    code: str
    table: str
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth knowing about a diff that is complete all the same."""

    code: str
    name: str
    text: str


@dataclass(slots=True)
class DiffFindings:
    """What was found beside the changes, and how many changes there are."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    records: int = 0
    statements: int = 0  # of a script, beside those that change rows
    tables: list[Table] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the tables that change

    def problem(self, code: str, table: StoredTable, text: str) -> None:
        self.problems.append(Problem(code, table.name, text))

    def note(self, code: str, name: str, text: str) -> None:
        self.notes.append(Note(code, name, text))


@dataclass(slots=True)
class DatabaseDiff(DiffMembers):
    """The changes that turn one database into another: a `Diff` whose changes are operations on rows.

    `changes` is their changeset or patchset; called, it iterates its operations. `problems` are differences that it
    cannot say: with them the diff is true, even where there is no operation. `notes` are worth knowing.
    """

    _formats: ClassVar[Mapping[str, str]] = {
        ".bin": "changeset", ".patchset": "patchset", ".txt": "text", ".jsonl": "jsonl", ".json": "json", ".sql": "sql",
    }  # fmt: skip

    changes: Changeset | Patchset
    problems: list[Problem]
    notes: list[Note]

    def __bytes__(self) -> bytes:
        return bytes(self.changes)

    def __iter__(self) -> Iterator[Operation]:
        return iter(self.changes)

    def __bool__(self) -> bool:
        return bool(self.problems or len(self))

    def __len__(self) -> int:
        return len(self.changes)

    @property
    def counts(self) -> dict[str, int]:
        """Operations by kind, and problems."""
        tables = self.changes.statistics().values()
        kinds = {kind: sum(table[kind] for table in tables) for kind in ("insert", "update", "delete")}
        return {**kinds, "problems": len(self.problems)}

    def to_dict(self) -> dict[str, Any]:
        """The operations, the problems and the notes as data."""
        found = {name: list(map(asdict, getattr(self, name))) for name in ("problems", "notes")}
        return {"counts": self.counts, "changes": list(map(plain_operation, self)), **found}

    def to_polars(self) -> pl.DataFrame:
        """One row for each value that an operation has before or after; keys and values as SQL literals."""
        import polars as pl

        names = ("table", "op", "key", "column", "before", "after")
        rows = [row for operation in self for row in value_rows(operation)]
        return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")

    def _headline(self) -> str:
        counts = self.counts
        problems = f", {counts['problems']} problems" if self.problems else ""
        return f"{counts['insert']:,} inserts, {counts['update']:,} updates, {counts['delete']:,} deletes{problems}"

    def _change_lines(self) -> Iterator[str]:
        return map(operation_text, self)

    def _rendered(self, format_name: str) -> Iterator[bytes]:
        """The file itself, or as `driftline changeset show` and `sql` print it."""
        if format_name in ("changeset", "patchset"):
            if format_name != type(self.changes).__name__.lower():
                raise OptionError(f"the diff was made as a {type(self.changes).__name__.lower()}", code="wrong_format")
            yield bytes(self)
            return
        for line in LINES[format_name](self):
            yield f"{line}\n".encode("utf-8", "backslashreplace")


Diff = DatabaseDiff  # its name in version 0.2


@dataclass(frozen=True, slots=True)
class DiffSettings:
    """Which tables are compared, by name or by kind, and what is written."""

    tables: Iterable[str] | None = None
    skip: Iterable[str] = ()
    shadow: bool = False
    stat: bool = False
    allow_incomplete: bool = False
    patchset: bool = False

    def selection(self, known: Collection[str]) -> Callable[[str], bool]:
        """Which tables take part, by name; `known` are the folded names that a database has, others are refused."""
        tables, skip = ([g] if isinstance(g, str) else list(g or ()) for g in (self.tables, self.skip))
        for name in (*tables, *skip):
            if folded(name) not in known:
                raise refused("unknown_table", f'no database has a table "{name}"')
        wanted, left_out = (set(map(folded, names)) for names in (tables, skip))
        return lambda name: folded(name) not in left_out and (self.tables is None or folded(name) in wanted)


def diff(
    old: StrPath,
    new: StrPath,
    *,
    tables: Iterable[str] | None = None,
    skip: Iterable[str] = (),
    shadow: bool = False,
    stat: bool = False,
    allow_incomplete: bool = False,
    patchset: bool = False,
) -> DatabaseDiff:
    """The changes that turn database file `old` into `new`.

    Differences that a changeset cannot say raise `incomplete_diff`, unless `allow_incomplete` is set.
    """
    from driftline.changesets._format.changeset import Changeset, Patchset

    settings = DiffSettings(tables, skip, shadow, stat, allow_incomplete, patchset)
    with tempfile.TemporaryFile() as out:
        found = diff_to(out, old, new, settings)
        out.seek(0)
        kind = Patchset if patchset else Changeset
        return DatabaseDiff(kind.from_bytes(out.read(), found.tables), found.problems, found.notes)


def diff_to(out: IO[bytes], old: StrPath, new: StrPath, settings: DiffSettings) -> DiffFindings:
    """Write the changes to an open file, larger than memory; nothing is written where the diff is incomplete."""
    found = DiffFindings()
    with tempfile.TemporaryFile() as sections, opened_sides(old, new) as sides:
        _Comparison(sides, found, sections, settings).run()
        if found.problems and not settings.allow_incomplete:
            raise incomplete(found)
        sections.seek(0)
        while block := sections.read(_COPY_BYTES):
            write_all(out, block)
    return found


def incomplete(found: DiffFindings) -> ChangesetError:
    """The error for what a changeset or a script would leave out."""
    names = list(dict.fromkeys(problem.table for problem in found.problems))
    shown = ", ".join(names[:_SHOWN_NAMES]) + (f" and {len(names) - _SHOWN_NAMES} more" * (len(names) > _SHOWN_NAMES))
    return ChangesetError(
        f"the diff would leave something out of {shown} (--format sql says more, "
        "--skip TABLE leaves a table out, --allow-incomplete writes the rest)",
        code="incomplete_diff",
        problems=found.problems,
        notes=found.notes,
    )


@dataclass(frozen=True, slots=True)
class Sides:
    """Both databases in one connection, and their tables by folded name."""

    connection: apsw.Connection
    encoding: str
    new: dict[str, StoredTable]
    old: dict[str, StoredTable]


@contextmanager
def _explained_apart(*paths: StrPath) -> Iterator[None]:
    """Explain an error of both databases; where one is damaged, which one."""
    names = [os.fspath(path) for path in paths]
    try:
        with explained(" and ".join(names)):
            yield
    except ChangesetError as error:
        if error.code == "corrupt_database":
            for name in names:
                with connect(name) as connection, explained(name):
                    if connection.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
                        raise refused(error.code, f"{name} is a damaged database") from error
        raise


@contextmanager
def opened_sides(old: StrPath, new: StrPath) -> Iterator[Sides]:
    """Both databases, open for reading in one transaction."""
    with ExitStack() as stack:
        old_connection = stack.enter_context(connect(old))
        connection = stack.enter_context(connect(new))
        stack.enter_context(_explained_apart(old, new))
        encoding = encoding_of(connection)
        olds = stored_tables(old_connection)
        source: StrPath = old
        if encoding_of(old_connection) != encoding and olds:
            # Databases of different encodings cannot be attached to one connection.
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            source = recoded(old_connection, olds.values(), folder / "old.db", encoding)
        connection.collation_needed(register_any)
        connection.execute(f"ATTACH ? AS {OLD}", (f"{file_uri(source)}?mode=ro",))
        connection.execute("BEGIN")
        yield Sides(connection, encoding, stored_tables(connection), olds)


def shadows_differ(sides: Sides, table: StoredTable) -> bool:
    """Whether the tables in which a virtual table stores what it has differ."""
    prefix = folded(f"{table.name}_")
    shadows = [side for name, side in sides.new.items() if side.kind == "shadow" and name.startswith(prefix)]
    pairs = ((shadow, sides.old.get(folded(shadow.name))) for shadow in shadows)
    return any(old is None or TablePair(sides.connection, new, old).contents_differ() for new, old in pairs)


@dataclass(frozen=True)
class _Comparison:
    """Compares the tables of two databases one after the other."""

    sides: Sides
    found: DiffFindings
    out: IO[bytes]
    settings: DiffSettings

    def run(self) -> None:
        """Compare all tables, or those that are wanted, except those to skip."""
        known = [*self.sides.new, *(name for name in self.sides.old if name not in self.sides.new)]
        is_whole = self.settings.tables is None
        for name in filter(self.settings.selection(known), known):
            self._compare(name, by_name=not is_whole)
        if is_whole:
            # Changes of rows do not touch views, indexes and triggers.
            new, old = (set(self.sides.connection.execute(_OBJECTS.format(side))) for side in (NEW, OLD))
            for kind, name in sorted({(kind, name) for kind, name, _ in new ^ old}):
                self.found.note("schema", f"{kind} {name}", _UNTOUCHED)

    def _compare(self, name: str, *, by_name: bool) -> None:
        new, old = self.sides.new.get(name), self.sides.old.get(name)
        either = new or old
        assert either is not None
        if either.is_internal and not (name == STAT1 and (self.settings.stat or by_name)):
            if new is None or old is None or TablePair(self.sides.connection, new, old).contents_differ():
                self.found.note("internal_table", either.name, "differs; SQLite keeps it for itself")
        elif new is None or old is None:
            side = "old" if new is None else "new"
            self.found.problem(
                f"only_in_{side}", either, f"only the {side} database has it, and changes make no tables"
            )
        elif "virtual" in (new.kind, old.kind):
            if new.kind != old.kind or new.ddl != old.ddl or shadows_differ(self.sides, new):
                self.found.note(
                    "virtual_table", new.name, "a virtual table that differs; --format sql goes by its content"
                )
        elif differences := shape_differences(old, new):
            self.found.problem("schema_mismatch", new, f"{'; '.join(differences)} (--format sql changes tables)")
        else:
            if new.ddl != old.ddl:
                self.found.note("schema", f"table {new.name}", _UNTOUCHED)
            self._compare_contents(TablePair.of(self.sides.connection, new, old, self.sides.encoding))

    def _compare_contents(self, pair: TablePair) -> None:
        if pair.new.kind == "shadow" and not self.settings.shadow:
            if pair.contents_differ():
                self.found.problem(
                    "shadow_table",
                    pair.new,
                    "a virtual table's own; --format sql goes by its content, --shadow by these rows",
                )
        elif pair.new.hides_rowid:
            if pair.contents_differ():
                self.found.problem("no_rowid", pair.new, "it has no key, and a column hides its rowid")
        else:
            if pair.null_keys_differ():
                self.found.problem("null_key", pair.new, "rows with NULL in their key differ")
            self._write_changes(pair)

    def _write_changes(self, pair: TablePair) -> None:
        try:
            counts = self._write_section(pair)
        except UnicodeDecodeError:
            pair = replace(pair, as_bytes=True)
            counts = self._write_section(pair)
        if not any(counts.values()):
            return
        self.found.tables.append(pair.new.table)
        self.found.names.append(pair.new.name)
        self.found.records += sum(counts.values())
        if counts["insert"] and counts["delete"] and (equal := pair.count_equal_keys()):
            self.found.note("equal_keys", pair.new.name, f"{equal} keys that SQL calls equal became DELETE and INSERT")
        if pair.new.is_keyed_by_rowid:
            self.found.note("rowid", pair.new.name, "no primary key: rows are told apart by their rowid")
        if names := pair.new.foreign_collations or pair.old.foreign_collations:
            self.found.note(
                "unknown_collation", pair.new.name, f"to apply it, SQLite needs {', '.join(names)}. {REGISTER}"
            )
        if pair.width > MAX_APPLIED_COLUMNS:
            self.found.note(
                "too_wide",
                pair.new.name,
                f"{pair.width} columns, of which SQLite applies at most {MAX_APPLIED_COLUMNS}",
            )

    def _write_section(self, pair: TablePair) -> dict[str, int]:
        seen = pair.new.table
        # What is stored is not converted again, so the columns have no types here.
        table = Table(seen.name, [Column(name) for name in seen.column_names], seen.primary_key)
        with ExitStack() as stack:
            marker = PATCHSET_MARKER if self.settings.patchset else CHANGESET_MARKER
            feed = _Feed(table, marker, stack, pair.may_have_null_keys)
            counts = {
                "insert": feed.add(zip(repeat(None), pair.only_in(NEW))),
                "delete": feed.add(zip(pair.only_in(OLD), repeat(None))),
                "update": feed.add(pair.changed()),
            }
            feed.write_to(self.out)
        return counts


@dataclass
class _Feed:
    """Gives events to a writer of sections, without those that have NULL in their key.

    A few thousand events are encoded one by one; the columnar writer, which takes more time to import than they take,
    is for the others.
    """

    table: Table
    marker: int
    stack: ExitStack
    may_have_null_keys: bool
    few: list[_Event] = field(default_factory=list)
    spool: Spool | None = None
    ends_with_null_key: bool = False

    def add(self, events: Iterable[_Event]) -> int:
        """Take the events in; how many there are."""
        count = 0
        rest = iter(events)
        while chunk := list(islice(rest, _CHUNK_ROWS)):
            if self.may_have_null_keys:
                chunk = self._with_whole_keys(chunk)
            count += len(chunk)
            if self.spool is None and len(self.few) + len(chunk) <= _FEW_ROWS:
                self.few += chunk
            else:
                self._encode([*self.few, *chunk])
                self.few = []
        return count

    def write_to(self, out: IO[bytes]) -> None:
        """Write the section, if there is any; for SQLite's own diff an update is one event (changesets §5.2)."""
        if self.spool is not None:
            self.spool.write_to(out, event_after_last_key=self.ends_with_null_key, keys_are_unique=True)
        elif self.few:
            operations = [self._operation(*event) for event in self.few]
            hashes = [hash_fields(map(encode_value, operation.key)) for operation in operations]
            out.write(self.table.header(self.marker))
            for place in session_places(hashes, event_after_last_key=self.ends_with_null_key):
                out.write(operations[place].encode(patchset=self.marker == PATCHSET_MARKER))

    def _operation(self, before: Row | None, after: Row | None) -> Operation:
        if before is None or after is None:
            return Operation(self.table, "insert" if before is None else "delete", before, after)
        new = tuple(map(if_changed, before, after))
        flags = self.table.key_flags
        old = tuple(b if flag or n is not UNDEFINED else n for b, n, flag in zip(before, new, flags, strict=True))
        return Operation(self.table, "update", old, new)

    def _encode(self, chunk: list[_Event]) -> None:
        from driftline.changesets._format.session import EventLog
        from driftline.changesets._make.sections import Spool

        if not chunk:
            return
        if self.spool is None:
            self.spool = self.stack.enter_context(Spool.opened(self.table, self.marker))
        log = EventLog(self.table)
        log.extend(chunk)
        self.spool.add(log.collected())

    def _with_whole_keys(self, chunk: list[_Event]) -> list[_Event]:
        """Rows without a whole key are no changes, but SQLite's hash table sees them pass."""
        rows: list[Any] = [before if after is None else after for before, after in chunk]
        indexes = self.table.key_indexes
        self.ends_with_null_key = any(rows[-1][index] is None for index in indexes)
        if not any(None in map(itemgetter(index), rows) for index in indexes):
            return chunk
        pairs = zip(chunk, rows, strict=True)
        return [event for event, row in pairs if all(row[index] is not None for index in indexes)]


# What happens to a database: a session on a connection, or all that a command does (changesets §9).


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
                raise refused("unknown_table", f'the database has no table "{name}" to record')
            self._session.attach(name)

    def changeset(self) -> Changeset:
        """What happened so far, with old values."""
        with explained("the session"):
            from driftline.changesets._format.changeset import Changeset

            return Changeset.from_bytes(self._session.changeset(), tables_from_database(self._connection))

    def patchset(self) -> Patchset:
        """What happened so far, with keys and new values."""
        with explained("the session"):
            from driftline.changesets._format.changeset import Patchset

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

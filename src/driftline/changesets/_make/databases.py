"""The changes between two database files, found by driftline itself (changesets §5).

SQLite's own function passes over tables without a key, over differences that a collation hides and over generated
columns. What a changeset cannot say is a problem and stops the diff; what it leaves out by its nature is a note.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, repeat
from operator import itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

import apsw

from driftline.changesets._apply import MAX_APPLIED_COLUMNS
from driftline.changesets._format import database as sqlite
from driftline.changesets._format.database import STAT1, StoredTable, owner_of, rebuild_statement
from driftline.changesets._format.show import LINES, append, operation_text, plain_operation, value_rows
from driftline.changesets._format.table import (
    CHANGESET_MARKER,
    FIRST_BUCKETS,
    PATCHSET_MARKER,
    UNDEFINED,
    Column,
    Kind,
    Operation,
    Row,
    Table,
    folded,
    quoted,
    refused,
)
from driftline.changesets._make.table_diff import NEW, OLD, TablePair, if_changed, recoded
from driftline.core import DiffMembers, StrPath, explain_os_error, write_all
from driftline.errors import ChangesetError, OptionError

if TYPE_CHECKING:
    import polars as pl

    from driftline.changesets._format.changeset import Changeset, Patchset

_CHUNK_ROWS = 1 << 14
# Of a changegroup in memory, about twice those of the file; larger sections pass through the disk.
_GROUP_BYTES = 100 << 20
_Event = tuple[Row | None, Row | None]  # a row before and after
_MOST_COLUMNS = 2000  # of a table of SQLite, which may have its rowid as one more here
_SHOWN_NAMES = 5
_UNTOUCHED = "differs; changes of rows do not touch it"
_BY_CONTENT = "--virtual and --format sql go by its rows"
STALE = "its index does not agree with {} in {}; build it again there: {}"
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
        ".bin": "changeset", ".changeset": "changeset", ".patchset": "patchset", ".txt": "text", ".jsonl": "jsonl",
        ".json": "json", ".sql": "sql",
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
    virtual: bool = False

    def __post_init__(self) -> None:
        if self.virtual and self.shadow:
            raise OptionError("a virtual table goes by its rows or by the tables below it: virtual or shadow, not both")

    def selection(self, known: Collection[str]) -> Callable[[str], bool]:
        """Which tables take part, by name; `known` are the folded names that a database has, others are refused."""
        tables, skip = ([g] if isinstance(g, str) else list(g or ()) for g in (self.tables, self.skip))
        for name in (*tables, *skip):
            if folded(name) not in known:
                raise refused("unknown_table", f'no database has a table "{name}"')
        selected, left_out = (set(map(folded, names)) for names in (tables, skip))
        return lambda name: folded(name) not in left_out and (self.tables is None or folded(name) in selected)


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
    virtual: bool = False,
) -> DatabaseDiff:
    """The changes that turn database file `old` into `new`.

    `virtual` compares full-text and R-tree tables by their rows, `shadow` by the tables in which they store them.
    Differences that a changeset cannot say raise `incomplete_diff`, unless `allow_incomplete` is set.
    """
    from driftline.changesets._format.changeset import Changeset, Patchset

    settings = DiffSettings(tables, skip, shadow, stat, allow_incomplete, patchset, virtual)
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
        append(out, sections)
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
        with sqlite.explained(" and ".join(names)):
            yield
    except ChangesetError as error:
        if error.code == "corrupt_database":
            for name in names:
                with sqlite.connect(name) as connection, sqlite.explained(name):
                    if connection.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
                        raise refused(error.code, f"{name} is a damaged database") from error
        raise


@contextmanager
def opened_sides(old: StrPath, new: StrPath) -> Iterator[Sides]:
    """Both databases, open for reading in one transaction."""
    with ExitStack() as stack:
        old_connection = stack.enter_context(sqlite.connect(old))
        connection = stack.enter_context(sqlite.connect(new))
        stack.enter_context(_explained_apart(old, new))
        encoding = sqlite.encoding_of(connection)
        olds = sqlite.stored_tables(old_connection)
        source: StrPath = old
        if sqlite.encoding_of(old_connection) != encoding and olds:
            # Databases of different encodings cannot be attached to one connection.
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            source = recoded(old_connection, olds.values(), folder / "old.db", encoding)
        connection.collation_needed(sqlite.register_any)
        connection.execute(f"ATTACH ? AS {OLD}", (f"{sqlite.file_uri(source)}?mode=ro",))
        connection.execute("BEGIN")
        yield Sides(connection, encoding, sqlite.stored_tables(connection), olds)


def shadows_differ(sides: Sides, table: StoredTable) -> bool:
    """Whether the tables in which a virtual table stores what it has differ."""
    kinds = ("shadow",) if table.columns else ("shadow", "table")  # SQLite recognises them by the module, if it is here
    shadows = [side for name, side in sides.new.items() if side.kind in kinds and owner_of(name, sides.new) is table]
    pairs = ((shadow, sides.old.get(folded(shadow.name))) for shadow in shadows)
    return any(old is None or TablePair(sides.connection, new, old).contents_differ() for new, old in pairs)


def unreadable(table: StoredTable) -> str:
    """Why a virtual table has no rows that can be carried over, and no table from which it is built again."""
    if not table.columns:
        return f"its module {table.module}, or what this one needs, is not here"
    if table.content == "":
        return f"a contentless {table.module} table: what it was made of is stored nowhere"
    return f"what a virtual table of module {table.module} holds cannot be read from its columns"


def changed_settings(sides: Sides, table: StoredTable) -> dict[str, Any]:
    """The settings of an FTS5 table that differ (`rank`, `automerge`, …), as NEW has them; None where it has none."""
    name = folded(f"{table.name}_config")
    if table.module != "fts5" or name not in sides.new or name not in sides.old:
        return {}
    query = f"SELECT k, v FROM {{}}.{quoted(name)} WHERE k <> 'version'"  # noqa: S608
    new, old = (dict(sides.connection.execute(query.format(side))) for side in (NEW, OLD))
    return {key: new.get(key) for key in (*old, *new) if old.get(key) != new.get(key)}


def is_current(sides: Sides, table: StoredTable, side: str = NEW) -> bool:
    """Whether a full-text index agrees with the rows of its table; FTS itself checks it, by a statement that writes."""
    name = quoted(table.name)
    check = f"INSERT INTO {name} ({name}) VALUES ('integrity-check')"  # noqa: S608
    if table.module == "fts5":
        check = f"INSERT INTO {name} ({name}, rank) VALUES ('integrity-check', 1)"  # noqa: S608
    with tempfile.TemporaryDirectory() as folder:
        copy = sqlite.copied(sides.connection, Path(folder) / "copy.db", side)
        try:
            copy.execute(check)
        except apsw.CorruptError:
            return False
        finally:
            copy.close()
    return True


@dataclass(frozen=True)
class _Comparison:
    """Compares the tables of two databases one after the other."""

    sides: Sides
    found: DiffFindings
    out: IO[bytes]
    settings: DiffSettings

    def run(self) -> None:
        """Compare all tables, or those that are selected, except those to skip."""
        known = [*self.sides.new, *(name for name in self.sides.old if name not in self.sides.new)]
        is_whole = self.settings.tables is None
        selected = list(filter(self.settings.selection(known), known))
        for name in selected:
            self._compare(name, by_name=not is_whole)
        for name in selected if self.settings.virtual else ():
            self._compare_index(name)
        if is_whole:
            # Changes of rows do not touch views, indexes and triggers.
            new, old = (set(self.sides.connection.execute(_OBJECTS.format(side))) for side in (NEW, OLD))
            for kind, name in sorted({(kind, name) for kind, name, _ in new ^ old}):
                self.found.note("schema", f"{kind} {name}", _UNTOUCHED)

    def _compare(self, name: str, *, by_name: bool) -> None:
        new, old = self.sides.new.get(name), self.sides.old.get(name)
        either = new or old
        assert either is not None
        if either.kind == "shadow" and self.settings.virtual and not by_name and self._has_readable_owner(name):
            return
        if either.is_internal and not (name == STAT1 and (self.settings.stat or by_name)):
            if new is None or old is None or TablePair(self.sides.connection, new, old).contents_differ():
                self.found.note("internal_table", either.name, "differs; SQLite keeps it for itself")
        elif new is None or old is None:
            side = "old" if new is None else "new"
            self.found.problem(
                f"only_in_{side}", either, f"only the {side} database has it, and changes make no tables"
            )
        elif "virtual" in (new.kind, old.kind):
            is_same = new.kind == old.kind and new.ddl == old.ddl
            if not self.settings.virtual:
                if not is_same or shadows_differ(self.sides, new):
                    self.found.note("virtual_table", new.name, f"a virtual table that differs; {_BY_CONTENT}")
            elif not is_same:
                self.found.problem("schema_mismatch", new, "another virtual table (--format sql changes tables)")
            elif new.has_rows:
                self._compare_contents(TablePair(self.sides.connection, new, old, self.sides.encoding))
        elif differences := sqlite.shape_differences(old, new):
            self.found.problem("schema_mismatch", new, f"{'; '.join(differences)} (--format sql changes tables)")
        else:
            if new.ddl != old.ddl:
                self.found.note("schema", f"table {new.name}", _UNTOUCHED)
            self._compare_contents(TablePair.of(self.sides.connection, new, old, self.sides.encoding))

    def _has_readable_owner(self, name: str) -> bool:
        """Whether a virtual table on both sides goes by its content, not by the tables in which it stores it."""
        owners = [owner_of(name, side) for side in (self.sides.new, self.sides.old)]
        return any(owners) and all(owner is None or owner.has_rows or owner.content is not None for owner in owners)

    def _compare_index(self, name: str) -> None:
        """Look at a virtual table whose rows are not its own, after its table: is it as `apply` will build it?"""
        new, old = self.sides.new.get(name), self.sides.old.get(name)
        if not new or not old or new.kind != "virtual" or new.ddl != old.ddl:
            return
        if settings := changed_settings(self.sides, new):
            self.found.problem("virtual_table", new, f"its settings differ: {', '.join(settings)} (--format sql)")
        if new.has_rows:
            return
        if not new.content:
            if shadows_differ(self.sides, new):
                self.found.problem("virtual_table", new, unreadable(new))
            return
        is_table = folded(new.content) in self.sides.new  # else a view
        changed = [name for name in self.found.names if not is_table or folded(name) == folded(new.content)]
        if not changed and not shadows_differ(self.sides, new):
            return
        for side in (NEW,) if changed else (NEW, OLD):
            if not is_current(self.sides, new, side):
                place = "NEW" if side == NEW else "OLD"
                self.found.problem("virtual_table", new, STALE.format(new.content, place, rebuild_statement(new.name)))
        if changed:
            self.found.note(
                "virtual_table", new.name, f"an index of {new.content}: apply --as-recorded builds it again"
            )

    def _compare_contents(self, pair: TablePair) -> None:
        if pair.new.kind == "shadow" and not self.settings.shadow:
            if pair.contents_differ():
                self.found.problem("shadow_table", pair.new, f"a virtual table's own; {_BY_CONTENT}, --shadow by these")
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
        if pair.new.is_keyed_by_rowid and pair.new.kind != "virtual":
            self.found.note("rowid", pair.new.name, "no primary key: rows are told apart by their rowid")
        if names := pair.new.foreign_collations or pair.old.foreign_collations:
            self.found.note(
                "unknown_collation", pair.new.name, f"to apply it, SQLite needs {', '.join(names)}. {sqlite.REGISTER}"
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
        marker = PATCHSET_MARKER if self.settings.patchset else CHANGESET_MARKER
        events = _Events(pair, table)
        with closing(_Group(table, marker, as_records=pair.as_bytes)) as group:
            if all(group.add(chunk) for chunk in events):
                group.write_to(self.out, sum(events.counts.values()), is_followed=events.ends_with_null_key)
                return events.counts
        from driftline.changesets._make.sections import Spool

        with Spool.opened(table, marker) as spool:
            for chunk in events:
                spool.add_rows(chunk)
            spool.write_to(self.out, event_after_last_key=events.ends_with_null_key, keys_are_unique=True)
        return events.counts


@dataclass
class _Events:
    """The changes of a table in chunks, without those that have NULL in their key; how many there are of each kind."""

    pair: TablePair
    table: Table
    counts: dict[str, int] = field(default_factory=dict)
    ends_with_null_key: bool = False

    def __iter__(self) -> Iterator[list[_Event]]:
        kinds: dict[str, Iterable[_Event]] = {
            "insert": zip(repeat(None), self.pair.only_in(NEW)),
            "delete": zip(self.pair.only_in(OLD), repeat(None)),
            "update": self.pair.changed(),
        }
        self.counts = dict.fromkeys(kinds, 0)
        for kind, events in kinds.items():
            rest = iter(events)
            while chunk := list(islice(rest, _CHUNK_ROWS)):
                if self.pair.may_have_null_keys:
                    chunk = self._with_whole_keys(chunk)
                self.counts[kind] += len(chunk)
                yield chunk

    def _with_whole_keys(self, chunk: list[_Event]) -> list[_Event]:
        """Rows without a whole key are no changes, but SQLite's hash table sees them pass."""
        rows: list[Any] = [before if after is None else after for before, after in chunk]
        indexes = self.table.key_indexes
        self.ends_with_null_key = any(rows[-1][index] is None for index in indexes)
        if not any(None in map(itemgetter(index), rows) for index in indexes):
            return chunk
        pairs = zip(chunk, rows, strict=True)
        return [event for event, row in pairs if all(row[index] is not None for index in indexes)]


class _Group:
    """SQLite's changegroup: it takes changes of single rows, and writes different keys in the order of its own diff.

    It holds them in memory. `as_records` is for text that is not UTF-8, which it takes only as encoded records.
    """

    def __init__(self, table: Table, marker: int, *, as_records: bool) -> None:
        self._table = table
        self._marker = marker
        self._before = apsw.memory_used()
        self._builder: Any = apsw.ChangesetBuilder()  # type: ignore[no-untyped-call]
        is_made_here = table.name != STAT1 and table.width <= _MOST_COLUMNS and hasattr(self._builder, "add_insert")
        self._as_records = as_records or not is_made_here
        if not self._as_records:
            names, key = (", ".join(map(quoted, columns)) for columns in (table.column_names, table.primary_key))
            scratch = apsw.Connection(":memory:")
            scratch.execute(f"CREATE TABLE {quoted(table.name)} ({names}, PRIMARY KEY ({key}))")
            self._builder.schema(scratch, "main")
            if marker == PATCHSET_MARKER:
                self._builder.config(apsw.SQLITE_CHANGEGROUP_CONFIG_PATCHSET, 1)

    def add(self, chunk: list[_Event]) -> bool:
        """Take changes in; False where they become too many for memory."""
        name, builder = self._table.name, self._builder
        for before, after in chunk:
            if before is not None and after is not None:
                before, after = self._changed(before, after)
            if self._as_records:
                kind: Kind = "insert" if before is None else "delete" if after is None else "update"
                self._add_record(Operation(self._table, kind, before, after))
            elif before is None:
                builder.add_insert(name, False, after)
            elif after is None:
                builder.add_delete(name, False, before)
            else:
                builder.add_update(name, False, before, after)
        return apsw.memory_used() - self._before < _GROUP_BYTES

    def close(self) -> None:
        self._builder.close()

    def write_to(self, out: IO[bytes], keys: int, *, is_followed: bool) -> None:
        """Write the section; `is_followed` where another event came after the last key: a full hash table grows."""
        if is_followed and keys >= FIRST_BUCKETS // 2 and keys & (keys - 1) == 0:
            # An insert and a delete of a row that no other change is about: SQLite merges them to nothing.
            nothing = (None,) * self._table.width
            self._add_record(Operation(self._table, "insert", None, nothing))
            self._add_record(Operation(self._table, "delete", nothing, None))
        self._builder.output_stream(lambda block: write_all(out, block))

    def _changed(self, before: Row, after: Row) -> tuple[Row, Row]:
        """An update as a record has it: the key, and what changed of the other columns."""
        left_out: Any = UNDEFINED if self._as_records else apsw.no_change
        new = tuple(map(if_changed, before, after, repeat(left_out)))
        flags = self._table.key_flags
        return tuple(b if flag or n is not left_out else n for b, n, flag in zip(before, new, flags, strict=True)), new

    def _add_record(self, operation: Operation) -> None:
        record = operation.encode(patchset=self._marker == PATCHSET_MARKER)
        self._builder.add(self._table.header(self._marker) + record)


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
        known = sqlite.stored_tables(self._connection)
        for name in [tables] if isinstance(tables, str) else tables:
            if folded(name) not in known or known[folded(name)].kind == "virtual" or known[folded(name)].hides_rowid:
                raise refused("unknown_table", f'the database has no table "{name}" to record')
            self._session.attach(name)

    def changeset(self) -> Changeset:
        """What happened so far, with old values."""
        with sqlite.explained("the session"):
            from driftline.changesets._format.changeset import Changeset

            return Changeset.from_bytes(self._session.changeset(), sqlite.tables_from_database(self._connection))

    def patchset(self) -> Patchset:
        """What happened so far, with keys and new values."""
        with sqlite.explained("the session"):
            from driftline.changesets._format.changeset import Patchset

            return Patchset.from_bytes(self._session.patchset(), sqlite.tables_from_database(self._connection))

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
    sqlite.file_name(connection)  # says why a connection of Python's own module will not do
    raise OptionError("a session records an open apsw.Connection; for a file there is `driftline changeset record`")


def record(
    out: IO[bytes], database: StrPath, command: Sequence[str], *, patchset: bool = False, allow_incomplete: bool = False
) -> tuple[int, DiffFindings]:
    """Run a command and write what changed in a database file meanwhile; the command's exit code.

    A copy from before is compared with what is there afterwards: the net change, with that of all other writers.
    """
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before.db"
        with sqlite.connect(database) as connection, sqlite.explained(str(database)):
            sqlite.copied(connection, before).close()
        try:
            code = subprocess.run(list(command), check=False).returncode
        except OSError as error:
            raise explain_os_error(error, command[0]) from error
        settings = DiffSettings(patchset=patchset, allow_incomplete=allow_incomplete)
        found = diff_to(out, before, database, settings)
    return (128 - code if code < 0 else code), found

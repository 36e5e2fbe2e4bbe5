"""A script of SQL statements that makes one database into another, its schema included (changesets §5.5).

The schema's statements are run on a copy of OLD, and the rows of that copy are compared with those of NEW: so the rows
that the script changes are exactly those that the schema's statements leave different.

A table whose definition differs is altered where ALTER TABLE leads to the new definition, which SQLite itself decides
on an empty copy; otherwise it is rebuilt by the procedure of sqlite.org/lang_altertable.html, section 7.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, count, groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import apsw

from driftline.changesets._format import database as sqlite, show
from driftline.changesets._format.database import ROWID, StoredTable, rebuild_statement
from driftline.changesets._format.streams import iterate
from driftline.changesets._format.table import Field, folded, quoted
from driftline.changesets._make import databases
from driftline.changesets._make.table_diff import NEW, OLD, TablePair, stored_rows
from driftline.core import StrPath, write_all

if TYPE_CHECKING:
    from driftline.changesets._format.streams import Changes

# What ALTER TABLE ADD COLUMN refuses, or checks against the rows that are there.
_NOT_ADDED = {"primary", "unique", "check", "references", "stored"}
_SCRATCH = "driftline_new"


class SchemaObject(NamedTuple):
    """A row of `sqlite_schema` that has a statement."""

    kind: str
    name: str
    table: str
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """What identifies it: kinds have their own names."""
        return self.kind, folded(self.name)

    @property
    def statement(self) -> str:
        """Its CREATE statement, ended; a comment at its end must not hide the semicolon."""
        return f"{self.text}\n;" if "--" in self.text else f"{self.text};"

    @property
    def drop(self) -> str:
        return f"DROP {self.kind.upper()} {quoted(self.name)};"

    def same(self, other: SchemaObject | None) -> bool:
        """Whether both have the same statement, whatever its blanks and comments."""
        return other is not None and self.name == other.name and _exact(self.body) == _exact(other.body)

    @property
    def body(self) -> str:
        """The statement, for tables without their name: ALTER TABLE leaves it in quotes."""
        is_table = self.kind == "table" and sqlite.scan(self.text)[1].word == "table"
        return self.text[sqlite.TableDefinition.read(self.text).name.end :] if is_table else self.text


class Schema(NamedTuple):
    """The objects of a schema in their order, and its tables by folded name.

    What belongs to SQLite itself, and what virtual tables keep for themselves, are no objects.
    """

    objects: dict[tuple[str, str], SchemaObject]
    tables: dict[str, StoredTable]

    @classmethod
    def of(cls, connection: apsw.Connection) -> Schema:
        tables = sqlite.stored_tables(connection)
        query = "SELECT type, name, tbl_name, sql FROM main.sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid"
        found = [SchemaObject(*row) for row in connection.execute(query)]
        hidden = {name for name, table in tables.items() if table.kind == "shadow" or table.is_internal}
        return cls({item.key: item for item in found if folded(item.table) not in hidden}, tables)

    def triggers(self) -> list[SchemaObject]:
        return [item for item in self.objects.values() if item.kind == "trigger"]


@dataclass(slots=True)
class SchemaPlan:
    """Statements before and after the rows are changed, and the tables that they make anew."""

    drop_views: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)  # folded names of tables and views
    changes_tables: bool = False

    def run(self, connection: apsw.Connection, first: Iterable[str] = (), last: Iterable[str] | None = None) -> None:
        """Change a database's schema, whole or not at all; without `last` only as far as rows need it."""
        connection.execute("PRAGMA legacy_alter_table = ON; PRAGMA foreign_keys = OFF")
        after = [] if last is None else [*self.after, *last]
        with sqlite.savepoint(connection):
            for statement in (*first, *self.drop_views, *self.before, *after):
                connection.execute(statement)


def plan_schema(old: Schema, new: Schema, is_selected: Callable[[SchemaObject], bool]) -> SchemaPlan:
    """How to make schema `old` into `new`, triggers aside: those depend on which rows change."""

    def is_carried_over(item: SchemaObject) -> bool:
        """Whether a table's rows stay: both sides have it, and neither is virtual."""
        tables = (old.tables.get(folded(item.name)), new.tables.get(folded(item.name)))
        return item.key in old.objects and item.key in new.objects and all(t and t.kind == "table" for t in tables)

    plan = SchemaPlan()
    expected = [item for item in new.objects.values() if is_selected(item)]
    gone = [item for item in old.objects.values() if is_selected(item) and not item.same(new.objects.get(item.key))]
    made = [item for item in expected if not item.same(old.objects.get(item.key))]
    dropped = [item for item in gone if item.kind == "table" and not is_carried_over(item)]
    tables, views = ([item for item in made if item.kind == kind] for kind in ("table", "view"))
    plan.drop_views = [item.drop for item in gone if item.kind == "view"]
    plan.before += [item.drop for item in (*(item for item in gone if item.kind == "index"), *dropped)]
    plan.changes_tables = bool(dropped or tables)
    plan.touched = {folded(item.name) for item in (*tables, *views)}
    rebuilt: set[str] = set()
    for item in tables:
        name = folded(item.name)
        if not is_carried_over(item):
            plan.before.append(item.statement)
            continue
        altered = _altered(old.tables[name], new.tables[name])
        if altered is None:
            rebuilt.add(name)
            taken = {folded(item.name) for item in (*old.objects.values(), *new.objects.values())}
            names = (f"{_SCRATCH}_{number}" if number > 1 else _SCRATCH for number in count(1))
            altered = list(
                _rebuilt(old.tables[name], new.tables[name], next(name for name in names if name not in taken))
            )
        plan.before += altered
    indexes = [item for item in expected if item.kind == "index" and (item in made or folded(item.table) in rebuilt)]
    plan.after += [item.statement for item in (*indexes, *views)]
    return plan


def _altered(old: StoredTable, new: StoredTable) -> list[str] | None:
    """ALTER TABLE statements that lead to the new definition; None where there are none."""
    before, after = old.definition, new.definition
    if old.name != new.name:
        return None
    was, now = ([folded(column.name) for column in side.columns] for side in (before, after))
    table = quoted(new.name)
    statements = [
        f"ALTER TABLE {table} DROP COLUMN {quoted(c.name)};" for c in before.columns if folded(c.name) not in now
    ]
    for column in after.columns:
        if folded(column.name) not in was:
            if not _can_be_added(column):
                return None
            statements.append(f"ALTER TABLE {table} ADD COLUMN {column.text}" + ("\n;" if "--" in column.text else ";"))
    return statements if _leads_to(before, after, statements) else None


def _can_be_added(column: sqlite.ColumnDefinition) -> bool:
    words = column.words()
    if words & _NOT_ADDED or ("not" in words and "default" not in words):
        return False
    # A default in parentheses or one of CURRENT_TIME's kind is no constant.
    for place, token in enumerate(column.parts):
        if token.word == "default":
            value = column.parts[place + 1]
            return value.text != "(" and not value.word.startswith("current_")
    return True


def _leads_to(before: sqlite.TableDefinition, after: sqlite.TableDefinition, statements: list[str]) -> bool:
    """Whether SQLite arrives at the new definition by ALTER TABLE, tried on an empty table."""
    scratch = apsw.Connection(":memory:")
    scratch.collation_needed(sqlite.register_any)
    try:
        scratch.execute(f"PRAGMA legacy_alter_table = ON; {before.text}")
        for statement in statements:
            scratch.execute(statement)
        (text,) = next(
            scratch.execute("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (before.name.name,))
        )
    except (apsw.Error, StopIteration):
        return False
    return _exact(text[sqlite.TableDefinition.read(text).name.end :]) == _exact(after.text[after.name.end :])


def _rebuilt(old: StoredTable, new: StoredTable, scratch: str) -> Iterator[str]:
    """A table with another definition: rows that it takes are carried over, the others come with the rows of NEW."""
    columns = _carried_columns(old, new)
    names = [folded(column.name) for column in old.columns]
    targets, sources = ([quoted(pair[side]) for pair in columns] for side in (1, 0))
    if not old.without_rowid and new.is_keyed_by_rowid and not new.hides_rowid and ROWID not in names:
        targets, sources = [ROWID, *targets], [ROWID, *sources]
    where = " AND ".join(_conditions(new, columns)) or "1"
    select = f"SELECT {', '.join(sources)} FROM"
    insert = f"({', '.join(targets)}) {select}" if columns else None
    if new.definition.names_itself:
        # Its expressions would not compile under another name, so the old rows wait in a copy.
        yield f"CREATE TEMP TABLE {scratch} AS {select.replace(ROWID, f'{ROWID} AS {ROWID}')} main.{quoted(old.name)};"
        yield f"DROP TABLE {quoted(old.name)};"
        yield SchemaObject("table", new.name, new.name, new.text).statement
        if insert:
            yield f"INSERT OR IGNORE INTO {quoted(new.name)} {insert} temp.{scratch} WHERE {where};"
        yield f"DROP TABLE temp.{scratch};"
        return
    yield SchemaObject("table", scratch, scratch, new.definition.renamed(scratch)).statement
    if insert:
        yield f"INSERT OR IGNORE INTO {scratch} {insert} {quoted(old.name)} WHERE {where};"
    yield f"DROP TABLE {quoted(old.name)};"
    yield f"ALTER TABLE {scratch} RENAME TO {quoted(new.name)};"


def _carried_columns(old: StoredTable, new: StoredTable) -> list[tuple[str, str]]:
    """Pairs of an old and a new column: of the same name, or in the same place where only the name differs."""
    known = {folded(column.name): column.name for column in old.columns}
    names = {folded(column.name) for column in new.columns}
    renamed = len(old.columns) == len(new.columns)
    pairs = []
    for place, column in enumerate(new.columns):
        if folded(column.name) in known:
            pairs.append((known[folded(column.name)], column.name))
        elif renamed and folded(old.columns[place].name) not in names:
            pairs.append((old.columns[place].name, column.name))
    # A default of another type than that of its column is an error of STRICT tables which nothing passes over.
    return [] if new.strict and len(pairs) < len(new.columns) else pairs


def _conditions(new: StoredTable, columns: list[tuple[str, str]]) -> Iterator[str]:
    """Which rows the new table takes as they are; OR IGNORE passes over those that break other constraints.

    Versions of SQLite print reals and read long numbers differently, so values that would be converted come as
    literals of NEW.
    """
    for source, target in columns:
        column = new.columns[[folded(c.name) for c in new.columns].index(folded(target))]
        affinity = column.affinity.value
        kind = f"typeof({quoted(source)})"
        if new.primary_key and new.key_is_rowid and folded(target) == folded(new.primary_key[0]):
            yield f"{kind} = 'integer'"
        elif new.strict and folded(column.declared_type) != "any":
            yield f"{kind} IN ('null', {_STRICT_TYPES[affinity]})"
        elif affinity == "TEXT":
            yield f"{kind} <> 'real'"
        elif affinity != "BLOB":
            yield f"({kind} <> 'text' OR length({quoted(source)}) < 16 AND {quoted(source)} NOT GLOB '*[^0-9]*')"


_STRICT_TYPES = {"INTEGER": "'integer'", "REAL": "'real', 'integer'", "TEXT": "'text'", "BLOB": "'blob'"}


def _exact(text: str) -> list[Any]:
    return [token.text for token in sqlite.scan(text)]


PRAGMAS = ("user_version", "application_id")
_OPENING = """\
-- Completely or not at all; run it with: sqlite3 -bail DATABASE < THIS_FILE
PRAGMA foreign_keys = OFF;
BEGIN IMMEDIATE;
"""


def script_to(out: IO[bytes], old: StrPath, new: StrPath, settings: databases.DiffSettings) -> databases.DiffFindings:
    """Write the script to an open file; nothing is written where the databases are equal or the script incomplete."""
    found = databases.DiffFindings()
    with ExitStack() as stack:
        rows = stack.enter_context(tempfile.TemporaryFile())
        target = stack.enter_context(sqlite.connect(new))
        source = stack.enter_context(sqlite.connect(old))
        with sqlite.explained(str(old)):
            old_schema = Schema.of(source)
        with sqlite.explained(str(new)):
            new_schema = Schema.of(target)
        selects = settings.selection({*new_schema.tables, *old_schema.tables})
        plan = plan_schema(old_schema, new_schema, lambda item: selects(item.table))
        migrated = _migrated(stack, source, plan, old)
        sides = stack.enter_context(databases.opened_sides(migrated, new))
        touched = set(plan.touched)
        with sqlite.explained(str(new)):
            script = _Rows(sides, found, rows, selects)
            touched |= script.run()

            # Triggers go first and come last: rows arrive as they are in NEW, without any further effect.
            def moves(item: SchemaObject, other: SchemaObject | None) -> bool:
                is_touched = plan.changes_tables or folded(item.table) in touched
                return selects(item.table) and (is_touched or not item.same(other))

            dropped = [item.drop for item in old_schema.triggers() if moves(item, new_schema.objects.get(item.key))]
            made = [item.statement for item in new_schema.triggers() if moves(item, old_schema.objects.get(item.key))]
            rest = list(_pragmas(source, target)) + list(_sequences(sides)) if settings.tables is None else []
            rest = [*script.rebuilds, *rest]
        if found.problems and not settings.allow_incomplete:
            raise databases.incomplete(found)
        schema = [*dropped, *plan.drop_views, *plan.before]
        after = [*plan.after, *made]
        if not (schema or after or rest or found.records):
            return found
        found.statements = len(schema) + len(after) + len(rest)
        lines = (*(["PRAGMA legacy_alter_table = ON;"] if plan.before else []), *schema)
        write_all(out, (_OPENING + "".join(f"{line}\n" for line in lines)).encode(errors="surrogateescape"))
        show.append(out, rows)
        closing = [*after, *rest, *_checks(target, found), "COMMIT;"]
        if plan.before:
            closing.insert(-1, "PRAGMA legacy_alter_table = OFF;")
        for line in closing:
            show.write_line(out, line)
    return found


def write_sql(out: IO[bytes], data: Changes, database: sqlite.Database) -> None:
    """Write a changeset or patchset as a script for a database of this schema, in an order that runs.

    Triggers and cascades are off, as for `as_recorded`: the file holds what they did.
    """
    with sqlite.connect(database) as connection, sqlite.explained("the database"), tempfile.TemporaryFile() as rows:
        schema = Schema.of(connection)
        literal = show.script_literals(sqlite.encoding_of(connection))
        touched = set()
        changes = iterate(data, sqlite.tables_from_database(connection))
        for name, operations in groupby(changes, key=lambda operation: folded(operation.table.name)):
            first = next(operations)
            show.check_named(first.table)
            touched.add(name)
            statements = _statements_of(connection, "main", schema.tables[name], literal)
            statements.write_to(rows, ((change.old, change.new) for change in chain([first], operations)))
        if not touched:
            return
        triggers = [item for item in schema.triggers() if folded(item.table) in touched]
        write_all(out, _OPENING.encode())
        for trigger in triggers:
            show.write_line(out, trigger.drop)
        show.append(out, rows)
        found = databases.DiffFindings()
        for line in (*(trigger.statement for trigger in triggers), *_checks(connection, found, "<="), "COMMIT;"):
            show.write_line(out, line)


def _statements_of(
    connection: apsw.Connection, schema: str, table: StoredTable, literal: Callable[[Field], str]
) -> show.RowStatements:
    collations = {folded(name) for name in (*table.collations, *table.key_collations)}
    unique = sqlite.unique_columns(connection, schema, table)
    return show.RowStatements(table.table, literal, unique, exact=not collations <= {"binary"})


def _migrated(stack: ExitStack, source: apsw.Connection, plan: SchemaPlan, old: StrPath) -> StrPath:
    """OLD with its new schema: a copy in which the plan was run, or the file itself where its tables stay."""
    if not plan.before:
        return old
    path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "migrated.db"
    with sqlite.explained(str(old)):
        copy = sqlite.copied(source, path)
        copy.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        copy.execute("PRAGMA synchronous = OFF")
        plan.run(copy)
        copy.close()
    return path


def _pragmas(source: apsw.Connection, target: apsw.Connection) -> Iterator[str]:
    for name in PRAGMAS:
        before, after = (next(connection.execute(f"PRAGMA {name}"))[0] for connection in (source, target))
        if before != after:
            yield f"PRAGMA {name} = {after};"


def _sequences(sides: databases.Sides) -> Iterator[str]:
    """The counters of AUTOINCREMENT, which follow the rows that were inserted and not those of NEW."""
    name = "sqlite_sequence"
    if name not in sides.new:
        return
    query = "SELECT name, seq FROM {}.sqlite_sequence ORDER BY name"
    rows = sides.connection.execute(query.format(NEW)).fetchall()
    if name not in sides.old:
        yield "CREATE TABLE driftline_sequence (id INTEGER PRIMARY KEY AUTOINCREMENT);\nDROP TABLE driftline_sequence;"
    elif rows == sides.connection.execute(query.format(OLD)).fetchall():
        return
    yield "DELETE FROM sqlite_sequence;"
    for row in rows:
        name, number = map(show.sql_literal, row)
        yield f"INSERT INTO sqlite_sequence (name, seq) VALUES ({name}, {number});"  # noqa: S608


def _checks(target: apsw.Connection, found: databases.DiffFindings, sign: str = "=") -> Iterator[str]:
    """Statements that roll everything back where more foreign keys are broken than in NEW itself."""
    try:
        broken = len(target.execute("PRAGMA foreign_key_check").fetchall())
    except apsw.SQLError as error:
        found.note("foreign_keys", "NEW", f"its foreign keys cannot be checked: {error}")
        return
    if broken:
        found.note("foreign_keys", "NEW", f"{broken} rows of it refer to rows that are not there")
    yield f"CREATE TEMP TABLE {show.CHECK} (broken CHECK (broken {sign} {broken}));"
    yield f"INSERT OR ROLLBACK INTO temp.{show.CHECK} SELECT count(*) FROM pragma_foreign_key_check;"  # noqa: S608
    yield f"DROP TABLE temp.{show.CHECK};"


class _Rows:
    """Writes the statements that make the rows of the migrated database into those of NEW."""

    def __init__(
        self,
        sides: databases.Sides,
        found: databases.DiffFindings,
        out: IO[bytes],
        selects: Callable[[str], bool],
    ) -> None:
        self._sides = sides
        self._connection = sides.connection
        self._found = found
        self._out = out
        self._selects = selects
        self._literal = show.script_literals(sides.encoding)
        self.rebuilds: list[str] = []

    def run(self) -> set[str]:
        """Write all statements; the folded names of the tables whose rows change."""
        touched = set()
        for name, new in self._sides.new.items():
            old = self._sides.old.get(name)
            if new.is_internal or new.kind == "shadow" or old is None or not self._selects(name):
                continue
            if changes := self._plain(new, old) if new.has_rows else 0:
                touched.add(name)
                self._found.records += changes
                self._found.names.append(new.name)
            if new.kind == "virtual":
                self._index(new)
        return touched

    def _plain(self, new: StoredTable, old: StoredTable) -> int:
        pair = TablePair.of(self._connection, new, old, self._sides.encoding)
        if new.hides_rowid:
            return self._replace_rows(new, "1") if pair.contents_differ() else 0
        if pair.copied:
            names = ", ".join(new.foreign_collations)
            self._found.note("unknown_collation", new.name, f"to run the script, SQLite needs {names}")
        start = self._out.tell()
        try:
            count = self._write_changes(pair)
        except UnicodeDecodeError:
            self._out.seek(start)
            self._out.truncate()
            count = self._write_changes(replace(pair, as_bytes=True))
        if pair.null_keys_differ():
            count += self._replace_rows(new, " OR ".join(f"{quoted(name)} IS NULL" for name in new.primary_key))
        return count

    def _write_changes(self, pair: TablePair) -> int:
        statements = _statements_of(self._connection, OLD, pair.old, self._literal)
        return statements.write_to(self._out, pair.changes())

    def _replace_rows(self, table: StoredTable, where: str) -> int:
        """Rows that no key identifies: all of them are deleted, and those of NEW are inserted."""
        name = quoted(table.name)
        names = ", ".join(quoted(column.name) for column in table.columns)
        show.write_line(self._out, f"DELETE FROM {name} WHERE {where};")  # noqa: S608
        count = 1
        for row in stored_rows(self._connection, table, where, self._sides.encoding):
            show.write_line(self._out, f"INSERT INTO {name} ({names}) VALUES ({', '.join(map(self._literal, row))});")  # noqa: S608
            count += 1
        return count

    def _index(self, table: StoredTable) -> None:
        """What a virtual table has beside its rows; an index of another table's rows is built again from them."""
        name = quoted(table.name)
        for key, value in databases.changed_settings(self._sides, table).items():
            if value is None:
                self._found.problem("virtual_table", table, f"its setting {key} is gone, which no statement does")
            values = f"{show.sql_literal(key)}, {show.sql_literal(value)}"
            self.rebuilds.append(f"INSERT INTO {name} ({name}, rank) VALUES ({values});")  # noqa: S608
        if table.has_rows or not databases.shadows_differ(self._sides, table):
            return
        if not table.content:
            self._found.problem("virtual_table", table, databases.unreadable(table))
        elif not databases.is_current(self._sides, table):
            self._found.problem(
                "virtual_table", table, databases.STALE.format(table.content, "NEW", rebuild_statement(table.name))
            )
        else:
            self.rebuilds.append(rebuild_statement(table.name))

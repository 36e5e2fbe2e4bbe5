"""The statements that turn one schema into another: what to drop, create, alter and rebuild, in an order that runs.

A table whose definition differs is altered where ALTER TABLE leads to the wanted definition, which SQLite itself
tells on an empty copy; otherwise it is rebuilt by the procedure of sqlite.org/lang_altertable.html, section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import apsw

from driftline.changesets._format.database import (
    ROWID,
    ColumnDefinition,
    StoredTable,
    TableDefinition,
    register_any,
    savepoint,
    scan,
    stored_tables,
)
from driftline.changesets._format.encoding import folded, quoted

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
        """The statement that removes it."""
        return f"DROP {self.kind.upper()} {quoted(self.name)};"

    def same(self, other: SchemaObject | None) -> bool:
        """Whether both have the same statement, whatever its blanks and comments."""
        return other is not None and self.name == other.name and _exact(self.body) == _exact(other.body)

    @property
    def body(self) -> str:
        """The statement, for tables without their name: ALTER TABLE leaves it in quotes."""
        is_table = self.kind == "table" and scan(self.text)[1].word == "table"
        return self.text[TableDefinition.read(self.text).name.end :] if is_table else self.text


class Schema(NamedTuple):
    """The objects of a schema in their order, and its tables by folded name.

    What belongs to SQLite itself, and what virtual tables keep for themselves, are no objects.
    """

    objects: dict[tuple[str, str], SchemaObject]
    tables: dict[str, StoredTable]

    @classmethod
    def of(cls, connection: apsw.Connection) -> Schema:
        """The schema of a database."""
        tables = stored_tables(connection)
        query = "SELECT type, name, tbl_name, sql FROM main.sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid"
        found = [SchemaObject(*row) for row in connection.execute(query)]
        hidden = {name for name, table in tables.items() if table.kind == "shadow" or table.is_internal}
        return cls({item.key: item for item in found if folded(item.table) not in hidden}, tables)

    def triggers(self) -> list[SchemaObject]:
        """The triggers among the objects."""
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
        with savepoint(connection):
            for statement in (*first, *self.drop_views, *self.before, *after):
                connection.execute(statement)


def plan_schema(old: Schema, new: Schema, is_wanted: Callable[[SchemaObject], bool]) -> SchemaPlan:
    """How to make schema `old` into `new`, triggers aside: those depend on which rows change."""

    def is_carried_over(item: SchemaObject) -> bool:
        """Whether a table's rows stay: both sides have it, and neither is virtual."""
        tables = (old.tables.get(folded(item.name)), new.tables.get(folded(item.name)))
        return item.key in old.objects and item.key in new.objects and all(t and t.kind == "table" for t in tables)

    plan = SchemaPlan()
    wanted = [item for item in new.objects.values() if is_wanted(item)]
    gone = [item for item in old.objects.values() if is_wanted(item) and not item.same(new.objects.get(item.key))]
    made = [item for item in wanted if not item.same(old.objects.get(item.key))]
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
    indexes = [item for item in wanted if item.kind == "index" and (item in made or folded(item.table) in rebuilt)]
    plan.after += [item.statement for item in (*indexes, *views)]
    return plan


def _altered(old: StoredTable, new: StoredTable) -> list[str] | None:
    """ALTER TABLE statements that lead to the wanted definition; None where there are none."""
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


def _can_be_added(column: ColumnDefinition) -> bool:
    words = column.words()
    if words & _NOT_ADDED or ("not" in words and "default" not in words):
        return False
    # A default in parentheses or one of CURRENT_TIME's kind is no constant.
    for place, token in enumerate(column.parts):
        if token.word == "default":
            value = column.parts[place + 1]
            return value.text != "(" and not value.word.startswith("current_")
    return True


def _leads_to(before: TableDefinition, after: TableDefinition, statements: list[str]) -> bool:
    """Whether SQLite arrives at the wanted definition by ALTER TABLE, tried on an empty table."""
    scratch = apsw.Connection(":memory:")
    scratch.collation_needed(register_any)
    try:
        scratch.execute(f"PRAGMA legacy_alter_table = ON; {before.text}")
        for statement in statements:
            scratch.execute(statement)
        (text,) = next(
            scratch.execute("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (before.name.name,))
        )
    except (apsw.Error, StopIteration):
        return False
    return _exact(text[TableDefinition.read(text).name.end :]) == _exact(after.text[after.name.end :])


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
    return [token.text for token in scan(text)]
